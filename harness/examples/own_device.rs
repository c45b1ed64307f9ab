//! A kernel of Lathe's in a device that the application has made: `y = rms_norm(x) * weight`.

use std::error::Error;
use std::sync::Arc;

use lathe_harness::execute::{CpuExecutor, Execute, GpuExecutor};
use lathe_harness::gpu::{Gpu, Pipelines, Policy};
use lathe_harness::plan::recording::{Label, Part, Recording, TensorInit};
use lathe_harness::plan::select::{Hints, select};
use lathe_harness::wgpu;
use lathe_kernels::rms_norm::RmsNorm;
use lathe_kernels::{FloatFormat, NormOffset, Params};

fn main() -> Result<(), Box<dyn Error>> {
    // As an application opens its device: no feature, the limits of every WebGPU adapter.
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = pollster::block_on(instance.request_adapter(&Default::default()))?;
    let (device, queue) = pollster::block_on(adapter.request_device(&Default::default()))?;
    let gpu = Arc::new(Gpu::from_wgpu(&adapter, device.clone(), queue)?);

    // Which variant serves this shape on this device, and why.
    let norm = RmsNorm {
        rows: 1,
        n: 1152,
        eps: 1e-6,
        weight_offset: NormOffset::Standard,
        act_format: FloatFormat::F32,
    };
    let kernel = lathe_kernels::kernel("rms_norm").expect("a built-in kernel");
    let selection = select(kernel, &norm.shape(), &gpu.caps, &Hints::new(), None)?;
    println!("{}: {}", selection.plan.variant, selection.why);

    // One operation over three tensors; a whole decode step is a longer list of the same kind.
    let values = |f: fn(usize) -> f32| TensorInit::Values((0..norm.n).map(f).collect());
    let mut recording = Recording::default();
    let x = recording.tensor("x", values(|i| (i as f32).sin()));
    let weight = recording.tensor("weight", values(|i| 1.0 + i as f32 / 2048.0));
    let y = recording.tensor("y", TensorInit::Activation { len: norm.n, format: FloatFormat::F32 });
    let label = Label { layer: None, op: "norm" };
    let bindings = [("x", x), ("weight", weight), ("y", y)];
    recording.op(label, selection.plan, norm.shape(), &bindings);
    let recording = Arc::new(recording);

    let pipelines = Pipelines::default();
    let mut executor =
        GpuExecutor::new(gpu, &pipelines, Arc::clone(&recording), Policy::Plain, &mut |_, _| {})?;
    executor.run(&[Part::Steps(1)])?;
    // The application may as well bind `executor.block(y).buffer` in a pass of its own.
    let got = executor.read_f32(y)?;

    let mut reference = CpuExecutor::new(recording);
    reference.run(&[Part::Steps(1)])?;
    let expected = reference.read_f32(y)?;
    let error = got.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("{:?} …, at most {error:e} off the reference", &got[..4]);
    if error > 1e-5 {
        return Err("the device and the reference disagree".into());
    }
    Ok(())
}
