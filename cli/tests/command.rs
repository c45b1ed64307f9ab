//! The command's contract: exit codes, one JSON document on stdout, messages that name things.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;

use crate::common::{
    self, Folder, assert_ends, assert_refused, code, command, document, ended, golden, golden_name,
    json, lathe, printed, repository, stderr, stdout,
};

/// A checkpoint with a tokenizer of words, bytes and turns.
pub(crate) fn talking_model(folder: &Folder) -> String {
    let path = folder.path("mini.gguf");
    ended(&lathe(&["synth", "--arch", "llama-mini", "--quant", "f16", "-o", &path]), 0);
    path
}

#[test]
fn usage_errors_exit_2_and_nothing_on_the_command_line_panics() {
    let model = golden_name("llama-tiny-f16.gguf");
    let most = "18446744073709551615";
    let decode = ["decode", "--model", &model];
    for args in [
        &["--prompt-tokens", "1", "--temperature", "-0.8"][..],
        &["--prompt-tokens", "1,x"],
        &["--prompt-tokens", "999", "--executor", "cpu"],
        &[],
        &["--prompt-tokens", "1", "--executor", "cpu", "-n", most],
        &["--prompt-tokens", "1", "--executor", "cpu", "--steps-per-submit", most],
        &["--prompt-tokens", "1", "--executor", "cpu", "--steps-per-submit", "0"],
        &["--prompt-tokens", "1", "--executor", "cpu", "--verify", "0"],
    ] {
        assert_refused(&[&decode[..], args].concat(), 2, "");
    }
    for args in [
        "nonsense",
        "check nonsense",
        "check gemv --shape Q=1",
        "check --shape K=1",
        "decode",
        "synth --arch gpt-9 -o unwritten.gguf",
        "synth --arch gemma3-mini --quant q9 -o unwritten.gguf",
        "tune gemv --time-out nan",
        "show run",
    ] {
        assert_refused(&args.split(' ').collect::<Vec<_>>(), 2, "");
    }
    assert_refused(&["check", "gemv/nonsense"], 2, "subgroup_multicol");
    let Some(_) = common::gpu() else { return };
    for args in [
        "gemv ROWS=100000000,K=100000",
        "gemv ROWS=4294967295,K=4294967295",
        "gemv ROWS=1,K=4294967295",
        "rms_norm ROWS=1,N=4294967295",
        "argmax N=5,N_KV=4294967295",
        "embed VOCAB=4294967295,HIDDEN=4294967295",
        "qk_norm_rope Q_PER_KV=70000,KV_HEADS=1,HEAD_DIM=32,N_KV=1",
    ] {
        let (kernel, shape) = args.split_once(' ').unwrap();
        assert_ends(&lathe(&["check", kernel, "--shape", shape]), 3, "");
    }
}

/// Lines of a table on stdout, and all of stdout.
fn table(output: &Output) -> (Vec<String>, String) {
    let text = stdout(output);
    (text.lines().filter(|line| line.starts_with('|')).map(str::to_owned).collect(), text)
}

/// A store of choices whose shapes and constants are longer than a terminal's line.
fn long_store() -> String {
    let choice = |adapter: &str, kernel: &str, shape: &str, constants: Value| {
        serde_json::json!({
            "adapter": adapter, "driver": "a driver and its version 590.48.01", "wgpu": "30.0.1",
            "runtime_checks": "off", "kernel": kernel,
            "shape": shape, "variant": "subgroup_multicol_vec4", "constants": constants,
            "source": "s", "ratio": { "median": 0.9, "low": 0.89, "high": 0.91 },
            "incumbent": "subgroup_vec4 LANES=16,ROWS_PER_WG=8,WG=256", "date": "2026-11-20T10:00:00Z",
        })
    };
    let all = serde_json::json!({ "ROWS_PER_WG": 128, "WG": 256, "LANES": 16, "IN_FLIGHT": 8 });
    let gemv = "ROWS=151936,K=1152,WEIGHT=q4_k,ACT_FORMAT=f16,Y_OFFSET=1,Y_AFTER=7,N_VECTORS=8";
    let entries = [
        choice("NVIDIA H200", "gemv_q", gemv, all.clone()),
        choice("NVIDIA H200", "an_operation_of_before", "A=1,B=2", all.clone()),
        choice("Another adapter with a name", "glu", "N=64,ACTIVATION=silu", serde_json::json!({})),
    ];
    serde_json::json!({ "schema_version": 1, "entries": entries }).to_string()
}

