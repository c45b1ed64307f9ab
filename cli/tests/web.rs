//! `export-web` without a browser: a plan has all that an executor elsewhere needs, and the expected
//! values are those of loops written here.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::common::{
    Folder, assert_ends, code, document, golden_name, ids, lathe, repository, said,
};

/// A plan with its bytes.
struct Plan {
    json: Value,
    bytes: Vec<u8>,
}

impl Plan {
    fn export(folder: &Folder, args: &[&str]) -> Self {
        let out = folder.path("out");
        let done = lathe(&[&["export-web", "-o", &out, "--json"], args].concat());
        assert_eq!(code(&done), 0, "{}", said(&done));
        document(&done);
        let read = |name: &str| std::fs::read(Path::new(&out).join(name)).unwrap();
        Self { json: serde_json::from_slice(&read("plan.json")).unwrap(), bytes: read("plan.bin") }
    }

    fn kind(&self, name: &str) -> &Value {
        let kinds = self.json["kinds"].as_array().unwrap();
        kinds.iter().find(|kind| kind["name"] == name).unwrap()
    }

    fn bytes(&self, range: &Value) -> &[u8] {
        let [at, len] = [0, 1].map(|i| range[i].as_u64().unwrap() as usize);
        &self.bytes[at..at + len]
    }

    fn bytes_or_none(&self, range: &Value) -> usize {
        if range.is_null() { 0 } else { self.bytes(range).len() }
    }

    fn f32s(&self, range: &Value) -> Vec<f32> {
        let words = self.bytes(range).chunks_exact(4);
        words.map(|w| f32::from_le_bytes(w.try_into().unwrap())).collect()
    }

    fn f64s(&self, range: &Value) -> Vec<f64> {
        let words = self.bytes(range).chunks_exact(8);
        words.map(|w| f64::from_le_bytes(w.try_into().unwrap())).collect()
    }

    fn stages<'a>(&'a self, kind: &'a Value) -> impl Iterator<Item = (&'a Value, &'a str)> {
        let of = |list: &'a Value, key: &'static str| {
            list.as_array().unwrap().iter().flat_map(move |one| one[key].as_array().unwrap())
        };
        let models = kind["models"].as_array().unwrap().iter();
        let all = of(&kind["check"], "stages").chain(of(&kind["bench"], "stages"));
        let all = all.chain(of(&kind["models"], "step"));
        let all = all.chain(models.flat_map(move |model| of(&model["chunks"], "step")));
        all.map(|stage| {
            let text = &self.json["texts"][stage["text"].as_u64().unwrap() as usize];
            (stage, text["wgsl"].as_str().unwrap())
        })
    }
}

fn tensor<'a>(case: &'a Value, name: &str) -> &'a Value {
    let tensors = case["tensors"].as_array().unwrap();
    tensors.iter().find(|tensor| tensor["name"] == name).unwrap()
}

