//! What the results say of each operation: the tables of its page, and kernels of other engines.

use std::collections::BTreeMap;
use std::fmt::Write;

use lathe_kernels::{Kernel, Problem};

use super::declared::Shapes;
use super::head;
use super::markdown::{code, dash, digits, plain, table};
use crate::data::record::Environment;
use crate::data::row::{Kind, Row, Run};

/// Folder of the results, from the root of the repository.
const FOLDER: &str = "benches/records";

/// A run and its file.
pub struct Saved {
    /// `<adapter>.csv`, in the folder of the results.
    pub file: String,
    /// Results.
    pub run: Run,
}

impl Saved {
    /// Link to the run, with its day as text.
    fn link(&self, folder: &str) -> String {
        let day = self.run.environment.date.split('T').next().unwrap_or_default();
        format!("[{day}]({folder}{}#{})", self.file, self.run.id)
    }
}

/// One measured variant and shape.
struct Measurement {
    problem: Problem,
    /// The problem as text: equal for equal problems, however the row wrote it.
    key: String,
    row: Row,
    adapter: String,
    link: String,
}

/// All results, oldest first.
pub struct Measurements {
    saved: Vec<Saved>,
    bench: BTreeMap<&'static str, Vec<Measurement>>,
}

impl Measurements {
    /// Sorts the results of all kernels. A shape that the declarations of today cannot read is left
    /// out, and so is what a tree with uncommitted changes or a software adapter measured.
    pub fn of(kernels: &'static [Kernel], mut saved: Vec<Saved>) -> Self {
        saved.sort_by_key(|s| (s.run.environment.date.clone(), s.run.id.clone()));
        let mut bench = BTreeMap::<_, Vec<_>>::new();
        for of in &saved {
            for row in of.run.rows.iter().filter(|row| row.kind == Kind::Bench) {
                let Some((kernel, problem)) = read(kernels, &of.run.environment, row) else {
                    continue;
                };
                bench.entry(kernel.name).or_default().push(Measurement {
                    key: kernel.show(&problem),
                    problem,
                    row: row.clone(),
                    adapter: of.run.environment.adapter.clone(),
                    link: of.link("../../benches/records/"),
                });
            }
        }
        Self { saved, bench }
    }

    /// The newest measurement of every variant and shape, adapter by adapter in the order of the
    /// declarations; shapes that are benchmarked today come first.
    fn newest(&self, kernel: &Kernel) -> BTreeMap<&str, Vec<&Measurement>> {
        let mut newest = BTreeMap::new();
        for m in self.bench.get(kernel.name).into_iter().flatten() {
            newest.insert((m.adapter.as_str(), m.key.as_str(), m.row.variant.as_str()), m);
        }
        let benched: Vec<_> = kernel.bench().iter().map(|p| kernel.show(p)).collect();
        let shape =
            |m: &Measurement| benched.iter().position(|key| *key == m.key).unwrap_or(benched.len());
        let variant = |m: &Measurement| {
            kernel.variants.iter().position(|v| v.name == m.row.variant).unwrap_or_default()
        };
        let mut adapters = BTreeMap::<_, Vec<_>>::new();
        for ((adapter, ..), m) in newest {
            adapters.entry(adapter).or_default().push(m);
        }
        for rows in adapters.values_mut() {
            rows.sort_by_key(|m: &&Measurement| (shape(m), m.key.clone(), variant(m)));
        }
        adapters
    }
}

fn read(
    kernels: &'static [Kernel],
    environment: &Environment,
    row: &Row,
) -> Option<(&'static Kernel, Problem)> {
    if environment.software || environment.dirty == Some(true) {
        return None;
    }
    let kernel = kernels.iter().find(|k| k.name == row.subject)?;
    kernel.variant(&row.variant)?;
    Some((kernel, kernel.parse_complete(&row.shape).ok()?))
}

/// The measured tables of an operation, one an adapter.
pub(super) fn tables(kernel: &Kernel, measurements: &Measurements) -> String {
    let newest = measurements.newest(kernel);
    let tables = newest.iter().map(|(adapter, rows)| table_of(kernel, adapter, rows));
    match newest.is_empty() {
        true => "No record holds it.\n".into(),
        false => tables.collect::<Vec<_>>().join("\n"),
    }
}

