//! The interpreter against naga and the device: every operator and builtin function by type, and
//! every variant's smallest case. Faults of each kind are planted in `sanitize/tests`.

use lathe_harness::execute::interpreter::Found;
use lathe_harness::judge::check::Verdict;
use lathe_harness::judge::sanitize::{self, CaseResult, Report, Request};
use lathe_harness::plan::target::Target;
use lathe_harness::wgpu;
use lathe_sanitize::{Buffer, Options, Program, run};
use wgpu::util::{BufferInitDescriptor, DeviceExt as _};

use crate::common::{Device, gpu};

/// Largest difference of a result on the device.
#[derive(Clone, Copy, Debug)]
enum Within {
    /// Same bits, but for the sign of zero.
    Bits,
    /// A share of the value, and an absolute part.
    Near(f32, f32),
}
use Within::{Bits, Near};

/// Arguments `a`, `b` and `c`, and expressions of them that are words.
struct Table {
    ty: &'static str,
    arguments: &'static [u32],
    rows: &'static [(Within, &'static str)],
}

const fn f(value: f32) -> u32 {
    value.to_bits()
}

const FLOATS: &[u32] = &[
    f(0.0),
    f(1.0),
    f(-1.0),
    f(0.5),
    f(-0.5),
    f(1.5),
    f(2.5),
    f(-2.5),
    f(3.7),
    f(-0.001),
    f(100.25),
    f(-7.75),
    f(0.3),
    f(1234.5),
    f(-65.0),
    f(0.007),
];

const INTEGERS: &[u32] = &[
    0,
    1,
    2,
    3,
    5,
    7,
    31,
    32,
    100,
    255,
    256,
    65_535,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0xdead_beef,
    0x8040_2010,
    0xffff_fff0,
];

/// Transcendental functions: WGSL allows these errors, software Vulkan keeps them.
const ROUGH: Within = Near(1e-4, 1e-4);
const CLOSE: Within = Near(1e-6, 1e-6);

