//! Variants of `norm_gemv`.

use super::{Family, Row};

const DENSE: &[&str] = &[
    "y[Y_OFFSET + r] = sum_k W[r][k] * n[k]    n[k] = x[k] / sqrt(mean x^2 + EPS) * (WEIGHT_OFFSET + g[k])",
    "W: (ROWS, K)  x, g: (K), f32",
    "WEIGHT_OFFSET: 0 with OFFSET_STANDARD, 1 with OFFSET_GEMMA",
];

const SOA: &[&str] = &[
    "y[Y_OFFSET + r] = sum_k W[r][k] * n[k]    n[k] = x[k] / sqrt(mean x^2 + EPS) * (WEIGHT_OFFSET + g[k])",
    "W: (ROWS, K) quantised, in planes  x, g: (K), f32",
    "WEIGHT_OFFSET: 0 with OFFSET_STANDARD, 1 with OFFSET_GEMMA",
];

pub(super) const VARIANTS: Family = Family {
    operation: "norm_gemv",
    rows: &[
        Row {
            name: "workgroup",
            modules: ["rms16, found", "dense16", "fan", "store"],
            summary: "LANES invocations a row, summed through workgroup memory; no subgroups",
            formula: DENSE,
            idea: "every row's lanes meet all of x anyway, so they sum its squares beside the \
                   product: no barrier and no load waits for the norm. Two barriers join the \
                   lanes. The rung for adapters and browsers without subgroup operations.",
        },
        Row {
            name: "subgroup",
            modules: ["rms16", "dense16", "subgroup_share", "store"],
            summary: "one subgroup a row, the lane's whole share in flight at once",
            formula: DENSE,
            idea: "gemv/vec4 with the squares of x summed beside the product: the loads of \
                   weights wait for nothing, and one subgroupAdd of two numbers ends the row.",
        },
        Row {
            name: "vec2",
            modules: ["rms8", "dense8", "split_row", "store"],
            summary: "as split_row with loads of 8 bytes",
            formula: DENSE,
            idea: "sixteen bytes of 16-bit weights meet 64 bytes of x and g, read in strides of \
                   32: nine times the passes through the cache of the weights alone. With 8 \
                   bytes all three streams are contiguous, and five passes do.",
        },
        Row {
            name: "split_row",
            modules: ["rms16", "dense16", "split_row", "store"],
            summary: "a thread group of LANES invocations a row, of any number",
            formula: DENSE,
            idea: "gemv/split_row with the squares of x summed beside the product; both sums \
                   meet in workgroup memory at the one barrier there is.",
        },
        Row {
            name: "split_k",
            modules: ["rms16", "dense16", "split_k", "store"],
            summary: "a thread group of LANES invocations over RUN rows at once",
            formula: DENSE,
            idea: "gemv/split_k, which gains more here: x * g and the squares are made once for \
                   RUN rows.",
        },
        Row {
            name: "sweep",
            modules: ["four_rms, found, swept", "dense16", "sweep", "product_store, store"],
            summary: "few workgroups, each along its rows with x in registers",
            formula: DENSE,
            idea: "gemv/sweep; every lane sees its part of x once, and sums its squares then. The \
                   norm's weights are loaded before x is there.",
        },
        Row {
            name: "workgroup_q",
            modules: ["staged_rms, rms, found", "soa", "tree_row", "store"],
            summary: "LANES invocations a row over quantised weights; no subgroups needed",
            formula: SOA,
            idea: "as planes, joined by a tree in workgroup memory. The rung for adapters and \
                   browsers without subgroup operations.",
        },
        Row {
            name: "planes",
            modules: ["staged_rms, rms", "soa", "subgroup_tiles", "store"],
            summary: "as gemv_q/planes, LANES lanes a row, over quantised weights",
            formula: SOA,
            idea: "x times g goes to workgroup memory once; every row's lanes meet all of x, so \
                   each adds up the squares of its chunks beside the product, and the norm's \
                   scale is applied to the finished sum.",
        },
        Row {
            name: "planes_dp4a24",
            modules: [
                "rms, found, rms_factor, three_digits",
                "soa",
                "int8_rows",
                "product_store, store",
            ],
            summary: "as gemv_q/planes_dp4a24, activations as integers of 23 bits",
            formula: SOA,
            idea: "every workgroup quantises all of x times g into its memory before its first \
                   product; on that way it sees every square, so the norm costs a sum over the \
                   workgroup and no second look at x. The norm's scale is one factor on each \
                   product.\n\
                   Source: own.",
        },
    ],
};
