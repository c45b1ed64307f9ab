//! Tests of the whole document on made-up records.

mod synthetic;

use lathe_record::paired::Verdict;
use lathe_record::record::{Ab, Bench, BenchCase, Body, OpTotal, Profile, Record, Selected};
use lathe_record::{Ratio, Word};

use super::crossover::Crossover;
use super::{profile, render};

fn named(records: Vec<Record>) -> Vec<(String, Record)> {
    let name = |(i, record)| (format!("run-{i}.json"), record);
    records.into_iter().enumerate().map(name).collect()
}

fn inner(record: &mut Record) -> &mut Profile {
    match &mut record.body {
        Body::Profile(profile) => profile,
        _ => panic!("not a profile"),
    }
}

/// Every tag closed in order, attributes quoted, ids unique, links resolved, nothing fetched,
/// no number that is none.
fn assert_sound(html: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut ids: Vec<&str> = Vec::new();
    let mut rest = html.strip_prefix("<!DOCTYPE html>").expect("doctype");
    while let Some(start) = rest.find('<') {
        assert!(!rest[..start].contains('>'), "stray > in {:?}", &rest[..start]);
        let end = start + rest[start..].find('>').expect("unclosed tag");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "before {:?}", &rest[..rest.len().min(80)]);
            continue;
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.split([' ', '/']).next().expect("a name");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "{tag}");
        // Outside quotes there are only names and `=`.
        for bare in tag[name.len()..].split('"').step_by(2) {
            assert!(bare.chars().all(|c| c.is_ascii_alphabetic() || " =-/12".contains(c)), "{tag}");
        }
        for attribute in ["src=", "style=", " on"] {
            assert!(!tag.split('"').step_by(2).any(|p| p.contains(attribute)), "{tag}");
        }
        if let Some(id) = tag.split(" id=\"").nth(1).and_then(|t| t.split('"').next()) {
            assert!(!ids.contains(&id), "{id} twice");
            ids.push(id);
        }
        if !tag.ends_with('/') && name != "meta" {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    for link in html.split("href=\"").skip(1).filter_map(|t| t.split('"').next()) {
        assert!(link.strip_prefix('#').is_some_and(|id| ids.contains(&id)), "{link}");
    }
    let banned = ["http", "<script", "url(", "@import", "NaN", "inf\"", ">inf", "<link", "<img"];
    for word in banned {
        assert!(
            !html.contains(word),
            "{word} near {:?}",
            html.split(word).next().map(|h| {
                h.chars().rev().take(60).collect::<String>().chars().rev().collect::<String>()
            })
        );
    }
}

#[test]
fn a_profile_of_256_and_of_1024_steps_stays_small() {
    let sizes = [256, 1024].map(|steps| {
        let record = synthetic::profile(steps);
        let Body::Profile(body) = &record.body else { panic!("not a profile") };
        assert_eq!(body.ops.len(), 369);
        let html = render(&named(vec![record]));
        assert_sound(&html);
        assert!(html.len() < 500_000, "{steps} steps: {} bytes", html.len());
        html.len()
    });
    // Aggregated: four times the steps are not twice the file.
    assert!(sizes[1] < 2 * sizes[0], "{sizes:?}");
}

#[test]
fn everything_asked_for_is_there() {
    let html = render(&named(vec![synthetic::profile(512)]));
    for part in [
        "Decode profile: gemma3-1b bf16",
        "tok/s",
        "ms a token",
        "exceeds a real step",
        "Decode time by operation",
        "total over 512 steps",
        "other (11)",
        "Attention crossover",
        "Throughput by token",
        "over floor",
        "ffn_gate_up",
        "Roofline",
        "copy 4312",
        "CPU record",
        "Selection",
        "subgroup_wide",
        "Environment",
        "NVIDIA 580.159",
        "<title>step 0–4, position 128–132",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("class=\"record\""), "one record needs no contents");
}