const TABLES: &[Table] = &[
    Table {
        ty: "f32",
        arguments: FLOATS,
        rows: &[
            (Bits, "a + b"),
            (Bits, "a - b"),
            (Bits, "a * b"),
            (CLOSE, "a / (abs(b) + 1.0)"),
            (Bits, "-a"),
            (Bits, "abs(a)"),
            (Bits, "min(a, b)"),
            (Bits, "max(a, b)"),
            (Bits, "clamp(a, -1.0, 2.0)"),
            (Bits, "saturate(a)"),
            (Bits, "floor(a)"),
            (Bits, "ceil(a)"),
            (Bits, "round(a)"),
            (Bits, "trunc(a)"),
            (CLOSE, "fract(a)"),
            (Bits, "sign(a)"),
            (Bits, "step(a, b)"),
            (CLOSE, "fma(a, b, c)"),
            (Near(1e-5, 1e-4), "mix(a, b, c)"),
            (Near(1e-5, 1e-4), "a % (abs(b) + 1.0)"),
            (CLOSE, "sqrt(abs(a))"),
            (CLOSE, "inverseSqrt(abs(a) + 0.1)"),
            (ROUGH, "exp(0.01 * a)"),
            (ROUGH, "exp2(0.01 * a)"),
            (ROUGH, "log(abs(a) + 0.1)"),
            (ROUGH, "log2(abs(a) + 0.1)"),
            (Near(1e-3, 1e-3), "sin(0.1 * a)"),
            (Near(1e-3, 1e-3), "cos(0.1 * a)"),
            (Near(1e-3, 1e-3), "tan(0.0005 * a)"),
            (Near(1e-3, 1e-3), "atan(a)"),
            (Near(1e-3, 1e-3), "atan2(a, abs(b) + 0.1)"),
            (Near(1e-3, 1e-3), "asin(clamp(a, -1.0, 1.0))"),
            (Near(1e-3, 1e-3), "acos(clamp(a, -1.0, 1.0))"),
            (Near(1e-3, 1e-3), "sinh(0.001 * a)"),
            (Near(1e-3, 1e-3), "cosh(0.001 * a)"),
            (Near(1e-3, 1e-3), "tanh(a)"),
            (Near(1e-3, 1e-3), "asinh(a)"),
            (Near(1e-3, 1e-3), "acosh(abs(a) + 1.0)"),
            (Near(1e-3, 1e-3), "atanh(0.0005 * a)"),
            (Near(1e-3, 1e-4), "pow(abs(a) + 0.1, clamp(b, -2.0, 2.0))"),
            (Near(1e-4, 1e-4), "smoothstep(-3.0, 5.0, a)"),
            (CLOSE, "degrees(a)"),
            (CLOSE, "radians(a)"),
            (CLOSE, "length(vec3(a, b, c))"),
            (CLOSE, "distance(vec2(a, b), vec2(b, c))"),
            (Near(1e-5, 1e-2), "dot(vec3(a, b, c), vec3(c, a, b))"),
            (Near(1e-5, 1e-1), "cross(vec3(a, b, c), vec3(c, a, b)).y"),
            (ROUGH, "normalize(vec3(a, b, 1.0)).x"),
            (Near(1e-4, 1e-2), "reflect(vec2(a, 0.01 * b), vec2(0.6, 0.8)).y"),
            (CLOSE, "modf(a).fract"),
            (Bits, "modf(a).whole"),
            (Bits, "frexp(a).fract"),
            (Bits, "f32(frexp(a).exp)"),
            (Bits, "ldexp(a, 3)"),
            (Bits, "quantizeToF16(a)"),
            (Bits, "select(a, b, a < b)"),
            (Bits, "select(a, b, a >= b)"),
            (Bits, "select(a, b, a == b)"),
            (Bits, "select(a, b, a != 0.5)"),
            (Bits, "f32(i32(a))"),
            (Bits, "f32(u32(abs(a)))"),
            (Bits, "f32(bool(a))"),
            (Bits, "vec4(a, b, c, 1.0).zxyw[i % 4u]"),
            (Bits, "array<f32, 3>(a, b, c)[i % 3u]"),
            (Near(1e-5, 1e-1), "(mat2x2<f32>(a, b, c, 1.0) * vec2(c, b)).x"),
            (Near(1e-5, 1e-1), "(vec2(c, b) * mat2x3<f32>(a, b, c, 1.0, 2.0, a)[0].xy).x"),
            (Near(1e-5, 1e-1), "(vec3(c, b, a) * mat2x3<f32>(a, b, c, 1.0, 2.0, a)).y"),
            (Near(1e-5, 1e-1), "(mat2x2<f32>(a, b, c, 1.0) * mat2x2<f32>(b, c, a, 2.0))[1].x"),
            (Bits, "transpose(mat2x3<f32>(a, b, c, 1.0, 2.0, 3.0))[2].y"),
            (Bits, "(2.0 * mat2x2<f32>(a, b, c, 1.0))[1].x"),
            (Bits, "unpack2x16float(pack2x16float(vec2(a, b))).y"),
            (Near(0.0, 8e-3), "unpack4x8snorm(pack4x8snorm(vec4(a, b, c, 0.25))).z"),
            (Near(0.0, 4e-3), "unpack4x8unorm(pack4x8unorm(vec4(a, b, c, 0.25))).w"),
            (Near(0.0, 4e-5), "unpack2x16snorm(pack2x16snorm(vec2(a, b))).x"),
            (Near(0.0, 2e-5), "unpack2x16unorm(pack2x16unorm(vec2(a, b))).y"),
        ],
    },
    Table {
        ty: "u32",
        arguments: INTEGERS,
        rows: &[
            (Bits, "a + b"),
            (Bits, "a - b"),
            (Bits, "a * b"),
            (Bits, "a / max(b, 1u)"),
            (Bits, "a % max(b, 1u)"),
            (Bits, "a & b"),
            (Bits, "a | b"),
            (Bits, "a ^ b"),
            (Bits, "~a"),
            (Bits, "a << (b & 31u)"),
            (Bits, "a >> (b & 31u)"),
            (Bits, "min(a, b)"),
            (Bits, "max(a, b)"),
            (Bits, "clamp(a, 5u, 1000u)"),
            (Bits, "countLeadingZeros(a)"),
            (Bits, "countTrailingZeros(a)"),
            (Bits, "countOneBits(a)"),
            (Bits, "reverseBits(a)"),
            (Bits, "firstLeadingBit(a)"),
            (Bits, "firstTrailingBit(a)"),
            (Bits, "extractBits(a, b & 31u, 5u)"),
            (Bits, "insertBits(a, c, b & 15u, 9u)"),
            (Bits, "dot4U8Packed(a, b)"),
            (Bits, "u32(dot4I8Packed(a, b))"),
            (Bits, "dot(unpack4xU8(a), vec4(1u, 256u, 65536u, 16777216u))"),
            (Bits, "u32(dot(unpack4xI8(a), vec4(1i, 3i, 5i, 7i)))"),
            (Bits, "pack4xU8(vec4(a, b, c, 300u))"),
            (Bits, "pack4xU8Clamp(vec4(a, b, c, 300u))"),
            (Bits, "pack4xI8(vec4<i32>(vec4(a, b, c, 300u)))"),
            (Bits, "pack4xI8Clamp(vec4<i32>(vec4(a, b, c, 300u)))"),
            (Bits, "select(1u, 2u, a < b)"),
            (Bits, "select(1u, 2u, a >= b)"),
            (Bits, "select(1u, 2u, a == b || b > c && c != 7u)"),
            (Bits, "select(1u, 2u, all(vec2(a, b) < vec2(b, c)))"),
            (Bits, "select(1u, 2u, any(vec2(a, b) <= vec2(b, c)))"),
            (Bits, "select(1u, 2u, !(a > b) | (b > c) & (c != 3u))"),
            (Bits, "u32(bool(a))"),
            (Bits, "u32(bitcast<f32>(a & 0x42ffffffu) * 0.5)"),
            (Bits, "u32(f32(a) * 0.25)"),
        ],
    },
    Table {
        ty: "i32",
        arguments: INTEGERS,
        rows: &[
            (Bits, "a + b"),
            (Bits, "a - b"),
            (Bits, "a * b"),
            (Bits, "a / max(b, 2)"),
            (Bits, "a % max(b, 2)"),
            (Bits, "-a"),
            (Bits, "~a"),
            (Bits, "abs(a)"),
            (Bits, "sign(a)"),
            (Bits, "a >> (u32(b) & 31u)"),
            (Bits, "a << (u32(b) & 31u)"),
            (Bits, "min(a, b)"),
            (Bits, "max(a, b)"),
            (Bits, "clamp(a, -5, 1000)"),
            (Bits, "firstLeadingBit(a)"),
            (Bits, "extractBits(a, 7u, u32(b) & 15u)"),
            (Bits, "select(1, 2, a < b)"),
            (Bits, "select(1, 2, a >= b)"),
            (Bits, "i32(f32(a) * 0.25)"),
            (Bits, "dot(vec3(a, b, c), vec3(b, c, a))"),
        ],
    },
];