#[test]
fn tables_fit_80_columns_and_a_pipe_has_no_colours() {
    let [base, new] = ["2026-11-22", "2026-11-21"]
        .map(|day| repository(&format!("benches/records/nvidia-h200.csv#{day}-ladder-gemv_q")));
    let compare = ["compare", &base, &new];
    let folder = Folder::new();
    let store = folder.write("tuned.json", long_store());
    let entries = ["one_with_a_name_as_long_as_they_come", "another_that_is_as_long_as_this"];
    let entry = |name: &&str| format!("@compute @workgroup_size(8, 8, 4) fn {name}() {{}}\n");
    let wgsl = folder.write("mine.wgsl", entries.iter().map(entry).collect::<String>());
    // A chat template is a long value.
    let talking = talking_model(&folder);
    let commands: [&[&str]; 11] = [
        &["doctor"],
        &["list"],
        &["check", "glu", "--cases", "1"],
        &compare,
        &["inspect", &talking],
        &["inspect", &golden_name("gemma3-tiny-q4km.gguf")],
        &["validate", "matmul"],
        &["validate", "attention_decode"],
        &["validate", "matmul", "--limits", "all"],
        &["validate", &wgsl],
        &["tune", "--show", "--store", &store],
    ];
    for command in commands {
        let (lines, text) = table(&lathe(command));
        assert!(lines.len() > 2, "{command:?}: {text}");
        for line in lines {
            assert!(line.chars().count() <= 80, "{command:?}: {line}");
        }
        // Words are whole: a narrow column would cut them.
        if command.contains(&"--limits") {
            for cell in ["| invocations |", "| minimal |", "|  cooperative_matrix_two_split |"] {
                assert_eq!(text.matches(cell).count(), 1 + usize::from(cell.len() > 20), "{text}");
            }
        }
        assert!(!text.contains('\u{1b}'), "{command:?}");
    }
}

#[test]
fn a_list_of_shapes_is_a_case_each_and_one_is_asked_for_where_one_is_taken() {
    let shape = ["--shape", "N=[64,128..=256*2],ACTIVATION=silu"];
    let checked = document(&lathe(&[&["check", "glu/naive", "--json"], &shape[..]].concat()));
    assert_eq!((checked["passed"].as_u64(), checked["failed"].as_u64()), (Some(3), Some(0)));
    let timed = document(&lathe(&[&["bench", "glu/naive", "--json"], &shape[..]].concat()));
    let sizes: Vec<_> = timed["cases"].as_array().unwrap().iter().map(|c| &c["shape"]).collect();
    assert_eq!(sizes.len(), 3);
    assert!(sizes[2].as_str().unwrap().starts_with("N=256,"), "{sizes:?}");
    assert_ends(&lathe(&[&["show", "glu/naive"], &shape[..]].concat()), 2, "names 3 shapes");
    let meant = lathe(&["check", "glu", "--shape", "ACTIVATON=silu"]);
    assert!(stderr(&meant).contains("did you mean `ACTIVATION`?"), "{}", stderr(&meant));
}

