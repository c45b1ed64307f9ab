//! Tests of the whole document on made-up records.

use lathe_record::Ratio;
use lathe_record::paired::Verdict;
use lathe_record::record::{
    Ab, AbFigures, Bench, BenchCase, Body, Environment, Flag, OpTotal, Profile, ProfiledOp,
    ProfiledStep, Record, Timing, Unprofiled, made_up,
};

const COPY: f64 = 4312.0;

fn record(body: Body) -> Record {
    let environment = Environment {
        copy_gb_s: Some(COPY),
        read_gb_s: Some(1.06 * COPY),
        command: Some("lathe decode --model a<b.gguf".into()),
        ..made_up::environment()
    };
    Record::new(environment, body)
}

/// A decode of two layers whose attention takes a microsecond more each step.
fn profile(steps: usize) -> Record {
    let op = |(layer, op, kernel): (Option<usize>, &str, &str)| ProfiledOp {
        layer,
        op: op.into(),
        kernel: kernel.into(),
        variant: "naive".into(),
        shape: "N=8".into(),
    };
    let layer = |n| {
        let names = [("attention", "attention_decode"), ("ffn_down", "gemv"), ("norm", "gemv")];
        names.map(|(name, kernel)| (Some(n), name, kernel))
    };
    let ops = [&layer(0)[..], &layer(1), &[(None, "lm_head", "gemv")]].concat();
    let step = |i: usize| ProfiledStep {
        position: 128 + i,
        us: vec![i as f64, 30.0, 2.0, i as f64, 30.0, 2.0, 140.0],
        record_ms: 0.1,
        submit_ms: 0.02,
        wait_ms: 0.2,
    };
    let total = |op: &str, count, ms, bytes| OpTotal {
        op: op.into(),
        kernel: "gemv naive".into(),
        count,
        ms,
        percent: 25.0,
        bytes,
        floor_ms: Some(bytes / COPY / 1e6),
        dispatches: count,
        ..OpTotal::default()
    };
    record(Body::Profile(Profile {
        model: "gemma3-1b bf16".into(),
        kv: "f16".into(),
        prompt_tokens: 128,
        unprofiled: Unprofiled {
            decode_tok_s: 812.5,
            gpu_ms_per_token: Some(0.93),
            step_ms: vec![1.25; steps],
            steps_per_submit: 4,
        },
        ops: ops.into_iter().map(op).collect(),
        steps: (0..steps).map(step).collect(),
        by_op: vec![
            total("lm_head", 1, 0.14, 6e8),
            total("ffn_down", 2, 0.06, 2e8),
            total("attention", 2, 0.1, 9e8),
        ],
        serialised_ms_per_token: 0.3,
        ..Profile::default()
    }))
}

fn bench() -> Record {
    let case = |variant: &str, us: f64, flags: &[Flag]| {
        let timing = |us| Timing { samples_us: vec![us; 5], settled: true, ..Timing::default() };
        let case = BenchCase {
            kernel: "gemv".into(),
            variant: variant.into(),
            shape: "ROWS=1536,K=1152,WEIGHT=bf16".into(),
            cold: timing(us),
            warm: timing(0.8 * us),
            bytes: 3.5e6,
            flops: 7e6,
            flags: flags.to_vec(),
            ..BenchCase::default()
        };
        case.settled(Some(COPY))
    };
    let cases =
        vec![case("slow", 8.0, &[Flag::Noisy]), case("fast", 2.0, &[]), case("hit", 0.5, &[])];
    record(Body::Bench(Bench { cases, ..Bench::default() }))
}

fn ab(verdict: Verdict, median: f64) -> Record {
    let around = |median: f64| Ratio { median, low: median - 0.01, high: median + 0.01 };
    record(Body::Ab(Ab {
        kernel: "gemv".into(),
        shape: "ROWS=1152,K=640,WEIGHT=f16,ACT_FORMAT=f32,Y_OFFSET=0,Y_AFTER=0,N_VECTORS=1,BETA=0"
            .into(),
        a: "vec2".into(),
        b: "wide".into(),
        found: AbFigures {
            a_us: 8.9,
            b_us: 8.9 * median,
            verdict,
            ratio: around(median),
            control: around(1.0),
            control_b: None,
            indifference: 0.01,
        },
        blocks: 48,
        ..Ab::default()
    }))
}