#[test]
fn a_case_has_inputs_and_the_products_that_a_loop_makes_of_them() {
    let folder = Folder::new();
    let shape = ["--shape", "ROWS=7,K=12,WEIGHT=f32"];
    let plan = Plan::export(&folder, &[&["gemv/naive", "--kinds", "minimal"], &shape[..]].concat());
    let cases = plan.kind("minimal")["check"].as_array().unwrap();
    let [case] = &cases[..] else { panic!("{} cases", cases.len()) };
    assert_eq!(case["seed"], 42);
    assert!(case["repeat"].as_str().unwrap().starts_with("lathe check gemv/naive --shape ROWS=7,"));
    let output = case["tensors"].as_array().unwrap().iter().position(|t| t["name"] == "y");
    for (run, which) in ["first", "second"].into_iter().enumerate() {
        let weights = plan.f32s(&tensor(case, "weights")["first"]);
        let x = plan.f32s(&tensor(case, "x")[which]);
        let [outcome] = &case["runs"][run].as_array().unwrap()[..] else { panic!("one output") };
        assert_eq!(outcome["tensor"].as_u64().map(|at| at as usize), output);
        assert_eq!((&outcome["len"], &outcome["spreads"]), (&Value::from(7), &false.into()));
        let (value, bound) = (plan.f64s(&outcome["value"]), plan.f32s(&outcome["bound"]));
        assert_eq!((value.len(), bound.len()), (7, 7));
        for (row, (value, bound)) in value.iter().zip(&bound).enumerate() {
            let terms = || (0..12).map(|k| f64::from(weights[12 * row + k]) * f64::from(x[k]));
            let (sum, magnitude): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
            assert!((value - sum).abs() <= 1e-12 * magnitude, "{value} is not {sum}");
            // Some roundings of f32, and no more.
            let bound = f64::from(*bound);
            assert!(bound > 1e-7 * magnitude && bound < 1e-5 * magnitude, "{bound} {magnitude}");
        }
    }
    assert_ne!(tensor(case, "x")["first"], tensor(case, "x")["second"]);
}

#[test]
fn plans_keep_to_what_their_devices_have() {
    let folder = Folder::new();
    // Every rule of judging and every role of tensors among them.
    let kernels = ["gemv", "attention_append", "lm_head_topk", "lm_head_argmax"];
    let plan = Plan::export(&folder, &kernels);
    let mut rules = HashSet::new();
    for kind in plan.json["kinds"].as_array().unwrap() {
        let (name, subgroups) = (&kind["name"], !kind["needs"]["subgroups"].is_null());
        let (check, unavailable) = (kind["check"].as_array().unwrap(), &kind["unavailable"]);
        assert!(!check.is_empty(), "{name}");
        for one in unavailable.as_array().unwrap() {
            assert!(!one["reason"].as_str().unwrap().is_empty(), "{one}");
        }
        for (stage, text) in plan.stages(kind) {
            let bindings = stage["bindings"].as_array().unwrap();
            assert!(bindings.len() <= 8, "{name}: {} buffers: {text}", bindings.len());
            assert!(subgroups || !text.contains("enable subgroups;"), "{name}: {text}");
            assert!(!text.contains("enable f16;") && !text.contains("override "), "{name}: {text}");
            let groups = stage["groups"].as_array().unwrap();
            assert!(groups.iter().all(|n| (1..=65535).contains(&n.as_u64().unwrap())), "{stage}");
        }
        for case in check {
            let tensors = case["tensors"].as_array().unwrap();
            for stage in case["stages"].as_array().unwrap() {
                for binding in stage["bindings"].as_array().unwrap() {
                    let at = binding[3].as_u64().unwrap() as usize;
                    let role = tensors[at]["role"].as_str().unwrap();
                    // What is only read cannot have changed, so only the others are judged.
                    assert!(binding[2] != "write" || role != "input", "{case}");
                }
            }
            for tensor in tensors {
                let bytes = tensor["bytes"].as_u64().unwrap();
                for which in ["first", "second"] {
                    let range = &tensor[which];
                    let poisoned =
                        ["output", "scratch"].contains(&tensor["role"].as_str().unwrap());
                    assert!(!poisoned || range.is_null(), "{tensor}");
                    if !range.is_null() {
                        let len = plan.bytes(range).len() as u64;
                        assert!(len <= bytes.next_multiple_of(4) && len + 3 >= bytes, "{tensor}");
                    }
                }
            }
            for outcome in
                case["runs"].as_array().unwrap().iter().flat_map(|r| r.as_array().unwrap())
            {
                rules.insert(outcome["rule"].as_str().unwrap().to_owned());
            }
        }
    }
    assert!(rules.contains("real") && rules.contains("ranking"), "{rules:?}");
}

