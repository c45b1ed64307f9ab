//! Tables for terminals.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

pub(crate) use lathe_harness::data::bytes;

/// A table with a header; columns listed in `right` are aligned right.
pub(crate) fn table(header: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    for column in right {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A table of named facts.
pub(crate) fn facts(rows: impl IntoIterator<Item = (&'static str, String)>) -> Table {
    let mut table = table(&["", ""], &[1]);
    table.add_rows(rows.into_iter().map(|(name, value)| [name.to_owned(), value]));
    table
}

/// Makes a table at most `columns` wide, by breaking lines between words where it can.
pub(crate) fn fit(table: &mut Table, columns: u16) {
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(columns);
}

/// Microseconds with sensible digits.
pub(crate) fn micros(us: f64) -> String {
    match us {
        us if us >= 10_000.0 => format!("{:.1} ms", us / 1000.0),
        us if us >= 100.0 => format!("{us:.0} µs"),
        us if us >= 10.0 => format!("{us:.1} µs"),
        us => format!("{us:.2} µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_plain_until_it_is_fitted() {
        let mut wide = table(&["what", "why"], &[]);
        wide.add_row(vec!["a variant".to_owned(), "many words ".repeat(20)]);
        assert!(wide.to_string().lines().all(|line| line.len() > 200), "{wide}");
        fit(&mut wide, 80);
        assert!(wide.to_string().lines().all(|line| line.chars().count() <= 80), "{wide}");
        assert!(!wide.to_string().contains("word |"), "words stay whole: {wide}");
    }

    #[test]
    fn units() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(604 << 20), "604.0 MiB");
        assert_eq!(micros(3.456), "3.46 µs");
        assert_eq!(micros(12_345.0), "12.3 ms");
    }
}
