//! The cases of a benchmark as rows for other programs: CSV, or a JSON document a line.

use serde_json::{Value, json};

use super::csv_row;
use crate::data::record::{BenchCase, Environment, SCHEMA_VERSION};

/// The columns of [`csv`].
pub const COLUMNS: [&str; 14] = [
    "kernel",
    "variant",
    "shape",
    "cold_us",
    "cold_noise",
    "warm_us",
    "bytes",
    "gb_s",
    "fraction_of_copy",
    "flags",
    "tflop_s",
    "overlapped_us",
    "nmse",
    "nmse_bound",
];

/// A heading and a row a case, without samples and environment. What there is none of is empty.
pub fn csv(cases: &[BenchCase]) -> String {
    let row = |c: &BenchCase| {
        let flags: Vec<_> = c.flags.iter().map(ToString::to_string).collect();
        let figure = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
        csv_row(&[
            c.kernel.clone(),
            c.variant.clone(),
            c.shape.clone(),
            c.cold.median_us.to_string(),
            c.cold.noise.to_string(),
            c.warm.median_us.to_string(),
            c.bytes.to_string(),
            c.gb_s.to_string(),
            c.fraction_of_copy.to_string(),
            flags.join("; "),
            figure(c.tflop_s),
            figure(c.overlapped.as_ref().map(|t| t.median_us)),
            figure(c.nmse),
            figure(c.nmse_bound),
        ])
    };
    csv_row(&COLUMNS) + &cases.iter().map(row).collect::<String>()
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
