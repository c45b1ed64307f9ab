//! Every variant of `dequant` over the blocks of the official package, bit for bit.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use half::f16;
use lathe_harness::execute::{Execute, GpuExecutor};
use lathe_harness::gpu::{Gpu, Pipelines, Policy};
use lathe_harness::plan::{Plan, PlanError};
use lathe_harness::recording::{Content, FloatFormat, Label, Recording};
use lathe_harness::weights::{Bytes, WeightRows};
use lathe_kernels::{Format, Shape, Variant};

/// Blocks of a golden.
const BLOCKS: usize = 24;
const ROWS: usize = 4;

fn golden(format: Format, what: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../reference/tests/goldens/dequant");
    std::fs::read(format!("{folder}/{}.{what}", format.name().to_uppercase())).unwrap()
}

/// What a variant makes of a golden's blocks; `None` where the adapter rules it out.
fn run(
    gpu: &Arc<Gpu>,
    format: Format,
    acts: FloatFormat,
    variant: &'static Variant,
) -> Option<Vec<f32>> {
    let kernel = lathe_kernels::kernel("dequant").unwrap();
    let k = BLOCKS / ROWS * format.block_len();
    let shape = Shape::new(&[
        ("ROWS", ROWS as f64),
        ("K", k as f64),
        ("WEIGHT", format.code()),
        ("ACTS", acts.code()),
    ]);
    let plan = match Plan::of(kernel, variant, &shape, &gpu.caps) {
        Ok(plan) => plan,
        Err(PlanError::Unavailable(_)) => return None,
        Err(e) => panic!("{}: {e}", variant.name),
    };
    let bytes = Bytes::Owned(golden(format, "blocks.bin").into());
    let rows = WeightRows::new(format, k, bytes);
    let mut recording = Recording::default();
    let weights = recording.tensor("weights", Content::Weights(rows, plan.packing));
    let y = recording.tensor("y", Content::Activation { len: ROWS * k, format: acts });
    let label = Label { layer: None, op: "dequant" };
    recording.op(label, plan, shape, &[("weights", weights), ("y", y)]);
    let mut executor = GpuExecutor::new(
        Arc::clone(gpu),
        &Pipelines::default(),
        Arc::new(recording),
        Policy::Guarded,
        &mut |_, _| {},
    )
    .unwrap();
    executor.run(1).unwrap();
    Some(executor.read_values(y).unwrap())
}

#[test]
fn every_variant_decodes_the_goldens_bit_for_bit() {
    let Some(gpu) = common::gpu() else { return };
    let _turn = common::turn();
    for variant in lathe_kernels::kernel("dequant").unwrap().variants {
        let mut compared = 0;
        for &format in Format::QUANTISED {
            let expected: Vec<f32> = bytemuck::pod_collect_to_vec(&golden(format, "expected.f32"));
            assert_eq!(expected.len(), BLOCKS * format.block_len());
            for acts in [FloatFormat::F32, FloatFormat::F16] {
                let Some(got) = run(&gpu, format, acts, variant) else { continue };
                assert_eq!(got.len(), expected.len());
                for (i, (got, &exact)) in got.into_iter().zip(&expected).enumerate() {
                    let at = format!("{}/{} {}[{i}]", variant.name, format.name(), acts.name());
                    if acts == FloatFormat::F32 {
                        assert_eq!(got.to_bits(), exact.to_bits(), "{at}: {got} {exact}");
                    } else {
                        // WGSL leaves the direction of rounding to the driver.
                        let step = exact.abs() / 1024.0 + f16::MIN_POSITIVE_SUBNORMAL.to_f32();
                        assert!((got - exact).abs() <= step, "{at}: {got} {exact}");
                    }
                    compared += 1;
                }
            }
        }
        eprintln!("dequant/{}: {compared} values", variant.name);
        let needs = lathe_kernels::reflection("dequant", variant.name).unwrap().needs_subgroup;
        assert!(compared > 0 || needs && gpu.caps.subgroup.is_none(), "{}", variant.name);
    }
}