#[test]
fn large_cases_are_left_out_where_asked_and_said() {
    let folder = Folder::new();
    let args = ["gemv/naive", "--kinds", "minimal", "--case-bytes", "4KiB"];
    let plan = Plan::export(&folder, &args);
    let kind = plan.kind("minimal");
    let (check, out) = (kind["check"].as_array().unwrap(), kind["unavailable"].as_array().unwrap());
    let left_out = |one: &&Value| one["reason"].as_str().unwrap().starts_with("left out");
    assert!(!check.is_empty() && out.iter().filter(left_out).count() > 3, "{out:?}");
    for case in check {
        let tensors = case["tensors"].as_array().unwrap().iter();
        let bytes =
            tensors.map(|t| plan.bytes_or_none(&t["first"]) + plan.bytes_or_none(&t["second"]));
        assert!(bytes.sum::<usize>() <= 4096, "{case}");
    }
}

/// The page decodes to the text of the command.
#[test]
fn a_model_has_the_tokens_of_decode_and_their_spelling() {
    let folder = Folder::new();
    let (model, prompt) = (golden_name("rusty/rusty-q6_k.gguf"), "The borrow checker");
    let settings = ["--prompt", prompt, "-n", "12", "--kv", "f32"];
    let args =
        [&[&*model, "--verify", "--kinds", "large,minimal", "--context", "64"], &settings[..]];
    let plan = Plan::export(&folder, &args.concat());
    let decoded =
        lathe(&[&["decode", "--executor", "cpu", "--json", &model], &settings[..]].concat());
    assert_eq!(code(&decoded), 0, "{}", said(&decoded));
    let decoded = document(&decoded);
    for name in ["large", "minimal"] {
        let [model] = &plan.kind(name)["models"].as_array().unwrap()[..] else { panic!("a model") };
        let prompt = &model["prompts"][0];
        assert_eq!(ids(&prompt["expected"]), ids(&decoded["generated"]));
        // The weights are there once, and every tensor that is read before it is written.
        let words = |range: &Value| -> Vec<u32> {
            let words = plan.bytes(range).chunks_exact(4);
            words.map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect()
        };
        let (ends, bytes) = (words(&model["spelling"]["ends"]), &model["spelling"]["bytes"]);
        assert_eq!(ends.len() as u64, model["vocab"].as_u64().unwrap());
        let end = |at: usize| (ends[at] & !(1 << 31)) as usize;
        let spelled = ids(&prompt["expected"]).into_iter().flat_map(|token| {
            let at = token as usize;
            let from = if at == 0 { 0 } else { end(at - 1) };
            plan.bytes(bytes)[from..end(at)].to_vec()
        });
        let text = String::from_utf8(spelled.collect()).unwrap();
        assert_eq!(text, prompt["expected_text"].as_str().unwrap());
        // A prompt's chunks end before what the last token alone goes through.
        let step = model["step"].as_array().unwrap();
        let tail = &step[model["tail"].as_u64().unwrap() as usize..];
        assert!(
            tail.len() < step.len() && tail.iter().any(|s| s["label"] == "lm_head"),
            "{tail:?}"
        );
        assert!(!model["chunks"].as_array().unwrap().is_empty());
    }
}

