//! Variants of `lm_head_topk`.

use super::{Family, Row};

const DENSE: &[&str] = &[
    "(top_values, top_indices) = the first TOP_K of (y[r], FIRST_ROW + r), larger y first, of equal y the",
    "lower index; y[r] = sum_k W[r][k] * x[k], and of the parts of W before, see PART",
    "W: (ROWS, K) dense  x: (K) f32 or f16  top_*: (TOP_K)",
    "lists: (groups of rows, TOP_K) of (key, index)  merged: (MERGERS, TOP_K)",
];

const BLOCKS: &[&str] = &[
    "(top_values, top_indices) = the first TOP_K of (y[r], FIRST_ROW + r), larger y first, of equal y the",
    "lower index; y[r] = sum_k W[r][k] * x[k], and of the parts of W before, see PART",
    "W: (ROWS, K)  x: (K) f32 or f16  top_*: (TOP_K)",
    "lists: (groups of rows, TOP_K) of (key, index)  merged: (MERGERS, TOP_K)",
];

const SOA: &[&str] = &[
    "(top_values, top_indices) = the first TOP_K of (y[r], FIRST_ROW + r), y[r] = sum_k W[r][k] * x[k],",
    "and of what earlier parts of W left; larger y first, of equal y the lower index",
    "W: (ROWS, K) quantised, in planes  x: (K) f32 or f16  top_*: (TOP_K)",
    "lists: (workgroups, TOP_K)  merged: (MERGERS, TOP_K)",
];

pub(super) const VARIANTS: Family = Family {
    operation: "lm_head_topk",
    rows: &[
        Row {
            name: "workgroup",
            modules: ["lanes_dense", "dense16", "head_lanes", "head_topk"],
            summary: "LANES invocations a row, rows in turn; no subgroups needed",
            formula: DENSE,
            idea: "neighbouring invocations read neighbouring words, a tree in workgroup memory \
                   sums them, and the logits stay there to be sorted.",
        },
        Row {
            name: "blocks",
            modules: ["lanes_any", "words", "head_lanes", "head_topk"],
            summary: "LANES invocations a quantised row, one weight at a time; no subgroups \
                      needed",
            formula: BLOCKS,
            idea: "neighbouring invocations read neighbouring words, a tree in workgroup memory \
                   sums them, and the logits stay there to be sorted. Every weight finds its \
                   scale again, so the floor is far; `planes` reads quants sixteen bytes at a \
                   time.",
        },
        Row {
            name: "subgroup",
            modules: ["x_chunk", "dense16", "head_subgroup", "head_topk"],
            summary: "four rows a subgroup at a time, sorted in workgroup memory",
            formula: DENSE,
            idea: "gemv/subgroup_multicol (x is loaded and unpacked once for four rows, four \
                   independent loads in flight), but the logits stay in workgroup memory, and of \
                   them TOP_K are written. Many rows a workgroup keep the merging short, few of \
                   them balance the load.",
        },
        Row {
            name: "planes",
            modules: ["plain", "soa", "head_rows", "head_topk"],
            summary: "LANES lanes to four quantised rows, sixteen bytes of quants a load",
            formula: SOA,
            idea: "gemv_q/planes_multicol with the rows of a workgroup one after another: x is \
                   staged and summed once for ROWS_PER_WG of them, and loads of the next four \
                   rows are issued while the last of these are used. Their logits are sorted in \
                   workgroup memory at the end, as in the other variants.",
        },
        Row {
            name: "planes_dp4a24",
            modules: ["plain, found, unscaled, three_digits", "soa", "head_int8", "head_topk"],
            summary: "as gemv_q/planes_dp4a24, activations as integers of 23 bits",
            formula: SOA,
            idea: "a workgroup quantises x once and takes many grid-stride iterations over rows; \
                   their logits are sorted in workgroup memory at the end, as in the other \
                   variants.\n\
                   Source: own.",
        },
    ],
};
