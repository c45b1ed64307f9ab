//! Lathe inside another program: its own operations and variants, its own device, whole models.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use lathe_harness::decode::{DecodeOptions, Model};
use lathe_harness::execute::oracle::{Inputs, Oracle, Outcomes};
use lathe_harness::gpu::{Gpu, Pipelines, Policy};
use lathe_harness::judge::check::{Verdict, check};
use lathe_harness::judge::diff;
use lathe_harness::plan::select::parse_hints;
use lathe_harness::plan::target::Target;
use lathe_harness::{Error, wgpu};
use lathe_kernels::descriptor::*;
use lathe_kernels::gemv::{self, Gemv};
use lathe_kernels::param::dim;
use lathe_kernels::{Text, len};
use lathe_reference::Expected;

lathe_kernels::params! {
    /// Parameters of `negate`.
    struct Negate {
        n: usize = dim("N", "elements", 64, 100),
    }
}

const NEGATE: Declaration<Negate> = Declaration {
    name: "negate",
    summary: "x = -x",
    fuses: None,
    state: &[],
    bindings: &[Binding::in_out("x", &f32s, len!(p => p.n))],
    variants: &[Variant {
        name: "naive",
        stages: &[Stage { entry: "main", grid: &|p, _| p.n.div_ceil(64) }],
        ..Variant::PLAIN
    }],
    prefer: &|_| &["naive"],
    cost: &|p, _| Cost { bytes: 8.0 * p.n as f64, flops: p.n as f64 },
    tolerance: &|_, _| Tolerance::exact("exact"),
    cases: "",
    bench: "N=65",
};

impl Oracle for Negate {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let negated = inputs.f32s("x").iter().map(|x| -f64::from(*x));
        inputs.real("x", negated.map(|x| (x, x.abs())).collect())
    }
}

const WGSL: &str = "\
override N: u32;
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
    if (at.x < N) { x[at.x] = -x[at.x]; }
}
";

lathe_kernels::params! {
    /// Parameters of `limits`.
    struct Limits {
        n: usize = dim("N", "elements", 64, 100),
    }
}

const LIMITS: Declaration<Limits> = Declaration {
    name: "limits",
    summary: "y[i] = NaN, +inf, -inf, x[i] by turns",
    fuses: None,
    state: &[],
    bindings: &[
        Binding::input("x", &f32s, len!(p => p.n)),
        Binding::output("y", &f32s, len!(p => p.n)),
    ],
    variants: &[Variant {
        name: "naive",
        stages: &[Stage { entry: "main", grid: &|p, _| p.n.div_ceil(64) }],
        ..Variant::PLAIN
    }],
    prefer: &|_| &["naive"],
    cost: &|p, _| Cost { bytes: 8.0 * p.n as f64, flops: 0.0 },
    tolerance: &|_, _| Tolerance::exact("exact"),
    cases: "",
    bench: "N=65",
};

impl Oracle for Limits {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let mut y = inputs.f32s("x").to_vec();
        for (i, y) in y.iter_mut().enumerate() {
            *y = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, *y][i % 4];
        }
        inputs.real("y", Expected { spreads: true, ..Expected::exact(&y) })
    }
}

const LIMITS_WGSL: &str = "\
override N: u32;
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
    var bits = array(0x7fc00000u, 0x7f800000u, 0xff800000u, x[min(at.x, N - 1u)]);
    if (at.x < N) { y[at.x] = bits[at.x % 4u]; }
}
";

