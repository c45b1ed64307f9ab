//! The measuring commands end to end. On a software adapter the numbers mean nothing; the tests
//! check that each command measures, refuses, records and judges as documented.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use lathe_harness::data::record::{Bench, BenchCase, Body, Environment, Record, Timing};
use serde_json::Value;

use crate::common::{
    self, Folder, Watch, assert_ends, code, document, ended, golden_name, json, lathe, stderr,
    stdout,
};

/// The text of a built-in kernel's variant `naive` with other words, which must be there.
fn changed(kernel: &str, from: &str, to: &str) -> String {
    let text = lathe_kernels::source(kernel, "naive").unwrap().text;
    assert!(text.contains(from), "{from:?} is not in the source");
    text.replace(from, to)
}

const SMALL: [&str; 2] = ["--shape", "ROWS=96,K=160"];

#[test]
fn bench_prints_one_document_and_every_format_and_saves_a_record_once() {
    let Some(gpu) = common::gpu() else { return };
    let folder = Folder::new();
    let record = folder.path("bench.json");
    let base = [&["bench", "gemv/workgroup"][..], &SMALL].concat();
    let save = ["--json", "--allow-software", "--save", &record];
    let report = document(&lathe(&[&base[..], &save].concat()));
    let case = &report["cases"][0];
    for key in ["kernel", "variant", "shape", "bytes", "gb_s", "fraction_of_copy"] {
        assert!(!case[key].is_null(), "{key} in {case}");
    }
    for side in ["cold", "warm"] {
        assert!(case[side]["median_us"].as_f64().unwrap() > 0.0);
        assert!(case[side]["samples_us"].as_array().unwrap().len() >= 5);
    }
    let environment = &report["environment"];
    for key in ["adapter", "driver", "wgpu", "runtime_checks", "copy_gb_s", "date", "os"] {
        assert!(!environment[key].is_null(), "{key}");
    }
    assert_eq!(environment["naga"], lathe_harness::gpu::NAGA_VERSION);
    assert!(environment["rustc"].as_str().unwrap().starts_with("rustc "), "{environment}");
    assert!(environment["build"].as_str().unwrap().contains(", opt-level "), "{environment}");
    if gpu.adapter.backend == "vulkan" && cfg!(target_os = "linux") {
        let loader = environment["machine"]["vulkan_loader"].as_str().unwrap();
        assert!(loader.starts_with("1."), "{loader}");
    }
    assert!(case["wgsl"].is_null(), "a built-in kernel stands in the command: {case}");
    let saved = Record::read(Path::new(&record)).unwrap();
    assert!(matches!(saved.body, Body::Bench(b) if b.cases.len() == 1));
    // A record is never overwritten.
    ended(&lathe(&[&base[..], &save].concat()), 2);
    let text = String::from_utf8(lathe(&base).stdout).unwrap();
    assert!(text.contains("gemv") && text.contains("workgroup"), "{text}");
}

#[test]
fn bench_goes_on_after_a_wrong_case_and_fails() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    // Wrong at the first benchmarked shape only.
    let half = "+ select(1.0, 0.5, N == 1152u) * delta[i]";
    let wrong = changed("residual_add", "+ delta[i]", half);
    let file = folder.write("wrong.wgsl", &wrong);
    let record = folder.path("bench.json");
    let save = ["--allow-software", "--save", &record, "--json"];
    let output = lathe(&[&["bench", "residual_add/naive", "--wgsl", &file][..], &save].concat());
    let said = ended(&output, 1);
    assert!(said.contains("FAILED") && said.contains("N=1152 is wrong before timing"), "{said}");
    assert!(said.contains("1 of 2 cases"), "{said}");
    let none = ["bench", "residual_add/naive", "--wgsl", &file, "--shape", "N=1152", "--json"];
    let output_of_none = lathe(&none);
    assert_eq!(code(&output_of_none), 1);
    let nothing = json(&output_of_none);
    assert_eq!(nothing["cases"].as_array().unwrap().len(), 0, "{nothing}");
    assert!(nothing["failed"][0].as_str().unwrap().contains("N=1152"), "{nothing}");
    let report = json(&output);
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 1, "{report}");
    assert_eq!(cases[0]["shape"], "N=2048");
    assert_eq!(cases[0]["wgsl"], wrong);
    assert!(report["environment"]["read_gb_s"].as_f64().unwrap() > 0.0);
    let saved = Record::read(Path::new(&record)).unwrap();
    assert!(matches!(saved.body, Body::Bench(b) if b.cases.len() == 1 && b.failed.len() == 1));
}

