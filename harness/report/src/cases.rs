//! The cases of a benchmark as rows for other programs: CSV, or a JSON document a line.

use lathe_record::record::{BenchCase, Environment, SCHEMA_VERSION};
use serde_json::{Value, json};

use super::csv_row;

type Column = (&'static str, fn(&BenchCase) -> String);

/// The columns of [`csv`]. What there is none of is empty.
const COLUMNS: [Column; 14] = [
    ("kernel", |c| c.kernel.clone()),
    ("variant", |c| c.variant.clone()),
    ("shape", |c| c.shape.clone()),
    ("cold_us", |c| c.cold.median_us.to_string()),
    ("cold_noise", |c| c.cold.noise.to_string()),
    ("warm_us", |c| c.warm.median_us.to_string()),
    ("bytes", |c| c.bytes.to_string()),
    ("gb_s", |c| c.gb_s.to_string()),
    ("fraction_of_copy", |c| c.fraction_of_copy.to_string()),
    ("flags", |c| c.flags.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    ("tflop_s", |c| figure(c.tflop_s)),
    ("overlapped_us", |c| figure(c.overlapped.as_ref().map(|t| t.median_us))),
    ("nmse", |c| figure(c.nmse)),
    ("nmse_bound", |c| figure(c.nmse_bound)),
];

fn figure(value: Option<f64>) -> String {
    value.map(|v| v.to_string()).unwrap_or_default()
}

/// A heading and a row a case, without samples and environment.
pub fn csv(cases: &[BenchCase]) -> String {
    let row = |case| csv_row(&COLUMNS.map(|(_, cell)| cell(case)));
    csv_row(&COLUMNS.map(|(name, _)| name)) + &cases.iter().map(row).collect::<String>()
}

/// A case a line, each with its environment: rows of many machines can stand in one file.
///
/// # Errors
/// What cannot be written as JSON.
pub fn jsonl(cases: &[BenchCase], environment: &Environment) -> serde_json::Result<String> {
    let mut lines = String::new();
    for case in cases {
        let mut row = json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "bench_case",
            "environment": environment,
        });
        if let (Value::Object(row), Value::Object(case)) = (&mut row, serde_json::to_value(case)?) {
            row.extend(case);
        }
        lines.push_str(&(serde_json::to_string(&row)? + "\n"));
    }
    Ok(lines)
}
