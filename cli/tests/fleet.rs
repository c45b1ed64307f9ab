//! Many adapters and machines: shards are disjoint and complete, `merge` joins what they wrote and
//! says what contradicts, each adapter has a process of its own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use lathe_harness::data::merge::merge;
use lathe_harness::data::record::{Bench, Body, Record};
use lathe_harness::plan::tuned::Store;
use serde_json::Value;

use crate::common::{Folder, assert_ends, code, document, ended, lathe_in, stderr};

fn record(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/records/nvidia-h200").join(name)
}

/// A committed run of ten variants of one shape.
const LADDER: &str = "2026-11-22-ladder-gemv_q.json";

fn bench(record: &Record) -> &Bench {
    let Body::Bench(bench) = &record.body else { panic!("a {}", record.body.what()) };
    bench
}

fn bench_of(record: &mut Record) -> &mut Bench {
    let Body::Bench(bench) = &mut record.body else { panic!("no bench") };
    bench
}

/// The cases of a run as the runs of several shards, each on its own machine and at its own time.
fn shards(whole: &Record, count: usize) -> Vec<(PathBuf, Record)> {
    let shard = |i: usize| {
        let mut part = whole.clone();
        let environment = &mut part.environment;
        environment.date = format!("2026-11-2{i}T00:00:00Z");
        environment.seed = Some(i as u64);
        environment.copy_gb_s = Some(4000.0 + i as f64);
        let cases = bench_of(&mut part).cases.clone().into_iter().enumerate();
        bench_of(&mut part).cases =
            cases.filter(|(at, _)| at % count == i).map(|(_, case)| case).collect();
        (PathBuf::from(format!("{i}.json")), part)
    };
    (0..count).map(shard).collect()
}

/// Names of the cases of records, sorted.
fn names<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<String> {
    let mut all: Vec<String> = records
        .into_iter()
        .flat_map(|record| &bench(record).cases)
        .map(|case| {
            format!("{}/{} {} {}", case.kernel, case.variant, case.shape, case.cold.median_us)
        })
        .collect();
    all.sort();
    all
}

#[test]
fn shards_of_one_setting_become_one_record_and_others_stay_apart() {
    let whole = Record::read(&record(LADDER)).unwrap();
    let parts = shards(&whole, 3);
    let merged = merge(parts.clone(), None).unwrap();
    let [one] = merged.merged.as_slice() else { panic!("{} records", merged.merged.len()) };
    assert_eq!(names([one]), names([&whole]));
    assert_eq!((merged.notes.len(), merged.contradictions.len()), (0, 0));
    let runs = &bench(one).runs;
    assert_eq!(runs.iter().map(|run| run.cases).sum::<usize>(), bench(&whole).cases.len());
    assert_eq!(
        runs.iter().map(|run| run.environment.seed).collect::<Vec<_>>(),
        [0, 1, 2].map(Some)
    );
    // What differs from run to run is in the runs.
    assert_eq!((one.environment.seed, one.environment.copy_gb_s), (None, Some(4002.0)));
    assert_eq!(one.environment.date, "2026-11-20T00:00:00Z");

    // In any order, and of what was merged already.
    let mut turned = parts.clone();
    turned.reverse();
    let json = |records: &[Record]| serde_json::to_value(records).unwrap();
    assert_eq!(json(&merge(turned, None).unwrap().merged), json(&merged.merged));
    let two = merge(parts[..2].to_vec(), None).unwrap().merged.swap_remove(0);
    let again = merge(vec![("two.json".into(), two), parts[2].clone(), parts[0].clone()], None);
    let again = again.unwrap();
    assert_eq!(json(&again.merged), json(&merged.merged));
    assert!(again.notes[0].contains("two.json and 0.json are one run"), "{:?}", again.notes);

    type Change = fn(&mut Record);
    let changes: [Change; 7] = [
        |r| r.environment.adapter = "another".into(),
        |r| r.environment.driver = "another".into(),
        |r| r.environment.runtime_checks = "on".into(),
        |r| r.environment.wgsl = Some("another".into()),
        |r| r.environment.commit = Some("another".into()),
        |r| r.environment.processes = Some(3),
        |r| {
            let variables = &mut r.environment.machine.get_or_insert_default().variables;
            variables.insert("WGPU_BACKEND".into(), "vulkan".into());
        },
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let mut parts = parts.clone();
        change(&mut parts[1].1);
        let merged = merge(parts, None).unwrap().merged;
        assert_eq!(merged.len(), 2, "change {i}");
        assert_eq!(names(&merged), names([&whole]), "change {i}");
    }
    // Changes in the tree that nobody can name.
    let mut unknown = parts.clone();
    for (_, part) in &mut unknown {
        part.environment.dirty = Some(true);
        part.environment.wgsl = None;
    }
    assert_eq!(merge(unknown, None).unwrap().merged.len(), 3);
}

