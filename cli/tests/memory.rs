//! Device memory: an executor allocates the predicted bytes, staging is bounded, and a model that
//! does not fit is refused with both numbers.

use std::sync::Arc;

use lathe_harness::decode::{Chunks, DecodeOptions, Model};
use lathe_harness::error::Error;
use lathe_harness::execute::GpuExecutor;
use lathe_harness::gpu::{Checks, Gpu, Pipelines, Policy};
use lathe_harness::plan::memory::{Memory, UPLOAD_BYTES, UPLOADS_IN_FLIGHT};
use lathe_harness::plan::recording::{Recording, TensorId, TensorInit};
use lathe_kernels::KvFormat;

use crate::common::{self, GOLDENS, gpu, model, new_gpu};

fn executor(gpu: &Arc<Gpu>, recording: &Arc<Recording>) -> lathe_harness::Result<GpuExecutor> {
    let (gpu, recording) = (Arc::clone(gpu), Arc::clone(recording));
    GpuExecutor::new(gpu, &Pipelines::default(), recording, Policy::Plain, &mut |_, _| {})
}

fn recording(gpu: &Gpu, model: &Model, kv: KvFormat, most: usize) -> Arc<Recording> {
    let chunks = Some(Chunks { most, ..Chunks::with_cache(kv) });
    let options =
        DecodeOptions { context: 96, kv, chunks, store: None, ..DecodeOptions::default() };
    model.graph(Some(gpu), &options).unwrap().recording
}

/// Bytes of its own that wgpu frees when it likes.
const WGPU: u64 = 1 << 10;

/// Allocators round each buffer up.
fn with_rounding(bytes: u64, tensors: usize) -> u64 {
    bytes + 256 * tensors as u64
}

#[test]
fn prediction_is_what_is_allocated() {
    let Some(gpu) = new_gpu() else { return };
    for name in GOLDENS {
        let model = model(name);
        for kv in [KvFormat::F16, KvFormat::F32, KvFormat::Q8_0] {
            for most in [0, 16, 64, 1024] {
                let recording = recording(&gpu, &model, kv, most);
                let predicted = Memory::of(&recording);
                let (tensors, what) = (recording.tensors.len(), format!("{name} {kv:?} {most}"));
                assert_eq!(predicted.prompt == 0, most == 0, "{what}");
                // What the executor before has left is freed when its last submission ends.
                gpu.wait(None).unwrap();
                let before = gpu.memory_in_use().allocated;
                gpu.forget_peak();
                let executor = common::executor(&gpu, &recording, Policy::Plain);
                assert_eq!(predicted.tensors(), executor.device_bytes(), "{what}");
                let (Some(before), Some(after), Some(peak)) =
                    (before, gpu.memory_in_use().allocated, gpu.peak_memory().allocated)
                else {
                    continue;
                };
                let (held, most) = (after - before, with_rounding(predicted.tensors(), tensors));
                assert!(
                    predicted.tensors() <= held + WGPU && held <= most,
                    "{what}: {held}, {predicted:?}"
                );
                // Tensors and staging at once; the queue may have freed some of it meanwhile.
                let (peak, most) = (peak - before, with_rounding(predicted.total(), 2 * tensors));
                assert!(
                    predicted.tensors() <= peak + WGPU && peak <= most,
                    "{what}: peak {peak}, {predicted:?}"
                );
            }
        }
    }
}

#[test]
fn staging_is_bounded_and_loses_nothing() {
    let Some(gpu) = new_gpu() else { return };
    let mut recording = Recording::default();
    // More than all staging together, in tensors smaller than one upload and in a larger one.
    let (small, large) = (3 << 20, 20 << 20);
    for i in 0..12 {
        let values = |len: usize| (0..len / 4).map(|j| (i * 31 + j) as f32).collect();
        recording.tensor(format!("small {i}"), TensorInit::Values(values(small)));
    }
    let values: Arc<[f32]> = (0..large / 4).map(|j| j as f32).collect();
    recording.tensor("large", TensorInit::Values(values));
    let recording = Arc::new(recording);
    let predicted = Memory::of(&recording);
    assert_eq!(predicted.staging, UPLOAD_BYTES * (UPLOADS_IN_FLIGHT + 1));
    assert!(predicted.tensors() > predicted.staging, "nothing to bound");
    let before = gpu.memory_in_use().allocated;
    gpu.forget_peak();
    let executor = executor(&gpu, &recording).unwrap();
    if let (Some(before), Some(peak)) = (before, gpu.peak_memory().allocated) {
        let most = with_rounding(predicted.total(), 2 * recording.tensors.len());
        assert!(peak - before <= most, "{} > {most}", peak - before);
        assert!(peak - before > predicted.tensors(), "staging was not seen");
    }
    for (i, tensor) in recording.tensors.iter().enumerate() {
        let TensorInit::Values(values) = &tensor.content else { unreachable!() };
        let held = executor.read_values(TensorId(i)).unwrap();
        assert!(held[..] == values[..], "{}", tensor.name);
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_allocated() {
    let Some(_) = gpu() else { return };
    let mut gpu = Gpu::open(None, Checks::Files).unwrap();
    let model = model("llama-tiny-f16");
    let recording = recording(&gpu, &model, KvFormat::F32, 64);
    let needed = Memory::of(&recording).total();
    let held = gpu.memory_in_use().allocated.unwrap_or(0);
    gpu.memory_limit = Some(held + needed);
    let mut gpu = Arc::new(gpu);
    drop(executor(&gpu, &recording).unwrap());
    let held = gpu.memory_in_use().allocated.unwrap_or(0);
    Arc::get_mut(&mut gpu).unwrap().memory_limit = Some(held + needed - 1);
    let refused = executor(&gpu, &recording).unwrap_err();
    assert_eq!(refused.exit_code(), 3);
    let said = refused.to_string();
    let Error::Memory(refused) = refused else { panic!("{said}") };
    assert_eq!((refused.predicted, refused.available), (needed, needed - 1));
    for part in ["weights", "KV cache", "--kv f16", "--prompt-chunk", "lathe quantize"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(gpu.memory_in_use().allocated.unwrap_or(0), held);
    // The device's own memory, where it is known.
    Arc::get_mut(&mut gpu).unwrap().memory_limit = None;
    let Some(memory) = gpu.memory() else {
        assert!(gpu.adapter.software || gpu.adapter.backend != "vulkan", "a GPU has memory");
        return;
    };
    assert!(memory.size > 0 && memory.free() <= memory.size);
    let absurd = Memory { weights: memory.size, ..Memory::of(&recording) };
    let refused = gpu.admit(&recording, &absurd).unwrap_err();
    assert!(matches!(refused, Error::Memory(_)), "{refused}");
    gpu.admit(&recording, &Memory::of(&recording)).unwrap();
}