/// A kernel of a table: a row of results for each combination of arguments.
fn kernel(table: &Table) -> String {
    let ty = table.ty;
    let rows = table.rows.iter().enumerate().map(|(n, (_, expression))| {
        format!("    y[{} * i + {n}] = bitcast<u32>({ty}({expression}));\n", table.rows.len())
    });
    format!(
        "@group(0) @binding(0) var<storage, read> x: array<u32>;\n\
         @group(0) @binding(1) var<storage, read_write> y: array<u32>;\n\
         @compute @workgroup_size(64)\n\
         fn main(@builtin(global_invocation_id) at: vec3<u32>) {{\n    let i = at.x;\n    \
         let a = bitcast<{ty}>(x[3 * i]);\n    let b = bitcast<{ty}>(x[3 * i + 1]);\n    \
         let c = bitcast<{ty}>(x[3 * i + 2]);\n{}}}\n",
        rows.collect::<String>()
    )
}

fn interpreted(text: &str, x: &[u32], words: usize, groups: u32) -> Vec<u32> {
    let module =
        naga::front::wgsl::parse_str(text).unwrap_or_else(|e| panic!("{}", e.emit_to_string(text)));
    let all = naga::valid::Capabilities::all();
    let info = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), all);
    let info = { info }.validate(&module).unwrap();
    let program = Program::of(&module, &info, "main").unwrap();
    let (mut x, mut y) = (Buffer::filled(x.to_vec()), Buffer::unwritten(vec![0; words]));
    let found = run(&program, [groups, 1, 1], &mut [&mut x, &mut y], Options::default()).unwrap();
    assert!(found.is_empty(), "{found:#?}");
    y.words
}

fn on_device(device: &Device, text: &str, x: &[u32], words: usize, groups: u32) -> Vec<u32> {
    let gpu = &device.device;
    let module = gpu.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(text.into()),
    });
    let pipeline = gpu.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: Default::default(),
        cache: None,
    });
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
    let buffers = [x.to_vec(), vec![0; words]].map(|words| {
        let contents = bytemuck::cast_slice(&words);
        gpu.create_buffer_init(&BufferInitDescriptor { label: None, contents, usage })
    });
    let entries = [0, 1].map(|n| wgpu::BindGroupEntry {
        binding: n,
        resource: buffers[n as usize].as_entire_binding(),
    });
    let group = gpu.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &entries,
    });
    let mut encoder = gpu.create_command_encoder(&Default::default());
    {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(groups, 1, 1);
    }
    device.queue.submit([encoder.finish()]);
    let bytes = device.read(&buffers[1], 0, 4 * words as u64).unwrap();
    bytemuck::pod_collect_to_vec(&bytes)
}