#[test]
fn limits_of_adapters_that_are_not_here() {
    let folder = Folder::new();
    let text = "enable f16;\n\
        @group(0) @binding(0) var<storage, read_write> y: array<f32>;\n\
        var<workgroup> a: array<f32, 5000>;\n\
        @compute @workgroup_size(512) fn large(@builtin(local_invocation_index) i: u32) {\n\
            a[i] = f32(f16(i)); workgroupBarrier(); y[i] = a[511u - i];\n}\n\
        @compute @workgroup_size(64) fn small(@builtin(local_invocation_index) i: u32) {\n\
            y[i] = f32(f16(i));\n}\n";
    let shown = folder.write("mine.wgsl", text);
    let output = lathe(&["validate", &shown, "--limits", "all", "--json"]);
    assert_eq!(code(&output), 1);
    let report = json(&output);
    let fits = |row: usize, profile: &str| {
        let fits = report["rows"][row]["fits"].as_array().unwrap();
        let fit = fits.iter().find(|fit| fit["profile"] == profile).unwrap();
        (fit["shapes"] == 1, fit["reasons"].to_string())
    };
    let (runs, why) = fits(0, "minimal");
    for part in ["shader-f16", "20000 bytes of workgroup memory", "512 invocations"] {
        assert!(!runs && why.contains(part), "{part}: {why}");
    }
    assert!(!fits(0, "adreno").0 && fits(0, "apple").0 && fits(0, "uhd620").0);
    assert!(!fits(1, "minimal").0 && !fits(1, "minimal").1.contains("bytes"));
    // What it fits is no failure, and every number has a source.
    assert_eq!(code(&lathe(&["validate", &shown, "--limits", "apple,uhd620"])), 0);
    for profile in report["profiles"].as_array().unwrap() {
        assert!(!profile["sources"].as_array().unwrap().is_empty(), "{profile}");
    }

    let built_in = json(&lathe(&["validate", "glu", "--limits", "minimal", "--json"]));
    assert_eq!(built_in["rows"][0]["name"], "glu/naive");
    let fit = &built_in["rows"][0]["fits"][0];
    assert!(fit["shapes"].as_u64().unwrap() > 0 && fit["shapes"] == fit["of"], "{fit}");
    let subgroup =
        json(&lathe(&["validate", "rms_norm/subgroup", "--limits", "minimal", "--json"]));
    let fit = &subgroup["rows"][0]["fits"][0];
    assert_eq!(fit["shapes"], 0);
    assert!(fit["reasons"][0].as_str().unwrap().contains("subgroup"), "{fit}");

    assert_ends(&lathe(&["validate", "glu", "--limits", "aple"]), 2, "did you mean `apple`?");
}

#[test]
fn a_model_may_be_the_first_word() {
    let file = golden_name("rusty/rusty-q6_k.gguf");
    for model in [&[file.as_str()][..], &["-m", &file], &["--model", &file]] {
        let words = [&["decode"], model, &["--prompt-tokens", "2,5", "-n", "2", "--no-verify"]];
        let output = lathe(&[&words.concat()[..], &["--json"]].concat());
        assert_eq!(document(&output)["generated"].as_array().unwrap().len(), 2);
    }
    assert_refused(&["decode", &file, "-m", &file, "--prompt-tokens", "2"], 2, "");
}

#[cfg(target_os = "linux")]
#[test]
fn drivers_do_not_complain_of_a_missing_folder() {
    let output = command(&["doctor"]).env_remove("XDG_RUNTIME_DIR").output().unwrap();
    assert!(!stderr(&output).contains("XDG_RUNTIME_DIR"), "{}", stderr(&output));
}

#[test]
fn without_an_adapter_exits_3_and_says_what_to_install() {
    let none = |args: &[&str]| {
        command(args)
            .env("VK_DRIVER_FILES", "/nonexistent")
            .env("VK_ICD_FILENAMES", "/nonexistent")
            .output()
            .unwrap()
    };
    if cfg!(target_os = "linux") {
        assert_ends(&none(&["doctor"]), 3, "mesa-vulkan-drivers");
        // The list itself needs no device.
        let list = document(&none(&["list", "--json"]));
        assert!(list["kernels"][0]["variants"][0]["available"].is_null());
    }
    ended(&lathe(&["doctor", "--adapter", "no such adapter"]), 3);
}

