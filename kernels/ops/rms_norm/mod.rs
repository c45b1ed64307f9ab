//! Root-mean-square normalisation (Zhang and Sennrich, arXiv 1910.07467), standard and Gemma.

use crate::declare::*;

crate::params! {
    /// Parameters of `rms_norm`.
    pub struct RmsNorm {
        rows: usize = dim("ROWS", "rows normalised on their own; 1 in decode", 2, 5),
        n: usize = dim("N", "elements of a row", 256, 3000),
        eps: f32 = EPS,
        weight_offset: NormOffset = WEIGHT_OFFSET,
        act_format: FloatFormat = ACT_FORMAT_OUT,
    }
}

/// A variant with a workgroup a row.
const fn variant(name: &'static str) -> Variant<RmsNorm> {
    Variant {
        name,
        stages: &[Stage { entry: "main", grid: &|p, _| p.rows }],
        tunables: "WG=64|128|256|512|1024",
        unsupported: &too_many_or_odd,
        ..Variant::PLAIN
    }
}

fn too_many(p: &RmsNorm, caps: &Capabilities) -> Option<String> {
    exceeds("ROWS", p.rows, caps.grid_dimension as usize)
}

fn too_many_or_odd(p: &RmsNorm, caps: &Capabilities) -> Option<String> {
    too_many(p, caps).or_else(|| {
        // Two workgroups would write one word.
        odd_f16_rows(p.rows, p.n, p.act_format)
    })
}

/// The declaration.
pub static OPERATION: Declaration<RmsNorm> = Declaration {
    name: "rms_norm",
    summary: "RMSNorm of each row, standard (w) or Gemma (1 + w)",
    fuses: None,
    state: &[],
    bindings: &[
        spreads(Binding::input("x", &f32s, len!(p => p.rows * p.n))),
        spreads(Binding::input("weight", &f32s, len!(p => p.n))),
        Binding::output("y", floats!(act_format), len!(p => p.rows * p.n)),
    ],
    variants: &[
        Variant::new("naive", &[Stage::main(&|_, _| 1)]),
        variant("workgroup"),
        variant("subgroup"),
        Variant {
            constants: &|p, caps| {
                // An invocation for every four elements, in whole subgroups of any size.
                let most = caps.invocations.min(512) as usize / 64 * 64;
                let width = (p.n / 4).next_multiple_of(64).clamp(64, most.max(64));
                vec![("WG", width as f64)]
            },
            as_stage: &|_, _, grid| Some(vec![("WG", f64::from(grid.invocations))]),
            unsupported: &|p, caps| no_multiple("N", p.n, 4).or_else(|| too_many(p, caps)),
            ..variant("subgroup_vec4")
        },
    ],
    prefer: &|_| &["subgroup_vec4", "subgroup", "workgroup", "naive"],
    cost: &|p, _| {
        let (rows, n) = (p.rows as f64, p.n as f64);
        let bytes = (4.0 + p.act_format.bytes() as f64) * rows * n + 4.0 * n;
        Cost { bytes, flops: 4.0 * rows * n }
    },
    tolerance: &|p, _| {
        Tolerance::new(
            8.0 + (p.n as f64).sqrt(),
            1e-11,
            "the sum of N squares (no cancellation) and an inverseSqrt of 2 ULP scale the row",
        )
    },
    cases: "
        EPS=1e-6:
            N=1|1152|6912; N=2048|255,EPS=1e-5; ROWS=8,N=128,ACT_FORMAT=f16
            WEIGHT_OFFSET=gemma:
                N=1|1152|6912,ACT_FORMAT=f16; N=2048|255,EPS=1e-5,ACT_FORMAT=f16; ROWS=8,N=128
    ",
    bench: "N=1152,EPS=1e-6; N=2048,EPS=1e-5",
};
