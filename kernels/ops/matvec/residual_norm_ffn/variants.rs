//! Variants of `residual_norm_ffn`.

use super::{Family, Row};

const DENSE: &[&str] = &[
    "next_x[k] = x[k] + delta[k] / rms(delta) * p[k]      n[k] = next_x[k] / rms(next_x) * g[k]",
    "y[i] = act(Wg[i] . n) * (Wu[i] . n)      W: [gate (N) | up (N)] x K  y: (N) f32 or f16",
    "x, delta, p, g, next_x: (K), f32  rms(v) = sqrt(mean v^2 + EPS)",
    "act: SiLU (ACTIVATION ACT_SILU) or GELU, tanh form (ACT_GELU_TANH)",
];

const SOA: &[&str] = &[
    "next_x[k] = x[k] + delta[k] / rms(delta) * p[k]      n[k] = next_x[k] / rms(next_x) * g[k]",
    "y[i] = act(Wg[i] . n) * (Wu[i] . n)      W: [gate (N) | up (N)] x K, quantised, in planes",
    "y: (N) f32 or f16  x, delta, p, g, next_x: (K), f32  rms(v) = sqrt(mean v^2 + EPS)",
    "act: SiLU (ACTIVATION ACT_SILU) or GELU, tanh form (ACT_GELU_TANH)",
];

pub(super) const VARIANTS: Family = Family {
    operation: "residual_norm_ffn",
    rows: &[
        Row {
            name: "workgroup",
            modules: [
                "joined, joined_tree, joined_norm, joined_chunk",
                "dense16",
                "gate_up_tree",
                "gated",
            ],
            summary: "LANES invocations an output, summed through workgroup memory; dense \
                      weights",
            formula: DENSE,
            idea: "fused_ffn/workgroup over the stream that every workgroup makes first, in its \
                   own memory: one pass over four short vectors and a tree. No subgroups needed.",
        },
        Row {
            name: "workgroup_q",
            modules: [
                "joined, joined_tree, joined_norm, joined_squares",
                "soa",
                "soa_gate_up_tree",
                "gated",
            ],
            summary: "LANES invocations an output, summed through workgroup memory; quantised",
            formula: SOA,
            idea: "as workgroup, sixteen bytes of quants at a time (fused_ffn/workgroup_q). The \
                   rung for adapters and browsers without subgroup operations.",
        },
        Row {
            name: "planes_dp4a24",
            modules: [
                "joined, joined_subgroups, joined_norm, rms_factor, three_digits",
                "soa",
                "int8_rows",
                "product_gated",
            ],
            summary: "as gemv_q/planes_dp4a24, activations as integers of 23 bits",
            formula: SOA,
            idea: "fused_ffn/planes_dp4a24. Every workgroup quantises all of the normed vector \
                   anyway; it makes the stream first, while its first weights are under way.\n\
                   Source: own.",
        },
        Row {
            name: "sweep",
            modules: [
                "joined, joined_subgroups, joined_norm, swept",
                "dense16",
                "sweep",
                "product_gated",
            ],
            summary: "few workgroups, each along its rows with the stream in workgroup memory; \
                      dense weights",
            formula: DENSE,
            idea: "fused_ffn/sweep. Few workgroups make the stream seldom, and the first rows' \
                   weights are under way meanwhile.",
        },
    ],
};