/// The checkpoints' own tests have a table of every way a file can be broken.
#[test]
fn a_broken_model_exits_5_and_is_named() {
    let folder = Folder::new();
    let sound = std::fs::read(golden("llama-tiny-f16.gguf")).unwrap();
    let cut = folder.write("cut.gguf", &sound[..sound.len() / 2]);
    let no_model = repository("fuzz/corpus/gguf/valid_everything");
    for file in [cut.as_str(), &no_model, "no-such-file.gguf"] {
        let decode = ["decode", file, "--prompt-tokens", "1", "--executor", "cpu"];
        for command in [&decode[..], &["inspect", file]] {
            assert_ends(&lathe(command), 5, file);
        }
    }
}

#[test]
fn validate_and_list_print_one_document() {
    let gpu = common::gpu();
    let report = document(&lathe(&["validate", "--json"]));
    assert_eq!(report["failed"], 0, "{report}");
    assert!(report["passed"].as_u64().unwrap() > 0);
    if gpu.is_none() {
        return;
    }
    let list = document(&lathe(&["list", "--json"]));
    for kernel in list["kernels"].as_array().unwrap() {
        for variant in kernel["variants"].as_array().unwrap() {
            assert!(variant["name"].is_string() && variant["requires"].is_array());
            assert!(variant["available"] == true || variant["reason"].is_string(), "{variant}");
        }
    }
    let doctor = document(&lathe(&["doctor", "--json"]));
    assert!(doctor["adapters"].as_array().is_some_and(|a| !a.is_empty()));
}

#[test]
fn show_prints_what_the_device_compiles() {
    let text = |args: &[&str]| printed(&lathe(args));
    let linked = text(&["show", "argmax/two_pass"]);
    assert_eq!(linked, lathe_kernels::source("argmax", "two_pass").unwrap().text);
    // A shape's numbers stand in the place of the overrides, stage after stage.
    let shaped = text(&["show", "residual_add/naive", "--shape", "N=1152"]);
    assert!(shaped.contains("1152") && !shaped.contains("override"), "{shaped}");
    let stages = text(&["show", "argmax/two_pass", "--as", "msl"]);
    assert!(stages.contains("// slices\n") && stages.contains("// choose\n"), "{stages}");
    assert!(text(&["show", "glu/naive", "--as", "hlsl"]).contains("RWByteAddressBuffer"));
    assert!(text(&["show", "glu/naive", "--as", "spirv"]).starts_with("07230203 "));
    let report = document(&lathe(&["show", "glu/naive", "--json"]));
    assert!(report["texts"][0]["text"].as_str().unwrap().contains("fn activate"));

    for args in ["glu", "glu/nonsense", "matmul/cooperative_matrix --as hlsl"] {
        assert_refused(&["show"].into_iter().chain(args.split(' ')).collect::<Vec<_>>(), 2, "");
    }
}

#[test]
fn show_prints_a_layer_that_is_one_dispatch() {
    let [quantised, dense] = ["llama-tiny-q4km.gguf", "llama-tiny-f16.gguf"].map(golden_name);
    let show = |args: &[&str]| lathe(&[&["show", "run", "--model"], args].concat());
    for (model, early) in [(&quantised, false), (&dense, true)] {
        let text = printed(&show(&[model, "--layer", "1"]));
        for op in ["// qkv,", "// attention,", "// attn_output,", "// ffn_gate_up,", "// ffn_down,"]
        {
            assert!(text.contains(op), "{op}\n{text}");
        }
        assert!(text.contains("run_await(") && !text.contains("override "), "{text}");
        // Dense weights are declared so that loads ahead of a wait stay there.
        assert_eq!(text.contains(") var<storage, read_write> run_buffer"), early, "{text}");
    }
    assert!(printed(&show(&[&quantised, "--as", "msl"])).contains("kernel void"));
    for args in [
        &[&*quantised, "--layer", "99"][..],
        &[&quantised, "--runs", "off"],
        &[&quantised, "--runs", "3x64"],
    ] {
        ended(&show(args), 2);
    }
}

