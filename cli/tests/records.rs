//! Records stand alone: each committed one fits the schema, is read by `report` and `compare`, and
//! answers the queries of docs/records.md and docs/fleet.md. `LATHE_BLESS=1` rewrites
//! `docs/record.schema.json`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lathe_harness::data::gate::{self, GateCase, GateVerdict};
use lathe_harness::data::paired::{Block, Options, Verdict, compare};
use lathe_harness::data::record::{self, Body, Record};
use lathe_harness::report::cases::jsonl;
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The committed records.
fn committed() -> Vec<PathBuf> {
    let inside = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let folders = inside(&root().join("benches/records")).filter(|path| path.is_dir());
    let mut files: Vec<_> = folders.flat_map(|folder| inside(&folder)).collect();
    files.sort();
    assert!(files.len() > 80, "{}", files.len());
    files
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_committed_schema_is_what_the_types_say() {
    let path = root().join("docs/record.schema.json");
    let text = serde_json::to_string_pretty(&record::schema()).unwrap() + "\n";
    if std::env::var_os("LATHE_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap() == text, "stale: LATHE_BLESS=1 writes it");
}

#[test]
fn every_committed_record_fits_the_schema_and_what_is_none_does_not() {
    let schema = jsonschema::validator_for(&record::schema()).unwrap();
    for path in committed() {
        let document = json(&path);
        let faults: Vec<_> = schema.iter_errors(&document).map(|e| e.to_string()).collect();
        assert!(faults.is_empty(), "{}: {faults:?}", path.display());
    }
    let sound = json(&root().join("benches/records/nvidia-h200/2026-11-23-gate-base-1.json"));
    assert!(schema.is_valid(&sound));
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 8] = [
        ("no environment", |r| drop(r.as_object_mut().unwrap().remove("environment"))),
        ("no version", |r| drop(r.as_object_mut().unwrap().remove("schema_version"))),
        ("another kind", |r| r["kind"] = "guess".into()),
        ("no kind", |r| drop(r.as_object_mut().unwrap().remove("kind"))),
        ("a date that is a number", |r| r["environment"]["date"] = 7.into()),
        ("cases that are none", |r| r["cases"] = "none".into()),
        ("a time that is text", |r| r["cases"][0]["cold"]["median_us"] = "1".into()),
        ("a case without a kernel", |r| {
            drop(r["cases"][0].as_object_mut().unwrap().remove("kernel"));
        }),
    ];
    for (what, change) in changes {
        let mut document = sound.clone();
        change(&mut document);
        assert!(!schema.is_valid(&document), "{what}");
    }
}

#[test]
fn report_and_compare_read_every_committed_record() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let lathe = || Command::new(env!("CARGO_BIN_EXE_lathe"));
    let output = lathe().arg("report").args(committed()).arg("-o").arg(&page).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::metadata(&page).unwrap().len() > 100_000);
    for path in committed() {
        let output = lathe().arg("compare").args([&path, &path]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // Of kinds that it does not compare it says so; a record with itself has no slowdown.
        let record = Record::read(&path).unwrap();
        match record.body {
            // Of a dirty tree nobody knows that it is the same twice.
            Body::GenerationTests(_) if record.environment.dirty == Some(true) => {
                assert!(matches!(output.status.code(), Some(0 | 6)), "{}: {said}", path.display());
            }
            Body::Ab(_) => {
                assert_eq!(output.status.code(), Some(2), "{}: {said}", path.display());
                assert!(said.contains("A/B"), "{}: {said}", path.display());
            }
            _ => assert_eq!(output.status.code(), Some(0), "{}: {said}", path.display()),
        }
    }
}