#[test]
fn software_adapters_make_no_speed_claims_unless_forced() {
    if common::gpu().is_some_and(|gpu| gpu.adapter.software) {
        for args in [
            &["ab", "gemv", "--a", "naive", "--b", "workgroup"][..],
            &["tune", "residual_add"],
            &["bench", "residual_add", "--save", "unwritten.json"],
        ] {
            assert_ends(&lathe(args), 3, "--allow-software");
        }
    }
}

#[test]
fn ab_tells_a_much_slower_variant_and_reports_its_control() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    // The second half of the work is thrown away: twice the time, whatever runs beside it.
    let product = "sum += dot_chunk(weights[base + c], load_vector_chunk(vector, c));";
    let slow = format!(
        "for (var again = 0u; again < 6u; again++) {{
             let other = weights[base + (c ^ again) % row_chunks()];
             sum += 1e-30 * dot_chunk(other, load_vector_chunk(vector, c));
         }}
         {product}"
    );
    let slow = folder.write("slow.wgsl", changed("gemv", product, &slow));
    let sides = ["ab", "gemv", "--a", "naive", "--b", &slow, "--shape", "ROWS=300,K=2048"];
    let rest = ["--allow-software", "--time-out", "20", "--json"];
    let report = document(&lathe(&[&sides[..], &rest].concat()));
    assert_eq!(report["verdict"], "SLOWER", "{report}");
    assert!(report["ratio"]["median"].as_f64().unwrap() > 1.2);
    assert!(report["control"]["median"].as_f64().is_some());
    let nonsense = ["ab", "gemv", "--a", "naive", "--b", "nonsense", "--allow-software"];
    ended(&lathe(&nonsense), 2);
}

/// Both sides share their memory: A's output must not pass for that of B, which writes nothing.
#[test]
fn ab_refuses_to_time_a_kernel_that_is_wrong_or_idle() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let stores = "store_y(y_at(vector, row), sum, old_y(y_at(vector, row)));";
    let idle = changed("gemv", stores, &format!("if (ROWS == 0u) {{ {stores} }}"));
    for (text, words) in
        [(changed("gemv", ", sum,", ", 0.5 * sum,"), "is wrong"), (idle, "elements out of bound")]
    {
        let file = folder.write("b.wgsl", text);
        let sides = ["ab", "gemv", "--a", "naive", "--b", &file, "--allow-software"];
        assert_ends(&lathe(&[&sides[..], &SMALL].concat()), 1, words);
    }
}

#[test]
fn a_winner_with_weights_is_measured_and_only_a_faster_one_is_stored() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let store = folder.path("tuned.json");
    let tune = ["tune", "gemv/workgroup", "--shape", "ROWS=256,K=256", "--store", &store];
    let found =
        &document(&lathe(&[&tune[..], &["--allow-software", "--json"]].concat()))["found"][0];
    // In each of three processes, or not at all.
    let proofs = found["comparisons"].as_array().unwrap();
    let faster = proofs.len() == 3 && proofs.iter().all(|c| c["verdict"] == "FASTER");
    assert_eq!(found["stored"].is_object(), faster, "{found}");
    if found["winner"] != found["incumbent"] {
        assert!(!proofs.is_empty(), "{found}");
    }
    let show = document(&lathe(&["tune", "--show", "--store", &store, "--json"]));
    assert_eq!(show["entries"].as_array().unwrap().len(), usize::from(faster));
}