/// Registers the operations of all tests here, since a program registers before it looks.
fn registered() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        static OWN: Declaration<Negate> = NEGATE;
        static WRONG: Declaration<Negate> = Declaration { name: "negate_wrongly", ..NEGATE };
        static ORPHAN: Declaration<Negate> = Declaration { name: "orphan", ..NEGATE };
        let text = |wgsl| Text { variant: "naive", file: "negate.wgsl", wgsl };
        lathe_harness::register(&OWN, &[text(WGSL)]).unwrap();
        let wrong = WGSL.replace("= -x[at.x]", "= x[at.x]").leak();
        lathe_harness::register(&WRONG, &[text(wrong)]).unwrap();
        lathe_kernels::register(&ORPHAN, &[text(WGSL)]).unwrap();
        static LIMITED: Declaration<Limits> = LIMITS;
        lathe_harness::register(&LIMITED, &[text(LIMITS_WGSL)]).unwrap();
        static UNLIMITED: Declaration<Limits> = Declaration { name: "limits_lost", ..LIMITS };
        let lost = LIMITS_WGSL.replace("0x7fc00000u", "0u").leak();
        lathe_harness::register(&UNLIMITED, &[text(lost)]).unwrap();
        static MIXED: Declaration<Limits> = Declaration { name: "limits_mixed", ..LIMITS };
        let mixed = LIMITS_WGSL.replace("0xff800000u", "0x7f800000u").leak();
        lathe_harness::register(&MIXED, &[text(mixed)]).unwrap();
        // A copy of the naive product under another name.
        static MINE: OnceLock<[Variant<Gemv>; 1]> = OnceLock::new();
        let naive = &gemv::OPERATION.variants[0];
        let mine =
            MINE.get_or_init(|| [Variant { name: "mine", stages: naive.stages, ..Variant::PLAIN }]);
        let wgsl = include_str!("../../kernels/ops/matvec/gemv/naive.wgsl");
        let texts = [Text { variant: "mine", file: "mine.wgsl", wgsl }];
        lathe_harness::register_variants(&gemv::OPERATION, mine, &texts).unwrap();
    });
}