fn generations(verified: bool) -> [Record; 2] {
    use crate::generation::tests as made_up;
    let name = "a<b>|\"c\".gguf";
    [
        record(Body::Suite(made_up::suite(&[name, "other.gguf"], verified))),
        record(Body::GenerationTests(made_up::tests(&[name], verified))),
    ]
}

fn page(records: &[Record]) -> String {
    let named = records.iter().enumerate().map(|(i, r)| (format!("run-{i}.json"), r.clone()));
    let html = super::page(&named.collect::<Vec<_>>(), &[]);
    assert_sound(&html);
    html
}

#[track_caller]
fn assert_parts(html: &str, parts: &[&str]) {
    for part in parts {
        assert!(html.contains(part), "{part} is not in {html}");
    }
}

/// Every tag is closed in order, links resolve, nothing is fetched or run, no number is none.
fn assert_sound(html: &str) {
    let mut open: Vec<&str> = Vec::new();
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
        for attribute in ["src=", "style=", " on"] {
            assert!(!tag.split('"').step_by(2).any(|p| p.contains(attribute)), "{tag}");
        }
        let name = tag.split([' ', '/']).next().expect("a name");
        if !tag.ends_with('/') && name != "meta" {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    for link in html.split("href=\"#").skip(1).filter_map(|t| t.split('"').next()) {
        assert_eq!(html.matches(&format!(" id=\"{link}\"")).count(), 1, "{link}");
    }
    for word in ["http", "<script", "url(", "@import", "NaN", "inf\"", ">inf", "<link", "<img"] {
        let before = html.split(word).next().unwrap_or_default();
        assert!(!html.contains(word), "{word} after {:?}", before.lines().last());
    }
}

#[test]
fn a_profile_has_its_figures_and_stays_small() {
    let html = page(&[profile(600)]);
    assert_parts(
        &html,
        &[
            "Decode profile: gemma3-1b bf16",
            "812.5 <small>tok/s",
            "$ lathe decode --model a&lt;b.gguf",
            "Decode time by operation",
            "Throughput by token",
            "Median 800.0,",
            ">9000</td><td class=\"figure\">208.7 %<",
            "from a cache or counted wrongly",
            "CPU record",
            "Environment",
        ],
    );
    assert!(!html.contains("<h2>"));
    // Charts are aggregated: four times the steps are hardly more.
    assert!(page(&[profile(2400)]).len() < html.len() * 11 / 10);
}

#[test]
fn the_crossover_is_the_first_step_where_attention_is_not_below() {
    // Two layers of attention reach the 140 µs of lm_head at step 70.
    let found = "Attention first takes as long as lm_head, the operation that reads most bytes, at \
                 position 198.";
    assert_parts(&page(&[profile(600)]), &["Attention crossover", found]);
    let mut record = profile(600);
    let Body::Profile(body) = &mut record.body else { panic!("not a profile") };
    for step in &mut body.steps {
        step.us[0] = 1.0;
        step.us[3] = 1.0;
    }
    assert_parts(&page(&[record]), &["No crossover: attention stays below lm_head"]);
    assert!(!page(&[profile(499)]).contains("Attention crossover"));
}

#[test]
fn a_bench_page_has_the_fastest_first_and_names_doubts() {
    let html = page(&[bench()]);
    assert_parts(&html, &["Bench: gemv", "2 cases with a doubt", "noisy", "above the bandwidth"]);
    assert!(html.find(">fast<").unwrap() < html.find(">slow<").unwrap());
    assert_eq!(html.matches("<b>gemv</b> ROWS=1536, K=1152, WEIGHT=bf16").count(), 1);
    // Columns without a value are left out.
    assert!(html.contains(">warm µs<") && !html.contains(">overlapped µs<"), "{html}");
    let failed = Bench { failed: vec!["gemv/x K=1: wrong".into()], ..Bench::default() };
    assert_parts(&page(&[record(Body::Bench(failed))]), &["No result: gemv/x K=1: wrong"]);
}

#[test]
fn comparisons_say_their_verdict() {
    for (verdict, median, words) in [
        (Verdict::Faster, 0.742, "wide takes 25.8 % less time than vec2 (1.35× its speed)"),
        (Verdict::Slower, 1.5, "wide takes 50.0 % more time than vec2"),
        (Verdict::Same, 1.0, "wide and vec2 take the same time"),
        (Verdict::Inconclusive, 1.012, "This run cannot tell wide from vec2"),
    ] {
        let html = page(&[ab(verdict, median)]);
        assert_parts(&html, &[words, "A against itself", "A/B: gemv ROWS=1152, K=640"]);
        assert!(!html.contains("Y_OFFSET"), "a parameter at its default");
    }
}

#[test]
fn many_records_have_an_overview() {
    let [suite, tests] = generations(true);
    let records =
        [profile(8), bench(), suite, tests, ab(Verdict::Same, 1.0), ab(Verdict::Slower, 2.0)];
    let html = page(&records);
    assert_eq!(html, page(&records), "the same records give the same bytes");
    assert_parts(
        &html,
        &["All decodes", "All comparisons", "href=\"#r0\"", "after 128 tokens: unprofiled step"],
    );
    assert_eq!(html.matches("<details id=").count(), records.len());
    assert!(!page(&[bench()]).contains("All decodes"));
    assert_parts(&page(&[]), &["No records."]);
}

#[test]
fn generations_say_what_nobody_verified() {
    for (record, other) in generations(true).iter().zip(generations(false)) {
        let html = page(std::slice::from_ref(record));
        assert_parts(&html, &["a&lt;b&gt;|&quot;c&quot;"]);
        assert!(!html.to_lowercase().contains("not verified"));
        assert_parts(&page(&[other]), &["were not checked", "(not verified)"]);
    }
}

#[test]
fn strings_of_a_record_stay_text() {
    const EVIL: &str = "</title></style><script>alert('1')</script>\"onload=\"x\u{202e}&\u{0}";
    let mut all = vec![profile(4), bench(), ab(Verdict::Same, 1.0)];
    for record in &mut all {
        let env = &mut record.environment;
        for text in [&mut env.adapter, &mut env.driver, &mut env.date] {
            *text = EVIL.into();
        }
        (env.commit, env.software, env.dirty) = (Some(EVIL.into()), true, Some(true));
        match &mut record.body {
            Body::Profile(body) => {
                body.model = EVIL.into();
                body.ops[0].op = EVIL.into();
                body.by_op[0].op = EVIL.into();
            }
            Body::Bench(Bench { cases, failed, .. }) => {
                failed.push(EVIL.into());
                (cases[0].kernel, cases[0].variant) = (EVIL.into(), EVIL.into());
            }
            Body::Ab(body) => (body.kernel, body.a) = (EVIL.into(), EVIL.into()),
            _ => {}
        }
    }
    for records in all.iter().map(std::slice::from_ref).chain([&all[..]]) {
        let html = page(records);
        assert!(html.contains("&lt;script&gt;"));
        assert!(!html.contains('\u{202e}') && !html.contains('\0'));
    }
}

#[test]
fn numbers_that_are_none_render() {
    for value in [f64::NAN, f64::INFINITY, 0.0, -1.0, f64::MAX] {
        let mut all = vec![profile(3), bench(), ab(Verdict::Same, 1.0)];
        for record in &mut all {
            let env = &mut record.environment;
            (env.copy_gb_s, env.canary_drift) = (Some(value), Some(value));
            match &mut record.body {
                Body::Profile(body) => {
                    body.unprofiled.decode_tok_s = value;
                    body.unprofiled.step_ms.fill(value);
                    body.steps.iter_mut().for_each(|step| step.us.fill(value));
                    let op = &mut body.by_op[0];
                    (op.ms, op.bytes, op.percent, op.floor_ms) = (value, value, value, Some(value));
                }
                Body::Bench(Bench { cases, .. }) => {
                    cases[0].cold.samples_us = vec![value];
                    cases[0].bytes = value;
                }
                Body::Ab(body) => {
                    let ratio = Ratio { median: value, low: value, high: value };
                    body.found =
                        AbFigures { ratio, control: ratio, indifference: value, ..body.found };
                }
                _ => {}
            }
            page(std::slice::from_ref(record));
        }
        page(&all);
    }
    for steps in [0, 1, 2, 320, 321] {
        page(&[profile(steps)]);
    }
}
