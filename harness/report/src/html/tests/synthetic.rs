//! Made-up records of believable size and shape. Gemma 3 1B in bf16: 26 layers of 14 operations
//! and 5 outside the layers make the 369 operations of a step.

use lathe_record::Ratio;
use lathe_record::paired::Verdict;
use lathe_record::record::{
    Ab, Bench, BenchCase, Body, Clock, Environment, Flag, OpTotal, Profile, ProfiledOp,
    ProfiledStep, Record, Selected, Timing, Unprofiled, made_up,
};

/// Reproducible noise in -1..1.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as f64 / f64::from(1u32 << 30) - 1.0
    }
}

/// Operation, kernel, variant, shape, bytes, microseconds.
type Kind = (&'static str, &'static str, &'static str, &'static str, f64, f64);

const ATTENTION: &str =
    "Q_PER_KV=4,KV_HEADS=1,HEAD_DIM=256,KV_SIZE=4096,KV_FORMAT=f16,ACT_FORMAT=f32,SCALE=0.0625";
const FUSED: &str = "N=6912,K=1152,WEIGHT=bf16,ACTIVATION=gelu_tanh,ACT_FORMAT=f32,\
                     INPUT_NORM=none,EPS=0.000001";

const LAYER: [Kind; 14] = [
    ("attn_norm", "rms_norm", "workgroup", "N=1152", 13_824.0, 2.1),
    ("qkv", "gemv", "subgroup_rows", "ROWS=1536,K=1152,WEIGHT=bf16", 3.5e6, 4.3),
    ("qk_norm_rope", "qk_norm_rope", "subgroup", "HEADS=5,D=256", 10_240.0, 2.3),
    ("kv_append", "kv_append", "naive", "D=256", 3072.0, 1.9),
    ("attention", "attention_decode", "split", ATTENTION, 131_072.0, 3.1),
    ("attn_output", "gemv", "subgroup_rows", "ROWS=1152,K=1024,WEIGHT=bf16", 2.36e6, 3.6),
    ("post_attention_norm", "rms_norm", "workgroup", "N=1152", 13_824.0, 2.1),
    ("attn_residual", "residual_add", "vec4", "N=1152", 13_824.0, 1.8),
    ("ffn_norm", "rms_norm", "workgroup", "N=1152", 13_824.0, 2.1),
    ("ffn_gate_up", "fused_ffn", "workgroup", FUSED, 31.9e6, 10.5),
    ("ffn_act", "glu", "vec4", "N=6912", 82_944.0, 1.9),
    ("ffn_down", "gemv", "subgroup_wide", "ROWS=1152,K=6912,WEIGHT=bf16", 15.9e6, 6.7),
    ("post_ffw_norm", "rms_norm", "workgroup", "N=1152", 13_824.0, 2.1),
    ("ffn_residual", "residual_add", "vec4", "N=1152", 13_824.0, 1.8),
];
const BEFORE: [Kind; 2] = [
    ("embed", "embed", "vec4", "K=1152", 6912.0, 1.9),
    ("embed_scale", "residual_add", "scale", "N=1152", 9216.0, 1.7),
];
const AFTER: [Kind; 3] = [
    ("output_norm", "rms_norm", "workgroup", "N=1152", 13_824.0, 2.1),
    ("lm_head", "gemv", "subgroup_rows", "ROWS=262144,K=1152,WEIGHT=bf16", 605e6, 141.0),
    ("argmax", "argmax", "two_stage", "N=262144", 1.05e6, 6.2),
];
const LAYERS: usize = 26;
const COPY: f64 = 4312.4;

/// Where the made-up runs took place.
pub(super) fn environment() -> Environment {
    Environment {
        adapter: "NVIDIA H200".into(),
        driver: "NVIDIA 580.159".into(),
        copy_gb_s: Some(COPY),
        read_gb_s: Some(1.06 * COPY),
        ..made_up::environment()
    }
}