fn fake_record(scale: f64, source: &str, adapter: &str, path: &Path) {
    let samples = (0..40).map(|i| scale * (10.0 + 0.01 * f64::from(i % 5)));
    let cold = Timing { settled: true, samples_us: samples.collect(), ..Timing::default() };
    let case = BenchCase {
        kernel: "gemv".into(),
        variant: "subgroup".into(),
        shape: "ROWS=1".into(),
        source: source.into(),
        warm: cold.clone(),
        cold,
        ..BenchCase::default()
    };
    let environment = Environment {
        date: "2026-01-01T00:00:00Z".into(),
        lathe: "0".into(),
        wgpu: "30.0.1".into(),
        os: "any".into(),
        adapter: adapter.into(),
        driver: "1".into(),
        backend: "vulkan".into(),
        runtime_checks: "off".into(),
        timestamp_quantum_ns: Some(32.0),
        copy_gb_s: Some(4000.0),
        read_gb_s: Some(4200.0),
        canary_drift: Some(0.001),
        ..Environment::default()
    };
    let bench = Bench { cases: vec![case], failed: Vec::new() };
    Record::new(environment, Body::Bench(bench)).write(path).unwrap();
}

#[test]
fn compare_fails_only_on_a_confirmed_slowdown() {
    let folder = Folder::new();
    let record = |name: &str, scale, source: &str, adapter| {
        fake_record(scale, source, adapter, &folder.join(name));
        folder.path(name)
    };
    let base = record("base.json", 1.0, "0", "A");
    let exits = |new: &str| code(&lathe(&["compare", &base, new]));
    assert_eq!(exits(&record("same.json", 1.004, "1", "A")), 0);
    let slow = record("slow.json", 1.08, "1", "A");
    let output = lathe(&["compare", &base, &slow, "--json"]);
    assert_eq!(code(&output), 1);
    assert_eq!(json(&output)["cases"][0]["verdict"], "SLOWER");
    assert_eq!(code(&lathe(&["compare", &slow, &base])), 0, "faster is no failure");
    assert_eq!(exits(&record("other.json", 1.0, "1", "B")), 2);

    // The same source is no slowdown, and the table says why and what to do.
    let output = lathe(&["compare", &base, &record("machine.json", 1.08, "0", "A")]);
    assert_eq!(code(&output), 0);
    let table = stdout(&output);
    assert!(table.contains("unchanged case(s), +8.00 %") && table.contains("| SAME "), "{table}");

    // 4 % are probable by one record a side, and confirmed by three.
    let three = |name: &str, scale: f64, source: &str| -> Vec<String> {
        let path = |i: usize| format!("{name}{i}.json");
        let scale = |i: usize| scale * (1.0 + 0.002 * i as f64);
        (0..3).map(|i| record(&path(i), scale(i), source, "A")).collect()
    };
    let (bases, news) = (three("a", 1.0, "0"), three("b", 1.04, "1"));
    let output = lathe(&["compare", &bases[0], &news[0]]);
    assert_eq!(code(&output), 6);
    assert!(stdout(&output).contains("next: measure both builds again"), "{output:?}");
    let sides = |bases: &[String], news: &[String]| {
        let args = [&["compare".into(), "--base".into()], bases, &["--new".into()], news].concat();
        lathe(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert_eq!(code(&sides(&bases, &news)), 1);
    assert_eq!(code(&sides(&news, &bases)), 0);
    let again = [&news[..], &news[..1]].concat();
    assert_ends(&sides(&bases, &again), 2, "give each run once");
    for wrong in [&["compare", &base][..], &["compare", "--base", &base], &["compare"]] {
        assert_eq!(code(&lathe(wrong)), 2, "{wrong:?}");
    }
    assert_eq!(code(&lathe(&["compare", &base, &slow, "--base", &base])), 2);

    let broken = folder.write("broken.json", "{\"schema_version\": 1, \"kind\": \"bench\"}");
    assert_ends(&lathe(&["compare", &base, &broken]), 2, "broken.json");

    // A case that became wrong.
    let text = std::fs::read_to_string(&base).unwrap();
    let wrong = text.replace("\"failed\":[]", "\"failed\":[\"gemv/subgroup ROWS=1 is wrong\"]");
    assert_eq!(exits(&folder.write("wrong.json", wrong)), 1);
}

#[test]
fn the_tuner_rejects_wrong_hanging_and_refused_candidates_and_harms_nothing() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let text = lathe_kernels::source("residual_add", "naive").unwrap().text;
    let wrong = changed("residual_add", "x[i] = x[i] + delta[i];", "x[i] = delta[i];");
    let wrong = folder.write("wrong.wgsl", wrong);
    // Loops do not hang a software adapter, which bounds them; four thousand million workgroups do.
    let hang = folder.write("hang.wgsl", text);
    folder.write(
        "hang.toml",
        "[[stage]]\nentry = \"main\"\nworkgroups = [\"ceil(N / WG)\", 65535, 65535]\n",
    );
    let refused = folder.write("refused.wgsl", text.replace("@group(0)", "@group(99)"));
    // In naive's place it is right; in that of vec4, whose grid is a quarter, the rest stays
    // undone.
    let short = format!("vec4={}", folder.write("short.wgsl", text));
    let right = folder.write("right.wgsl", text);
    let store = folder.path("tuned.json");
    let tune = ["tune", "residual_add", "--shape", "N=512", "--time-out", "5", "--store", &store];
    let candidates = [&wrong, &hang, &refused, &short, &right].map(|c| ["--candidate", c]);
    let rest = ["--allow-software", "--json"];
    let found =
        &document(&lathe(&[&tune[..], candidates.as_flattened(), &rest].concat()))["found"][0];
    let reason = |file: &str| -> String {
        let all = found["rejected"].as_array().unwrap();
        let one = all.iter().find(|r| r[0].as_str().unwrap().contains(file));
        one.unwrap_or_else(|| panic!("{file} was not rejected: {found}"))[1]
            .as_str()
            .unwrap()
            .into()
    };
    assert!(reason("wrong.wgsl").contains("wrong"), "{}", reason("wrong.wgsl"));
    assert!(reason("hang.wgsl").starts_with("hung"), "{}", reason("hang.wgsl"));
    assert!(reason("refused.wgsl").contains("@group(99)"), "{}", reason("refused.wgsl"));
    assert!(reason("short.wgsl").contains("wrong"), "{}", reason("short.wgsl"));
    let rejected = found["rejected"].as_array().unwrap();
    assert!(!rejected.iter().any(|r| r[0].as_str().unwrap().contains("right.wgsl")), "{found}");
    assert!(!found["finalists"].as_array().unwrap().is_empty());
    let show = document(&lathe(&["tune", "--show", "--store", &store, "--json"]));
    assert!(show["entries"].is_array());
}

/// Tint wants the directive, naga refuses it.
#[test]
fn a_directive_that_tint_wants_is_taken() {
    if common::gpu().is_some_and(|gpu| gpu.caps.subgroup.is_some()) {
        let folder = Folder::new();
        let text = lathe_kernels::source("gemv", "subgroup").unwrap().text;
        let file = folder.write("tint.wgsl", format!("enable subgroups;\n{text}"));
        ended(&lathe(&["check", "gemv/subgroup", "--cases", "1", "--wgsl", &file]), 0);
    }
}

#[test]
fn a_profile_adds_up_and_becomes_an_offline_page() {
    let Some(gpu) = common::gpu() else { return };
    if !gpu.adapter.timestamps {
        return;
    }
    let folder = Folder::new();
    let (record, trace) = (folder.path("p.json"), folder.path("t.json"));
    let model = golden_name("gemma3-tiny-f16.gguf");
    let decode = ["decode", "--model", &model, "--prompt-tokens", "2,5,7", "-n", "12", "--json"];
    let into = ["--profile", &record, "--trace", &trace, "--log-every", "4", "--allow-software"];
    let output = lathe(&[&decode[..], &into].concat());
    document(&output);
    assert!(stderr(&output).contains("position 3:") && stderr(&output).contains("position 11:"));
    assert!(!stderr(&output).contains("position 4:"), "the log is sparse");
    let saved = Record::read(Path::new(&record)).unwrap();
    let Body::Profile(profile) = saved.body else { panic!("no profile") };
    assert_eq!(profile.steps.len(), 11);
    assert_eq!(profile.unprofiled.step_ms.len(), 11);
    let sum: f64 = profile.steps.iter().flat_map(|s| &s.us).sum::<f64>() / 1e3 / 11.0;
    assert!((sum - profile.serialised_ms_per_token).abs() < 1e-6 * sum);
    let by_op: f64 = profile.by_op.iter().map(|o| o.ms).sum();
    assert!((by_op - sum).abs() < 1e-6 * sum);
    for step in &profile.steps {
        assert_eq!(step.us.len(), profile.ops.len());
        assert!(step.us.iter().all(|us| us.is_finite()));
    }
    assert!(profile.ops.iter().any(|o| o.op == "ffn_down" && o.layer == Some(6)));
    let trace: Value = serde_json::from_str(&folder.read("t.json")).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 11 * profile.ops.len());
    let page = folder.path("report.html");
    ended(&lathe(&["report", &record, "-o", &page]), 0);
    let html = folder.read("report.html");
    assert!(html.len() < 500_000 && html.contains("ffn_down"));
    assert!(!html.contains("<script") && !html.contains("http"));
    let model_as_page = lathe(&["report", &record, "-o", &record]);
    assert_eq!(code(&model_as_page), 2, "a record is no page to replace");
}

