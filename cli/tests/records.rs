//! Kept results: whole records read, and CSV files answer `compare`, `report` and the queries of the
//! pages.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lathe_harness::data::gate;
use lathe_harness::data::merge::{Prefer, merge};
use lathe_harness::data::paired::Verdict;
use lathe_harness::data::record::{Body, Record};
use lathe_harness::data::row::{Kind, Run};
use lathe_harness::report::html;
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The whole records that tests and pages stand on.
fn fixtures() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("cli/tests/records")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 12, "{}", files.len());
    files
}

fn fixture(name: &str) -> Record {
    Record::read(&root().join("cli/tests/records").join(format!("{name}.json"))).unwrap()
}

/// The committed results of the adapter that has most.
fn committed() -> Vec<Run> {
    Run::read(&root().join("benches/records/nvidia-h200.csv")).unwrap()
}

#[test]
fn records_and_rows_make_a_page_and_pass_beside_themselves() {
    let mut records = Vec::new();
    for path in fixtures() {
        let record = Record::read(&path).unwrap();
        assert!(!record.environment.software, "{}", path.display());
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        records.push((name.clone(), record.clone()));
        // What is written is read again, figures and all.
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(Record::parse(&text, &path).unwrap(), record, "{name}");
        let run = [Run::of("run", &record)];
        match record.body {
            Body::Ab(_) => {
                let said = gate::compare(&run, &run, false).unwrap_err().to_string();
                assert!(said.contains("A/B"), "{name}: {said}");
            }
            _ => {
                let report = gate::compare(&run, &run, false).unwrap();
                assert_ne!(report.exit_code(), 1, "{name}");
                assert_eq!(report.count(Verdict::Slower) + report.wrong.len(), 0, "{name}");
            }
        }
    }
    let runs = committed();
    let page = html::page(&records, &runs);
    assert!(page.contains("NVIDIA H200") && !page.contains("<script"));
    assert!(runs.iter().all(|run| page.contains(&format!("<h2>{}</h2>", run.id))));
}

/// A page prints figures, the gate judges them: both are computed from the samples, whatever a
/// file says.
#[test]
fn figures_follow_from_samples() {
    let text = fs::read_to_string(root().join("cli/tests/records/2026-11-22-ladder-gemv_q.json"));
    let mut document: Value = serde_json::from_str(&text.unwrap()).unwrap();
    let parse = |document: &Value| Record::parse(&document.to_string(), Path::new("r.json"));
    let sound = parse(&document).unwrap();
    document["cases"][0]["cold"]["median_us"] = 1e-3.into();
    document["cases"][0]["gb_s"] = Value::Null;
    assert_eq!(parse(&document).unwrap(), sound);
    let Body::Bench(bench) = &sound.body else { panic!("no bench") };
    let (case, mut samples) = (&bench.cases[0], bench.cases[0].cold.samples_us.clone());
    samples.sort_by(f64::total_cmp);
    let (low, high) = (samples[(samples.len() - 1) / 2], samples[samples.len() / 2]);
    assert_eq!(case.cold.median_us, low + (high - low) * 0.5);
    assert_eq!(case.gb_s, case.bytes / case.cold.median_us / 1e3);

    type Change = fn(&mut Value);
    let changes: [(&str, Change); 6] = [
        ("missing field `environment`", |r| {
            drop(r.as_object_mut().unwrap().remove("environment"));
        }),
        ("no schema_version", |r| drop(r.as_object_mut().unwrap().remove("schema_version"))),
        ("schema_version 9", |r| r["schema_version"] = 9.into()),
        ("unknown variant `guess`", |r| r["kind"] = "guess".into()),
        ("invalid type: string", |r| r["cases"] = "none".into()),
        ("missing field `kernel`", |r| {
            drop(r["cases"][0].as_object_mut().unwrap().remove("kernel"));
        }),
    ];
    for (fault, change) in changes {
        let mut broken = document.clone();
        change(&mut broken);
        let said = parse(&broken).unwrap_err().to_string();
        assert!(said.contains("r.json: ") && said.contains(fault), "{fault}: {said}");
    }
}

/// Code against itself, each side with pipelines of its own, twenty processes a kernel: the
/// statistics tell no side from the other in any process.
#[test]
fn measured_runs_of_code_against_itself_have_no_verdict_of_a_difference() {
    for kernel in ["gemv", "gemv_q", "rms_norm"] {
        let Body::Ab(mut ab) = fixture(&format!("2026-11-27-aa-{kernel}")).body else {
            panic!("{kernel}")
        };
        assert_eq!(ab.processes.len(), 20);
        assert!(
            ab.processes.iter().all(|p| p.found.verdict == Verdict::Same),
            "{:?}",
            ab.processes
        );
        assert_eq!(ab.found.verdict, Verdict::Same, "{kernel}");
        // Blocks that are there are the blocks of the processes.
        ab.processes[0].blocks += 1;
        assert!(ab.clone().settled().is_err());
        ab.processes.clear();
        assert!(ab.settled().is_ok());
    }
}

