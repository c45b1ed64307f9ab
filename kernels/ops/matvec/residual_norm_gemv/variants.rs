//! Variants of `residual_norm_gemv`.

use super::{Family, Row};

const DENSE: &[&str] = &[
    "next_x[k] = x[k] + delta[k] / rms(delta) * p[k]      rms(v) = sqrt(mean v^2 + EPS)",
    "y[Y_OFFSET + r] = sum_k W[r][k] * n[k]               n[k] = next_x[k] / rms(next_x) * g[k]",
    "W: (ROWS, K)  x, delta, p, g, next_x: (K), f32",
];

const SOA: &[&str] = &[
    "next_x[k] = x[k] + delta[k] / rms(delta) * p[k]      rms(v) = sqrt(mean v^2 + EPS)",
    "y[Y_OFFSET + r] = sum_k W[r][k] * n[k]               n[k] = next_x[k] / rms(next_x) * g[k]",
    "W: (ROWS, K) quantised, in planes  x, delta, p, g, next_x: (K), f32",
];

pub(super) const VARIANTS: Family = Family {
    operation: "residual_norm_gemv",
    rows: &[
        Row {
            name: "workgroup",
            modules: ["joined, joined_tree, joined_norm, joined16", "dense16", "fan", "store"],
            summary: "LANES invocations a row, summed through workgroup memory; no subgroups",
            formula: DENSE,
            idea: "norm_gemv/workgroup over the stream that every workgroup makes first, in its \
                   own memory: one pass over four short vectors and a tree. The rung for adapters \
                   and browsers without subgroup operations.",
        },
        Row {
            name: "sweep",
            modules: [
                "joined, joined_subgroups, joined_norm, swept",
                "dense16",
                "sweep",
                "product_store, store",
            ],
            summary: "few workgroups, each along its rows with the stream in workgroup memory",
            formula: DENSE,
            idea: "norm_gemv/sweep. Few workgroups make the stream seldom, and the first rows' \
                   weights are under way meanwhile.",
        },
        Row {
            name: "workgroup_q",
            modules: ["joined, joined_tree, joined_norm, staged_rms", "soa", "tree_row", "store"],
            summary: "LANES invocations a row over quantised weights; no subgroups needed",
            formula: SOA,
            idea: "norm_gemv/workgroup_q over the stream that every workgroup makes first. The \
                   rung for adapters and browsers without subgroup operations.",
        },
        Row {
            name: "planes_dp4a24",
            modules: [
                "joined, joined_subgroups, joined_norm, rms_factor, three_digits",
                "soa",
                "int8_rows",
                "product_store, store",
            ],
            summary: "as gemv_q/planes_dp4a24, activations as integers of 23 bits",
            formula: SOA,
            idea: "every workgroup quantises all of the normed vector anyway; it makes the stream \
                   first, while its first weights are under way.\n\
                   Source: own.",
        },
    ],
};
