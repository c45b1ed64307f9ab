//! Results in llama-bench's formats, so that rows of both stand in one table.
//!
//! Columns that llama-bench has carry its names and units; its settings that mean nothing here
//! (batch sizes, threads, layers on the GPU, …) are left out, and ours follow at the end.

use lathe_record::record::{Environment, GenerationTest, GenerationTests};
use serde_json::{Map, Value, json};

use super::csv_row;

/// The columns of the CSV, in llama-bench's order, then ours.
const COLUMNS: [&str; 25] = [
    "build_commit",
    "gpu_info",
    "backends",
    "model_filename",
    "model_type",
    "model_size",
    "model_n_params",
    "type_k",
    "type_v",
    "n_prompt",
    "n_gen",
    "n_depth",
    "test_time",
    "avg_ns",
    "stddev_ns",
    "avg_ts",
    "stddev_ts",
    "test",
    "steps_per_submit",
    "sequences",
    "sampling",
    "activations",
    "verified",
    "adapter_driver",
    "beside_ts",
];

/// A test as a row: all keys of its record, and those of its environment that llama-bench has.
fn row(test: &GenerationTest, env: &Environment) -> Map<String, Value> {
    let mut row = match serde_json::to_value(test) {
        Ok(Value::Object(row)) => row,
        // A record's own types are objects that serialise.
        other => unreachable!("{other:?}"),
    };
    row.insert("build_commit".into(), json!(env.commit.as_deref().unwrap_or("unknown")));
    row.insert("gpu_info".into(), json!(env.adapter));
    row.insert("backends".into(), json!(env.backend));
    row.insert("adapter_driver".into(), json!(env.driver));
    row
}

/// `-o json`: one array of rows, with the samples.
pub fn json(run: &GenerationTests, env: &Environment) -> String {
    let rows: Vec<_> = run.tests.iter().map(|test| Value::Object(row(test, env))).collect();
    format!("{:#}\n", Value::Array(rows))
}

/// `-o jsonl`: one line a test.
pub fn jsonl(run: &GenerationTests, env: &Environment) -> String {
    run.tests.iter().map(|test| format!("{}\n", Value::Object(row(test, env)))).collect()
}

/// `-o csv`: every field quoted, as llama-bench writes them.
pub fn csv(run: &GenerationTests, env: &Environment) -> String {
    let mut text = format!("{}\n", COLUMNS.join(","));
    for test in &run.tests {
        let row = row(test, env);
        let sampling = test.sampling.map(|sampling| sampling.to_string()).unwrap_or_default();
        let cells = COLUMNS.map(|column| match (column, row.get(column).unwrap_or(&Value::Null)) {
            ("sampling", _) => sampling.clone(),
            ("beside_ts", _) => {
                test.beside.as_ref().map(|of| of.avg_ts.to_string()).unwrap_or_default()
            }
            ("verified", Value::Null) => "not verified".to_owned(),
            ("verified", verified) => format!("{} positions", verified["positions"]),
            (_, Value::Null) => String::new(),
            (_, Value::String(text)) => text.clone(),
            (_, value) => value.to_string(),
        });
        text.push_str(&csv_row(&cells));
    }
    text
}