/// A page prints figures, the gate judges samples: whoever changes one alone is told.
#[test]
fn figures_that_do_not_follow_from_their_samples_are_refused() {
    let of = |name: &str| json(&root().join("benches/records").join(name));
    let is_kind =
        |kind: &str| committed().into_iter().map(|p| json(&p)).find(|r| r["kind"] == kind);
    let aa = of("nvidia-h200/2026-11-23-aa-gemv.json");
    let one = committed().into_iter().map(|path| json(&path)).find(|r| {
        r["kind"] == "ab"
            && r["verdict"] == "FASTER"
            && r["samples"].is_array()
            && r["processes"].is_null()
    });
    let (one, profile, suite) =
        (one.unwrap(), is_kind("profile").unwrap(), is_kind("suite").unwrap());
    let config = {
        let configs = suite["models"][0]["configs"].as_object().unwrap();
        format!("/models/0/configs/{}", configs.keys().next().unwrap())
    };
    let of_suite = |figure: &str| format!("{config}/{figure}");
    let bench = of("nvidia-h200/2026-11-23-gate-base-1.json");
    // A run of today: its ends and its verdict follow too.
    let mut today = one.clone();
    today["confidence"] = 0.99.into();
    let again = |record: &Value| -> Value {
        let blocks: Vec<record::AbBlock> =
            serde_json::from_value(record["samples"].clone()).unwrap();
        let blocks: Vec<Block> = blocks.iter().map(|block| block.block().unwrap()).collect();
        serde_json::to_value(compare(&blocks, &Options::default())).unwrap()
    };
    let found = again(&today);
    for key in ["ratio", "control", "control_b", "indifference", "verdict"] {
        today[key] = found[key].clone();
    }
    let sample = Some(1e6.into());
    for (record, pointer, to, fault) in [
        (&today, "/ratio/low", None, "ratio (low) is"),
        (&today, "/ratio/high", None, "ratio (high) is"),
        (&today, "/control/high", None, "control (high) is"),
        (&today, "/verdict", Some("SAME".into()), "verdict SAME, by its blocks FASTER"),
        (&today, "/verdict", Some("INCONCLUSIVE".into()), "by its blocks FASTER"),
        (&suite, &of_suite("runs"), Some(json!([])), "ttft_ms is"),
        (&bench, "/cases/0/warm/samples_us", Some(json!([])), "rests on no"),
        (&bench, "/cases/0/gb_s", sample, "gb_s is"),
        (&one, "/ratio/median", None, "ratio is"),
        (&one, "/a_us", None, "a_us is"),
        (&one, "/b_us", None, "b_us is"),
        (&one, "/blocks", Some(7.into()), "blocks 7, of"),
        (&one, "/verdict", Some("SAME".into()), "verdict SAME, but the ratio is"),
        (&one, "/verdict", Some("SLOWER".into()), "verdict SLOWER, but"),
        (&one, "/indifference", Some(9.into()), "verdict FASTER, but"),
        (&aa, "/ratio/median", None, "ratio (median) is"),
        (&aa, "/ratio/low", None, "ratio (low) is"),
        (&aa, "/control/high", None, "control (high) is"),
        (&aa, "/a_us", None, "a_us is"),
        (&aa, "/processes/3/ratio/median", None, "ratio of process 4 is"),
        (&aa, "/processes/3/a_us", None, "a_us of process 4 is"),
        (&aa, "/processes/3/blocks", Some(1.into()), " of process 4 is"),
        (&aa, "/processes/3/blocks", Some(u64::MAX.into()), "blocks of process 4"),
        (&aa, "/processes/0/verdict", Some("FASTER".into()), "verdict of process 1 FASTER"),
        (&aa, "/processes/0/verdict", Some("INCONCLUSIVE".into()), "not every process"),
        (&profile, "/unprofiled/decode_tok_s", None, "decode_tok_s is"),
        (&profile, "/unprofiled/step_ms/0", Some(1e-3.into()), "decode_tok_s is"),
        (&profile, "/serialised_ms_per_token", None, "serialised_ms_per_token is"),
        (&suite, &of_suite("e2e_tok_s"), None, "e2e_tok_s is"),
        (&suite, &of_suite("decode_tok_s"), None, "decode_tok_s is"),
        (&suite, &of_suite("ttft_ms"), None, "ttft_ms is"),
        (&suite, &of_suite("p95_ms"), None, "p95_ms is"),
        (&suite, &of_suite("one_step_decode_tok_s"), None, "one_step_decode_tok_s is"),
    ] {
        let parse = |record: &Value| Record::parse(&record.to_string(), Path::new("r.json"));
        assert!(parse(record).is_ok(), "{pointer}");
        let mut bent = record.clone();
        let figure = bent.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}"));
        // A hundredth, as one would to look better.
        *figure = to.unwrap_or_else(|| (1.01 * figure.as_f64().unwrap()).into());
        let said =
            parse(&bent).err().unwrap_or_else(|| panic!("{pointer} may be bent")).to_string();
        assert!(said.contains("r.json: ") && said.contains(fault), "{pointer}: {said}");
    }
}

