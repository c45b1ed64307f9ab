//! The end of a chunk of a prompt: its last token's row for the head, and the position after it.

use crate::declare::*;

crate::params! {
    /// Parameters of `chunk_end`.
    pub struct ChunkEnd {
        n: usize = dim("N", "elements of a row", 64, 3000),
        n_tokens: usize = dim("N_TOKENS", "rows of x: tokens of the chunk", 4, 40),
        x_format: FloatFormat = choice("X_FORMAT", "storage format of x", &FloatFormat::STORED),
        act_format: FloatFormat = ACT_FORMAT_OUT,
    }
}

/// The declaration.
pub static OPERATION: Declaration<ChunkEnd> = Declaration {
    name: "chunk_end",
    summary: "the last token's row of a chunk of a prompt, and the position after the chunk",
    fuses: None,
    state: &[n_kv(4, 30), PROMPT_LEN],
    bindings: &[
        Binding::in_out("state", &words, len!(_ => STATE_WORDS)).drawn(&|_| Draw::State),
        spreads(Binding::input("x", floats!(x_format), len!(p => p.n_tokens * p.n))),
        Binding::output("y", floats!(act_format), len!(p => p.n)),
    ],
    variants: &[Variant {
        tunables: "WG=128|256|512|1024",
        ..Variant::new("naive", &[Stage::main(&|_, _| 1)])
    }],
    prefer: &|_| &["naive"],
    cost: &|p, _| Cost {
        bytes: (p.n * (p.x_format.bytes() + p.act_format.bytes())) as f64,
        flops: 0.0,
    },
    tolerance: &|p, _| {
        let narrows = p.x_format == FloatFormat::F32 && p.act_format == FloatFormat::F16;
        Tolerance {
            rounding: if narrows { 1.0 / 1024.0 } else { 0.0 },
            nmse: if narrows { 1e-6 } else { 0.0 },
            ..Tolerance::exact(
                "a copy; WGSL leaves the direction of f32 to f16 rounding open: one f16 ULP",
            )
        }
    },
    cases: "
        # A whole chunk in the middle of a prompt, one that ends it, one not full, none left.
        N=1152,N_TOKENS=16,X_FORMAT=f16,N_KV=66001,PROMPT_LEN=66100
        N=2048,N_TOKENS=16,N_KV=17,PROMPT_LEN=32
        N=33,N_TOKENS=5,X_FORMAT=f16,ACT_FORMAT=f16,PROMPT_LEN=3
        N=33,N_TOKENS=4,ACT_FORMAT=f16,N_KV=9,PROMPT_LEN=2
        X_FORMAT=f16
    ",
    bench: "N=1152,N_TOKENS=1024,X_FORMAT=f16,PROMPT_LEN=1024",
};