fn table_of(kernel: &Kernel, adapter: &str, measurements: &[&Measurement]) -> String {
    let problems: Vec<_> = measurements.iter().map(|m| m.problem.clone()).collect();
    let shapes = Shapes::of(kernel, &problems);
    let independent = measurements.iter().any(|m| m.row.overlapped_us.is_some());
    // Beyond some fifty operations a byte no GPU of today is bound by memory.
    let products = measurements.iter().any(|m| m.row.flops > m.row.bytes.map(|b| 50.0 * b));
    let mut titles = vec!["shape", "variant", ">cold µs", ">warm µs"];
    titles.extend(independent.then_some(">independent µs"));
    titles.extend([">GB/s", ">% of copy bandwidth"]);
    titles.extend(products.then_some(">TFLOP/s"));
    titles.extend(["record", "commit", "flags"]);
    let figure = |value: Option<f64>| value.map_or("–".into(), digits);
    let rows: Vec<_> = measurements
        .iter()
        .map(|Measurement { problem, row, link, .. }| {
            let mut cells = vec![
                shapes.short(kernel, problem),
                code(&row.variant),
                digits(row.median_us),
                figure(row.warm_us),
            ];
            cells.extend(independent.then(|| figure(row.overlapped_us)));
            let gb_s = row.gb_s();
            let fraction = gb_s.zip(row.copy_gb_s).map(|(gb_s, copy)| 100.0 * gb_s / copy);
            cells.extend([figure(gb_s), fraction.map_or("–".into(), |f| format!("{f:.1}"))]);
            cells.extend(
                products.then(|| figure(row.flops.map(|flops| flops / row.median_us * 1e-6))),
            );
            let commit = row.commit.as_deref().map_or("–".into(), |c| c.chars().take(7).collect());
            cells.extend([link.clone(), commit, dash(row.flags.replace("; ", ", "))]);
            cells
        })
        .collect();
    let independent = match independent {
        true => " Independent: launches that need not wait for each other.",
        false => "",
    };
    let mut text = String::new();
    let _ = write!(
        text,
        "{}, newest record of each variant and shape: median times of dependent launches, and GB/s \
         over the copy bandwidth of the same run ([measuring](../measuring.md#one-case)).\
         {independent}{}\n\n{}",
        plain(adapter),
        shapes.common(),
        table(&titles.join(" | "), &rows)
    );
    text
}

/// Part of a run's name that says that it is of an engine's kernel: `-engine-ENGINE.MAPPING`, as
/// `mappings/compare.py` writes it.
const OF_ENGINE: &str = "-engine-";