fn agree(within: Within, ty: &str, a: u32, b: u32) -> bool {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    match within {
        _ if a == b => true,
        _ if ty != "f32" => false,
        Bits => x == 0.0 && y == 0.0,
        Near(share, absolute) => (x - y).abs() <= absolute + share * x.abs().max(y.abs()),
    }
}

#[test]
fn operators_and_builtins_agree_with_the_device() {
    let Some(device) = gpu() else { return };
    let mut wrong = String::new();
    for table in TABLES {
        let n = table.arguments.len();
        let groups = (n * n).div_ceil(64) as u32;
        let at = |i: usize| table.arguments[i % n];
        let lanes = 64 * groups as usize;
        let x: Vec<u32> = (0..lanes).flat_map(|i| [at(i), at(i / n), at(i / 3 + 5)]).collect();
        let (text, words) = (kernel(table), lanes * table.rows.len());
        let ours = interpreted(&text, &x, words, groups);
        let theirs = on_device(&device, &text, &x, words, groups);
        for (row, (within, expression)) in table.rows.iter().enumerate() {
            let differs = (0..lanes).find(|i| {
                let at = table.rows.len() * i + row;
                !agree(*within, table.ty, ours[at], theirs[at])
            });
            if let Some(i) = differs {
                let (at, args) = (table.rows.len() * i + row, &x[3 * i..3 * i + 3]);
                let shown = |bits: u32| match table.ty {
                    "f32" => f32::from_bits(bits).to_string(),
                    _ => bits.to_string(),
                };
                let args: Vec<_> = args.iter().map(|v| shown(*v)).collect();
                let (ours, theirs) = (shown(ours[at]), shown(theirs[at]));
                wrong +=
                    &format!("{}: {expression} of {args:?}: {ours}, device {theirs}\n", table.ty);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A run of the interpreter over targets.
fn sanitized(targets: &[Target], widths: &[u32]) -> Report {
    let (smallest, random, seed) = (true, 0, 7);
    let request = Request { targets, shape: None, random, smallest, widths, seed };
    sanitize::sanitize(&request, &|_, _| {}).unwrap()
}

#[test]
fn every_variant_is_clean_at_each_subgroup_size() {
    let report = sanitized(&Target::parse(None).unwrap(), &[4, 32, 64]);
    for case in &report.cases {
        let is_unavailable = matches!(case.verdict, Verdict::Unavailable { .. });
        assert!(is_unavailable || case.is_clean(), "{}\n{case:#?}", case.reproducer());
    }
    // A variant that is unavailable everywhere was not looked at.
    for subject in Target::parse(None).unwrap().iter().flat_map(|target| &target.subjects) {
        let (kernel, variant) = (subject.kernel.name, subject.variant.name);
        let own =
            |case: &&CaseResult| (case.kernel.as_str(), case.variant.as_str()) == (kernel, variant);
        assert!(report.cases.iter().filter(own).any(CaseResult::is_clean), "{kernel}/{variant}");
    }
}

#[test]
fn kernels_that_pass_on_the_device_by_luck_are_refused() {
    // File, kernel, shape, fault and line; without a line, the output is right with 8 lanes alone.
    let cheats = [
        ("rms_no_barrier.wgsl", "rms_norm/workgroup", "ROWS=2,N=300", Some(("race", 44))),
        ("rms_zero_init.wgsl", "rms_norm/workgroup", "ROWS=2,N=300", Some(("uninitialised", 42))),
        ("race_gemv.toml", "gemv", "ROWS=5,K=64,WEIGHT=f32", Some(("race", 17))),
        ("rms_sg8.wgsl", "rms_norm/subgroup", "ROWS=2,N=300", None),
    ];
    for (file, kernel, shape, fault) in cheats {
        let path = format!("{}/tests/sanitize/{file}", env!("CARGO_MANIFEST_DIR"));
        let report = sanitize::file(path.as_ref(), kernel, shape).unwrap();
        match fault {
            Some((fault, line)) => {
                let found = &report.cases[0].findings;
                let wgsl = file.replace(".toml", ".wgsl");
                let is_it =
                    |f: &Found| f.fault == fault && f.line == line && f.file.ends_with(&wgsl);
                assert!(found.iter().any(is_it), "{file}: {found:#?}");
            }
            None => {
                let clean: Vec<bool> = report.cases.iter().map(CaseResult::is_clean).collect();
                assert_eq!(
                    clean,
                    [false, true, false, false, false],
                    "{file}: {:#?}",
                    report.cases
                );
            }
        }
    }
}