#[test]
fn an_operation_of_another_crate_is_checked_against_its_own_oracle() {
    registered();
    let Some(gpu) = common::gpu() else { return };
    let checked = |name: &str| {
        let target = Target::one(name).unwrap();
        let (problem, pipelines) = (target.kernel.default_problem(), Pipelines::default());
        check(&gpu, &pipelines, &target.subjects[0], &problem, 1).map(|c| c.verdict)
    };
    assert!(matches!(checked("negate").unwrap(), Verdict::Passed { .. }));
    assert!(matches!(checked("negate_wrongly").unwrap(), Verdict::Failed { .. }));
    // What is not finite may be expected, and is not met by other values.
    assert!(matches!(checked("limits").unwrap(), Verdict::Passed { .. }));
    for wrong in ["limits_lost", "limits_mixed"] {
        let Verdict::Failed { reason, .. } = checked(wrong).unwrap() else { panic!("{wrong}") };
        assert!(reason.contains("a value that is not finite vanished"), "{reason}");
    }
    let error = checked("orphan").unwrap_err();
    assert!(matches!(error, Error::NoReference { kernel: "orphan" }), "{error}");
    assert!(error.to_string().contains("kernel orphan has no reference"), "{error}");
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn a_registered_variant_runs_in_whole_steps_where_it_is_hinted() {
    registered();
    let Some(gpu) = common::own_gpu() else { return };
    let model = common::model("llama-tiny-f16");
    let hints = parse_hints(&["gemv=mine".to_owned()]).unwrap();
    let options = DecodeOptions { context: 16, hints, store: None, ..DecodeOptions::default() };
    let graph = model.graph(Some(&gpu), &options).unwrap();
    let gemv = graph.selected.iter().find(|s| s.kernel == "gemv").unwrap();
    assert_eq!((gemv.variant.as_str(), gemv.why.as_str()), ("mine", "explicit hint"));
    let op = graph.recording.ops.iter().find(|op| op.kernel().name == "gemv").unwrap();
    assert!(!op.plan.built_in, "its indexing is nobody's promise");
    let mut session = model.session(&gpu, options).unwrap();
    let hinted = session.generate(&[2, 5, 7], 6, |_| {}).unwrap().generated;
    let plain = DecodeOptions { context: 16, store: None, ..DecodeOptions::default() };
    let mut session = model.session(&gpu, plain).unwrap();
    assert_eq!(session.generate(&[2, 5, 7], 6, |_| {}).unwrap().generated, hinted);
}

#[test]
fn a_session_generates_greedily_and_by_chance_and_says_what_it_cannot() {
    registered();
    let Some(gpu) = common::own_gpu() else { return };
    let model = common::model("qwen3-tiny-bf16");
    let options = DecodeOptions { context: 16, store: None, ..DecodeOptions::default() };
    let mut session = model.session(&gpu, options.clone()).unwrap();
    let mut heard = Vec::new();
    let run = session.generate(&[2, 62, 302], 5, |token| heard.push(token)).unwrap();
    assert_eq!(run.generated, heard);
    // Each call begins a new sequence.
    assert_eq!(session.generate(&[2, 62, 302], 5, |_| {}).unwrap().generated, heard);
    let long = session.generate(&[2; 12], 8, |_| {}).unwrap_err();
    assert!(long.to_string().contains("19 positions do not fit the context of 16"), "{long}");
    assert!(session.generate(&[], 1, |_| {}).is_err());
    let drawn = |seed| {
        let options = DecodeOptions { sampling: Some(common::warm(5.0)), seed, ..options.clone() };
        let mut session = model.session(&gpu, options).unwrap();
        session.generate(&[2, 62, 302], 8, |_| {}).unwrap().generated
    };
    assert_eq!(drawn(7), drawn(7));
    assert_ne!(drawn(7), drawn(8));
    let missing = Model::open("no such file.gguf").unwrap_err();
    assert!(matches!(missing, Error::Model(_)), "{missing}");
}

/// A device as an application would open it, and how often that hears of an error.
fn application(
    descriptor: &wgpu::DeviceDescriptor<'_>,
) -> (wgpu::Adapter, wgpu::Device, wgpu::Queue, Arc<AtomicUsize>) {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = pollster::block_on(instance.request_adapter(&Default::default())).unwrap();
    let (device, queue) = pollster::block_on(adapter.request_device(descriptor)).unwrap();
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    device.on_uncaptured_error(Arc::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    (adapter, device, queue, heard)
}

#[test]
fn the_applications_device_serves_and_stays_the_applications() {
    registered();
    let Some(_) = common::gpu() else { return };
    let (adapter, device, queue, heard) = application(&Default::default());
    let gpu = Arc::new(Gpu::from_wgpu(&adapter, device.clone(), queue).unwrap());
    // What it was opened with, not what the adapter has.
    assert_eq!(gpu.caps.subgroup, None);
    assert_eq!(gpu.caps.workgroup_memory, device.limits().max_compute_workgroup_storage_size);
    assert_eq!(gpu.adapter.name, adapter.get_info().name);
    let model = common::model("llama-tiny-f16");
    let options = DecodeOptions { context: 8, store: None, ..DecodeOptions::default() };
    let mut session = model.session(&gpu, options.clone()).unwrap();
    assert_eq!(session.generate(&[2, 5], 3, |_| {}).unwrap().generated.len(), 3);
    let graph = model.graph(Some(&gpu), &options).unwrap();
    let mut executor = common::executor(&Arc::clone(&gpu).into(), &graph.recording, Policy::Plain);
    assert!(
        diff::part(&mut executor, lathe_harness::plan::recording::Part::Steps(1), 0)
            .unwrap()
            .is_none()
    );

    // A mistake here is an error here, and one of the application's is still the application's.
    let bad = wgpu::BufferDescriptor {
        label: None,
        size: 4,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::MAP_WRITE,
        mapped_at_creation: false,
    };
    assert!(gpu.scoped("a buffer", |device| device.create_buffer(&bad)).is_err());
    let buffer = device.create_buffer(&wgpu::BufferDescriptor {
        usage: wgpu::BufferUsages::STORAGE,
        ..bad.clone()
    });
    assert!(gpu.read(&buffer, 0, 4).is_err(), "a copy from a buffer that is no copy source");
    assert_eq!(heard.load(Ordering::Relaxed), 0);
    let _ = device.create_buffer(&bad);
    assert_eq!(heard.load(Ordering::Relaxed), 1);
}

#[test]
fn a_device_without_compute_is_refused() {
    let Some(_) = common::gpu() else { return };
    let descriptor = wgpu::DeviceDescriptor {
        required_limits: wgpu::Limits::downlevel_webgl2_defaults(),
        ..Default::default()
    };
    let (adapter, device, queue, _) = application(&descriptor);
    let error = Gpu::from_wgpu(&adapter, device, queue).unwrap_err();
    assert_eq!(error.exit_code(), 3);
    assert!(error.to_string().contains("compute is unavailable on"), "{error}");
    assert!(error.to_string().contains("= 0"), "{error}");
}