/// Kernels of other engines beside ours, `docs/engines.md`: `text` is the hand-written part, in
/// which the line `{{engines}}` becomes a table of the newest result of each mapping and adapter.
/// `text_path` names the page for the reader.
pub fn engines(text: &str, text_path: &str, measurements: &Measurements) -> String {
    let mut newest = BTreeMap::new();
    for saved in &measurements.saved {
        let named = saved.run.id.split_once(OF_ENGINE);
        let Some((engine, mapping)) = named.and_then(|(_, name)| name.split_once('.')) else {
            continue;
        };
        if let [row] = saved.run.rows.as_slice()
            && row.kind == Kind::Ab
        {
            let adapter = saved.run.environment.adapter.as_str();
            newest.insert((adapter, engine, mapping), (saved, row));
        }
    }
    let row = |((adapter, engine, mapping), (saved, row)): (&(&str, &str, &str), &(&Saved, &Row))| {
        let figure = |value: Option<f64>| format!("{:.2}", value.unwrap_or(f64::NAN));
        let [ratio, low, high] = [row.ratio, row.ratio_low, row.ratio_high].map(figure);
        let has = |flag: &str| row.flags().any(|own| own == flag);
        vec![
            format!("[{engine}: {mapping}](../mappings/{engine})"),
            code(&format!("{} {}", row.subject, row.shape)),
            plain(adapter),
            format!("{} µs", digits(row.b_us.unwrap_or(f64::NAN))),
            format!("{} µs, {}", digits(row.median_us), code(&row.variant)),
            format!("{ratio} [{low}, {high}]"),
            row.verdict.clone(),
            match has("own tolerance") {
                _ if has("wrong by a little") => "wrong by a little".into(),
                true => "right, own tolerance".into(),
                false => "right".into(),
            },
            saved.link(&format!("../{FOLDER}/")),
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

    fn saved(id: &str, row: Row) -> Saved {
        let date = format!("{}T00:00:00Z", &id[..10]);
        let adapter = "GPU".into();
        let environment = Environment { date, adapter, dirty: row.dirty, ..Environment::default() };
        let commit = Some("0123456789ab".into());
        let rows = vec![Row { id: id.into(), commit, ..row }];
        Saved { file: "gpu.csv".into(), run: Run { id: id.into(), environment, rows } }
    }

    /// The newest of each mapping and adapter has a row; other comparisons have none.
    #[test]
    fn engines_have_a_row_each() {
        let of = |id: &str, us: f64| {
            saved(id, Row { kind: Kind::Ab, b_us: Some(us), ratio: Some(1.5), ..Row::default() })
        };
        let all = vec![
            of("2026-01-01-engine-some-engine.gemv", 4.0),
            of("2026-01-02-engine-some-engine.gemv", 5.0),
            of("2026-01-02-engine-other.gemv_q", 6.0),
            of("2026-01-02-ab-gemv", 7.0),
        ];
        let all = Measurements::of(lathe_kernels::kernels(), all);
        let page = engines("before\n{{engines}}\nafter\n", "engines.md", &all);
        let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| [")).collect();
        assert_eq!(rows.len(), 2, "{page}");
        assert!(rows[0].starts_with("| [other: gemv_q](../mappings/other)"), "{page}");
        assert!(rows[1].contains("| 5.00 µs |") && rows[1].contains("| 1.50 ["), "{page}");
        assert!(rows[1].contains("/gpu.csv#2026-01-02-engine-some-engine.gemv)"), "{page}");
        assert!(page.contains("\nbefore\n| theirs") && page.ends_with("after\n"), "{page}");
        let none = Measurements::of(lathe_kernels::kernels(), Vec::new());
        assert!(engines("{{engines}}\n", "engines.md", &none).contains("No record"));
    }

    const SHAPE: &str = "VOCAB=262144,HIDDEN=1152,WEIGHT=bf16,PACKING=blocks,SCALE=33.941124,\
                         FIRST_ROW=0,PART=whole,N_TOKENS=1,TOKENS_OF=one";

    #[test]
    fn the_newest_result_of_a_clean_tree_counts() {
        let of = |id: &str, shape: &str, median_us: f64, dirty: bool| {
            let (subject, variant, shape) = ("embed".into(), "vec4".into(), shape.into());
            let (bytes, copy_gb_s) = (Some(6000.0), Some(4.0));
            let row = Row { subject, variant, shape, bytes, copy_gb_s, ..Row::default() };
            let warm_us = Some(median_us);
            saved(id, Row { median_us, warm_us, dirty: Some(dirty), flags: "noisy".into(), ..row })
        };
        let full = format!("{SHAPE},N_KV=1");
        let files = vec![
            of("2026-01-03-b", &full, 3.0, false),
            of("2026-01-01-a", SHAPE, 6.0, false),
            of("2026-01-04-c", &full, 1.0, true),
        ];
        let all = Measurements::of(lathe_kernels::kernels(), files);
        let embed = lathe_kernels::kernel("embed").unwrap();
        let text = tables(embed, &all);
        let row = "| 3.00 | 3.00 | 2.00 | 50.0 | [2026-01-03](../../benches/records/gpu.csv#2026-01-03-b) \
                   | 0123456 | noisy |";
        assert!(text.contains(row), "{text}");
        assert!(!text.contains("2026-01-01") && !text.contains("2026-01-04"), "{text}");
        let unreadable = vec![of("2026-01-01-a", "VOCAB=8,TURNS=3", 1.0, false)];
        let all = Measurements::of(lathe_kernels::kernels(), unreadable);
        assert_eq!(tables(embed, &all), "No record holds it.\n");
    }
}
