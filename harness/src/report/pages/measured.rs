//! What records say of each operation: the tables of its page, and the index of all records.

use std::collections::BTreeMap;
use std::fmt::Write;

use lathe_kernels::{Kernel, Problem};

use super::declared::Shapes;
use super::head;
use super::markdown::{code, dash, digits, plain, relink, table};
use crate::data::record::{Ab, BenchCase, Body, Environment, Flag, Record};

/// Folder of the records, from the root of the repository.
const FOLDER: &str = "benches/records";

/// A record and its file.
pub struct Saved {
    /// `<adapter>/<name>.json`, below the folder of the records.
    pub file: String,
    /// What it holds.
    pub record: Record,
}

/// One measured variant and shape.
struct Measurement {
    kernel: &'static Kernel,
    problem: Problem,
    /// The problem as text: equal for equal problems, however the record wrote it.
    key: String,
    case: BenchCase,
    environment: Environment,
    file: String,
}

/// Everything that records hold, oldest first.
pub struct Measurements {
    saved: Vec<Saved>,
    bench: Vec<Measurement>,
    /// What is not shown, and why.
    left_over: BTreeMap<String, Vec<String>>,
}

impl Measurements {
    /// Sorts the records of all kernels. A shape that the declarations of today cannot read is left
    /// over with its reason, and so is what a tree with uncommitted changes or a software adapter
    /// measured.
    pub fn of(kernels: &'static [Kernel], mut saved: Vec<Saved>) -> Self {
        let order = |s: &Saved| (s.record.environment.date.clone(), s.file.clone());
        saved.sort_by_key(order);
        let mut bench = Vec::new();
        let mut left_over = BTreeMap::<String, Vec<String>>::new();
        for Saved { file, record } in &saved {
            let Body::Bench(body) = &record.body else { continue };
            let environment = &record.environment;
            for case in &body.cases {
                match read(kernels, environment, case) {
                    Ok((kernel, problem)) => bench.push(Measurement {
                        kernel,
                        key: kernel.show(&problem),
                        problem,
                        case: case.clone(),
                        environment: environment.clone(),
                        file: file.clone(),
                    }),
                    Err(reason) => {
                        let reasons = left_over.entry(file.clone()).or_default();
                        if !reasons.contains(&reason) {
                            reasons.push(reason);
                        }
                    }
                }
            }
        }
        Self { saved, bench, left_over }
    }

    /// The newest measurement of every variant and shape on an adapter, in the order of the
    /// declarations; shapes that are benchmarked today come first.
    fn newest(&self, kernel: &Kernel, adapter: &str) -> Vec<&Measurement> {
        let mut newest = BTreeMap::new();
        for m in self.of_kernel(kernel, adapter) {
            newest.insert((m.key.as_str(), m.case.variant.as_str()), m);
        }
        let benched: Vec<_> = kernel.bench().iter().map(|p| kernel.show(p)).collect();
        let shape =
            |m: &Measurement| benched.iter().position(|key| *key == m.key).unwrap_or(benched.len());
        let variant = |m: &Measurement| {
            kernel.variants.iter().position(|v| v.name == m.case.variant).unwrap_or_default()
        };
        let mut rows: Vec<_> = newest.into_values().collect();
        rows.sort_by_key(|m| (shape(m), m.key.clone(), variant(m)));
        rows
    }

    fn of_kernel(&self, kernel: &Kernel, adapter: &str) -> impl Iterator<Item = &Measurement> {
        let name = kernel.name;
        self.bench.iter().filter(move |m| m.kernel.name == name && m.environment.adapter == adapter)
    }