/// Any committed run beside any other of its kind: what the gate blames is of changed source, and
/// runs whose cases all have the same source pass. Two runs of one build with the same options
/// never end in exit code 1.
#[test]
fn no_two_committed_runs_blame_unchanged_code() {
    let records: Vec<(PathBuf, Record)> = committed()
        .into_iter()
        .map(|path| (path.clone(), Record::read(&path).unwrap()))
        .filter(|(_, record)| !matches!(record.body, Body::Ab(_)))
        .collect();
    // What a command line says beside the names of files, and where it saves.
    let options = |record: &Record| -> Vec<String> {
        let words = record.environment.command.clone().unwrap_or_default();
        let mut words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        if let Some(at) = words.iter().position(|word| word == "--save") {
            words.drain(at..(at + 2).min(words.len()));
        }
        words.retain(|word| !word.ends_with(".json"));
        words
    };
    let (mut compared, mut of_one_build, mut equal, mut slower) = (0, 0, 0, 0);
    for (path, base) in &records {
        for (other, new) in &records {
            if path == other || base.environment.adapter != new.environment.adapter {
                continue;
            }
            let one = std::slice::from_ref::<Record>;
            // Of other kinds, other models or the same samples it says so.
            let Ok(report) = gate::compare(one(base), one(new), false) else { continue };
            compared += 1;
            for case in &report.cases {
                let is_blamed = matches!(case.verdict, GateVerdict::Slowdown | GateVerdict::Wrong);
                slower += usize::from(is_blamed);
                let fine = matches!(case.verdict, GateVerdict::Same | GateVerdict::Machine);
                assert!(case.changed || fine, "{path:?} {other:?}: {case:?}");
            }
            let is_common = |case: &&GateCase| case.base_us.is_some() && case.new_us.is_some();
            let common: Vec<_> = report.cases.iter().filter(is_common).collect();
            // Two repetitions are no median, and a report of none has nothing to pass.
            if !common.is_empty() && common.iter().all(|case| !case.changed) {
                equal += 1;
                assert_eq!(report.exit_code(), 0, "{path:?} {other:?}: {report:?}");
            }
            let [a, b] = [base, new].map(|record| &record.environment);
            let one_build = a.commit.is_some() && a.commit == b.commit;
            if one_build
                && a.dirty == Some(false)
                && b.dirty == Some(false)
                && options(base) == options(new)
            {
                of_one_build += 1;
                assert_ne!(report.exit_code(), 1, "{path:?} {other:?}");
            }
        }
    }
    let seen = format!(
        "{compared} pairs, {of_one_build} of one build, {equal} of equal source, {slower} cases slower"
    );
    eprintln!("{seen}");
    assert!(compared > 1000 && of_one_build > 20 && equal >= 50 && slower > 5, "{seen}");
}

/// Code against itself, each side with pipelines of its own, twenty processes a kernel: today's
/// statistics tell no side from the other in any process.
#[test]
fn measured_runs_of_code_against_itself_have_no_verdict_of_a_difference() {
    let mut runs = 0;
    for kernel in ["gemv", "gemv_q", "rms_norm"] {
        let name = format!("benches/records/nvidia-h200/2026-11-23-aa-{kernel}.json");
        let Body::Ab(ab) = Record::read(&root().join(name)).unwrap().body else {
            panic!("{kernel}")
        };
        let mut rest = ab.samples.as_slice();
        for process in &ab.processes {
            let (own, others) = rest.split_at(process.blocks);
            rest = others;
            let blocks: Vec<Block> = own.iter().map(|b| b.block().unwrap()).collect();
            let found = compare(&blocks, &Options::default());
            assert_eq!(found.verdict, Verdict::Same, "{kernel}: {found:?}");
            runs += 1;
        }
    }
    assert_eq!(runs, 60);
}

