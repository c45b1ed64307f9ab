//! A normed branch into the residual stream, and the stream's norm, as the prologue of gate and up:
//! a dispatch less in Gemma's feed-forward block.

use crate::declare::*;
use crate::matvec::schedule::Schedule;
use crate::matvec::{joined_tolerance, mat_vec, weights};

crate::params! {
    /// Parameters of `residual_norm_ffn`.
    pub struct ResidualNormFfn {
        n: usize = dim("N", "elements of y; the matrix has N gate rows, then N up rows", 16, 120),
        k: usize = dim("K", "columns of the matrix, elements of the vectors", 256, 1000),
        weight: Format = weight(&Format::ALL),
        activation: Activation = ACTIVATION,
        act_format: FloatFormat = ACT_FORMAT_OUT,
        eps: f32 = EPS,
    }
}

// Gate rows, then up rows.
mat_vec!(ResidualNormFfn {
    const PAIRED: bool = true;
    fn rows(&self) -> usize {
        2 * self.n
    }
});

/// The declaration.
pub static OPERATION: Declaration<ResidualNormFfn> = Declaration {
    name: "residual_norm_ffn",
    summary: "x + rms_norm(delta) into next_x, and act(gate) * up of its RMSNorm",
    fuses: Some(Fusion {
        of: &["residual_rms_norm", "fused_ffn"],
        against: &|_| None,
        against_stage: &|_| None,
        pays_with: &|_, variant| variant != "naive",
    }),
    state: &[],
    bindings: &[
        weights::<ResidualNormFfn>().drawn(&|_| Draw::UnitProducts),
        spreads(Binding::input("x", &f32s, len!(p => p.k))),
        spreads(Binding::input("delta", &f32s, len!(p => p.k))),
        spreads(Binding::input("post_weight", &f32s, len!(p => p.k))),
        spreads(Binding::input("norm_weight", &f32s, len!(p => p.k))),
        Binding::output("y", floats!(act_format), len!(p => p.n)),
        Binding::output("next_x", &f32s, len!(p => p.k)),
    ],
    variants: &[
        Variant::sized("naive", &[Stage::main(&|p, c| groups_for(p.n.div_ceil(2), c))]),
        // residual_norm_ffn/workgroup: LANES invocations an output, summed through workgroup
        // memory; dense weights.
        //
        // Idea: fused_ffn/workgroup over the stream that every workgroup makes first, in its own
        // memory: one pass over four short vectors and a tree. No subgroups needed.
        // import: prologue/joined, prologue/joined_tree, prologue/joined_norm
        // import: prologue/joined_chunk, rows/dense16, schedule/gate_up_tree, epilogue/gated
        Variant { name: "workgroup", ..Schedule::GATE_UP_TREE },
        // residual_norm_ffn/workgroup_q: LANES invocations an output, summed through workgroup
        // memory; quantised.
        //
        // Idea: as workgroup, sixteen bytes of quants at a time (fused_ffn/workgroup_q). The rung
        // for adapters and browsers without subgroup operations.
        // import: prologue/joined, prologue/joined_tree, prologue/joined_norm
        // import: prologue/joined_squares, rows/soa, schedule/soa_gate_up_tree, epilogue/gated
        Variant { name: "workgroup_q", ..Schedule::GATE_UP_TREE_Q },
        // residual_norm_ffn/soa_dp4a24: as gemv_q/soa_dp4a24, activations as integers of 23
        // bits.
        //
        // Idea: fused_ffn/soa_dp4a24. Every workgroup quantises all of the normed vector anyway;
        // it makes the stream first, while its first weights are under way.
        // Source: own.
        // import: prologue/joined, prologue/joined_subgroups, prologue/joined_norm
        // import: prologue/rms_factor, prologue/three_digits, rows/soa, schedule/int8_rows
        // import: epilogue/product_gated
        Variant { name: "soa_dp4a24", ..Schedule::GATE_UP_INT8 },
        // residual_norm_ffn/pipelined: few workgroups, each along its rows with the stream in workgroup
        // memory; dense weights.
        //
        // Idea: fused_ffn/sweep. Few workgroups make the stream seldom, and the first rows' weights
        // are under way meanwhile.
        // import: prologue/joined, prologue/joined_subgroups, prologue/joined_norm, prologue/pipelined
        // import: rows/dense16, schedule/pipelined, epilogue/product_gated
        Variant { name: "pipelined", ..Schedule::GATE_UP_PIPELINED },
    ],
    prefer: &|p| match p.weight.is_dense() {
        true => &["pipelined", "workgroup", "naive"],
        false => &["soa_dp4a24", "workgroup_q", "naive"],
    },
    cost: &|p, _| {
        let (n, k) = (p.n as f64, p.k as f64);
        let y = p.act_format.bytes() as f64 * n;
        Cost {
            bytes: 2.0 * n * p.weight.row_bytes(p.k) as f64 + y + 20.0 * k,
            flops: 4.0 * n * k + 10.0 * n + 9.0 * k,
        }
    },
    tolerance: &|p, _| joined_tolerance(p, p.n),
    cases: "
        ACTIVATION=gelu_tanh,EPS=1e-6:
            # Gemma's width, and some that are no multiple of 8, 4 or 2.
            WEIGHT=f32|f16|bf16:
                N=1
                N=40,K=1152
                N=33,K=1001,ACTIVATION=silu
                N=3,K=7,ACT_FORMAT=f16; N=17,K=1004,ACT_FORMAT=f16
            # More fours than are kept in registers.
            N=9,K=5126,WEIGHT=bf16
            WEIGHT=q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k:
                N=7,K=1152,ACT_FORMAT=f16
                N=16,K=300,ACTIVATION=silu
            # More workgroups than one grid dimension holds, for those of few outputs a group.
            N=524295,K=3,WEIGHT=f16,ACT_FORMAT=f16
    ",
    bench: "
        EPS=1e-6:
            N=6912,K=1152,WEIGHT=bf16|q4_0,ACTIVATION=gelu_tanh
    ",
};