    /// Names of the adapters, in order.
    fn adapters(&self) -> Vec<&str> {
        let names = self.saved.iter().map(|s| s.record.environment.adapter.as_str());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The records of an adapter.
    fn of_adapter(&self, adapter: &str) -> impl Iterator<Item = &Saved> {
        self.saved.iter().filter(move |saved| saved.record.environment.adapter == adapter)
    }
}

fn read(
    kernels: &'static [Kernel],
    environment: &Environment,
    case: &BenchCase,
) -> Result<(&'static Kernel, Problem), String> {
    if environment.software {
        return Err("a software adapter".into());
    }
    if environment.dirty == Some(true) {
        return Err("a tree with uncommitted changes".into());
    }
    let BenchCase { kernel: name, variant, shape, .. } = case;
    let kernel =
        kernels.iter().find(|k| k.name == *name).ok_or_else(|| format!("no kernel `{name}`"))?;
    if kernel.variant(variant).is_none() {
        return Err(format!("{name} has no variant `{variant}`"));
    }
    let problem = kernel.parse_complete(shape).map_err(|e| e.to_string())?;
    Ok((kernel, problem))
}

/// The measured tables of an operation, one an adapter.
pub(super) fn tables(kernel: &Kernel, measurements: &Measurements) -> String {
    let mut text = String::new();
    for adapter in measurements.adapters() {
        let rows = measurements.newest(kernel, adapter);
        if rows.is_empty() {
            continue;
        }
        let gap = if text.is_empty() { "" } else { "\n" };
        let _ = write!(text, "{gap}{}", table_of(kernel, adapter, &rows));
    }
    match text.is_empty() {
        true => "No record holds it.\n".into(),
        false => text,
    }
}

fn table_of(kernel: &Kernel, adapter: &str, measurements: &[&Measurement]) -> String {
    let problems: Vec<_> = measurements.iter().map(|m| m.problem.clone()).collect();
    let shapes = Shapes::of(kernel, &problems);
    let independent = measurements.iter().any(|m| m.case.overlapped.is_some());
    // Beyond some fifty operations a byte no GPU of today is bound by memory.
    let products = measurements.iter().any(|m| m.case.flops > 50.0 * m.case.bytes);
    let mut titles = vec!["shape", "variant", ">cold µs", ">warm µs"];
    titles.extend(independent.then_some(">independent µs"));
    titles.extend([">GB/s", ">% of copy bandwidth"]);
    titles.extend(products.then_some(">TFLOP/s"));
    titles.extend(["record", "commit", "flags"]);
    let rows: Vec<_> = measurements
        .iter()
        .map(|m| {
            let case = &m.case;
            let mut row = vec![
                shapes.short(kernel, &m.problem),
                code(&case.variant),
                digits(case.cold.median_us),
                digits(case.warm.median_us),
            ];
            let overlapped = case.overlapped.as_ref();
            if independent {
                row.push(overlapped.map_or("–".into(), |t| digits(t.median_us)));
            }
            row.extend([digits(case.gb_s), percent(case)]);
            if products {
                row.push(digits(case.flops / case.cold.median_us * 1e-6));
            }
            row.extend([link("../../benches/records/", m), commit(&m.environment), flags(case)]);
            row
        })
        .collect();
    let independent = match independent {
        true => " Independent: launches that need not wait for each other.",
        false => "",
    };
    format!(
        "{}, newest record of each variant and shape: median times of dependent launches, and GB/s \
         over the copy bandwidth of the same run ([measuring](../measuring.md#one-case)).\
         {independent}{}\n\n{}",
        plain(adapter),
        shapes.common(),
        table(&titles.join(" | "), &rows)
    )
}

fn percent(case: &BenchCase) -> String {
    format!("{:.1}", 100.0 * case.fraction_of_copy)
}

fn day(environment: &Environment) -> &str {
    environment.date.split('T').next().unwrap_or_default()
}

fn commit(environment: &Environment) -> String {
    environment.commit.as_deref().map_or("–".into(), |c| c.chars().take(7).collect())
}

fn flags(case: &BenchCase) -> String {
    dash(case.flags.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

fn link(folder: &str, m: &Measurement) -> String {
    format!("[{}]({folder}{})", day(&m.environment), m.file)
}

/// The index of all records, `benches/records/README.md`: `text` is the hand-written part, which
/// lies at `text_path`.
pub fn index(
    kernels: &'static [Kernel],
    text: &str,
    text_path: &str,
    measurements: &Measurements,
) -> String {
    let mut page = head(text_path);
    page.push_str(relink(text, FOLDER, FOLDER, str::to_owned).trim_end());
    page.push('\n');
    for adapter in measurements.adapters() {
        let sections = [
            ("kernels", kernel_rows(kernels, adapter, measurements)),
            ("decode, operation by operation", profile_rows(adapter, measurements)),
            ("A/B", ab_rows(adapter, measurements)),
        ];
        for (title, table) in sections {
            if let Some(table) = table {
                let _ = write!(page, "\n## {}: {title}\n\n{table}", plain(adapter));
            }
        }
    }
    if !measurements.left_over.is_empty() {
        page.push_str("\n## Not shown\n\n");
        for (file, reasons) in &measurements.left_over {
            let _ = writeln!(page, "- [{file}]({file}): {}", plain(&reasons.join("; ")));
        }
    }
    page
}

fn kernel_rows(kernels: &'static [Kernel], adapter: &str, all: &Measurements) -> Option<String> {
    let mut rows = Vec::new();
    for kernel in kernels {
        let newest = all.newest(kernel, adapter);
        let problems: Vec<_> = newest.iter().map(|m| m.problem.clone()).collect();
        let shapes = Shapes::of(kernel, &problems);
        for of_shape in newest.chunk_by(|a, b| a.key == b.key) {
            let time = |m: &&&Measurement| m.case.cold.median_us;
            let best = of_shape.iter().min_by(|a, b| time(a).total_cmp(&time(b)));
            let Some(best) = best else { continue };
            let before = all.of_kernel(kernel, adapter).filter(|m| {
                m.key == best.key
                    && m.case.variant == best.case.variant
                    && m.environment.date < best.environment.date
            });
            rows.push(vec![
                format!("[{0}](../../docs/kernels/{0}.md)", kernel.name),
                shapes.short(kernel, &best.problem),
                code(&best.case.variant),
                digits(best.case.cold.median_us),
                percent(&best.case),
                link("", best),
                commit(&best.environment),
                before.last().map_or("–".into(), |m| {
                    let change = best.case.cold.median_us / m.case.cold.median_us - 1.0;
                    format!("{} since {}", signed(change), link("", m))
                }),
                flags(&best.case),
            ]);
        }
    }
    let titles = "kernel | shape | fastest variant | >cold µs | >% of copy bandwidth | record | \
                  commit | change | flags";
    (!rows.is_empty()).then(|| table(titles, &rows))
}

fn signed(change: f64) -> String {
    let tenths = (1000.0 * change).round() / 10.0;
    // Of a zero the sign says nothing.
    if tenths == 0.0 { "0.0 %".into() } else { format!("{tenths:+.1} %") }
}

/// The newest profile of every model and prompt.
fn profile_rows(adapter: &str, all: &Measurements) -> Option<String> {
    let mut newest = BTreeMap::new();
    for saved in all.of_adapter(adapter) {
        if let Body::Profile(p) = &saved.record.body {
            newest.insert((p.model.as_str(), p.kv.as_str(), p.prompt_tokens), (saved, p));
        }
    }
    let rows: Vec<_> = newest
        .values()
        .map(|(saved, profile)| {
            let environment = &saved.record.environment;
            let free = &profile.unprofiled;
            vec![
                plain(&profile.model),
                code(&profile.kv),
                profile.prompt_tokens.to_string(),
                format!("{:.1}", free.decode_tok_s),
                free.gpu_ms_per_token.map_or("–".into(), |ms| format!("{ms:.3}")),
                format!("{:.3}", profile.serialised_ms_per_token),
                format!("[{}]({})", day(environment), saved.file),
                commit(environment),
                match profile.verified {
                    Some(v) => format!("{} positions", v.positions),
                    None => "not verified".into(),
                },
            ]
        })
        .collect();
    let titles = "model | KV | >prompt | >tok/s, unprofiled | >GPU ms a token | \
                  >sum of operations, ms | record | commit | verified";
    (!rows.is_empty()).then(|| table(titles, &rows))
}

fn ab_rows(adapter: &str, all: &Measurements) -> Option<String> {
    let rows: Vec<_> = all
        .of_adapter(adapter)
        .filter_map(|s| match &s.record.body {
            Body::Ab(ab) => Some(vec![
                ab.kernel.clone(),
                code(&ab.shape),
                code(&ab.a),
                code(&ab.b),
                format!("{:.4} [{:.4}, {:.4}]", ab.ratio.median, ab.ratio.low, ab.ratio.high),
                ab.verdict.to_string(),
                format!("[{}]({})", day(&s.record.environment), s.file),
                commit(&s.record.environment),
            ]),
            _ => None,
        })
        .collect();
    let titles = "kernel | shape | A | B | time of B over A | B is | record | commit";
    (!rows.is_empty()).then(|| table(titles, &rows))
}

/// Of a record's file name what says that it is of an engine's kernel:
/// `-engine-ENGINE.MAPPING.json`, as `mappings/compare.py` writes it.
const OF_ENGINE: &str = "-engine-";

/// Kernels of other engines beside ours, `docs/engines.md`: `text` is the hand-written part, in
/// which the line `{{engines}}` becomes a table of the newest record of each mapping and adapter.
/// `text_path` names the page for the reader.
pub fn engines(text: &str, text_path: &str, measurements: &Measurements) -> String {
    let mut newest = BTreeMap::new();
    for saved in &measurements.saved {
        let named = saved.file.strip_suffix(".json").and_then(|file| file.split_once(OF_ENGINE));
        let Some((engine, mapping)) = named.and_then(|(_, name)| name.split_once('.')) else {
            continue;
        };
        if let Body::Ab(ab) = &saved.record.body {
            let adapter = saved.record.environment.adapter.as_str();
            newest.insert((adapter, engine, mapping), (saved, ab));
        }
    }
    let row = |((adapter, engine, mapping), (saved, ab)): (&(&str, &str, &str), &(&Saved, &Ab))| {
        let found = ab.compared_again();
        let ratio = found.as_ref().map_or(ab.ratio, |found| found.ratio);
        let verdict = found.map_or(ab.verdict.clone(), |found| found.verdict.into());
        vec![
            format!("[{engine}: {mapping}](../mappings/{engine})"),
            code(&format!("{} {}", ab.kernel, ab.shape)),
            plain(adapter),
            format!("{} µs", digits(ab.b_us)),
            format!("{} µs, {}", digits(ab.a_us), code(&ab.a)),
            format!("{:.2} [{:.2}, {:.2}]", ratio.median, ratio.low, ratio.high),
            verdict.to_string(),
            match ab.flags.iter().any(|flag| *flag == Flag::OwnTolerance) {
                true => "right, own tolerance".into(),
                false => "right".into(),
            },
            format!("[{}](../{FOLDER}/{})", day(&saved.record.environment), saved.file),
        ]
    };
    let rows: Vec<_> = newest.iter().map(row).collect();
    let titles = "theirs | kernel, shape | adapter | >theirs | >Lathe's | >theirs over Lathe's | \
                  theirs is | its results | record";
    let shown = match rows.is_empty() {
        true => "No record holds one yet.\n".into(),
        false => table(titles, &rows),
    };
    head(text_path) + &text.replace("{{engines}}\n", &shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The newest of each mapping and adapter has a row; other comparisons have none.
    #[test]
    fn engines_have_a_row_each() {
        let at = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/records");
        let file = "nvidia-h200/2026-11-20-ab-gemv-naive-subgroup.json";
        let record = Record::read(&at.join(file)).unwrap();
        let saved = |file: &str, b_us: f64| {
            let mut record = record.clone();
            let Body::Ab(ab) = &mut record.body else { panic!("{file}") };
            ab.b_us = b_us;
            Saved { file: file.into(), record }
        };
        let all = vec![
            saved("gpu/2026-01-01-engine-some-engine.gemv.json", 4.0),
            saved("gpu/2026-01-02-engine-some-engine.gemv.json", 5.0),
            saved("gpu/2026-01-02-engine-other.gemv_q.json", 6.0),
            saved("gpu/2026-01-02-ab-gemv.json", 7.0),
        ];
        let all = Measurements::of(lathe_kernels::kernels(), all);
        let page = engines("before\n{{engines}}\nafter\n", "engines.md", &all);
        let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| [")).collect();
        assert_eq!(rows.len(), 2, "{page}");
        assert!(rows[0].starts_with("| [other: gemv_q](../mappings/other)"), "{page}");
        assert!(rows[1].contains("| 5.00 µs |"), "{page}");
        assert!(page.contains("\nbefore\n| theirs") && page.ends_with("after\n"), "{page}");
        let none = Measurements::of(lathe_kernels::kernels(), Vec::new());
        assert!(engines("{{engines}}\n", "engines.md", &none).contains("No record"));
    }

    /// A record of one case, as an older version wrote it.
    fn saved(date: &str, shape: &str, us: f64, dirty: bool) -> Saved {
        let timing = format!(
            r#"{{"median_us":{us},"min_us":{us},"spread":0,"noise":0,"settled":true,
            "dispatches":1,"samples_us":[{us}]}}"#
        );
        let text = format!(
            r#"{{"schema_version":1,"environment":{{"date":"{date}T00:00:00Z",
            "commit":"0123456789ab","dirty":{dirty},"lathe":"0","wgpu":"0","os":"o",
            "adapter":"GPU","driver":"d","backend":"vulkan","software":false,
            "runtime_checks":"off","timestamp_quantum_ns":1,"copy_gb_s":1,"canary_drift":0}},
            "kind":"bench","cases":[{{"kernel":"embed","variant":"vec4","shape":"{shape}",
            "source":"","cold":{timing},"warm":{timing},"bytes":1,"flops":1,"gb_s":2,
            "fraction_of_copy":0.5,"rotated_bytes":1,"clock":"gpu","flags":["noisy"]}}]}}"#
        );
        let record = serde_json::from_str(&text).unwrap();
        Saved { file: format!("gpu/{date}.json"), record }
    }

    const SHAPE: &str = "VOCAB=262144,HIDDEN=1152,WEIGHT=bf16,PACKING=blocks,SCALE=33.941124,\
                         FIRST_ROW=0,PART=whole,N_TOKENS=1,TOKENS_OF=one";

    fn embed() -> &'static Kernel {
        lathe_kernels::kernel("embed").unwrap()
    }

    #[test]
    fn the_newest_record_counts_and_its_change_is_to_the_one_before() {
        let full = format!("{SHAPE},N_KV=1");
        let files = vec![
            saved("2026-01-03", &full, 3.0, false),
            saved("2026-01-01", SHAPE, 6.0, false),
            saved("2026-01-04", &full, 1.0, true),
        ];
        let all = Measurements::of(lathe_kernels::kernels(), files);
        let text = tables(embed(), &all);
        assert!(text.contains("| 3.00 | 3.00 | 2.00 | 50.0 | [2026-01-03](../../benches/records/"));
        assert!(!text.contains("2026-01-01") && !text.contains("2026-01-04"), "{text}");
        let index = index(lathe_kernels::kernels(), "# Records", "page.md", &all);
        assert!(index.contains("-50.0 % since [2026-01-01](gpu/2026-01-01.json) | noisy"));
        assert!(index.contains("gpu/2026-01-04.json): a tree with uncommitted changes"), "{index}");
    }

    #[test]
    fn what_cannot_be_read_is_listed() {
        let files = vec![saved("2026-01-01", "VOCAB=8,TURNS=3", 1.0, false)];
        let all = Measurements::of(lathe_kernels::kernels(), files);
        assert_eq!(tables(embed(), &all), "No record holds it.\n");
        let index = index(lathe_kernels::kernels(), "# Records", "page.md", &all);
        assert!(index.contains("has no parameter `TURNS`"), "{index}");
    }
}
