//! How results leave: pages, traces and rows of other tools.

pub mod cases;
pub mod generation;
pub mod html;
pub mod llama_bench;
pub mod trace;

/// A row of comma-separated values, every one quoted, with the end of its line.
fn csv_row(cells: &[impl AsRef<str>]) -> String {
    let quoted = |cell: &str| format!("\"{}\"", cell.replace('"', "\"\""));
    let cells: Vec<_> = cells.iter().map(|cell| quoted(cell.as_ref())).collect();
    cells.join(",") + "\n"
}
