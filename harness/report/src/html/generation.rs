//! The sections of whole generations: llama-bench's tests, and the suite.

use lathe_record::record::{Environment, GenerationTests, Suite};

use super::markup::{Set, Table, paragraph, warning};
use super::svg::figure;
use crate::generation::{self, Grid};

/// The body of a record of tests.
pub(super) fn tests(run: &GenerationTests, env: &Environment) -> String {
    if run.tests.is_empty() {
        return paragraph("The record holds no test.");
    }
    let unverified = unchecked(run.tests.iter().filter(|test| test.verified.is_none()).count());
    unverified + &table(&generation::tests(run, env))
}

/// The body of a suite.
pub(super) fn suite(run: &Suite) -> String {
    if run.models.is_empty() {
        return paragraph("The record holds no model.");
    }
    let configs = run.models.iter().flat_map(|model| model.configs.values());
    let mut html = unchecked(configs.filter(|config| config.verified.is_none()).count());
    html.push_str(&paragraph(&generation::suite_note(run)));
    for grid in generation::suite(run) {
        html.push_str(&table(&grid));
    }
    html
}

fn unchecked(count: usize) -> String {
    match count {
        0 => String::new(),
        n => warning(&format!("Not verified: the outputs of {n} figures below were not checked.")),
    }
}

fn table(grid: &Grid) -> String {
    let set = |right| if right { Set::Figure } else { Set::Name };
    let mut table = Table::new(&grid.title);
    for row in &grid.rows {
        let cells = grid.columns().zip(row);
        let cells = cells.map(|((name, right), cell)| (name, set(right), cell.clone()));
        table.row(cells.collect::<Vec<_>>());
    }
    figure(&grid.title, &table.finish(), &grid.note)
}