/// Each stage of a persistent kernel is timed by leaving it out.
#[test]
fn phases_of_a_run_are_timed_by_leaving_each_out() {
    let Some(gpu) = common::gpu() else { return };
    if !gpu.adapter.timestamps {
        return;
    }
    let model = golden_name("llama-tiny-f16.gguf");
    let decode = ["decode", &model, "--prompt-tokens", "2,5,7", "-n", "6", "--profile-phases"];
    // One workgroup waits for nobody.
    let profiled = |more: &[&str]| lathe(&[&decode[..], &["--runs", "1x8"], more].concat());
    let table = common::printed(&profiled(&[]));
    assert!(table.contains("ffn_gate_up ×3"), "{table}");
    let profile = document(&profiled(&["--json"]));
    let output = lathe(&[&decode[..], &["--runs", "off"]].concat());
    assert_ends(&output, 2, "no layers of this step are one dispatch");
    let phases = profile["by_phase"].as_array().unwrap();
    let ops: Vec<_> = phases.iter().map(|phase| phase["op"].as_str().unwrap()).collect();
    for op in ["qkv", "attention", "attn_output", "ffn_gate_up", "ffn_down"] {
        assert!(ops.contains(&op), "{ops:?}");
    }
    let number = |phase: &Value, key: &str| phase[key].as_f64().unwrap();
    assert!(phases.iter().all(|phase| phase["count"] == 3 && phase["ms"].is_number()));
    assert!(number(&profile, "ms_per_token") > 0.0);
    assert!(number(&profile["verified"], "positions") > 0.0);
}