/// Any committed run against any other of its kind: the gate blames only changed source, and runs
/// whose cases all have the same source pass. Two runs of one build with the same options never end
/// in exit code 1.
#[test]
fn no_two_committed_runs_blame_unchanged_code() {
    let runs: Vec<Run> =
        committed().into_iter().filter(|run| run.rows[0].kind != Kind::Ab).collect();
    // What a command line says beside the names of files, and where it saves.
    let options = |run: &Run| -> Vec<String> {
        let words = run.environment.command.clone().unwrap_or_default();
        let mut words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        if let Some(at) = words.iter().position(|word| word == "--save") {
            words.drain(at..(at + 2).min(words.len()));
        }
        words.retain(|word| !word.ends_with(".json"));
        words
    };
    let (mut compared, mut of_one_build, mut equal, mut slower) = (0, 0, 0, 0);
    for base in &runs {
        for new in runs.iter().filter(|new| new.id != base.id) {
            let one = std::slice::from_ref::<Run>;
            // Of other kinds or other models it says so.
            let Ok(report) = gate::compare(one(base), one(new), false) else { continue };
            let pair = format!("{} {}", base.id, new.id);
            compared += 1;
            for case in &report.cases {
                slower += usize::from(case.verdict == Verdict::Slower);
                let fine = matches!(case.verdict, Verdict::Same | Verdict::Inconclusive);
                assert!(case.changed || fine, "{pair}: {case:?}");
            }
            if !report.cases.is_empty() && report.cases.iter().all(|case| !case.changed) {
                equal += 1;
                assert_eq!(report.exit_code(), 0, "{pair}: {report:?}");
            }
            let [a, b] = [base, new].map(|run| &run.environment);
            let one_build = a.commit.is_some() && a.commit == b.commit;
            let clean = [a, b].iter().all(|environment| environment.dirty == Some(false));
            if one_build && clean && options(base) == options(new) {
                of_one_build += 1;
                assert_ne!(report.exit_code(), 1, "{pair}");
            }
        }
    }
    let seen = format!(
        "{compared} pairs, {of_one_build} of one build, {equal} of equal source, {slower} cases slower"
    );
    eprintln!("{seen}");
    assert!(compared > 1000 && of_one_build > 20 && equal >= 50 && slower > 5, "{seen}");
}

/// The measured ceilings are known to 2 %.
#[test]
fn no_committed_figure_lies_above_its_ceiling() {
    let mut judged = 0;
    for row in committed().iter().flat_map(|run| &run.rows) {
        let most = 1.02 * row.read_gb_s.unwrap_or(0.0).max(row.copy_gb_s.unwrap_or(0.0));
        for us in [Some(row.median_us), row.overlapped_us].into_iter().flatten() {
            let Some(bytes) = row.bytes else { continue };
            let gb_s = bytes / us / 1e3;
            assert!(gb_s <= most, "{} {}: {gb_s:.0} of {most:.0} GB/s", row.id, row.key());
            judged += 1;
        }
    }
    assert!(judged > 1000, "{judged}");
}

/// Runs each query of a page with DuckDB, in the root of the repository, and prints its rows.
const DUCK: &str = "
import duckdb, json, sys
for query in json.load(sys.stdin):
    print(json.dumps(duckdb.sql(query).fetchall(), default=str))
";

#[test]
fn the_queries_of_the_pages_answer() {
    let python = std::env::var("LATHE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has = Command::new(&python).args(["-c", "import duckdb"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("UNAVAILABLE, not tested: no Python with duckdb (LATHE_PYTHON names one)");
        return;
    }
    let pages = ["benches/records/README.md", "docs/records.md"];
    let queries: Vec<String> = pages
        .iter()
        .flat_map(|page| {
            let page = fs::read_to_string(root().join(page)).unwrap();
            let blocks = page.split("```sql\n").skip(1);
            blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    assert!(queries.len() >= 2, "{}", queries.len());
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("queries.json");
    fs::write(&input, json!(queries).to_string()).unwrap();
    let output = Command::new(python)
        .args(["-c", DUCK])
        .current_dir(root())
        .stdin(fs::File::open(&input).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers = String::from_utf8(output.stdout).unwrap();
    let rows = |line: &str| serde_json::from_str::<Value>(line).unwrap().as_array().unwrap().len();
    assert_eq!(answers.lines().filter(|line| rows(line) > 0).count(), queries.len(), "{answers}");
}

/// Figures that docs/results.md quotes can be repeated: each one's record has a clean commit, the
/// command and its verification.
#[test]
fn figures_of_the_results_stand_on_verified_records() {
    let page = fs::read_to_string(root().join("docs/results.md")).unwrap();
    let files: Vec<_> = page
        .split(" docs: record ")
        .skip(1)
        .map(|rest| rest.split(" -->").next().unwrap())
        .collect();
    assert!(!files.is_empty(), "{files:?}");
    for file in files {
        let record = Record::read(&root().join(file)).unwrap();
        let environment = &record.environment;
        assert!(environment.commit.is_some() && environment.command.is_some(), "{file}");
        assert_eq!(environment.dirty, Some(false), "{file}");
        let run = Run::of("run", &record);
        assert!(!run.rows.is_empty() && run.rows.iter().all(|row| row.nmse.is_some()), "{file}");
    }
}

/// A run of ten variants of one shape.
#[test]
fn a_run_counts_once_and_another_of_its_name_gets_a_number() {
    let whole = Run::of("run", &fixture("2026-11-22-ladder-gemv_q"));
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
