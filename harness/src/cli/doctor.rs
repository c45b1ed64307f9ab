//! `lathe doctor`: what this machine offers.

use clap::Args;
use serde::Serialize;

use super::Global;
use crate::data::AdapterSummary;
use crate::error::{Error, Result};
use crate::gpu::adapters;
use crate::measure::{Copier, CopyBandwidth};
use crate::report::{json, table};

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// Measure the bandwidth of the chosen adapter: device-to-device copy, and reads
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
    copy: Option<CopyBandwidth>,
    read_gb_s: Option<f64>,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let adapters = adapters();
    let gpu = global.open()?;
    let copier = opts.measure.then(|| Copier::new(&gpu)).transpose()?;
    let copy = copier.as_ref().map(|c| c.bandwidth(&gpu)).transpose()?;
    let read_gb_s = copier.as_ref().map(|c| c.read_gb_s(&gpu)).transpose()?;
    let report = Report {
        chosen: gpu.adapter.index,
        timestamp_period_ns: gpu.timestamp_period,
        runtime_checks: gpu.checks.name(),
        wgpu: crate::gpu::WGPU_VERSION,
        copy,
        read_gb_s,
        adapters,
    };
    if global.json {
        json::print(&report);
        return Ok(());
    }
    let mut t = table::table(
        &[
            "",
            "adapter",
            "driver",
            "backend",
            "kind",
            "subgroup",
            "f16",
            "timestamps",
            "matrices",
            "binding",
            "workgroup memory",
        ],
        &[9, 10],
    );
    for a in &report.adapters {
        let subgroup = match a.subgroup_size {
            Some([min, max]) if min == max => min.to_string(),
            Some([min, max]) => format!("{min}-{max}"),
            None => "none".into(),
        };
        t.add_row(vec![
            if a.index == report.chosen {
                format!("* {}", a.index)
            } else {
                format!("  {}", a.index)
            },
            a.name.clone(),
            a.driver.clone(),
            a.backend.clone(),
            a.kind.clone(),
            subgroup,
            yes(a.f16),
            yes(a.timestamps),
            match a.cooperative_matrices.as_slice() {
                [] => "none".into(),
                some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            },
            table::bytes(a.max_binding_bytes),
            table::bytes(u64::from(a.workgroup_memory)),
        ]);
    }
    println!("{t}");
    if report.adapters[report.chosen].software {
        println!(
            "The chosen adapter is a software implementation: right, but no subject for speed."
        );
    }
    if let Some(c) = report.copy {
        println!(
            "copy bandwidth: {:.1} GB/s read + write ({} at a time, spread {:.1} %)",
            c.gb_s,
            table::bytes(c.bytes),
            100.0 * c.spread
        );
    }
    if let Some(gb_s) = report.read_gb_s {
        println!("read bandwidth: {gb_s:.1} GB/s");
    }
    gpu.check_faults()
        .map_err(|e| Error::DeviceLost { adapter: gpu.adapter.name.clone(), reason: e.to_string() })
}

fn yes(b: bool) -> String {
    if b { "yes" } else { "no" }.into()
}