/// A decode of `steps` steps.
pub(super) fn profile(steps: usize) -> Record {
    let mut noise = Noise(7);
    let layers = (0..LAYERS).flat_map(|layer| LAYER.iter().map(move |kind| (Some(layer), kind)));
    let kinds: Vec<(Option<usize>, &Kind)> = BEFORE
        .iter()
        .map(|kind| (None, kind))
        .chain(layers)
        .chain(AFTER.iter().map(|kind| (None, kind)))
        .collect();
    let profiled: Vec<ProfiledStep> = (0..steps)
        .map(|step| {
            let position = 128 + step;
            let slow = if step == 0 { 1.4 } else { 1.0 };
            let us: Vec<f64> = kinds
                .iter()
                .map(|(layer, kind)| {
                    let global = layer.is_some_and(|l| l % 6 == 5);
                    let keys = if global { position } else { position.min(512) };
                    let grown = if kind.0 == "attention" { keys as f64 * 0.022 } else { 0.0 };
                    (kind.5 + grown) * slow * (1.0 + 0.04 * noise.next())
                })
                .collect();
            let gpu = us.iter().sum::<f64>() / 1000.0;
            ProfiledStep {
                position,
                us,
                record_ms: 0.62 + 0.05 * noise.next(),
                submit_ms: 0.09 + 0.02 * noise.next(),
                wait_ms: gpu - 0.2 + 0.06 * noise.next(),
            }
        })
        .collect();
    let step_ms: Vec<f64> = (0..steps)
        .map(|step| {
            let slow = if step == 0 { 2.4 } else { 1.0 };
            (0.98 + step as f64 * 0.00031) * slow * (1.0 + 0.02 * noise.next())
        })
        .collect();
    let by_op = by_op(&kinds, &profiled);
    let serialised = by_op.iter().map(|op| op.ms).sum();
    let selected = LAYER.iter().chain(&AFTER).map(|kind| Selected {
        op: kind.0.into(),
        kernel: kind.1.into(),
        variant: kind.2.into(),
        shape: kind.3.into(),
        why: "first preference for this shape".into(),
        ..Selected::default()
    });
    let body = Profile {
        model: "gemma3-1b bf16".into(),
        kv: "f16".into(),
        prompt_tokens: 128,
        unprofiled: Unprofiled {
            decode_tok_s: 1000.0 * steps as f64 / step_ms.iter().sum::<f64>(),
            gpu_ms_per_token: Some(0.93),
            step_ms,
            steps_per_submit: 4,
        },
        ops: kinds
            .iter()
            .map(|(layer, kind)| ProfiledOp {
                layer: *layer,
                op: kind.0.into(),
                kernel: kind.1.into(),
                variant: kind.2.into(),
                shape: kind.3.into(),
            })
            .collect(),
        steps: profiled,
        by_op,
        serialised_ms_per_token: serialised,
        selected: selected.collect(),
        ..Profile::default()
    };
    Record::new(environment(), Body::Profile(body))
}

fn by_op(kinds: &[(Option<usize>, &Kind)], steps: &[ProfiledStep]) -> Vec<OpTotal> {
    let mut totals: Vec<OpTotal> = Vec::new();
    for kind in BEFORE.iter().chain(&LAYER).chain(&AFTER) {
        let of_kind = |i: &usize| kinds[*i].1.0 == kind.0;
        let at: Vec<usize> = (0..kinds.len()).filter(of_kind).collect();
        let us: f64 = steps.iter().flat_map(|s| at.iter().map(|i| s.us[*i])).sum();
        let ms = us / 1000.0 / steps.len() as f64;
        let bytes = kind.4 * at.len() as f64;
        let floor = bytes / COPY / 1e6;
        totals.push(OpTotal {
            op: kind.0.into(),
            kernel: format!("{} {}", kind.1, kind.2),
            count: at.len(),
            ms,
            percent: 0.0,
            bytes,
            floor_ms: Some(floor),
            over_floor: Some(ms / floor),
            dispatches: at.len(),
            launch_floor_ms: Some(floor + at.len() as f64 * 1.7e-3),
        });
    }
    let all: f64 = totals.iter().map(|op| op.ms).sum();
    for op in &mut totals {
        op.percent = 100.0 * op.ms / all;
    }
    totals.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    totals
}

/// Kernels on their own, two of them flagged.
pub(super) fn bench() -> Record {
    let case = |kind: &Kind, cold: f64, flags: &[Flag]| {
        let timing = |us: f64| Timing {
            median_us: us,
            min_us: us * 0.98,
            spread: 0.011,
            noise: 0.0034,
            settled: true,
            dispatches: 400,
            samples_us: vec![us; 60],
            ..Timing::default()
        };
        let gb_s = kind.4 / cold / 1e3;
        BenchCase {
            kernel: kind.1.into(),
            variant: kind.2.into(),
            shape: kind.3.into(),
            source: "9f31c2aa07".into(),
            cold: timing(cold),
            warm: timing(cold * 0.82),
            bytes: kind.4,
            flops: kind.4,
            gb_s,
            fraction_of_copy: gb_s / COPY,
            rotated_bytes: 400 << 20,
            clock: Clock::Gpu.into(),
            flags: flags.iter().map(|f| (*f).into()).collect(),
            ..BenchCase::default()
        }
    };
    let mut cases: Vec<BenchCase> =
        LAYER.iter().chain(&AFTER).map(|kind| case(kind, kind.5, &[])).collect();
    cases.push(case(&LAYER[9], 6.1, &[Flag::Noisy, Flag::Drift]));
    cases.push(BenchCase {
        clock: Clock::Wall.into(),
        ..case(&LAYER[1], 96.0, &[Flag::NotSettled])
    });
    Record::new(environment(), Body::Bench(Bench { cases, ..Bench::default() }))
}

/// B over A with the median at `ratio` and the interval `half` to either side.
pub(super) fn ab(verdict: Verdict, ratio: f64, half: f64) -> Record {
    let around = |median: f64, half: f64| Ratio { median, low: median - half, high: median + half };
    let ab = Ab {
        kernel: "gemv".into(),
        shape: "M=1152,K=6912".into(),
        a: "subgroup_rows".into(),
        b: "subgroup_wide".into(),
        a_us: 8.9,
        b_us: 8.9 * ratio,
        verdict: verdict.into(),
        ratio: around(ratio, half),
        control: around(1.001, 0.004),
        indifference: 0.01,
        blocks: 48,
        ..Ab::default()
    };
    Record::new(environment(), Body::Ab(ab))
}
