//! The interpreter against naga and the device: every operator and builtin function by type, and
//! every variant's smallest case. Faults of each kind are planted in `sanitize/tests`.

use lathe_harness::decode::{DecodeOptions, Session};
use lathe_harness::execute::interpreter::Found;
use lathe_harness::judge::check::Verdict;
use lathe_harness::judge::sanitize::{self, CaseResult, Report, Request};
use lathe_harness::plan::persistent::Persistent;
use lathe_harness::plan::target::Target;
use lathe_harness::wgpu;
use lathe_kernels::KvFormat;
use lathe_sanitize::{Buffer, Options, Program, run};
use wgpu::util::{BufferInitDescriptor, DeviceExt as _};

use crate::common::{Device, GOLDENS, Golden, gpu};

/// Largest difference of a result on the device.
#[derive(Clone, Copy, Debug)]
enum Within {
    /// Same bits, but for the sign of zero.
    Bits,
    /// A share of the value, and an absolute part.
    Near(f32, f32),
}
use Within::{Bits, Near};

/// Arguments `a`, `b` and `c`, and expressions of them, divided by semicolons.
struct Table {
    ty: &'static str,
    arguments: &'static [u32],
    rows: &'static [(Within, &'static str)],
}

const fn f(value: f32) -> u32 {
    value.to_bits()
}

#[rustfmt::skip]
const FLOATS: &[u32] = &[
    f(0.0), f(1.0), f(-1.0), f(0.5), f(-0.5), f(1.5), f(2.5), f(-2.5), f(3.7), f(-0.001),
    f(100.25), f(-7.75), f(0.3), f(1234.5), f(-65.0), f(0.007),
];
#[rustfmt::skip]
const HALVES: &[u32] = &[
    f(0.0), f(1.0), f(-1.0), f(0.5), f(-0.5), f(1.5), f(2.5), f(-2.5), f(3.7), f(-0.001),
    f(100.25), f(-7.75), f(0.3), f(-65.0), f(0.007), f(12.0),
];
#[rustfmt::skip]
const INTEGERS: &[u32] = &[
    0, 1, 2, 3, 5, 7, 31, 32, 100, 255, 256, 65_535, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff,
    0xdead_beef, 0x8040_2010, 0xffff_fff0,
];

/// Transcendental functions: WGSL allows these errors, software Vulkan keeps them.
const ROUGH: Within = Near(1e-4, 1e-4);
const CLOSE: Within = Near(1e-6, 1e-6);
const HALF: Within = Near(2e-3, 2e-3);

