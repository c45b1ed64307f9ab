//! A branch into the residual stream and the stream's norm for the next matrix, in one dispatch; of
//! one token or of the rows of several.

use crate::declare::*;

crate::params! {
    /// Parameters of `residual_rms_norm`.
    pub struct ResidualRmsNorm {
        n: usize = dim("N", "elements of a row", 256, 5000),
        eps: f32 = float("EPS", "added to the mean squares", 1e-6, 1e-2),
        weight_offset: NormOffset = WEIGHT_OFFSET,
        post: Norm = POST_NORM,
        act_format: FloatFormat = ACT_FORMAT_OUT,
        rows: usize = ACT_ROWS,
    }
}

const A_ROW: &[Stage<ResidualRmsNorm>] = &[Stage::main(&|p, _| p.rows)];

/// The declaration.
pub static OPERATION: Declaration<ResidualRmsNorm> = Declaration {
    name: "residual_rms_norm",
    summary: "x += delta or rms_norm(delta), then y = rms_norm(x), a workgroup a row",
    fuses: None,
    state: &[],
    bindings: &[
        spreads(Binding::in_out("x", &f32s, len!(p => p.rows * p.n))),
        spreads(Binding::input("delta", &f32s, len!(p => p.rows * p.n))),
        spreads(Binding::input("post_weight", &f32s, len!(p => p.n))),
        spreads(Binding::input("next_weight", &f32s, len!(p => p.n))),
        Binding::output("y", floats!(act_format), len!(p => p.rows * p.n)),
    ],
    variants: &[
        Variant::new("naive", &[Stage::main(&|p, _| p.rows.div_ceil(2))]),
        Variant {
            unsupported: &|p, _| odd_f16_rows(p.rows, p.n, p.act_format),
            tunables: "WG=64|128|256|512|1024",
            ..Variant::new("workgroup", A_ROW)
        },
        Variant {
            constants: &|p, caps| {
                // As many invocations as there are fours of elements, in whole subgroups.
                let size = caps.subgroup.map_or(32, |(_, max)| max.max(4)) as usize;
                let most = (caps.invocations.min(512) as usize / size).max(1) * size;
                let fours = (p.n / 4).max(1);
                let each = fours.div_ceil(most);
                let wide = fours.div_ceil(each).next_multiple_of(size);
                vec![("WG", wide as f64)]
            },
            as_stage: &|_, _, grid| Some(vec![("WG", f64::from(grid.invocations))]),
            tunables: "WG=128|256|288|512|1024",
            unsupported: &|p, _| no_multiple("N", p.n, 4),
            ..Variant::new("subgroup", A_ROW)
        },
    ],
    prefer: &|_| &["subgroup", "workgroup", "naive"],
    cost: &|p, _| {
        let n = (p.rows * p.n) as f64;
        let post = match p.post {
            Norm::None => 0.0,
            Norm::Rms => 1.0,
        };
        let read = 16.0 + 4.0 * post;
        Cost { bytes: (read + p.act_format.bytes() as f64) * n, flops: (5.0 + 4.0 * post) * n }
    },
    tolerance: &|p, _| {
        Tolerance::new(
            8.0 + (p.n as f64).sqrt(),
            // Few elements may cancel in x + branch, and NMSE then divides by next to nothing.
            if p.n < 8 { 9e-6 } else { 1e-11 },
            "two norms as in rms_norm and a rounded sum between them; how far an error of the \
                 branch reaches y is in the reference's magnitude",
        )
    },
    cases: "
        EPS=1e-6,ACT_FORMAT=f16:
            N=1|2051; N=3,EPS=0.01; N=1152,ACT_FORMAT=f32; N=2048,EPS=1e-5,ACT_FORMAT=f32
            POST_NORM=rms:
                N=1|2051,ACT_FORMAT=f32; N=3,EPS=0.01,ACT_FORMAT=f32; N=1152; N=2048,EPS=1e-5
            POST_NORM=none|rms:
                N=5,ACT_FORMAT=f32,ROWS=3; N=1152,ROWS=7; N=8200,ROWS=2
                # Longer than what a workgroup of 256 or 512 keeps in registers.
                N=8200,WEIGHT_OFFSET=gemma
    ",
    bench: "
        EPS=1e-6:
            ROWS=1|1024:
                N=1152,POST_NORM=rms
                N=2048,EPS=1e-5
    ",
};
