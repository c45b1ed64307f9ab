//! Tables of the kept results.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use lathe_harness::data::row::{Kind, Row, Run};
use lathe_harness::report::Table;
use lathe_kernels::{Kernel, Problem};

use crate::markdown::{WIDTH, code, compact, digits, paragraph, plain};

/// Folder of the results, from the root of the repository.
pub(crate) const FOLDER: &str = "benches/records";

/// All results, oldest first.
pub(crate) struct Measurements(Vec<Run>);

/// A measured case of an operation, and its adapter.
struct Measured<'a> {
    adapter: &'a str,
    problem: Problem,
    row: &'a Row,
}

impl Measurements {
    /// Reads every CSV file of a folder.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let fault = |e: std::io::Error| format!("{}: {e}", folder.display());
        let mut runs = Vec::new();
        for file in fs::read_dir(folder).map_err(fault)? {
            let file = file.map_err(fault)?.path();
            if file.extension().is_some_and(|e| e == "csv") {
                runs.extend(Run::read(&file).map_err(|e| e.to_string())?);
            }
        }
        runs.sort_by_cached_key(|run| (run.environment.date.clone(), run.id.clone()));
        Ok(Self(runs))
    }

    /// Cases of an operation that a GPU measured at a commit, in a shape of today's declaration.
    fn of_kernel<'a>(&'a self, kernel: &'a Kernel) -> impl Iterator<Item = Measured<'a>> {
        let runs = self.0.iter().map(|run| (&run.environment, run));
        let quotable = runs.filter(|(e, _)| !e.software && e.dirty != Some(true));
        quotable.flat_map(move |(environment, run)| {
            run.rows.iter().filter_map(move |row| {
                let known = row.kind == Kind::Bench && row.subject == kernel.name;
                let known = known && kernel.variant(&row.variant).is_some();
                let problem = kernel.parse_complete(&row.shape).ok().filter(|_| known)?;
                Some(Measured { adapter: &environment.adapter, problem, row })
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
                newest.insert((m.adapter, place, m.row.variant.as_str()), m);
            }
        }
        let mut fastest = BTreeMap::<&str, BTreeMap<usize, Measured<'_>>>::new();
        for ((adapter, place, _), m) in newest {
            let of_adapter = fastest.entry(adapter).or_default();
            let time = m.row.median_us;
            if of_adapter.get(&place).is_none_or(|best| time < best.row.median_us) {
                of_adapter.insert(place, m);
            }
        }
        let problems = kernel.bench();
        let shown: Vec<String> = problems.iter().map(|p| kernel.show(p)).collect();
        let shapes: Vec<Vec<(&str, &str)>> = shown
            .iter()
            .map(|s| s.split(',').filter_map(|part| part.split_once('=')).collect())
            .collect();
        let all_have = |part: &(&str, &str)| shapes.iter().all(|shape| shape.contains(part));
        let first = shapes.first().map_or(&[][..], Vec::as_slice);
        let shared: Vec<_> =
            first.iter().filter(|part| all_have(part)).map(|(n, v)| format!("{n}={v}")).collect();
        let own = columns(first.iter().filter(|part| !all_have(part)).map(|part| part.0), &shapes);
        let all = match shared.as_slice() {
            [] => ".".to_owned(),
            shared => format!("; {}.", code(&shared.join(" "))),
        };
        let tables = fastest.into_iter().map(|(adapter, of_shape)| {
            let row = |(place, m): (usize, Measured<'_>)| {
                let share = m.row.gb_s().unwrap_or(f64::NAN) / m.row.copy_gb_s.unwrap_or(f64::NAN);
                let warm = m.row.warm_us.unwrap_or(f64::NAN);
                let figures = [
                    m.row.variant.clone(),
                    digits(m.row.median_us),
                    digits(warm),
                    format!("{:.1} %", 100.0 * share),
                ];
                values(&shapes[place], &own).map(str::to_owned).chain(figures).collect()
            };
            let rows: Vec<Vec<String>> = of_shape.into_iter().map(row).collect();
            let adapter = plain(adapter);
            let intro =
                format!("Fastest variants on {adapter} ([how](../measuring.md#one-case)){all}");
            format!("{}\n{}", paragraph(&intro), table(&titles(&own), rows))
        });
        tables.collect::<Vec<_>>().join("\n")
    }

    /// Kernels of other engines against ours: the newest A/B run of each mapping, of runs named
    /// `…-engine-ENGINE.MAPPING`, under the adapter it ran on.
    pub(crate) fn engines(&self) -> String {
        let mut newest = BTreeMap::new();
        for run in &self.0 {
            let named = run.id.split_once("-engine-").map(|(_, name)| name);
            if let Some(name) = named
                && let [row] = run.rows.as_slice()
                && row.kind == Kind::Ab
            {
                newest.insert(name, (run.environment.adapter.as_str(), row));
            }
        }
        let mut sections = BTreeMap::<&str, Vec<Vec<String>>>::new();
        for (name, (adapter, row)) in newest {
            let Some((engine, mapping)) = name.split_once('.') else { continue };
            let figure = |value: Option<f64>| digits(value.unwrap_or(f64::NAN));
            let [ratio, low, high] = [row.ratio, row.ratio_low, row.ratio_high].map(figure);
            let own = row.flags().any(|own| own == "own tolerance");
            sections.entry(adapter).or_default().push(vec![
                format!("{engine} {mapping}"),
                row.subject.clone(),
                digits(row.b_us.unwrap_or(f64::NAN)),
                digits(row.median_us),
                format!("{ratio} [{low}, {high}]"),
                format!("{}{}", row.verdict, if own { " †" } else { "" }),
            ]);
        }
        let titles = "theirs | kernel | >µs | >Lathe's µs | >theirs over Lathe's | theirs is";
        let titles: Vec<&str> = titles.split(" | ").collect();
        let section = |(adapter, rows): (&str, Vec<Vec<String>>)| {
            format!("{}:\n\n{}", plain(adapter), table(&titles, rows))
        };
        sections.into_iter().map(section).collect::<Vec<_>>().join("\n")
    }
}

/// Titles of a table of the fastest variants, with the parameters that its shapes have of their own.
fn titles<'a>(own: &[&'a str]) -> Vec<&'a str> {
    [own, &["variant", ">cold µs", ">warm µs", ">of copy"]].concat()
}

/// A table in Markdown.
fn table(titles: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new("", titles.iter().copied());
    table.rows = rows;
    compact(&table.text())
}

/// Values of parameters in a shape.
fn values<'a>(shape: &[(&str, &'a str)], names: &[&str]) -> impl Iterator<Item = &'a str> {
    names.iter().filter_map(|name| shape.iter().find(|part| part.0 == *name)).map(|part| part.1)
}

/// The parameters that tell shapes apart: where all are too many for a line, those are left out,
/// from the last on, without which they still differ.
fn columns<'a>(own: impl Iterator<Item = &'a str>, shapes: &[Vec<(&str, &str)>]) -> Vec<&'a str> {
    let mut names: Vec<&str> = own.collect();
    for at in (0..names.len()).rev() {
        if titles(&names).join(" | ").len() < WIDTH {
            break;
        }
        let fewer = [&names[..at], &names[at + 1..]].concat();
        let told: BTreeSet<Vec<&str>> =
            shapes.iter().map(|s| values(s, &fewer).collect()).collect();
        if told.len() == shapes.len() {
            names = fewer;
        }
    }
    names
}