const TABLES: &[Table] = &[
    Table {
        ty: "f32",
        arguments: FLOATS,
        rows: &[
            (
                Bits,
                "a + b; a - b; a * b; -a; abs(a); min(a, b); max(a, b); clamp(a, -1.0, 2.0); \
                 saturate(a); floor(a); ceil(a); round(a); trunc(a); sign(a); step(a, b); \
                 modf(a).whole; frexp(a).fract; f32(frexp(a).exp); ldexp(a, 3); quantizeToF16(a); \
                 select(a, b, a < b); select(a, b, a >= b); select(a, b, a == b); \
                 select(a, b, a > b); select(a, b, a <= b); select(a, b, a != 0.5); f32(i32(a)); \
                 f32(u32(abs(a))); f32(bool(a)); vec4(a, b, c, 1.0).zxyw[i % 4u]; \
                 array<f32, 3>(a, b, c)[i % 3u]; (2.0 * mat2x2<f32>(a, b, c, 1.0))[1].x; \
                 (mat2x2<f32>(a, b, c, 1.0) + mat2x2<f32>(b, a, c, 2.0))[0].y; \
                 transpose(mat2x3<f32>(a, b, c, 1.0, 2.0, 3.0))[2].y; \
                 unpack2x16float(pack2x16float(vec2(a, b))).y; f32(all(vec2(a, b) < vec2(b, c)))",
            ),
            (
                CLOSE,
                "a / (abs(b) + 1.0); fract(a); fma(a, b, c); sqrt(abs(a)); \
                 inverseSqrt(abs(a) + 0.1); degrees(a); radians(a); length(vec3(a, b, c)); \
                 distance(vec2(a, b), vec2(b, c)); distance(a, b); length(a); modf(a).fract",
            ),
            (
                Near(1e-5, 1e-4),
                "mix(a, b, c); a % (abs(b) + 1.0); mix(vec2(a, b), vec2(b, c), 0.3).y",
            ),
            (
                ROUGH,
                "exp(0.01 * a); exp2(0.01 * a); log(abs(a) + 0.1); log2(abs(a) + 0.1); \
                 normalize(vec3(a, b, 1.0)).x; smoothstep(-3.0, 5.0, a)",
            ),
            (
                Near(1e-3, 1e-3),
                "sin(0.1 * a); cos(0.1 * a); tan(0.0005 * a); atan(a); atan2(a, abs(b) + 0.1); \
                 asin(clamp(a, -1.0, 1.0)); acos(clamp(a, -1.0, 1.0)); sinh(0.001 * a); \
                 cosh(0.001 * a); tanh(a); asinh(a); acosh(abs(a) + 1.0); atanh(0.0005 * a)",
            ),
            (Near(1e-3, 1e-4), "pow(abs(a) + 0.1, clamp(b, -2.0, 2.0))"),
            (
                Near(1e-5, 1e-1),
                "dot(vec3(a, b, c), vec3(c, a, b)); cross(vec3(a, b, c), vec3(c, a, b)).y; \
                 (mat2x2<f32>(a, b, c, 1.0) * vec2(c, b)).x; \
                 (vec2(c, b) * mat2x3<f32>(a, b, c, 1.0, 2.0, a)[0].xy).x; \
                 (vec3(c, b, a) * mat2x3<f32>(a, b, c, 1.0, 2.0, a)).y; \
                 (mat2x2<f32>(a, b, c, 1.0) * mat2x2<f32>(b, c, a, 2.0))[1].x; \
                 reflect(vec2(a, 0.01 * b), vec2(0.6, 0.8)).y",
            ),
            (Near(0.0, 8e-3), "unpack4x8snorm(pack4x8snorm(vec4(a, b, c, 0.25))).z"),
            (Near(0.0, 4e-3), "unpack4x8unorm(pack4x8unorm(vec4(a, b, c, 0.25))).w"),
            (Near(0.0, 4e-5), "unpack2x16snorm(pack2x16snorm(vec2(a, b))).x"),
            (Near(0.0, 2e-5), "unpack2x16unorm(pack2x16unorm(vec2(a, b))).y"),
        ],
    },
    Table {
        ty: "f16",
        arguments: HALVES,
        rows: &[
            (
                Bits,
                "-a; abs(a); min(a, b); max(a, b); clamp(a, -1.0h, 2.0h); saturate(a); floor(a); \
                 ceil(a); round(a); trunc(a); sign(a); step(a, b); select(a, b, a < b); \
                 select(a, b, a >= b); select(a, b, a == b); select(a, b, a != 0.5h); f16(i32(a)); \
                 f16(u32(abs(a))); f16(bool(a)); f16(f32(a)); vec4(a, b, c, 1.0h).zxyw[i % 4u]; \
                 array<f16, 3>(a, b, c)[i % 3u]; transpose(mat2x3<f16>(a, b, c, 1, 2, 3))[2].y",
            ),
            (
                HALF,
                "a + b; a - b; a * b; a / (abs(b) + 1.0h); fract(a); fma(a, 0.5h, b); \
                 mix(a, b, 0.25h); sqrt(abs(a)); inverseSqrt(abs(a) + 0.1h); exp(0.01h * a); \
                 exp2(0.01h * a); length(vec2(a, b)); distance(vec2(a, b), vec2(b, c)); \
                 normalize(vec3(a, b, 1.0h)).x; tanh(0.1h * a); radians(a)",
            ),
            (
                Near(1e-2, 1e-2),
                "log(abs(a) + 0.1h); log2(abs(a) + 0.1h); sin(0.1h * a); cos(0.1h * a); \
                 tan(0.01h * a); atan(a); atan2(a, abs(b) + 0.1h); asin(clamp(a, -1.0h, 1.0h)); \
                 acos(clamp(a, -1.0h, 1.0h)); sinh(0.01h * a); cosh(0.01h * a); asinh(a); \
                 acosh(abs(a) + 1.0h); atanh(0.005h * a); smoothstep(-3.0h, 5.0h, a); \
                 pow(abs(a) + 0.1h, clamp(b, -1.0h, 1.0h)); degrees(a); a % 4.0h",
            ),
            (
                Near(4e-3, 64.0),
                "dot(vec2(a, b), vec2(c, a)); cross(vec3(a, b, c), vec3(c, a, b)).y; \
                 (mat2x2<f16>(a, b, c, 1.0h) * vec2(c, b)).x; \
                 (mat2x2<f16>(a, b, c, 1.0h) * mat2x2<f16>(b, c, a, 2.0h))[1].x",
            ),
        ],
    },
    Table {
        ty: "bool",
        arguments: INTEGERS,
        rows: &[(
            Bits,
            "a && b; a || b; !a; a & b; a | b; a == b; a != b; select(a, b, c); all(vec2(a, b)); \
             any(vec3(a, b, c)); all(vec2(a, b) & vec2(c, a)); any(vec2(a, b) | vec2(b, c)); \
             all(!vec2(a, b)); all(vec2(a, b) == vec2(b, a)); f32(a) > f32(b); i32(a) < i32(b); \
             u32(a) >= u32(b); bool(f32(a)); all(select(vec2(a, b), vec2(c, a), vec2(b, c)))",
        )],
    },
    Table {
        ty: "u32",
        arguments: INTEGERS,
        rows: &[(
            Bits,
            "a + b; a - b; a * b; a / max(b, 1u); a % max(b, 1u); a & b; a | b; a ^ b; ~a; \
             a << (b & 31u); a >> (b & 31u); min(a, b); max(a, b); clamp(a, 5u, 1000u); abs(a); \
             countLeadingZeros(a); countTrailingZeros(a); countOneBits(a); reverseBits(a); \
             firstLeadingBit(a); firstTrailingBit(a); extractBits(a, b & 31u, 5u); \
             insertBits(a, c, b & 15u, 9u); dot4U8Packed(a, b); u32(dot4I8Packed(a, b)); \
             dot(unpack4xU8(a), vec4(1u, 256u, 65536u, 16777216u)); \
             u32(dot(unpack4xI8(a), vec4(1i, 3i, 5i, 7i))); pack4xU8(vec4(a, b, c, 300u)); \
             pack4xU8Clamp(vec4(a, b, c, 300u)); pack4xI8(vec4<i32>(vec4(a, b, c, 300u))); \
             pack4xI8Clamp(vec4<i32>(vec4(a, b, c, 300u))); select(1u, 2u, a < b); \
             select(1u, 2u, a >= b); select(1u, 2u, a == b || b > c && c != 7u); \
             select(1u, 2u, all(vec2(a, b) < vec2(b, c))); \
             select(1u, 2u, any(vec2(a, b) <= vec2(b, c))); \
             select(1u, 2u, !(a > b) | (b > c) & (c != 3u)); u32(bool(a)); u32(i32(a)); \
             u32(bitcast<f32>(a & 0x42ffffffu) * 0.5); u32(f32(a) * 0.25); bitcast<u32>(f32(a))",
        )],
    },
    Table {
        ty: "i32",
        arguments: INTEGERS,
        rows: &[(
            Bits,
            "a + b; a - b; a * b; a / max(b, 2); a % max(b, 2); -a; ~a; a & b; a | b; a ^ b; \
             abs(a); sign(a); a >> (u32(b) & 31u); a << (u32(b) & 31u); min(a, b); max(a, b); \
             clamp(a, -5, 1000); firstLeadingBit(a); firstTrailingBit(a); countOneBits(a); \
             countLeadingZeros(a); countTrailingZeros(a); reverseBits(a); \
             extractBits(a, 7u, u32(b) & 15u); insertBits(a, c, u32(b) & 15u, 9u); \
             select(1, 2, a < b); select(1, 2, a >= b); select(1, 2, a == b); \
             select(1, 2, a > b); select(1, 2, a <= b); select(1, 2, a != b); i32(f32(a) * 0.25); \
             i32(bool(a)); i32(u32(a)); bitcast<i32>(f32(a)); dot(vec3(a, b, c), vec3(b, c, a))",
        )],
    },
];