#[test]
fn a_case_measured_again_is_kept_and_a_run_given_again_is_not() {
    let whole = Record::read(&record(LADDER)).unwrap();
    let mut later = whole.clone();
    later.environment.date = "2026-11-29T00:00:00Z".into();
    let at = |name: &str, record: &Record| (PathBuf::from(name), record.clone());
    let merged = merge(vec![at("a", &whole), at("b", &later), at("c", &whole)], None).unwrap();
    assert_eq!(merged.merged.len(), 2);
    assert!(merged.contradictions.is_empty());
    let said = merged.notes.join("\n");
    assert!(said.contains("a and c are one run"), "{said}");
    assert!(said.contains("b: gemv_q/") && said.contains("measured before"), "{said}");
    // What failed in one run is no case of another in the same record.
    let mut failed = later.clone();
    let cases = std::mem::take(&mut bench_of(&mut failed).cases);
    let first = &cases[0];
    let text = format!("{}/{} {}: wrong", first.kernel, first.variant, first.shape);
    bench_of(&mut failed).failed = vec![text];
    assert_eq!(merge(vec![at("a", &whole), at("b", &failed)], None).unwrap().merged.len(), 2);

    // A copy that was taken while the run went on.
    let mut short = whole.clone();
    bench_of(&mut short).cases.truncate(3);
    short.environment.canary_drift = Some(0.5);
    for files in [[at("a", &short), at("b", &whole)], [at("b", &whole), at("a", &short)]] {
        let merged = merge(files.to_vec(), None).unwrap();
        assert_eq!(names(&merged.merged), names([&whole]));
        assert_eq!(merged.notes.len(), 1);
    }
    // One run cannot have taken two times for a case.
    let mut edited = whole.clone();
    let cold = &mut bench_of(&mut edited).cases[1].cold;
    cold.median_us += 1.0;
    cold.samples_us = vec![cold.median_us; 5];
    let files = vec![at("a", &whole), at("b", &edited)];
    let torn = merge(files.clone(), None).unwrap();
    let said = &torn.contradictions[0];
    assert!(said.contains("a and b are one run") && said.contains("gemv_q/"), "{said}");
    let first = merge(files, Some("first".parse().unwrap())).unwrap();
    assert_eq!((names(&first.merged), first.contradictions.len()), (names([&whole]), 0));

    // A record whose runs were changed by hand.
    let mut torn = merge(shards(&whole, 2), None).unwrap().merged.swap_remove(0);
    bench_of(&mut torn).runs[0].cases += 1;
    let why = merge(vec![at("torn.json", &torn)], None).unwrap_err();
    assert!(why.starts_with("torn.json: ") && why.contains("by hand"), "{why}");
}

#[test]
fn merge_writes_records_that_report_and_compare_read() {
    let at = &Folder::new();
    let whole = Record::read(&record(LADDER)).unwrap();
    for (name, mut part) in shards(&whole, 3) {
        if name == Path::new("1.json") {
            part.environment.adapter = "Other / GPU".into();
        }
        part.write(&at.as_ref().join(name)).unwrap();
    }
    let merged = ["merge", "0.json", "1.json", "2.json", "-o", "out", "--json"];
    let merged = document(&lathe_in(at, &merged));
    let files: Vec<_> = merged["records"].as_array().unwrap().iter().map(|r| &r["file"]).collect();
    assert_eq!(files, ["nvidia-h200.json", "other-gpu.json"]);
    assert_eq!(merged["records"][0]["runs"], 2);
    let schema = jsonschema::validator_for(&lathe_harness::data::record::schema()).unwrap();
    let text = at.read("out/nvidia-h200.json");
    assert!(schema.is_valid(&serde_json::from_str(&text).unwrap()));
    let page =
        lathe_in(at, &["report", "out/nvidia-h200.json", "out/other-gpu.json", "-o", "p.html"]);
    assert_eq!(code(&page), 0, "{}", stderr(&page));
    let same = lathe_in(at, &["compare", "out/nvidia-h200.json", "out/nvidia-h200.json"]);
    assert_eq!(code(&same), 0, "{}", stderr(&same));

    // Nothing is replaced unasked, and asked for only what this command writes.
    let again = ["merge", "0.json", "2.json", "-o", "out"];
    assert_ends(&lathe_in(at, &again), 2, "out: exists; --force replaces it");
    // Asked for neither, where a record would be gone.
    let refused = lathe_in(at, &[&again[..], &["--force"]].concat());
    assert_ends(&refused, 2, "other-gpu.json: ");
    assert!(stderr(&refused).contains("in none of the inputs"), "{}", stderr(&refused));
    assert_eq!(fs::read_dir(at.join("out")).unwrap().count(), 2);
    let again = ["merge", "0.json", "1.json", "2.json", "-o", "out"];
    ended(&lathe_in(at, &[&again[..], &["--force"]].concat()), 0);
    assert_eq!(fs::read_dir(at.join("out")).unwrap().count(), 2);
    at.write("out/notes.txt", "mine");
    assert_ends(&lathe_in(at, &[&again[..], &["--force"]].concat()), 2, "notes.txt");
    assert_eq!(at.read("out/notes.txt"), "mine");

    // Rows of `--format jsonl` are the same run.
    let rows =
        lathe_harness::report::cases::jsonl(&bench(&whole).cases, &whole.environment).unwrap();
    at.write("rows.jsonl", rows);
    whole.write(&at.join("whole.json")).unwrap();
    let merged = lathe_in(at, &["merge", "rows.jsonl", "whole.json", "-o", "rows", "--json"]);
    let merged = document(&merged);
    assert_eq!(merged["records"].as_array().unwrap().len(), 1);
    assert_eq!(merged["records"][0]["cases"], bench(&whole).cases.len());
    assert!(merged["notes"][0].as_str().unwrap().contains("counted once"), "{merged}");
    // Nor does it matter whether a row is there twice, or in which file.
    let rows = at.read("rows.jsonl");
    let (first, second) = rows.split_at(rows.find('\n').unwrap() + 1);
    at.write("first.jsonl", first.repeat(2));
    at.write("second.jsonl", second);
    let parts = lathe_in(at, &["merge", "first.jsonl", "second.jsonl", "-o", "parts", "--json"]);
    let parts = document(&parts);
    assert_eq!(parts["records"].as_array().unwrap().len(), 1, "{parts}");
    assert_eq!(parts["records"][0]["cases"], bench(&whole).cases.len());
}

