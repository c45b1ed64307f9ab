//! Gate and up projection with their activation: the first half of a gated feed-forward block.

use crate::declare::*;
use crate::matvec::geometry::dense_only;
use crate::matvec::schedule::{Schedule, stacked, tile};
use crate::matvec::{mat_vec, nmse, soa, weights};

crate::params! {
    /// Parameters of `fused_ffn`.
    pub struct FusedFfn {
        n: usize = dim("N", "elements of y; the matrix has N gate rows, then N up rows", 16, 120),
        k: usize = dim("K", "columns of the matrix, elements of the vector", 256, 1000),
        weight: Format = weight(&Format::ALL),
        activation: Activation = ACTIVATION,
        act_format: FloatFormat = ACT_FORMAT,
        input_norm: Norm = choice(
            "INPUT_NORM",
            "what the matrix meets: none: x; rms: the RMSNorm of stream",
            &Norm::ALL,
        ),
        eps: f32 = EPS,
    }
}

// Gate rows, then up rows.
mat_vec!(FusedFfn {
    const PAIRED: bool = true;
    fn rows(&self) -> usize {
        2 * self.n
    }
});

/// Outputs a subgroup variant gives a workgroup of 256: `each` to every subgroup, an even number.
fn outputs_per_group(caps: &Capabilities, each: f64) -> Overrides {
    let size = caps.subgroup.map_or(32, |(_, max)| max.max(4));
    let subgroups = f64::from((256 / size).max(2));
    vec![("OUTS_PER_WG", each * subgroups), ("SG", f64::from(caps.fixed_subgroup()))]
}

const OUTS: &[Stage<FusedFfn>] = &[Stage::main(&|p, c| p.n.div_ceil(c["OUTS_PER_WG"] as usize))];

