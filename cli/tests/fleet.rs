//! Many machines: `merge` joins their results, and reports contradictions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use lathe_harness::data::merge::{Prefer, merge};
use lathe_harness::data::record::Record;
use lathe_harness::data::row::Run;
use lathe_harness::plan::tuned::Store;

use crate::common::{Folder, assert_ends, code, document, ended, lathe_in, stderr};

/// A run of ten variants of one shape.
fn ladder() -> PathBuf {
    let name = "tests/records/2026-11-22-ladder-gemv_q.json";
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[test]
fn a_run_counts_once_and_another_of_its_name_gets_a_number() {
    let whole = Run::of("run", &Record::read(&ladder()).unwrap());
    let at = |name: &str, run: &Run| (PathBuf::from(name), run.clone());
    let (mut first, mut second) = (whole.clone(), whole.clone());
    first.rows.truncate(3);
    second.rows.drain(..2);
    // Parts of a run, in any order, are the run.
    let merged = merge(vec![at("a", &first), at("b", &second), at("c", &whole)], None);
    assert_eq!(merged.merged, std::slice::from_ref(&whole));
    assert_eq!((merged.notes.len(), merged.contradictions.len()), (2, 0));
    assert!(merged.notes[0].contains("a and b are one run"), "{:?}", merged.notes);

    // Measured again, it is another run.
    let mut later = whole.clone();
    later.environment.date = "2026-11-29T00:00:00Z".into();
    later.rows.iter_mut().for_each(|row| row.date.clone_from(&later.environment.date));
    let merged = merge(vec![at("b", &later), at("a", &whole)], None);
    let ids: Vec<_> = merged.merged.iter().map(|run| (&*run.id, &*run.rows[0].id)).collect();
    assert_eq!(ids, [("run-2", "run-2"), ("run", "run")]);
    assert!(merged.notes.is_empty() && merged.contradictions.is_empty());

    // One run cannot have taken two times for a case.
    let mut edited = whole.clone();
    edited.rows[1].median_us += 1.0;
    let files = vec![at("a", &whole), at("b", &edited)];
    let torn = merge(files.clone(), None);
    let said = &torn.contradictions[0];
    assert!(said.contains("a and b are one run") && said.contains("gemv_q/"), "{said}");
    let first = merge(files, Some(Prefer::First));
    assert_eq!((first.merged, first.contradictions.len()), (vec![whole], 0));
}

#[test]
fn merge_adds_to_a_file_that_report_and_compare_read() {
    let at = &Folder::new();
    let mut record = Record::read(&ladder()).unwrap();
    record.write(&at.join("one.json")).unwrap();
    record.environment.adapter = "Other / GPU".into();
    record.write(&at.join("two.json")).unwrap();
    let merged = document(&lathe_in(at, &["merge", "one.json", "-o", "out/all.csv", "--json"]));
    assert_eq!((&merged["runs"], &merged["entries"]), (&1.into(), &10.into()));
    let merged = document(&lathe_in(at, &["merge", "two.json", "-o", "out/all.csv", "--json"]));
    assert_eq!((&merged["runs"], &merged["entries"]), (&2.into(), &20.into()));
    assert_eq!(at.read("out/environments.jsonl").lines().count(), 2);
    // Nothing changes where nothing is new.
    let before = at.read("out/all.csv");
    let again = ["merge", "one.json", "out/all.csv", "-o", "out/all.csv"];
    let said = ended(&lathe_in(at, &again), 0);
    assert!(said.contains("each case counts once"), "{said}");
    assert_eq!(at.read("out/all.csv"), before);

    let page = lathe_in(at, &["report", "out/all.csv", "one.json", "-o", "p.html"]);
    assert_eq!(code(&page), 0, "{}", stderr(&page));
    assert!(at.read("p.html").contains("Other / GPU"));
    let same = lathe_in(at, &["compare", "one.json", "out/all.csv#one"]);
    assert_eq!(code(&same), 0, "{}", stderr(&same));
    assert_ends(
        &lathe_in(at, &["compare", "one.json", "out/all.csv#two"]),
        2,
        "different adapters or drivers",
    );
    assert_ends(&lathe_in(at, &["compare", "one.json", "out/all.csv#three"]), 2, "no run three");
}

#[test]
fn what_cannot_be_merged_is_refused_by_name() {
    let at = &Folder::new();
    let write = |name: &str, text: &str| at.write(name, text);
    let whole = fs::read_to_string(ladder()).unwrap();
    write("record.json", &whole);
    write("store.json", r#"{"schema_version":1,"entries":[]}"#);
    write("new.json", &whole.replace("\"schema_version\":1", "\"schema_version\":9"));
    write("short.json", &whole[..whole.len() / 2]);
    write("empty.json", "");
    write("other.json", r#"{"schema_version":1,"records":[]}"#);
    write("list.json", "[1]");
    write("entry.json", r#"{"schema_version":1,"entries":[{"adapter":"A"}]}"#);
    write("table.csv", "id,date\none,two\n");
    for (files, why) in [
        (&["none.json"][..], "none.json: No such file"),
        (&["new.json"], "new.json: schema_version 9"),
        (&["short.json"], "short.json: not JSON: EOF"),
        (&["empty.json"], "empty.json: not JSON: EOF"),
        (&["other.json"], "other.json: neither a record, which has `kind`"),
        (&["list.json"], "list.json: neither"),
        (&["entry.json"], "entry.json: missing field `driver`"),
        (&["table.csv"], "environments.jsonl: No such file"),
        (&["record.json", "store.json"], "store.json is a store of tuned choices"),
        (&["record.json", "--prefer", "best"], "expected newest or first"),
        (&["."], "is a directory"),
    ] {
        let merge = [&["merge"], files, &["-o", "out.csv"]].concat();
        assert_ends(&lathe_in(at, &merge), 2, why);
        assert!(!at.join("out.csv").exists(), "{files:?}");
    }
    let merge = ["merge", "record.json", "-o", "out.json"];
    assert_ends(&lathe_in(at, &merge), 2, "out.json: results become a .csv file");
}

#[test]
fn contradicting_stores_exit_1_unless_one_is_preferred() {
    let at = &Folder::new();
    let choice = |variant: &str, date: &str| {
        format!(
            r#"{{"schema_version":1,"entries":[{{"adapter":"A","driver":"D","wgpu":"30","runtime_checks":"off","kernel":"glu","shape":"N=64",
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
    for (prefer, variant) in [("first", "vec4"), ("newest", "vec2")] {
        let output = lathe_in(at, &[&merge[..], &["--prefer", prefer]].concat());
        assert_ends(&output, 0, "counts");
        let store = Store::read(&at.join("tuned.json")).unwrap();
        assert_eq!(store.entries.len(), 1);
        assert_eq!(store.entries[0].variant, variant);
    }
}