#[test]
fn what_cannot_be_merged_is_refused_by_name() {
    let at = &Folder::new();
    let write = |name: &str, text: &str| at.write(name, text);
    let whole = fs::read_to_string(record(LADDER)).unwrap();
    write("record.json", &whole);
    write("store.json", r#"{"schema_version":1,"entries":[]}"#);
    write("new.json", &whole.replace("\"schema_version\":1", "\"schema_version\":9"));
    write("short.json", &whole[..whole.len() / 2]);
    write("empty.json", "");
    write("other.json", r#"{"schema_version":1,"records":[]}"#);
    write("list.json", "[1]");
    write("entry.json", r#"{"schema_version":1,"entries":[{"adapter":"A"}]}"#);
    write(
        "row.jsonl",
        r#"{"schema_version":1,"kind":"bench_case","environment":{},"kernel":"gemv"}"#,
    );
    let mut keyless: Value = serde_json::from_str(&whole).unwrap();
    keyless["cases"][2].as_object_mut().unwrap().remove("kernel");
    write("keyless.json", &keyless.to_string());
    for (files, why) in [
        (&["none.json"][..], "none.json: No such file"),
        (&["new.json"], "new.json: schema_version 9"),
        (&["short.json"], "short.json: not JSON: EOF"),
        (&["empty.json"], "empty.json: holds no document"),
        (&["other.json"], "other.json: neither a record, which has `kind`"),
        (&["list.json"], "list.json: neither"),
        (&["entry.json"], "entry.json: missing field `driver`"),
        (&["row.jsonl"], "row.jsonl: not a record: missing field"),
        (&["keyless.json"], "keyless.json: not a record: missing field `kernel`"),
        (&["record.json", "store.json"], "store.json a store of tuned choices"),
        (&["record.json", "--prefer", "best"], "expected newest or first"),
        (&["."], "is a directory"),
    ] {
        assert_ends(&lathe_in(at, &[&["merge"], files, &["-o", "out"]].concat()), 2, why);
        assert!(!at.join("out").exists(), "{files:?}");
    }
}

#[test]
fn contradicting_stores_exit_1_unless_one_is_preferred() {
    let at = &Folder::new();
    let choice = |variant: &str, date: &str| {
        format!(
            r#"{{"schema_version":1,"entries":[{{"adapter":"A","driver":"D","wgpu":"1","runtime_checks":"off","kernel":"glu","shape":"N=64",
            "variant":"{variant}","constants":{{}},"source":"s","ratio":{{"median":0.9,"low":0.8,"high":0.95}},
            "incumbent":"naive","date":"{date}"}}]}}"#
        )
    };
    at.write("a.json", choice("vec4", "2026-11-20T00:00:00Z"));
    at.write("b.json", choice("vec2", "2026-11-21T00:00:00Z"));
    let merge = ["merge", "a.json", "b.json", "-o", "tuned.json"];
    let said = ended(&lathe_in(at, &merge), 1);
    assert!(said.contains("a.json chooses vec4") && said.contains("b.json vec2"), "{said}");
    assert!(said.contains("--prefer newest") && !at.join("tuned.json").exists(), "{said}");
    for (prefer, variant) in [("newest", "vec2"), ("first", "vec4")] {
        let output = lathe_in(at, &[&merge[..], &["--prefer", prefer, "--force"]].concat());
        assert_ends(&output, 0, "counts");
        let store = Store::read(&at.join("tuned.json")).unwrap();
        assert_eq!(store.entries.len(), 1);
        assert_eq!(store.entries[0].variant, variant);
    }
    let refused = lathe_in(at, &merge);
    assert_eq!(code(&lathe_in(at, &[&merge[..], &["--prefer", "first"]].concat())), 2);
    assert_eq!(code(&refused), 1);
}
