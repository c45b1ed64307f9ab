//! Tables of the kept results.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lathe_harness::data::row::{Kind, Row, Run};
use lathe_harness::report::Table;
use lathe_kernels::{Kernel, Problem};

use crate::markdown::{code, compact, digits, list, paragraph, plain};

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
        if fastest.is_empty() {
            return "No record holds it.\n".into();
        }
        let problems = kernel.bench();
        let mut text = paragraph(
            "The fastest variant of each benchmark shape, [dependent launches]\
             (../measuring.md#one-case), with the share of the run's copy bandwidth. Parameters at \
             their defaults are left out.",
        );
        for (adapter, of_shape) in fastest {
            let item = |(place, m): (usize, Measured<'_>)| {
                let share = m.row.gb_s().unwrap_or(f64::NAN) / m.row.copy_gb_s.unwrap_or(f64::NAN);
                format!(
                    "{}: {} {} µs cold, {} warm, {:.1} %",
                    code(&kernel.brief(&kernel.show(&problems[place])).replace(',', " ")),
                    code(&m.row.variant),
                    digits(m.row.median_us),
                    digits(m.row.warm_us.unwrap_or(f64::NAN)),
                    100.0 * share
                )
            };
            let items = list(of_shape.into_iter().map(item));
            text.push_str(&format!("\n{}:\n\n{items}", plain(adapter)));
        }
        text
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
        let mut sections = BTreeMap::<(&str, &str), Vec<Vec<String>>>::new();
        for (name, (adapter, row)) in newest {
            let Some((engine, mapping)) = name.split_once('.') else { continue };
            let figure = |value: Option<f64>| digits(value.unwrap_or(f64::NAN));
            let [ratio, low, high] = [row.ratio, row.ratio_low, row.ratio_high].map(figure);
            let own = row.flags().any(|own| own == "own tolerance");
            sections.entry((engine, adapter)).or_default().push(vec![
                mapping.to_owned(),
                row.subject.clone(),
                digits(row.b_us.unwrap_or(f64::NAN)),
                format!("{} {}", digits(row.median_us), row.variant),
                format!("{ratio} [{low}, {high}]"),
                format!("{}{}", row.verdict, if own { " †" } else { "" }),
            ]);
        }
        let titles =
            ["theirs", "kernel", ">µs", ">Lathe's µs", ">theirs over Lathe's", "theirs is"];
        let section = |((engine, adapter), rows): ((&str, &str), Vec<Vec<String>>)| {
            let mut table = Table::new("", titles);
            table.rows = rows;
            format!("{engine} on {}\n\n{}", plain(adapter), compact(&table.text()))
        };
        sections.into_iter().map(section).collect::<Vec<_>>().join("\n")
    }
}
