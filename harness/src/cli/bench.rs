//! `lathe bench`: GPU time, cold and warm, against the measured copy bandwidth.

use std::sync::Arc;

use clap::Args;
use lathe_kernels::Shape;
use serde::Serialize;

use super::Global;
use crate::error::{Error, Result};
use crate::gpu::{AdapterSummary, Pipelines};
use crate::measure::{BenchOptions, CopyBandwidth, Measured, copy_bandwidth, measure};
use crate::plan::{Plan, PlanError};
use crate::report::{json, table};

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// KERNEL or KERNEL/VARIANT; all without
    target: Option<String>,
    /// One shape instead of the kernel's benchmark shapes
    #[arg(long)]
    shape: Option<String>,
}

#[derive(Serialize)]
struct Report {
    adapter: AdapterSummary,
    runtime_checks: &'static str,
    wgpu: &'static str,
    copy: CopyBandwidth,
    cases: Vec<Measured>,
    unavailable: Vec<String>,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let gpu = Arc::new(global.open()?);
    let named = super::named(opts.target.as_deref())?;
    if opts.shape.is_some() && named.len() != 1 {
        return Err(Error::Usage("--shape needs a KERNEL".into()));
    }
    let copy = copy_bandwidth(&gpu)?;
    let options = BenchOptions::of(&gpu);
    let (mut cases, mut unavailable) = (Vec::new(), Vec::new());
    for (kernel, variants) in named {
        let shapes = match &opts.shape {
            Some(text) => {
                let base = kernel.default_shape();
                vec![Shape::parse_over(&base, kernel.name, kernel.params, text)?]
            }
            None => (kernel.bench)(),
        };
        for shape in &shapes {
            for variant in &variants {
                let what =
                    format!("{}/{} {}", kernel.name, variant.name, shape.show(kernel.params));
                let plan = match Plan::of(kernel, variant, shape, &gpu.caps) {
                    Ok(plan) => plan,
                    Err(PlanError::Unavailable(reason)) => {
                        unavailable.push(format!("{what}: {reason}"));
                        continue;
                    }
                    Err(PlanError::Reflect(e)) => return Err(e.into()),
                };
                eprintln!("timing {what}");
                let pipelines = Pipelines::default();
                match measure(&gpu, &pipelines, plan, shape, copy.gb_s, &options) {
                    Ok(measured) => cases.push(measured),
                    Err(Error::Unavailable { what, reason, .. }) => {
                        unavailable.push(format!("{what}: {reason}"));
                    }
                    Err(e) => return Err(e),
                }
            }
        }
    }
    let report = Report {
        adapter: gpu.adapter.clone(),
        runtime_checks: gpu.checks.name(),
        wgpu: crate::gpu::WGPU_VERSION,
        copy,
        cases,
        unavailable,
    };
    if global.json {
        json::print(&report);
        return Ok(());
    }
    let mut t = table::table(
        &["kernel", "variant", "shape", "cold", "±", "warm", "GB/s", "of copy"],
        &[3, 4, 5, 6, 7],
    );
    for m in &report.cases {
        t.add_row(vec![
            m.kernel.clone(),
            m.variant.clone(),
            m.shape.clone(),
            table::micros(m.cold.median_us),
            format!("{:.1} %", 100.0 * m.cold.spread),
            table::micros(m.warm.median_us),
            format!("{:.0}", m.gb_s),
            format!("{:.1} %", 100.0 * m.fraction_of_copy),
        ]);
    }
    println!("{t}");
    for line in &report.unavailable {
        println!("unavailable {line}");
    }
    println!(
        "{}: copy {:.0} GB/s (read + write); dependent dispatches, median; run-time checks {}",
        report.adapter.name, report.copy.gb_s, report.runtime_checks
    );
    if report.adapter.software {
        println!("A software adapter: these times say nothing about a GPU.");
    }
    Ok(())
}
