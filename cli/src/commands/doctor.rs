//! `lathe doctor`: adapters of this machine and their capabilities.

use clap::Args;
use lathe_harness::data::AdapterSummary;
use lathe_harness::data::record::Ceilings;
use lathe_harness::error::{Error, Result};
use lathe_harness::gpu::adapters;
use lathe_harness::measure::{Copier, ceilings};
use serde::Serialize;

use crate::global::Global;
use crate::{out, table};

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// Measure what the chosen adapter can do at most: bandwidths, arithmetic, launches
    #[arg(long)]
    measure: bool,
}

#[derive(Serialize)]
struct Report {
    adapters: Vec<AdapterSummary>,
    chosen: usize,
    timestamp_period_ns: f64,
    runtime_checks: &'static str,
    wgpu: &'static str,
    ceilings: Option<Ceilings>,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let adapters = adapters();
    let gpu = global.open()?;
    let measured = || ceilings(&gpu, &Copier::new(&gpu)?);
    let ceilings = opts.measure.then(measured).transpose()?;
    let report = Report {
        chosen: gpu.adapter.index,
        timestamp_period_ns: gpu.timestamp_period,
        runtime_checks: gpu.checks.name(),
        wgpu: lathe_harness::gpu::WGPU_VERSION,
        ceilings,
        adapters,
    };
    if global.json {
        out::json(&report);
        return Ok(());
    }
    let mut header = vec![String::new()];
    header.extend(report.adapters.iter().map(|a| {
        let chosen = if a.index == report.chosen { "* " } else { "" };
        format!("{chosen}{}", a.index)
    }));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut t = table::table(&header, &[]);
    let mut row = |name: &str, of: &dyn Fn(&AdapterSummary) -> String| {
        let cells = report.adapters.iter().map(of);
        t.add_row(std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>());
    };
    row("adapter", &|a| a.name.clone());
    row("driver", &|a| a.driver.clone());
    row("backend", &|a| a.backend.clone());
    row("kind", &|a| a.kind.clone());
    row("subgroup", &|a| match a.subgroup_size {
        Some([min, max]) if min == max => min.to_string(),
        Some([min, max]) => format!("{min}-{max}"),
        None => "none".into(),
    });
    row("f16", &|a| yes(a.f16));
    row("timestamps", &|a| yes(a.timestamps));
    row("matrices", &|a| match a.cooperative_matrices.as_slice() {
        [] => "none".into(),
        some => some.join(", "),
    });
    row("binding", &|a| table::bytes(a.max_binding_bytes));
    row("workgroup memory", &|a| table::bytes(u64::from(a.workgroup_memory)));
    out::table(t);
    if report.adapters.len() > 1 {
        outln!("* is chosen; --adapter takes another, by its number or a part of its name");
    }
    if report.adapters[report.chosen].software {
        outln!("The chosen adapter is a software implementation: right, but no subject for speed.");
    }
    if let Some(c) = report.ceilings {
        let shown = |value: Option<f64>, unit: &str| match value {
            None => "-".into(),
            Some(v) if v >= 100.0 => format!("{v:.0} {unit}"),
            Some(v) => format!("{v:.2} {unit}"),
        };
        outln!("measured at most:");
        out::table(table::facts([
            ("copy, read + write", shown(Some(c.copy_gb_s), "GB/s")),
            ("read", shown(c.read_gb_s, "GB/s")),
            ("f32 multiply-add", shown(Some(c.f32_tflop_s), "TFLOP/s")),
            ("f16 multiply-add", shown(c.f16_tflop_s, "TFLOP/s")),
            ("dot4I8Packed", shown(c.dot4_top_s, "Top/s")),
            ("matrix units, f16 to f32", shown(c.matrix_tflop_s, "TFLOP/s")),
            ("a dispatch that waits for the one before", shown(Some(c.dependent_us), "µs")),
            ("a dispatch that does not", shown(Some(c.independent_us), "µs")),
            ("recording a dispatch", shown(Some(c.record_us), "µs")),
            ("submitting and waiting", shown(Some(c.round_trip_us), "µs")),
        ]));
    }
    gpu.check_faults()
        .map_err(|e| Error::DeviceLost { adapter: gpu.adapter.name.clone(), reason: e.to_string() })
}

fn yes(b: bool) -> String {
    if b { "yes" } else { "no" }.into()
}
