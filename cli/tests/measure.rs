//! Measuring commands whose outputs are judged together: winners and what is stored, the sums
//! of a profile, rates, and files that are saved again. Others are scripts.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use lathe_harness::data::record::{Body, Record};
use serde_json::Value;

use crate::common::{self, Folder, document, ended, golden_name, lathe};

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

/// The log, the record's length and other pages are in `scripts/measure.txt`.
#[test]
fn a_profile_adds_up_and_its_page_is_offline() {
    let Some(gpu) = common::gpu() else { return };
    if !gpu.adapter.timestamps {
        return;
    }
    let folder = Folder::new();
    let (record, trace) = (folder.path("p.json"), folder.path("t.json"));
    let model = golden_name("gemma3-tiny-f16.gguf");
    let decode = ["decode", "--model", &model, "--prompt-tokens", "2,5,7", "-n", "12"];
    let into = ["--profile", &record, "--trace", &trace, "--allow-software"];
    ended(&lathe(&[&decode[..], &into].concat()), 0);
    let saved = Record::read(Path::new(&record)).unwrap();
    let Body::Profile(profile) = saved.body else { panic!("no profile") };
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
    ended(&lathe(&["report", &record, "-o", &folder.path("report.html")]), 0);
    let html = folder.read("report.html");
    assert!(html.len() < 500_000 && !html.contains("<script") && !html.contains("http"));
}

#[test]
fn rates_of_generations_follow_from_their_times() {
    let Some(_) = common::gpu() else { return };
    let model = golden_name("llama-tiny-f16.gguf");
    let bench = ["bench", "decode", "-m", &model, "-r", "2", "--untuned", "--no-verify", "--json"];
    for lengths in [&["-p", "4", "-n", "5", "-pg", "4,3"][..], &["-p", "0", "--sequences", "3"]] {
        let record = document(&lathe(&[&bench[..], lengths].concat()));
        for test in record["tests"].as_array().unwrap() {
            let number = |key: &str| test[key].as_f64().unwrap_or(1.0);
            let tokens = number("n_prompt") + number("n_gen") * number("sequences");
            let [ns, ts] = ["samples_ns", "samples_ts"].map(|key| test[key].as_array().unwrap());
            assert_eq!((ns.len(), ts.len()), (2, 2));
            for (ns, ts) in ns.iter().zip(ts) {
                let rate = tokens / (ns.as_f64().unwrap() * 1e-9);
                assert!((rate / ts.as_f64().unwrap() - 1.0).abs() < 1e-6, "{test}");
            }
            assert_eq!(test["tok_s"]["mean"], test["avg_ts"]);
            assert_eq!(test["tok_s"]["sd"], test["stddev_ts"]);
        }
    }
}

#[test]
fn watch_runs_again_when_the_file_is_saved() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let text = lathe_kernels::source("residual_add", "naive").unwrap().text;
    let file = folder.write("mine.wgsl", text);
    let check = ["check", "residual_add", "--cases", "1", "--watch", "--wgsl", &file];
    let mut watch = common::command(&check);
    let mut child = watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut verdicts = lines.filter(|line| line.contains(" passed, "));
    // The command ends with the test, or where no verdict comes.
    let (done, over) = mpsc::channel::<()>();
    let ends = std::thread::spawn(move || {
        let _ = over.recv_timeout(Duration::from_secs(120));
        child.kill().and_then(|()| child.wait()).unwrap();
    });
    assert!(verdicts.next().unwrap().contains(" 0 failed"));
    // A save is seen by its time, which some file systems keep to the second.
    std::thread::sleep(Duration::from_millis(1100));
    folder.write("mine.wgsl", text.replace("x[i] + delta[i]", "x[i] - delta[i]"));
    assert!(verdicts.next().unwrap().contains(" 0 passed"));
    drop(done);
    ends.join().unwrap();
}