/// The measured ceilings are known to 2 %. A record above them was taken before Lathe knew that its
/// copy is not the fastest way through memory, and is not kept.
#[test]
fn no_committed_figure_lies_above_its_ceiling() {
    let mut judged = 0;
    for path in committed() {
        let record = Record::read(&path).unwrap();
        let environment = &record.environment;
        let copy = environment.copy_gb_s.unwrap_or(0.0);
        let most = 1.02 * environment.read_gb_s.unwrap_or(0.0).max(copy);
        let mut hold = |what: &str, bytes: f64, us: f64| {
            let gb_s = bytes / us / 1e3;
            assert!(gb_s <= most, "{}: {what}: {gb_s:.0} of {most:.0} GB/s", path.display());
            judged += 1;
        };
        match &record.body {
            Body::Bench(bench) => {
                for case in &bench.cases {
                    let what = format!("{}/{} {}", case.kernel, case.variant, case.shape);
                    for timing in [Some(&case.cold), case.overlapped.as_ref()].into_iter().flatten()
                    {
                        hold(&what, case.bytes, timing.median_us);
                    }
                }
            }
            Body::Profile(profile) => {
                profile.by_op.iter().for_each(|op| hold(&op.op, op.bytes, 1e3 * op.ms));
            }
            _ => {}
        }
    }
    assert!(judged > 1000, "{judged}");
}