/// The declaration.
pub static OPERATION: Declaration<FusedFfn> = Declaration {
    name: "fused_ffn",
    summary: "act(gate) * up of one product with gate and up rows, SwiGLU or GeGLU",
    fuses: None,
    state: &[],
    bindings: &[
        weights::<FusedFfn>().drawn(&|_| Draw::UnitProducts),
        spreads(Binding::input("x", floats!(act_format), len!(p => p.k))),
        spreads(Binding::input("stream", &f32s, len!(p => p.k))),
        spreads(Binding::input("norm_weight", &f32s, len!(p => p.k))),
        Binding::output("y", floats!(act_format), len!(p => p.n)),
    ],
    variants: &[
        Variant::sized("naive", &[Stage::main(&|p, c| groups_for(p.n.div_ceil(2), c))]),
        // fused_ffn/workgroup: LANES invocations an output, summed through workgroup memory; dense
        // weights.
        //
        // Idea: gate and up of an output are two rows of one product that meet in registers: the
        // (2N) vector between GEMV and activation is neither written nor read, and a dispatch is
        // saved. The norm before the matrix costs another: its factor is applied to the sums
        // (prologue/rms_chunk). No subgroups needed.
        // import: prologue/rms_chunk, prologue/found, rows/dense16, schedule/gate_up_tree
        // import: epilogue/gated
        Variant { name: "workgroup", ..Schedule::GATE_UP_TREE },
        // fused_ffn/workgroup_q: LANES invocations an output, summed through workgroup memory;
        // quantised.
        //
        // Idea: as workgroup, sixteen bytes of quants at a time: 32 weights under one scale, apart
        // from the scales (planes). The rung for adapters and browsers without subgroup operations.
        // import: prologue/rms_or_plain, prologue/found, rows/soa, schedule/soa_gate_up_tree
        // import: epilogue/gated
        Variant { name: "workgroup_q", ..Schedule::GATE_UP_TREE_Q },
        // fused_ffn/soa: LANES lanes an output, its gate row and its up row; quantised weights.
        //
        // Idea: sixteen aligned bytes of quants a load, 32 neighbours under one scale, coalesced
        // across the lanes, scales from their own plane at the same time. The activations of a
        // chunk, their sum and their squares serve two rows. Two chunks of each row are in flight a
        // lane while x goes to workgroup memory. Results meet in workgroup memory, where an
        // invocation finds the two that make a word of f16.
        // import: prologue/rms_or_plain, rows/soa, schedule/soa_gate_up, epilogue/gated
        Variant {
            name: "soa",
            constants: &|p, caps| {
                // As many as a subgroup has, unless fewer fill a large GPU as well and idle less in
                // the last round. 1152 weights are 36 chunks, which keep 32 lanes half idle and 4
                // lanes busy.
                let lanes = soa::lanes_of(p, p.n, soa::subgroup(caps).min(32), 1);
                [&stacked(p)[..], &soa::geometry(lanes, caps), &[tile(p, caps)]].concat()
            },
            tunables: "WG=64|128|256|512,LANES=4|8|16|32",
            ..Schedule::GATE_UP_TREE_Q
        },
        // fused_ffn/soa_dp4a24: as gemv_q/soa_dp4a24, activations as integers of 23 bits.
        //
        // Idea: gate and up rows are taken in turn, so that LANES lanes have the four rows of two
        // outputs; what they leave on lanes apart meets by two exchanges. Every workgroup quantises
        // all of v, and sums its squares on that way.
        // Source: own.
        // import: prologue/rms_or_plain, prologue/found, prologue/rms_factor
        // import: prologue/three_digits, rows/soa, schedule/int8_rows, epilogue/product_gated
        Variant { name: "soa_dp4a24", ..Schedule::GATE_UP_INT8 },
        // fused_ffn/pipelined: few workgroups, each along its rows with v in registers; dense weights.
        //
        // Idea: gemv/pipelined over gate and up rows in turn, which leave the two on neighbouring
        // invocations; each sees its part of v once, and sums its squares then.
        // import: prologue/four_rms_or_plain, prologue/found, prologue/pipelined, rows/dense16
        // import: schedule/pipelined, epilogue/product_gated
        Variant { name: "pipelined", ..Schedule::GATE_UP_PIPELINED },
        // fused_ffn/subgroup: one subgroup an output: its gate row and its up row; dense weights.
        //
        // Idea: as workgroup, with all loads of a round issued before the first use, up to five
        // chunks of each row a lane (1152 weights of 16 bits are 4.5 for 32 lanes, and so one
        // round), and one subgroupAdd for gate, up and squares. With SG known the trip count is a
        // constant. Results meet in workgroup memory, so that an invocation stores two neighbours:
        // two f16 make a word, whatever the number of subgroups is.
        // import: prologue/rms_chunk, rows/dense16, schedule/gate_up_subgroup, epilogue/gated
        Variant {
            constants: &|_, caps| outputs_per_group(caps, 1.0),
            tunables: "WG=64|128|256|512,OUTS_PER_WG=2|4|8|16|32",
            unsupported: &dense_only,
            ..Variant::new("subgroup", OUTS)
        },
        // fused_ffn/subgroup_pair: two neighbouring outputs a subgroup, four rows; dense weights.
        //
        // Idea: v is loaded, normed and unpacked once for four rows, two chunks of each in flight a
        // lane, and the pair that shares an f16 word needs no workgroup memory. Pays where the
        // cache traffic of v and the norm's weights, not the matrix, is the limit; with few outputs
        // it leaves a large GPU idle.
        // import: prologue/rms_chunk, rows/dense16, schedule/gate_up_pairs, epilogue/gated
        Variant {
            constants: &|_, caps| outputs_per_group(caps, 2.0),
            // 20.0 µs, where workgroup takes 26.0 (8192 outputs of 2048, bf16, H200, Dawn).
            first_on_the_web: &|p| p.n >= 4096 && p.weight.is_dense(),
            tunables: "WG=64|128|256|512,OUTS_PER_WG=4|8|16|32|64",
            unsupported: &dense_only,
            ..Variant::new("subgroup_pair", OUTS)
        },
    ],
    prefer: &|p| {
        if p.weight.is_dense() {
            &["workgroup", "subgroup", "naive"]
        } else {
            &["soa_dp4a24", "soa", "workgroup_q", "naive"]
        }
    },
    cost: &|p, _| {
        let (n, k) = (p.n as f64, p.k as f64);
        let act = p.act_format.bytes() as f64;
        let vector = match p.input_norm {
            Norm::None => act,
            // The stream and the norm's weights.
            Norm::Rms => 8.0,
        };
        Cost {
            bytes: 2.0 * n * p.weight.row_bytes(p.k) as f64 + act * n + vector * k,
            flops: 4.0 * n * k + 10.0 * n,
        }
    },
    tolerance: &|p, _| {
        Tolerance::new(
            if p.weight.is_dense() {
                16.0 + 2.0 * (p.k as f64).sqrt()
            } else {
                64.0 + 4.0 * (p.k as f64).sqrt()
            },
            nmse(p.n),
            "two products as in gemv and gemv_q; how far their errors reach the result is in the \
                 reference's magnitude, exp is allowed 3 + 2|x| ULP",
        )
    },
    cases: "
        EPS=1e-6:
            # The models' widths, and some that are no multiple of 8, 4 or 2.
            WEIGHT=f32|f16|bf16:
                N=1
                N=40,K=1152,ACTIVATION=gelu_tanh
                N=33,K=1001
                N=3,K=7,ACTIVATION=gelu_tanh,ACT_FORMAT=f16,INPUT_NORM=rms
                N=17,K=1004,ACT_FORMAT=f16,INPUT_NORM=rms
            N=18,K=2048,WEIGHT=bf16
            N=9,K=1152,WEIGHT=f16,ACTIVATION=gelu_tanh,ACT_FORMAT=f16
            WEIGHT=q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k:
                N=7,K=1152,ACTIVATION=gelu_tanh,ACT_FORMAT=f16
                N=16,K=300,INPUT_NORM=rms
            # More workgroups than one grid dimension holds, for those of few outputs a group.
            N=524295,K=3,WEIGHT=f16,ACT_FORMAT=f16
    ",
    bench: "
        EPS=1e-6:
            N=6912,K=1152,WEIGHT=bf16,ACTIVATION=gelu_tanh,INPUT_NORM=none|rms
            N=8192|6144,K=2048,WEIGHT=bf16
            N=6912,K=1152,WEIGHT=f16|q4_0,ACTIVATION=gelu_tanh
            N=8192,K=2048,WEIGHT=q4_k
    ",
};
