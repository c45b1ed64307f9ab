//! Variants of `fused_ffn`.

use super::{Family, Row};

const DENSE: &[&str] = &[
    "y[i] = act(Wg[i] . v) * (Wu[i] . v)      W: [gate (N) | up (N)] x K  y: (N) f32 or f16",
    "v = x (INPUT_NORM none; f32 or f16) or stream / rms(stream) * norm_weight (INPUT_NORM rms; f32), (K)",
    "act: SiLU (ACTIVATION ACT_SILU) or GELU, tanh form (ACT_GELU_TANH); rms(s) = sqrt(mean s^2 + EPS)",
];

const SOA: &[&str] = &[
    "y[i] = act(Wg[i] . v) * (Wu[i] . v)      W: [gate (N) | up (N)] x K, quantised, in planes",
    "v = x (INPUT_NORM none; f32 or f16) or stream / rms(stream) * norm_weight (INPUT_NORM rms; f32), (K)",
    "y: (N) f32 or f16  act: SiLU (ACTIVATION ACT_SILU) or GELU, tanh form (ACT_GELU_TANH); rms(s) = sqrt(mean s^2 + EPS)",
];

pub(super) const VARIANTS: Family = Family {
    operation: "fused_ffn",
    rows: &[
        Row {
            name: "workgroup",
            modules: ["rms_chunk, found", "dense16", "gate_up_tree", "gated"],
            summary: "LANES invocations an output, summed through workgroup memory; dense \
                      weights",
            formula: DENSE,
            idea: "gate and up of an output are two rows of one product that meet in registers: \
                   the (2N) vector between GEMV and activation is neither written nor read, and \
                   a dispatch is saved. The norm before the matrix costs another: its factor is \
                   applied to the sums (prologue/rms_chunk). No subgroups needed.",
        },
        Row {
            name: "workgroup_q",
            modules: ["rms_or_plain, found", "soa", "soa_gate_up_tree", "gated"],
            summary: "LANES invocations an output, summed through workgroup memory; quantised",
            formula: SOA,
            idea: "as workgroup, sixteen bytes of quants at a time: 32 weights under one scale, \
                   apart from the scales (planes). The rung for adapters and browsers without \
                   subgroup operations.",
        },
        Row {
            name: "planes",
            modules: ["rms_or_plain", "soa", "soa_gate_up", "gated"],
            summary: "LANES lanes an output, its gate row and its up row; quantised weights",
            formula: SOA,
            idea: "sixteen aligned bytes of quants a load, 32 neighbours under one scale, \
                   coalesced across the lanes, scales from their own plane at the same time. The \
                   activations of a chunk, their sum and their squares serve two rows. Two \
                   chunks of each row are in flight a lane while x goes to workgroup memory. \
                   Results meet in workgroup memory, where an invocation finds the two that make \
                   a word of f16.",
        },
        Row {
            name: "planes_dp4a24",
            modules: [
                "rms_or_plain, found, rms_factor, three_digits",
                "soa",
                "int8_rows",
                "product_gated",
            ],
            summary: "as gemv_q/planes_dp4a24, activations as integers of 23 bits",
            formula: SOA,
            idea: "gate and up rows are taken in turn, so that LANES lanes have the four rows of \
                   two outputs; what they leave on lanes apart meets by two exchanges. Every \
                   workgroup quantises all of v, and sums its squares on that way.\n\
                   Source: own.",
        },
        Row {
            name: "sweep",
            modules: ["four_rms_or_plain, found, swept", "dense16", "sweep", "product_gated"],
            summary: "few workgroups, each along its rows with v in registers; dense weights",
            formula: DENSE,
            idea: "gemv/sweep over gate and up rows in turn, which leave the two on neighbouring \
                   invocations; each sees its part of v once, and sums its squares then.",
        },
        Row {
            name: "subgroup",
            modules: ["rms_chunk", "dense16", "gate_up_subgroup", "gated"],
            summary: "one subgroup an output: its gate row and its up row; dense weights",
            formula: DENSE,
            idea: "as workgroup, with all loads of a round issued before the first use, up to \
                   five chunks of each row a lane (1152 weights of 16 bits are 4.5 for 32 lanes, \
                   and so one round), and one subgroupAdd for gate, up and squares. With SG \
                   known the trip count is a constant. Results meet in workgroup memory, so that \
                   an invocation stores two neighbours: two f16 make a word, whatever the number \
                   of subgroups is.",
        },
        Row {
            name: "subgroup_pair",
            modules: ["rms_chunk", "dense16", "gate_up_pairs", "gated"],
            summary: "two neighbouring outputs a subgroup, four rows; dense weights",
            formula: DENSE,
            idea: "v is loaded, normed and unpacked once for four rows, two chunks of each in \
                   flight a lane, and the pair that shares an f16 word needs no workgroup \
                   memory. Pays where the cache traffic of v and the norm's weights, not the \
                   matrix, is the limit; with few outputs it leaves a large GPU idle.",
        },
    ],
};
