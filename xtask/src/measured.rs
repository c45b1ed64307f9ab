//! Tables of what the records hold.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lathe_harness::data::record::{Ab, BenchCase, Body, Environment, Flag, Record};
use lathe_kernels::{Kernel, Problem};

use crate::kernel::Shapes;
use crate::markdown::{code, digits, paragraph, plain, table};

/// Folder of the records, from the root of the repository.
pub(crate) const FOLDER: &str = "benches/records";

/// Everything that the records hold, oldest first, each with its file's path below the folder.
pub(crate) struct Measurements(Vec<(String, Record)>);

/// A measured case of an operation, and its adapter.
struct Measured<'a> {
    adapter: &'a str,
    problem: Problem,
    case: &'a BenchCase,
}

impl Measurements {
    /// Reads every record below a folder.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let fault = |e: std::io::Error| format!("{}: {e}", folder.display());
        let mut records = Vec::new();
        for adapter in fs::read_dir(folder).map_err(fault)? {
            let adapter = adapter.map_err(fault)?.path();
            if !adapter.is_dir() {
                continue;
            }
            for file in fs::read_dir(&adapter).map_err(fault)? {
                let file = file.map_err(fault)?.path();
                if file.extension().is_some_and(|e| e == "json") {
                    let name = file.strip_prefix(folder).unwrap_or(&file).to_string_lossy();
                    let record = Record::read(&file).map_err(|e| e.to_string())?;
                    records.push((name.replace('\\', "/"), record));
                }
            }
        }
        records.sort_by_cached_key(|(name, r)| (r.environment.date.clone(), name.clone()));
        Ok(Self(records))
    }

    /// Cases of an operation that a GPU measured at a commit, in a shape of today's declaration.
    fn of_kernel<'a>(&'a self, kernel: &'a Kernel) -> impl Iterator<Item = Measured<'a>> {
        let quotable = |e: &Environment| !e.software && e.dirty != Some(true);
        let records = self.0.iter().filter(move |(_, record)| quotable(&record.environment));
        records.flat_map(move |(_, Record { environment, body, .. })| {
            let cases = if let Body::Bench(bench) = body { &bench.cases[..] } else { &[] };
            cases.iter().filter_map(move |case| {
                let known = case.kernel == kernel.name && kernel.variant(&case.variant).is_some();
                let problem = kernel.parse_complete(&case.shape).ok().filter(|_| known)?;
                Some(Measured { adapter: &environment.adapter, problem, case })
            })
        })
    }

    /// The fastest variant of each benchmarked shape on each adapter, by the newest measurement of
    /// every variant.
    pub(crate) fn winners(&self, kernel: &Kernel) -> String {
        let benched: Vec<String> = kernel.bench().iter().map(|p| kernel.show(p)).collect();
        let mut newest = BTreeMap::new();
        for m in self.of_kernel(kernel) {
            let shape = kernel.show(&m.problem);
            if let Some(place) = benched.iter().position(|benched| *benched == shape) {
                newest.insert((m.adapter, place, m.case.variant.as_str()), m);
            }
        }
        let mut fastest = BTreeMap::<&str, BTreeMap<usize, Measured<'_>>>::new();
        for ((adapter, place, _), m) in newest {
            let of_adapter = fastest.entry(adapter).or_default();
            let time = m.case.cold.median_us;
            if of_adapter.get(&place).is_none_or(|best| time < best.case.cold.median_us) {
                of_adapter.insert(place, m);
            }
        }
        if fastest.is_empty() {
            return "No record holds it.\n".into();
        }
        let problems = kernel.bench();
        let shapes = Shapes::of(kernel, &problems);
        let intro = "The fastest variant of each benchmark shape: median times of dependent \
                     launches, and GB/s over the copy bandwidth of the same run \
                     ([measuring](../measuring.md#one-case)).";
        let mut text = paragraph(&format!("{intro} {}", shapes.common().trim()));
        for (adapter, of_shape) in fastest {
            let row = |(place, m): (usize, Measured<'_>)| {
                vec![
                    shapes.own(kernel, &problems[place]),
                    code(&m.case.variant),
                    digits(m.case.cold.median_us),
                    digits(m.case.warm.median_us),
                    digits(m.case.gb_s),
                    format!("{:.1}", 100.0 * m.case.fraction_of_copy),
                ]
            };
            let rows: Vec<_> = of_shape.into_iter().map(row).collect();
            let titles = "shape | variant | >cold µs | >warm µs | >GB/s | >% of copy";
            text.push_str(&format!("\n{}\n\n{}", plain(adapter), table(titles, &rows)));
        }
        text
    }

    /// Kernels of other engines against ours: the newest A/B record of each mapping and adapter,
    /// from files named `…-engine-ENGINE.MAPPING.json`.
    pub(crate) fn engines(&self) -> String {
        let mut newest = BTreeMap::new();
        for (file, record) in &self.0 {
            let named = file.strip_suffix(".json").and_then(|file| file.split_once("-engine-"));
            if let Some((engine, mapping)) = named.and_then(|(_, name)| name.split_once('.'))
                && let Body::Ab(ab) = &record.body
            {
                newest.insert((record.environment.adapter.as_str(), engine, mapping), ab);
            }
        }
        let row = |((adapter, engine, mapping), ab): ((&str, &str, &str), &Ab)| {
            let found = ab.compared_again();
            let ratio = found.as_ref().map_or(ab.ratio, |found| found.ratio);
            let verdict = found.map_or(ab.verdict.clone(), |found| found.verdict.into());
            let own = ab.flags.iter().any(|flag| *flag == Flag::OwnTolerance);
            let right = if own { "right, own tolerance" } else { "right" };
            vec![
                format!("[{engine}: {mapping}](../mappings/{engine})"),
                code(&format!("{} {}", ab.kernel, ab.shape)),
                plain(adapter),
                format!("{} µs", digits(ab.b_us)),
                format!("{} µs, {}", digits(ab.a_us), code(&ab.a)),
                format!("{:.2} [{:.2}, {:.2}]", ratio.median, ratio.low, ratio.high),
                verdict.to_string(),
                right.to_owned(),
            ]
        };
        let rows: Vec<_> = newest.into_iter().map(row).collect();
        let titles = "theirs | kernel, shape | adapter | >theirs | >Lathe's | >theirs over Lathe's \
                      | theirs is | its results";
        if rows.is_empty() { "No record holds one.\n".into() } else { table(titles, &rows) }
    }
}
