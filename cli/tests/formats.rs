//! Storage formats on the device, bit for bit: `cast` over every pattern of bits that matters. The
//! sweep of `kernels` has `dequant`, whose reference decodes the blocks of the official package.

use std::sync::Arc;

use half::{bf16, f16};
use lathe_harness::execute::Execute;
use lathe_harness::gpu::Policy;
use lathe_harness::plan::Plan;
use lathe_harness::plan::recording::{Label, Part, Recording, TensorInit};
use lathe_kernels::cast::Cast;
use lathe_kernels::{FloatFormat, Params};

use crate::common::{self, Device};

/// `words` cast by every variant: the words of `n` results each.
fn casts(
    gpu: &Device,
    words: &[u32],
    n: usize,
    from: FloatFormat,
    to: FloatFormat,
) -> Vec<Vec<u32>> {
    let kernel = lathe_kernels::kernel("cast").unwrap();
    let shape = Cast { n, from, to }.shape();
    let run = |variant| {
        let plan = Plan::of(kernel, variant, &shape, &gpu.caps).unwrap();
        let mut recording = Recording::default();
        let x = recording.tensor("x", TensorInit::Words(words.len()));
        let y = recording.tensor("y", TensorInit::Words(n * to.bytes() / 4));
        let label = Label { layer: None, op: "cast" };
        recording.op(label, plan, shape.clone(), &[("x", x), ("y", y)]);
        let mut executor = common::executor(gpu, &Arc::new(recording), Policy::Guarded);
        executor.write_words(x, 0, words).unwrap();
        executor.run(&[Part::Steps(1)]).unwrap();
        executor.read_words(y).unwrap()
    };
    kernel.variants.iter().map(run).collect()
}

fn halves(words: &[u32]) -> Vec<u16> {
    bytemuck::cast_slice(words).to_vec()
}

/// Every pattern of the upper half, with lower halves around the ties.
fn f32_patterns() -> Vec<u32> {
    let lower = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
    (0..=0xffffu32).flat_map(|upper| lower.map(|low| upper << 16 | low)).collect()
}

#[test]
fn casts_are_exact_or_rounded_to_a_neighbour() {
    let Some(gpu) = common::gpu() else { return };
    let _turn = common::turn();
    let bits = f32_patterns();
    // To the nearest even, and NaN stays NaN.
    for got in casts(&gpu, &bits, bits.len(), FloatFormat::F32, FloatFormat::Bf16) {
        for (got, &bits) in halves(&got).into_iter().zip(&bits) {
            let expected = bf16::from_f32(f32::from_bits(bits));
            let nan = expected.is_nan() && bf16::from_bits(got).is_nan();
            assert!(nan || got == expected.to_bits(), "{bits:08x}: {got:04x} {expected:?}");
        }
    }
    // Sixteen bits widen exactly.
    let patterns: Vec<u16> = (0..=0xffff).collect();
    let words: Vec<u32> = bytemuck::cast_slice(&patterns).to_vec();
    for got in casts(&gpu, &words, patterns.len(), FloatFormat::Bf16, FloatFormat::F32) {
        assert!(got.iter().zip(&patterns).all(|(got, &p)| *got == u32::from(p) << 16));
    }
    for got in casts(&gpu, &words, patterns.len(), FloatFormat::F16, FloatFormat::F32) {
        // WGSL lets infinities and NaN be anything.
        for (got, &p) in got.iter().zip(&patterns).filter(|(_, p)| f16::from_bits(**p).is_finite())
        {
            assert_eq!(*got, f16::from_bits(p).to_f32().to_bits(), "{p:04x}");
        }
    }
    // To one of two neighbours in f16.
    let small = |bits: &u32| f32::from_bits(*bits).abs() < f16::MAX.to_f32();
    let bits: Vec<u32> = bits.into_iter().filter(small).collect();
    let bits = &bits[..bits.len() / 8 * 8];
    for got in casts(&gpu, bits, bits.len(), FloatFormat::F32, FloatFormat::F16) {
        for (got, &bits) in halves(&got).into_iter().zip(bits) {
            let x = f32::from_bits(bits);
            let step = x.abs() / 1024.0 + f16::MIN_POSITIVE_SUBNORMAL.to_f32();
            let got = f16::from_bits(got);
            assert!((got.to_f32() - x).abs() <= step, "{x}: {got}");
        }
    }
}