#[test]
fn a_single_page_has_the_plan_its_data_and_its_modules() {
    let folder = Folder::new();
    let args = ["gemv/naive", "--kinds", "minimal", "--shape", "ROWS=7,K=12,WEIGHT=f32"];
    let plan = Plan::export(&folder, &args);
    let out = folder.path("single");
    let done = lathe(&[&["export-web", "-o", &out, "--single"], &args[..]].concat());
    assert_eq!(code(&done), 0, "{}", said(&done));
    let page = std::fs::read_to_string(Path::new(&out).join("lathe.html")).unwrap();
    let inside = |before: &str| {
        let (_, rest) = page.split_once(before).unwrap();
        rest.split_once("</script>").unwrap().0
    };
    let json = inside(r#"<script type="application/json" id="plan">"#);
    assert_eq!(serde_json::from_str::<Value>(json).unwrap(), plan.json);
    let data = inside(r#"<script type="text/plain" id="data">"#);
    assert_eq!(STANDARD.decode(data).unwrap(), plan.bytes);
    for outside in ["src=", "href=\"", "import ", "https://"] {
        let found = page.lines().find(|line| line.contains(outside) && !line.contains("//"));
        assert_eq!(found, None);
    }
    // Nothing but the page.
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_exported_is_said() {
    let folder = Folder::new();
    let out = folder.path("out");
    let refused = |args: &[&str], code: i32, words: &str| {
        assert_ends(&lathe(&[&["export-web", "-o", &out], args].concat()), code, words);
    };
    let taken = folder.path("taken");
    std::fs::create_dir(&taken).unwrap();
    folder.write("taken/index.html", "mine");
    let over = lathe(&["export-web", "gemv/naive", "-o", &taken]);
    assert_ends(&over, 2, "index.html exists; an export overwrites nothing");
    assert_eq!(folder.read("taken/index.html"), "mine");
    refused(&["gemm"], 2, "no kernel `gemm`");
    refused(&["gemv", "--kinds", "large,small"], 2, "no kind `small`");
    refused(&["mine.wgsl"], 2, "KERNEL/VARIANT=mine.wgsl");
    refused(&["--shape", "K=64"], 2, "--shape goes with one kernel");
    refused(&["gemv", "--prompt", "x"], 2, "a prompt and logits go with a checkpoint");
    let model = golden_name("rusty/rusty-q6_k.gguf");
    refused(&[&model], 2, "give a --prompt");
    refused(&[&model, "--prompt-tokens", "2,x"], 2, "not token ids");
    refused(&[&model, "--prompt-tokens", "2", "-n", "64", "--context", "16"], 2, "it has 16");
}

/// Logits of a golden go with its prompt, and Dawn has them; others fail.
#[test]
fn goldens_have_their_logits_under_dawn() {
    let folder = Folder::new();
    let golden = repository("cli/tests/goldens/qwen3-tiny-q80");
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(format!("{golden}.json")).unwrap()).unwrap();
    // Software Vulkan takes half a second per token.
    const TOKENS: usize = 6;
    let tokens = ids(&json["prompt"]);
    let text: Vec<String> = tokens[..TOKENS].iter().map(u32::to_string).collect();
    let mut rows = std::fs::read(format!("{golden}.logits.f32")).unwrap();
    rows.truncate(TOKENS * rows.len() / 64);
    let (model, logits) = (format!("{golden}.gguf"), folder.write("logits", &rows));
    let args = |logits: &str| {
        let text = text.join(",");
        ["export-web", &model, "--kinds", "minimal", "--kv", "f32", "--context", "8", "-n", "2"]
            .map(str::to_owned)
            .into_iter()
            .chain(["--prompt-tokens", &text, "--logits", logits].map(str::to_owned))
            .chain(["--logits-limit", "1e-8", "-o"].map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let out = folder.path("out");
    let export = |logits: &str, out: &str| {
        let args = args(logits);
        let args: Vec<&str> = args.iter().map(String::as_str).chain([out]).collect();
        lathe(&args)
    };
    let short = folder.write("short", [0; 12]);
    assert_ends(&export(&short, &folder.path("no")), 2, "has 12 bytes; 6 tokens");
    assert_ends(&export(&logits, &out), 0, "");
    let read = |name: &str| std::fs::read(Path::new(&out).join(name)).unwrap();
    let plan =
        Plan { json: serde_json::from_slice(&read("plan.json")).unwrap(), bytes: read("plan.bin") };
    let given = &plan.kind("minimal")["models"][0]["prompts"][0]["logits"];
    assert_eq!(plan.bytes(&given["rows"]), rows);
    assert_eq!((given["nmse"].as_f64(), given["chunk_nmse"].as_f64()), (Some(1e-8), Some(1e-8)));

    let Some(dawn) = dawn() else { return };
    let decode = |out: &str, ends: i32| {
        let ran = dawn(&[&format!("{out}/node.mjs"), out, "decode", "-o", out]);
        assert_ends(&ran, ends, "");
        let record = std::fs::read_to_string(Path::new(out).join("decode.json")).unwrap();
        let record: Value = serde_json::from_str(&record).unwrap();
        record["results"][0]["logits"].clone()
    };
    let found = decode(&out, 0);
    assert_eq!(found["rows"], TOKENS, "{found}");
    assert!(found["chunked_rows"].as_u64().unwrap() > 2, "{found}");
    for key in ["nmse", "chunked_nmse"] {
        assert!((1e-16..1e-8).contains(&found[key].as_f64().unwrap()), "{found}");
    }
    // One logit of the last token is another.
    let at = rows.len() - 4;
    rows[at..].copy_from_slice(&9f32.to_le_bytes());
    let wrong = folder.write("wrong", rows);
    let out = folder.path("wrong-out");
    assert_ends(&export(&wrong, &out), 0, "");
    let found = decode(&out, 1);
    assert!(found["nmse"].as_f64().unwrap() > 1e-5, "{found}");
}

/// Runs Node with Dawn on software Vulkan; none where one of them is missing, which is said.
fn dawn() -> Option<impl Fn(&[&str]) -> Output> {
    const SWIFTSHADER: &str = "/usr/lib/chromium/vk_swiftshader_icd.json";
    let Some(package) = std::env::var_os("LATHE_WEBGPU") else {
        eprintln!("UNAVAILABLE, not tested: LATHE_WEBGPU names no npm package webgpu");
        return None;
    };
    let folder = if cfg!(target_arch = "aarch64") { "linux-arm64" } else { "linux-x64" };
    let file = Path::new(&package).join("dist").join(folder).join("dawn.node");
    Some(move |args: &[&str]| {
        let mut node = Command::new("node");
        node.args(args).env("DAWN_NODE", &file);
        // Dawn refuses Mesa's software Vulkan before version 24.
        if Path::new(SWIFTSHADER).exists() {
            node.env("VK_DRIVER_FILES", SWIFTSHADER).env("VK_ICD_FILENAMES", SWIFTSHADER);
        }
        node.output().unwrap()
    })
}

/// The judge of the page on planted faults, as `lathe check` judges them.
#[test]
fn the_page_judges_as_check_does() {
    if Command::new("node").arg("--version").output().is_err() {
        return eprintln!("UNAVAILABLE, not tested: node is not here");
    }
    let folder = Folder::new();
    let kernels = ["argmax", "lm_head_topk", "residual_norm_ffn", "--case-bytes", "32KiB"];
    Plan::export(&folder, &[&kernels[..], &["--kinds", "subgroups"]].concat());
    let judge =
        Command::new("node").args([repository("web/judge.mjs"), folder.path("out")]).output();
    assert_ends(&judge.unwrap(), 0, "");
}

/// Records that `node.mjs` wrote on an H200 under Dawn.
#[test]
fn records_of_other_engines_are_read_like_any_other() {
    let folder = Folder::new();
    for (name, words) in [("bench", "subgroup_multicol"), ("decode", "tg63 @ d8")] {
        let record = repository(&format!("cli/tests/records/2026-11-29-page-{name}.json"));
        let page = folder.path(&format!("{name}.html"));
        assert_ends(&lathe(&["report", &record, "-o", &page]), 0, "");
        assert!(folder.read(&format!("{name}.html")).contains(words), "{name}");
        let table = folder.path(&format!("{name}.csv"));
        assert_ends(&lathe(&["merge", &record, "-o", &table]), 0, "");
        // The same run is no slowdown of itself.
        assert_ends(&lathe(&["compare", &record, &table]), 0, "");
    }
}