impl Table {
    fn expressions(&self) -> impl Iterator<Item = (Within, &'static str)> {
        self.rows.iter().flat_map(|(within, all)| all.split("; ").map(|each| (*within, each)))
    }

    /// A kernel with a row of results for each combination of arguments.
    fn kernel(&self) -> String {
        let (head, from, to) = match self.ty {
            "f16" => ("enable f16;\n", "f16(bitcast<f32>(@))", "bitcast<u32>(f32(@))"),
            "bool" => ("", "((@ & 1u) != 0u)", "u32(@)"),
            "f32" => ("", "bitcast<f32>(@)", "bitcast<u32>(f32(@))"),
            "i32" => ("", "bitcast<i32>(@)", "bitcast<u32>(i32(@))"),
            _ => ("", "@", "u32(@)"),
        };
        let count = self.expressions().count();
        let rows = self.expressions().enumerate().map(|(n, (_, expression))| {
            format!("    y[{count} * i + {n}] = {};\n", to.replace('@', expression))
        });
        let argument = |n: u32| from.replace('@', &format!("x[3 * i + {n}]"));
        format!(
            "{head}@group(0) @binding(0) var<storage, read> x: array<u32>;\n\
             @group(0) @binding(1) var<storage, read_write> y: array<u32>;\n\
             @compute @workgroup_size(64)\n\
             fn main(@builtin(global_invocation_id) at: vec3<u32>) {{\n    let i = at.x;\n    \
             let a = {};\n    let b = {};\n    let c = {};\n{}}}\n",
            argument(0),
            argument(1),
            argument(2),
            rows.collect::<String>()
        )
    }
}