#[test]
fn check_reports_each_case_and_repeats_one() {
    let Some(_) = common::gpu() else { return };
    let report = document(&lathe(&["check", "residual_add", "--cases", "3", "--json"]));
    assert_eq!(report["failed"], 0);
    let case = &report["cases"][0];
    for key in ["kernel", "variant", "shape", "seed", "status", "nmse"] {
        assert!(!case[key].is_null(), "{key} in {case}");
    }
    let [kernel, variant, shape] =
        ["kernel", "variant", "shape"].map(|k| case[k].as_str().unwrap());
    let (target, seed) = (format!("{kernel}/{variant}"), case["seed"].to_string());
    let again = lathe(&["check", &target, "--shape", shape, "--seed", &seed, "--json"]);
    assert_eq!(document(&again)["cases"][0]["nmse"], case["nmse"]);
}

#[test]
fn check_refuses_a_wrong_kernel_of_the_users_own() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let text = lathe_kernels::source("residual_add", "naive").unwrap().text;
    let check = |text: &str| {
        let file = folder.write("mine.wgsl", text);
        lathe(&["check", "residual_add/naive", "--cases", "2", "--wgsl", &file])
    };
    assert_eq!(code(&check(text)), 0);
    let wrong = check(&text.replace("x[i] + delta[i]", "x[i] - delta[i]"));
    assert_eq!(code(&wrong), 1);
    let said = stdout(&wrong);
    let repeat = said.lines().find_map(|line| line.trim().strip_prefix("repeat: lathe ")).unwrap();
    assert!(repeat.starts_with("check residual_add/naive --shape "), "{said}");
    // What it says repeats the failure, compiled in the same way.
    let words: Vec<&str> = repeat.split(' ').chain(["--unchecked-files"]).collect();
    let again = lathe(&words);
    assert_eq!(code(&again), 1);
    let said = stdout(&again);
    assert!(said.contains("repeat: ") && said.contains(" --unchecked-files"), "{said}");
    let shown = folder.path("mine.wgsl");
    let first = lathe(&["check", "residual_add", "--wgsl", &shown, "--fail-fast", "--cases", "2"]);
    assert_eq!(code(&first), 1);
    let said = stdout(&first);
    assert!(said.contains(": 0 passed, 1 failed, 0 unavailable, ") && said.contains(" not run ("));
    assert_ends(&check("fn main() {"), 2, "mine.wgsl");
}