#[test]
fn several_records_have_contents_and_equal_bytes_each_time() {
    let records = || {
        named(vec![
            synthetic::profile(64),
            synthetic::bench(),
            synthetic::ab(Verdict::Faster, 0.742, 0.012),
            synthetic::ab(Verdict::Inconclusive, 1.012, 0.02),
        ])
    };
    let html = render(&records());
    assert_sound(&html);
    assert_eq!(html, render(&records()));
    assert_eq!(html.matches("<section id=").count(), 4);
    for part in [
        "id=\"r3\"",
        "href=\"#all-all-comparisons\"",
        "All comparisons",
        "takes 25.8 % less time than subgroup_rows",
        "cannot tell",
        "not settled",
        "wall clock",
        "above the bandwidth",
        "A against itself",
    ] {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn strings_of_a_record_stay_text() {
    const EVIL: &str = "</title></style><script>alert('1')</script>\"onload=\"x\u{202e}&\u{0}";
    let mut record = synthetic::profile(4);
    let body = inner(&mut record);
    body.model = EVIL.into();
    body.kv = EVIL.into();
    for op in &mut body.ops {
        (op.op, op.kernel) = (EVIL.into(), format!("attention gemv {EVIL}"));
    }
    for op in &mut body.by_op {
        (op.op, op.kernel) = (EVIL.into(), EVIL.into());
    }
    let line = |s: &str| Selected {
        op: s.into(),
        kernel: s.into(),
        variant: s.into(),
        shape: s.into(),
        why: s.into(),
        ..Selected::default()
    };
    body.selected = vec![line(EVIL), line(EVIL)];
    let mut environment = synthetic::environment();
    environment.adapter = EVIL.into();
    environment.commit = Some(EVIL.into());
    environment.driver = EVIL.into();
    environment.software = true;
    record.environment = environment;
    let mut bench = synthetic::bench();
    if let Body::Bench(Bench { cases, failed, .. }) = &mut bench.body {
        failed.push(EVIL.into());
        for case in cases {
            (case.kernel, case.variant, case.shape) = (EVIL.into(), EVIL.into(), EVIL.into());
            let evil = || EVIL.to_owned();
            (case.clock, case.flags) = (Word::Other(evil()), vec![Word::Other(evil())]);
        }
    }
    let mut ab = synthetic::ab(Verdict::Same, 1.0, 0.1);
    if let Body::Ab(body) = &mut ab.body {
        body.verdict = Word::Other(EVIL.into());
        (body.kernel, body.shape) = (EVIL.into(), EVIL.into());
        (body.a, body.b) = (EVIL.into(), EVIL.into());
    }
    assert!(render(&[(String::new(), bench.clone())]).contains("No result: "));
    for records in [vec![record.clone()], vec![record, bench, ab.clone(), ab]] {
        let records = records.into_iter().map(|r| (EVIL.to_owned(), r)).collect::<Vec<_>>();
        let html = render(&records);
        assert_sound(&html);
        assert!(html.contains("&lt;script&gt;"));
        assert!(!html.contains('\u{202e}') && !html.contains('\0'));
    }
}

#[test]
fn a_comparison_is_named_without_parameters_at_their_defaults() {
    let mut ab = synthetic::ab(Verdict::Same, 1.0, 0.1);
    let Body::Ab(body) = &mut ab.body else { panic!("no comparison") };
    body.kernel = "gemv".into();
    body.shape =
        "ROWS=1152,K=640,WEIGHT=f16,ACT_FORMAT=f32,Y_OFFSET=0,Y_AFTER=0,N_VECTORS=1,BETA=0".into();
    let html = render(&[("one.json".into(), ab)]);
    assert!(html.contains("A/B: gemv ROWS=1152, K=640, WEIGHT=f16<"), "{html}");
}

#[test]
fn empty_and_unsound_records_render() {
    assert_sound(&render(&[]));
    let empty = Record::new(synthetic::environment(), Body::Bench(Bench::default()));
    let mut records = vec![empty];
    for steps in [0, 1, 2, 3, 7, 96, 97, 320, 321] {
        let mut record = synthetic::profile(steps.max(1));
        let body = inner(&mut record);
        body.steps.truncate(steps);
        body.unprofiled.step_ms.truncate(steps);
        records.push(record);
    }
    let mut bare = synthetic::profile(1);
    let body = inner(&mut bare);
    (body.ops, body.steps, body.by_op, body.selected) = Default::default();
    body.unprofiled.step_ms.clear();
    records.push(bare);
    for value in [f64::NAN, f64::INFINITY, 0.0, -1.0, f64::MAX] {
        records.extend(filled_with(value));
    }
    for record in &records {
        assert_sound(&render(&named(vec![record.clone()])));
    }
    assert_sound(&render(&named(records)));
}

/// A record of each kind whose every number is `value`.
fn filled_with(value: f64) -> [Record; 3] {
    let mut record = synthetic::profile(12);
    let environment = &mut record.environment;
    (environment.copy_gb_s, environment.canary_drift) = (Some(value), Some(value));
    environment.timestamp_quantum_ns = Some(value);
    let body = inner(&mut record);
    body.serialised_ms_per_token = value;
    body.unprofiled.decode_tok_s = value;
    body.unprofiled.gpu_ms_per_token = Some(value);
    body.unprofiled.step_ms.fill(value);
    for step in &mut body.steps {
        step.us.fill(value);
        step.us.truncate(200);
        (step.record_ms, step.submit_ms, step.wait_ms) = (value, value, value);
    }
    for op in &mut body.by_op {
        *op = OpTotal {
            ms: value,
            percent: value,
            bytes: value,
            floor_ms: Some(value),
            over_floor: Some(value),
            launch_floor_ms: Some(value),
            ..op.clone()
        };
    }
    let mut bench = synthetic::bench();
    bench.environment = record.environment.clone();
    if let Body::Bench(Bench { cases, .. }) = &mut bench.body {
        for case in cases {
            let mut cold = case.cold.clone();
            (cold.median_us, cold.noise) = (value, value);
            *case = BenchCase {
                warm: cold.clone(),
                cold,
                bytes: value,
                gb_s: value,
                fraction_of_copy: value,
                ..case.clone()
            };
        }
    }
    let mut ab = synthetic::ab(Verdict::Same, 1.0, 0.01);
    if let Body::Ab(body) = &mut ab.body {
        let ratio = Ratio { median: value, low: value, high: value };
        let (a_us, b_us) = (value, value);
        *body = Ab { a_us, b_us, ratio, control: ratio, indifference: value, ..body.clone() };
    }
    [record, bench, ab]
}

/// A profile whose attention grows by a microsecond a step from `attention` on, beside products
/// of a constant time.
fn crossing(steps: usize, attention: f64, products: [(&str, f64); 3]) -> Record {
    let mut record = synthetic::profile(steps);
    let body = inner(&mut record);
    let at = |op: &str| body.ops.iter().position(|o| o.op == op).expect("an operation");
    let (attends, products) = (at("attention"), products.map(|(op, us)| (at(op), us)));
    for (i, step) in body.steps.iter_mut().enumerate() {
        step.us.fill(0.0);
        step.us[attends] = attention + i as f64;
        for (product, us) in products {
            step.us[product] = us;
        }
    }
    record
}

#[test]
fn the_crossover_is_the_first_step_where_attention_is_not_below() {
    let products = [("ffn_down", 3.0), ("lm_head", 7.0), ("ffn_gate_up", 5.0)];
    let mut record = crossing(600, 4.0, products);
    let found = Crossover::of(inner(&mut record)).expect("both are there");
    assert_eq!((found.matmul.as_str(), found.first), ("lm_head", Some(3)));
    let html = render(&named(vec![record.clone()]));
    assert!(html.contains("at step 3 (position 131); from there on it stays so to the end."));
    let body = inner(&mut record);
    let attention = body.ops.iter().position(|op| op.op == "attention").expect("an operation");
    for step in &mut body.steps {
        step.us[attention] = 1.0;
    }
    assert_eq!(Crossover::of(body).expect("both are there").first, None);
    assert!(render(&named(vec![record.clone()])).contains("No crossover"));
    let body = inner(&mut record);
    body.ops.retain(|op| op.op != "attention");
    assert!(Crossover::of(body).is_none());
}

#[test]
fn a_fused_product_is_a_product_and_a_row_of_a_table_is_none() {
    // The largest is a kernel whose name has neither `gemv` nor `matmul`; by names alone attention
    // would cross ffn_down, at step 3.
    let products = [("ffn_down", 7.0), ("ffn_gate_up", 9.0), ("embed", 50.0)];
    let mut record = crossing(600, 4.0, products);
    let found = Crossover::of(inner(&mut record)).expect("both are there");
    assert_eq!((found.matmul.as_str(), found.first), ("ffn_gate_up", Some(5)));
}

#[test]
fn few_positions_say_nothing_about_a_crossover() {
    let products = [("ffn_down", 3.0), ("lm_head", 7.0), ("ffn_gate_up", 5.0)];
    for (steps, shown) in [(499, false), (500, true)] {
        let mut record = crossing(steps, 4.0, products);
        assert_eq!(Crossover::of(inner(&mut record)).is_some(), shown);
        assert_eq!(render(&named(vec![record])).contains("Attention crossover"), shown);
    }
}

#[test]
fn a_reading_kernel_is_held_against_reading() {
    let page = |read_gb_s, rate: f64| {
        let mut record = synthetic::profile(4);
        record.environment.read_gb_s = read_gb_s;
        let copy = record.environment.copy_gb_s.expect("measured");
        let op = &mut inner(&mut record).by_op[0];
        op.bytes = rate * copy * op.ms * 1e6;
        render(&named(vec![record]))
    };
    let accused = |page: &str| page.contains("reads from a cache");
    // 102 % of a copy is nothing strange for what only reads.
    assert!(!accused(&page(Some(4571.0), 1.02)) && !accused(&page(None, 1.021)));
    assert!(accused(&page(Some(4571.0), 1.2)) && accused(&page(None, 1.2)));
    assert!(page(Some(4571.0), 1.0).contains("read 4571"));
    assert!(!page(None, 1.0).contains("NaN"));
}

#[test]
fn selection_tells_exceptions() {
    let mut record = synthetic::profile(4);
    let html = render(&named(vec![record.clone()]));
    assert!(html.contains("the variant that its kernel prefers") && !html.contains("Exceptions"));
    inner(&mut record).selected[1].why = "explicit hint".into();
    let html = render(&named(vec![record]));
    assert!(html.contains("1 of 17 operations have another variant"));
    assert_eq!(html.matches("explicit hint").count(), 1);
}

#[test]
fn what_was_not_measured_has_no_row() {
    let mut record = synthetic::profile(4);
    let environment = &mut record.environment;
    environment.command = Some("lathe decode --model a<b.gguf".into());
    let html = render(&named(vec![record.clone()]));
    for part in ["copy bandwidth</dt>", "read bandwidth</dt>", "canary drift</dt>", "a&lt;b.gguf"] {
        assert!(html.contains(part), "{part}");
    }
    let environment = &mut record.environment;
    (environment.copy_gb_s, environment.read_gb_s) = (None, None);
    (environment.canary_drift, environment.command) = (None, None);
    let body = inner(&mut record);
    (body.steps, body.unprofiled.step_ms) = Default::default();
    let html = render(&named(vec![record]));
    for part in ["bandwidth</dt>", "drift</dt>", "class=\"command\"", "Throughput", "CPU and GPU"] {
        assert!(!html.contains(part), "{part}");
    }
}

#[test]
fn a_bench_page_is_in_groups_the_fastest_first_with_all_that_was_measured() {
    let mut record = synthetic::bench();
    let plain = render(&named(vec![record.clone()]));
    for part in ["overlapped µs", "each dispatch alone", "TFLOP/s"] {
        assert!(!plain.contains(part), "{part}");
    }
    let Body::Bench(Bench { cases, .. }) = &mut record.body else { panic!("not a bench") };
    let again = |variant: &str, us: f64| {
        let mut case = cases[1].clone();
        case.variant = variant.into();
        case.cold.median_us = us;
        case
    };
    let mut more = vec![again("slow", 99.0), again("fast", 0.5)];
    more[0].overlapped = Some(more[0].cold.clone());
    more[0].tflop_s = Some(12.34);
    more[0].stages = vec![lathe_record::record::StageTiming {
        entry: "partial_sums".into(),
        cold: Some(more[0].cold.clone()),
    }];
    cases.extend(more);
    record.environment.ceilings =
        Some(lathe_record::record::Ceilings { dependent_us: 2.25, ..Default::default() });
    let html = render(&named(vec![record]));
    assert_sound(&html);
    for part in ["overlapped µs", "partial_sums 99.00 µs", "12.34", "with a dependent launch"] {
        assert!(html.contains(part), "{part}");
    }
    let at = |variant: &str| html.find(&format!(">{variant}</th>")).expect("a row");
    assert!(at("fast") < at("slow"));
    // The group stands once, in the place of its first case.
    let group = "<b>gemv</b> ROWS=1536, K=1152, WEIGHT=bf16 ";
    assert_eq!(html.matches(group).count(), 1);
    assert!(html.find(group).expect("a group") < at("fast"));
    assert!(html[at("slow")..].contains(">198.00</td>"), "times of the best");
}

#[test]
fn generations_are_sound_and_say_what_nobody_verified() {
    use crate::generation::tests as made_up;
    let bodies = |verified| {
        let name = "a<b>|\"c\".gguf";
        [
            Body::Suite(made_up::suite(&[name, "other.gguf"], verified)),
            Body::GenerationTests(made_up::tests(&[name], verified)),
        ]
    };
    for body in bodies(true) {
        let record = Record::new(synthetic::environment(), body);
        let html = render(&named(vec![record.clone()]));
        assert_sound(&html);
        assert!(html.contains("a&lt;b&gt;|&quot;c&quot;"), "the file's name");
        assert!(!html.to_lowercase().contains("not verified"));
        // Among other records it has a line in the contents.
        assert_sound(&render(&named(vec![record, synthetic::bench()])));
    }
    for body in bodies(false) {
        let html = render(&named(vec![Record::new(synthetic::environment(), body)]));
        assert_sound(&html);
        assert!(html.contains("were not checked") && html.contains("(not verified)"));
    }
    let html = render(&named(vec![Record::new(
        synthetic::environment(),
        Body::Suite(made_up::suite(&[], true)),
    )]));
    assert!(html.contains("The record holds no model."));
}

#[test]
fn sums_over_layers_keep_the_total() {
    let mut record = synthetic::profile(5);
    let body = inner(&mut record);
    let all: f64 = body.steps.iter().flat_map(|s| &s.us).sum::<f64>() / 1000.0;
    let sums = profile::by_op(body);
    let summed: f64 = sums.iter().flat_map(|(_, values)| values).sum();
    assert!((all - summed).abs() < 1e-9 * all);
    assert_eq!(sums.len(), 19);
    assert_eq!(sums[0].0, "ffn_gate_up");
}