#[test]
fn watch_runs_again_when_the_file_is_saved() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let text = lathe_kernels::source("residual_add", "naive").unwrap().text;
    let file = folder.write("mine.wgsl", text);
    let check = ["check", "residual_add", "--cases", "1", "--watch", "--wgsl", &file];
    let watch = Watch::new(common::command(&check));
    assert!(watch.verdict().contains(" 0 failed"));
    folder.write_later("mine.wgsl", text.replace("x[i] + delta[i]", "x[i] - delta[i]"));
    assert!(watch.verdict().contains(" 0 passed"));
}

#[test]
fn whole_steps_are_compared_and_a_models_own_shapes_are_tuned() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let model = golden_name("llama-tiny-f16.gguf");
    // Two variants; a quantised file against its weights as f16, each verified by its own
    // reference.
    let quantised = golden_name("llama-tiny-q4km.gguf");
    let decode = ["ab", "decode", "--model", &quantised];
    let all = [
        (&model, "llama-tiny-f16.gguf", ["gemv=workgroup", "gemv=naive"]),
        (&quantised, "llama-tiny-q4km.gguf", ["weights=as_stored", "weights=f16"]),
    ];
    for (model, name, [a, b]) in all {
        let sides = ["ab", "decode", "--model", model, "--a", a, "--b", b];
        let rest = ["--allow-software", "--time-out", "2", "--json"];
        let output = lathe(&[&sides[..], &rest].concat());
        assert!([0, 6].contains(&code(&output)), "{}", stderr(&output));
        let report = json(&output);
        assert_eq!((&report["kernel"], &report["shape"]), (&"decode".into(), &name.into()));
        assert_eq!(report["b"], b);
        assert!(report["a_us"].as_f64().unwrap() > 0.0 && report["b_us"].as_f64().unwrap() > 0.0);
    }
    let output =
        lathe(&[&decode[..], &["--a", "weights=as_stored", "--b", "weights=f17"]].concat());
    assert!([2, 3].contains(&code(&output)), "{}", stderr(&output));
    let store = folder.path("tuned.json");
    let tune = ["tune", "rms_norm", "--model", &model, "--store", &store];
    let found =
        document(&lathe(&[&tune[..], &["--allow-software", "--json"]].concat()))["found"].clone();
    let found = found.as_array().unwrap();
    // Of llama-tiny's norms only the last has a dispatch of its own.
    assert_eq!(found.len(), 1, "{found:?}");
    let shape = found[0]["shape"].as_str().unwrap();
    assert!(shape.contains("ROWS=1,") && shape.contains("N=128,"), "{shape}");
}