#[test]
fn a_users_file_enters_whole_steps() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let model = golden_name("llama-tiny-f16.gguf");
    let base = ["--model", &model, "--prompt-tokens", "2,5", "-n", "2", "--untuned"];
    let with =
        |command: &str, hint: &str| lathe(&[&[command][..], &base, &["--hint", hint]].concat());
    let text = lathe_kernels::source("gemv", "naive").unwrap().text;
    let shown = folder.write("mine.wgsl", text);
    let place = "explicit hint, in the place of gemv/naive";
    let hints = serde_json::json!({ "hints": { "gemv": shown } });
    let manifest = folder.write("hints.json", hints.to_string());
    let hint = format!("gemv={shown}");
    for choice in
        [["--hint", &hint], ["--hint", &format!("gemv/naive={shown}")], ["--manifest", &manifest]]
    {
        let output = lathe(&[&["decode", "--verify", "--json"], &base[..], &choice].concat());
        let report = document(&output);
        let selected = report["selected"].as_array().unwrap();
        let mine: Vec<_> = selected.iter().filter(|s| s["kernel"] == "gemv").collect();
        assert!(!mine.is_empty());
        for s in mine {
            assert_eq!((s["variant"].as_str(), s["why"].as_str()), (Some(&*shown), Some(place)));
        }
    }
    ended(&with("diff", &hint), 0);

    // Against a built-in variant, in whole steps; the file carries checks and the other does not.
    let sides = ["ab", "decode", "--model", &model, "--a", "gemv=naive", "--b", &hint];
    let rest = ["--allow-software", "--time-out", "2", "--json"];
    let output = lathe(&[&sides[..], &rest].concat());
    assert!([0, 6].contains(&code(&output)), "{}", stderr(&output));
    assert_eq!(json(&output)["b"].as_str(), Some(&*hint));
    assert!(stderr(&output).contains("a user's file carries wgpu's run-time checks"));

    // One that is wrong is found, with its name, and by the first operation it serves.
    let wrong = text.replace("var sum = 0.0;", "var sum = 1.0;");
    assert_ne!(wrong, text);
    folder.write("mine.wgsl", &wrong);
    assert_ends(&with("diff", &hint), 1, &format!("gemv/{shown}"));

    // What cannot be is said before anything runs, with the file.
    let refused = |hint: &str, wanted: &str| assert_ends(&with("decode", hint), 2, wanted);
    folder.write("mine.wgsl", "fn main() {");
    refused(&hint, "mine.wgsl:2:1");
    folder.write("mine.wgsl", text.replace("fn main", "fn other"));
    refused(&hint, "mine.wgsl: has no entry point `main`");
    refused(&format!("gemv/fast={shown}"), "kernel gemv has no variant `fast`; there are naive");
    refused(&format!("gemm={shown}"), "no kernel `gemm`; did you mean `gemv`");
    refused("gemv=absent.wgsl", "absent.wgsl: ");
    refused("gemv/naive=vec4", "takes the place of a variant with a FILE.wgsl");
    // A file is given to be run: one for a kernel that the model has no use for is a mistake.
    let cast = lathe_kernels::source("cast", "naive").unwrap().text;
    let other = folder.write("scatter.wgsl", cast);
    refused(&format!("cast={other}"), "is a cast; its are ");
}

#[test]
fn decode_writes_logits_of_every_position_and_its_document() {
    let folder = Folder::new();
    let out = folder.path("logits.f32");
    let model = golden_name("qwen3-tiny-bf16.gguf");
    let base = ["decode", "--model", &model, "--prompt-tokens", "2,62,302", "--json"];
    let mut executors = vec!["cpu"];
    if common::gpu().is_some() {
        executors.push("gpu");
    }
    let mut seen = Vec::new();
    for executor in executors {
        let args = ["--executor", executor, "--force-tokens", "75,260", "--logits-out", &out];
        let report = document(&lathe(&[&base[..], &args].concat()));
        assert_eq!(report["generated"].as_array().unwrap().len(), 2);
        let logits: Vec<f32> = bytemuck::pod_collect_to_vec(&std::fs::read(&out).unwrap());
        assert_eq!(logits.len(), 5 * 320);
        seen.push(logits);
        let keys = "model adapter prompt_tokens generated ttft_ms prefill_tok_s decode_tok_s step_ms \
                    submits_per_token dispatches_per_token kv_cache_bytes gpu_memory_bytes \
                    bytes_per_token";
        for key in keys.split(' ') {
            assert!(!report[key].is_null(), "{key} in {report}");
        }
    }
    if let [cpu, gpu] = &seen[..] {
        let wide = |v: &[f32]| v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
        assert!(lathe_reference::nmse(wide(cpu), wide(gpu)) < 1e-5);
        let report = document(&lathe(&[&base[..], &["-n", "20", "--verify", "8"]].concat()));
        assert_eq!(report["verified"]["positions"], 8);
        assert!(report["submits_per_token"].as_f64().unwrap() <= 1.0);
        assert!(report["gpu_ms_per_token"].as_f64().is_some() || report["adapter"].is_object());
    }
}