fn interpreted(text: &str, entry: &str, x: &[u32], words: usize, groups: u32) -> Vec<u32> {
    let module =
        naga::front::wgsl::parse_str(text).unwrap_or_else(|e| panic!("{}", e.emit_to_string(text)));
    let all = naga::valid::Capabilities::all();
    let info = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), all);
    let info = { info }.validate(&module).unwrap();
    let program = Program::of(&module, &info, entry).unwrap();
    let (mut x, mut y) = (Buffer::filled(x.to_vec()), Buffer::unwritten(vec![0; words]));
    let found = run(&program, [groups, 1, 1], &mut [&mut x, &mut y], Options::default()).unwrap();
    assert!(found.is_empty(), "{found:#?}");
    y.words
}

fn on_device(
    device: &Device,
    text: &str,
    entry: &str,
    x: &[u32],
    words: usize,
    groups: u32,
) -> Vec<u32> {
    let gpu = &device.device;
    let module = gpu.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(text.into()),
    });
    let pipeline = gpu.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some(entry),
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

fn agree(within: Within, is_float: bool, a: u32, b: u32) -> bool {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    match within {
        _ if a == b => true,
        _ if !is_float => false,
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
        let count = table.expressions().count();
        let (text, words) = (table.kernel(), lanes * count);
        let ours = interpreted(&text, "main", &x, words, groups);
        let theirs = on_device(&device, &text, "main", &x, words, groups);
        let is_float = matches!(table.ty, "f32" | "f16");
        for (row, (within, expression)) in table.expressions().enumerate() {
            let differs = (0..lanes).find(|i| {
                let at = count * i + row;
                !agree(within, is_float, ours[at], theirs[at])
            });
            if let Some(i) = differs {
                let (at, args) = (count * i + row, &x[3 * i..3 * i + 3]);
                let shown = |bits: u32| match is_float {
                    true => f32::from_bits(bits).to_string(),
                    false => bits.to_string(),
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

/// Rules of WGSL, an entry point for each.
#[test]
fn statements_do_as_on_the_device() {
    let Some(device) = gpu() else { return };
    let text = include_str!("sanitize/rules.wgsl");
    let x: Vec<u32> = (0..256).map(|i: u32| i.wrapping_mul(2_654_435_761) >> 27).collect();
    for entry in text.split("\nfn rule_").skip(1) {
        let entry = format!("rule_{}", entry.split('(').next().unwrap());
        let ours = interpreted(text, &entry, &x, 256, 1);
        let theirs = on_device(&device, text, &entry, &x, 256, 1);
        assert_eq!(ours, theirs, "{entry}");
    }
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

/// Decodes a golden's first tokens in the interpreter: what it chose, and what was found.
fn decoded(golden: &Golden, width: u32, persistent: Persistent, tokens: usize) -> Vec<u32> {
    let options = DecodeOptions {
        context: golden.prompt.len() + tokens,
        kv: KvFormat::F32,
        store: None,
        persistent,
        ..DecodeOptions::default()
    };
    let graph = golden.model.graph_for(&sanitize::capabilities(width), &options).unwrap();
    assert_eq!(graph.recording.persistent.is_empty(), persistent == Persistent::Off);
    let mut session = Session::interpreted(&golden.model, graph, options, width);
    let run = session.generate(&golden.prompt[..], tokens, |_| {});
    assert!(session.found().is_empty(), "{persistent:?} {width}: {:#?}", session.found());
    run.unwrap().generated
}

#[test]
fn goldens_are_decoded_without_a_finding() {
    for (name, width) in GOLDENS.into_iter().zip([4, 8, 16, 32, 64, 32]) {
        let golden = Golden::load(name);
        for persistent in [Persistent::Off] {
            let chosen = decoded(&golden, width, persistent, 4);
            assert_eq!(chosen, golden.greedy[..chosen.len()], "{name} {persistent:?}");
        }
    }
}