#[test]
fn bench_decode_needs_no_checkpoint() {
    let Some(gpu) = common::gpu() else { return };
    if !gpu.adapter.timestamps {
        return;
    }
    let report = document(&lathe(&["bench", "decode", "--arch", "llama-mini", "--json"]));
    let down = report["by_op"].as_array().unwrap().iter().find(|o| o["op"] == "ffn_down").unwrap();
    assert_eq!(down["count"], 4);
    for key in ["ms", "percent", "bytes", "floor_ms", "over_floor"] {
        assert!(down[key].as_f64().unwrap() > 0.0, "{key} in {down}");
    }
    assert!(report["environment"]["adapter"].is_string());
    assert_eq!(code(&lathe(&["bench", "decode", "--arch", "llama-mini", "--shape", "K=1"])), 2);
}

#[test]
fn bench_selects_and_takes_several_targets() {
    let Some(_) = common::gpu() else { return };
    let kernels = ["residual_add", "glu"];
    let flags = ["--selected", "--untuned", "--first", "--json"];
    let report = document(&lathe(&[&["bench"][..], &kernels, &flags].concat()));
    let cases = report["cases"].as_array().unwrap();
    let names: Vec<_> = cases.iter().map(|c| c["kernel"].as_str().unwrap()).collect();
    assert_eq!(names, kernels, "one variant of one shape each");
    let shape = ["--shape", "N=5000,N_KV=1,PROMPT_LEN=4294967295", "--json"];
    let of_one = ["bench", "argmax/two_pass", "argmax/workgroup"];
    let timed = document(&lathe(&[&of_one[..], &shape].concat()))["cases"].clone();
    assert_eq!([&timed[0]["variant"], &timed[1]["variant"]], ["two_pass", "workgroup"]);
    assert_ends(
        &lathe(&["bench", "argmax", "glu", "--shape", "N=5000"]),
        2,
        "--shape needs a KERNEL",
    );
    for case in cases {
        assert_ne!(case["variant"], "naive");
        assert!(case["warm"]["median_us"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn tune_keeps_to_the_variant_and_the_time_it_is_given() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let store = folder.path("tuned.json");
    let tune = |more: &[&str]| {
        let rest = ["--allow-software", "--store", &store, "--json"];
        document(&lathe(&[&["tune", "residual_add/vec4"], more, &rest].concat()))["found"][0]
            .clone()
    };
    let all = tune(&[]);
    assert_eq!(all["skipped"], 0);
    let ranking = all["ranking"].as_array().unwrap();
    assert!(!ranking.is_empty());
    assert!(ranking.iter().all(|r| r[0].as_str().unwrap().starts_with("vec4")), "{ranking:?}");
    let none = tune(&["--within", "0"]);
    assert_eq!((&none["tried"], &none["skipped"]), (&0.into(), &all["tried"]));
}