/// The SQL of a page, in order.
fn queries(page: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join(page)).unwrap();
    let blocks = page.split("```sql\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// Runs each query of a folder's `results` and `benches` with DuckDB and prints its rows as JSON.
const DUCK: &str = "
import duckdb, json, sys
for query in json.load(sys.stdin):
    answer = duckdb.sql(query)
    if answer is not None:
        print(json.dumps(answer.fetchall(), default=str))
";

/// A Python with DuckDB; none with a word on stderr.
fn python() -> Option<String> {
    let python = std::env::var("LATHE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_duckdb = Command::new(&python).args(["-c", "import duckdb"]).output();
    if has_duckdb.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!("UNAVAILABLE, not tested: {python} has no package duckdb");
    None
}

/// What queries answer that are run one after the other in a folder.
fn answers(python: &str, folder: &Path, queries: &[String]) -> Vec<Value> {
    let input = folder.join("queries.json");
    fs::write(&input, serde_json::to_string(queries).unwrap()).unwrap();
    let output = Command::new(python)
        .args(["-c", DUCK])
        .current_dir(folder)
        .stdin(fs::File::open(&input).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers = String::from_utf8(output.stdout).unwrap();
    answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_queries_of_the_page_answer() {
    let Some(python) = python() else { return };
    // Two machines: one without a flag in any case, one with.
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("results")).unwrap();
    let names = ["2026-11-22-gemv_q-8192x2048-q4_k.json", "2026-11-21-catalogue.json"];
    let mut flagged = Vec::new();
    for name in names {
        let path = root().join("benches/records/nvidia-h200").join(name);
        let record = Record::read(&path).unwrap();
        let Body::Bench(bench) = &record.body else { panic!("{name} is no benchmark") };
        flagged.push(bench.cases.iter().any(|case| !case.flags.is_empty()));
        let lines = jsonl(&bench.cases, &record.environment).unwrap();
        fs::write(folder.path().join("results").join(name).with_extension("jsonl"), lines).unwrap();
    }
    assert_eq!(flagged, [false, true]);
    let queries = queries("docs/records.md");
    assert_eq!(queries.len(), 2);
    let here =
        |query: &String| query.replace("'benches/", &format!("'{}/benches/", root().display()));
    let queries: Vec<String> = queries.iter().map(here).collect();
    // Each folder alone as well: what a file lacks, DuckDB cannot guess the type of.
    for kept in [&names[..1], &names[1..], &names[..]] {
        for name in names {
            let path = folder.path().join("results").join(name).with_extension("jsonl");
            let aside = path.with_extension("aside");
            match (kept.contains(&name), path.exists()) {
                (true, false) => fs::rename(&aside, &path).unwrap(),
                (false, true) => fs::rename(&path, &aside).unwrap(),
                _ => {}
            }
        }
        let answers = answers(&python, folder.path(), &queries);
        assert_eq!(answers.len(), 2);
        for answer in &answers {
            assert!(!answer.as_array().unwrap().is_empty(), "{kept:?}: {answer}");
        }
        let first = &answers[0][0];
        assert!(first[0].is_string() && first[5].is_number(), "{first}");
    }
}

#[test]
fn the_queries_of_many_machines_rank_variants() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("records")).unwrap();
    // Two adapters of which the second is twice as slow, and has another best variant.
    let name = "2026-11-22-ladder-gemv_q.json";
    let mut record = Record::read(&root().join("benches/records/nvidia-h200").join(name)).unwrap();
    record.write(&folder.path().join("records/a.json")).unwrap();
    let Body::Bench(bench) = &mut record.body else { panic!("{name} is no benchmark") };
    let best = |bench: &record::Bench, last: bool| {
        let mut cases: Vec<_> = bench.cases.iter().collect();
        cases.sort_by(|a, b| a.cold.median_us.total_cmp(&b.cold.median_us));
        let case = if last { cases.last() } else { cases.first() };
        (case.unwrap().variant.clone(), case.unwrap().cold.median_us)
    };
    let (first, first_us) = best(bench, false);
    let (last, last_us) = best(bench, true);
    for case in &mut bench.cases {
        let factor = if case.variant == last { 0.5 * first_us / last_us } else { 2.0 };
        for timing in [&mut case.cold, &mut case.warm] {
            timing.samples_us.iter_mut().for_each(|us| *us *= factor);
            timing.median_us *= factor;
        }
    }
    record.environment.adapter = "Another".into();
    record.write(&folder.path().join("records/b.json")).unwrap();
    // A record of another kind among them.
    let profile = root().join("benches/records/nvidia-h200/2026-11-21-profile-gemma3-1b-q4_0.json");
    fs::copy(profile, folder.path().join("records/profile.json")).unwrap();

    let queries = queries("docs/fleet.md");
    assert_eq!(queries.len(), 3);
    let answers = answers(&python, folder.path(), &queries);
    let [.., ranked, worst] = answers.as_slice() else { panic!("{answers:?}") };
    let of = |adapter: &str| {
        let rows = ranked.as_array().unwrap().iter().filter(|row| row[0] == adapter);
        rows.map(|row| row[3].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((of("NVIDIA H200"), of("Another")), (vec![first.clone()], vec![last]));
    let rows = worst.as_array().unwrap();
    let row = rows.iter().find(|row| row[1] == first.as_str()).unwrap();
    // It is best on the first adapter, and four times as slow as the best on the second.
    assert_eq!((&row[2], &row[5], &row[6]), (&2.into(), &4.0.into(), &"Another".into()), "{row}");
}

/// What docs/results.md quotes can be repeated: each figure's record has a clean commit, the
/// command and what was verified.
#[test]
fn figures_of_the_results_stand_on_verified_records() {
    let page = fs::read_to_string(root().join("docs/results.md")).unwrap();
    let files: Vec<_> =
        page.split(" docs: record ").skip(1).map(|rest| rest.split(" -->").next().unwrap()).collect();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let record = Record::read(&root().join("benches/records").join(file)).unwrap();
        let environment = &record.environment;
        assert!(environment.commit.is_some() && environment.command.is_some(), "{file}");
        assert_eq!(environment.dirty, Some(false), "{file}");
        let verified: Vec<bool> = match &record.body {
            Body::GenerationTests(run) => run.tests.iter().map(|t| t.verified.is_some()).collect(),
            Body::Suite(suite) => {
                let configs = suite.models.iter().flat_map(|model| model.configs.values());
                configs.map(|config| config.verified.is_some()).collect()
            }
            other => panic!("{file} is a {}", other.what()),
        };
        assert!(!verified.is_empty() && verified.iter().all(|v| *v), "{file}");
    }
}