/// A grid barrier on a software adapter times out. By default a decode goes on without the
/// persistent kernel and says so; a chosen or measured one fails.
#[test]
fn a_decode_goes_on_where_runs_that_nobody_chose_give_up() {
    let Some(gpu) = common::gpu() else { return };
    if !gpu.adapter.software {
        eprintln!("UNAVAILABLE, not tested: {} may run all workgroups at once", gpu.adapter.name);
        return;
    }
    let model = golden_name("llama-tiny-f16.gguf");
    let base = ["decode", "--model", &model, "--prompt-tokens", "2,62,302,75", "--ignore-eos"];
    let run = |more: &[&str]| lathe(&[&base[..], &["-n", "20", "--untuned"], more].concat());
    let off = document(&run(&["--runs", "off", "--json"]));
    assert!(off.get("runs_gave_up").is_none(), "{off}");
    // Verified step by step first, not at all, and in every position.
    let ways = [(&[][..], 0), (&["--no-verify"], 1), (&["--verify"], 0)];
    for (more, tokens) in ways {
        let output = run(&[more, &["--runs", "auto:64x64", "--json"]].concat());
        let said = ended(&output, 0);
        assert!(said.contains("waited in vain") && said.contains("going on"), "{more:?}: {said}");
        let report = document(&output);
        assert_eq!(report["generated"], off["generated"], "{more:?}");
        let gave_up = &report["runs_gave_up"];
        assert_eq!((&gave_up["grid"], &gave_up["tokens"]), (&"64x64".into(), &tokens.into()));
        assert_eq!(report["dispatches_per_token"], off["dispatches_per_token"], "{more:?}");
        // A figure is one way's or none.
        assert_eq!(report["decode_tok_s"].is_null(), tokens > 0, "{more:?}: {report}");
    }
    let bench = ["bench", "decode", "--model", &model, "-n", "4", "-p", "0", "-d", "0", "-r", "1"];
    let ab = ["ab", "decode", "--model", &model, "--a", "runs=off", "--b", "runs=auto:64x64"];
    for args in [
        &[&base[..], &["--runs", "64x64"]].concat()[..],
        &[&bench[..], &["--runs", "auto:64x64"]].concat(),
        &[&ab[..], &["--allow-software"]].concat(),
    ] {
        let output = lathe(args);
        assert_eq!(code(&output), 4, "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("--runs off"), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn decode_samples_by_seed() {
    let model = golden_name("qwen3-tiny-bf16.gguf");
    let base = ["decode", "--model", &model, "--prompt-tokens", "2,62,302", "-n", "20"];
    let base = [&base[..], &["--ignore-eos", "--json"]].concat();
    let run = |more: &[&str]| document(&lathe(&[&base[..], more].concat()));
    let warm = |executor, seed| {
        let settings = ["--temperature", "0.9", "--top-k", "40", "--top-p", "0.95"];
        let more = ["--repeat-penalty", "1.1", "--seed", seed, "--executor", executor];
        run(&[&settings[..], &more].concat())
    };
    let first = warm("cpu", "1");
    assert_eq!(first["sampling"]["seed"], 1);
    assert_eq!(first["sampling"]["top_k"], 40);
    assert_eq!(first["generated"], warm("cpu", "1")["generated"]);
    assert_ne!(first["generated"], warm("cpu", "2")["generated"]);
    let greedy = run(&["--executor", "cpu"]);
    assert!(greedy["sampling"].is_null());
    let zero = run(&["--executor", "cpu", "--temperature", "0"]);
    assert_eq!(greedy["generated"], zero["generated"]);
    if common::gpu().is_some() {
        assert_eq!(first["generated"], warm("gpu", "1")["generated"]);
        let verified = run(&["--temperature", "0.9", "--seed", "3", "--verify"]);
        assert_eq!(verified["verified"]["positions"], 22);
    }
    for (wrong, named) in [
        (&["--temperature", "nan"][..], "temperature"),
        (&["--temperature", "1e-9"], "temperature"),
        (&["--temperature", "1", "--top-p", "0"], "top-p"),
        (&["--temperature", "1", "--top-p", "1.5"], "top-p"),
        (&["--temperature", "1", "--repeat-penalty", "0"], "repeat-penalty"),
        (&["--temperature", "1", "--repeat-last-n", "9"], "repeat-penalty"),
        (&["--temperature", "1", "--seed", "4294967296"], "seed"),
        (&["--top-k", "40"], "temperature"),
        (&["--seed", "7"], "temperature"),
    ] {
        assert_ends(&lathe(&[&base[..], wrong].concat()), 2, named);
    }
}

#[test]
fn synth_never_overwrites() {
    let folder = Folder::new();
    let shown = folder.write("m.gguf", "precious");
    ended(&lathe(&["synth", "--arch", "llama-mini", "-o", &shown]), 2);
    assert_eq!(folder.read("m.gguf"), "precious");
    std::fs::remove_file(&shown).unwrap();
    let report = document(&lathe(&["synth", "--arch", "llama-mini", "-o", &shown, "--json"]));
    assert_eq!(report["bytes"].as_u64().unwrap(), std::fs::metadata(&shown).unwrap().len());
    let inspect = document(&lathe(&["inspect", &shown, "--json"]));
    assert_eq!(inspect["decodable"], true);
    let decode = ["decode", "--model", &shown, "--prompt", "hello", "-n", "2"];
    let text = lathe(&[&decode[..], &["--executor", "cpu", "--json"]].concat());
    assert!(document(&text)["text"].is_string());
}

/// Runs a command that may not write a file longer than a kilobyte, as on a disk that is full.
#[cfg(unix)]
fn without_room(args: &[&str]) -> Output {
    let quoted: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
    let script = format!(
        "trap '' XFSZ; ulimit -f 1; exec '{}' {}",
        env!("CARGO_BIN_EXE_lathe"),
        quoted.join(" ")
    );
    // A driver's cache of shaders would be cut short too.
    let mut bash = std::process::Command::new("bash");
    bash.args(["-c", &script]).env("MESA_SHADER_CACHE_DISABLE", "true").output().unwrap()
}

/// A file that a full disk cut short is not left under its name, and an earlier one stays.
#[cfg(unix)]
#[test]
fn a_file_that_cannot_be_written_whole_is_not_there() {
    let folder = Folder::new();
    let record = repository("cli/tests/records/2026-11-22-ladder-gemv_q.json");
    let page = folder.write("page.html", "<!doctype html>old");
    let model = golden_name("llama-tiny-f16.gguf");
    let decode = ["decode", &model, "--prompt-tokens", "1,2", "-n", "2", "--executor", "cpu"];
    let commands: [(String, Vec<&str>); 4] = [
        (page.clone(), vec!["report", &record, "-o"]),
        (folder.path("new.html"), vec!["report", &record, "-o"]),
        (folder.path("model.gguf"), vec!["quantize", &model, "--type", "q8_0", "-o"]),
        (folder.path("logits.bin"), [&decode[..], &["--logits-out"]].concat()),
    ];
    for (target, command) in &commands {
        let said = ended(&without_room(&[command, &[target.as_str()][..]].concat()), 2);
        assert!(said.contains(target.as_str()), "{command:?}: {said}");
        assert!(said.contains("File too large"), "{command:?}: {said}");
    }
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left, [PathBuf::from(&page)]);
    assert_eq!(folder.read("page.html"), "<!doctype html>old");
}

/// A verdict that cannot be saved is still said.
#[cfg(unix)]
#[test]
fn a_verdict_that_cannot_be_saved_is_printed() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let record = folder.path("ab.json");
    let ab = ["ab", "argmax", "--a", "naive", "--b", "workgroup", "--shape", "N=16"];
    let output = without_room(&[&ab[..], &["--allow-software", "--save", &record]].concat());
    assert!(stdout(&output).contains("B / A"), "{}", stdout(&output));
    assert_ends(&output, 2, "ab.json: File too large");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}
