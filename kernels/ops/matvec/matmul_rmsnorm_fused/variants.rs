//! Variants of `matmul_rmsnorm_fused`.

use super::{Family, Row};

const DENSE: &[&str] = &[
    "b = W . x, or (W . x) / rms(W . x) * (WEIGHT_OFFSET + post_weight) with POST_NORM rms",
    "stream = stream + b;  with NEXT_NORM rms: y = stream / rms(stream) * (WEIGHT_OFFSET + next_weight)",
    "W: (ROWS, K)  x: (K) f32 or f16  stream, weights of the norms: (ROWS)  y: (ROWS) f32 or f16",
    "rms(v) = sqrt(mean v^2 + EPS)",
    "WEIGHT_OFFSET: 0 with OFFSET_STANDARD, 1 with OFFSET_GEMMA",
];

const SOA: &[&str] = &[
    "b = W . x, or (W . x) / rms(W . x) * (WEIGHT_OFFSET + post_weight) with POST_NORM rms",
    "stream = stream + b;  with NEXT_NORM rms: y = stream / rms(stream) * (WEIGHT_OFFSET + next_weight)",
    "W: (ROWS, K) quantised, in planes  x: (K) f32 or f16  stream, weights of the norms: (ROWS)  y: (ROWS) f32 or f16",
    "rms(v) = sqrt(mean v^2 + EPS)",
    "WEIGHT_OFFSET: 0 with OFFSET_STANDARD, 1 with OFFSET_GEMMA",
];

pub(super) const VARIANTS: Family = Family {
    operation: "matmul_rmsnorm_fused",
    rows: &[
        Row {
            name: "single_workgroup",
            modules: ["x_chunk", "dense16", "single_workgroup", "residual"],
            summary: "the whole matrix on one workgroup; dense weights",
            formula: DENSE,
            idea: "the norm needs all rows, so one workgroup that makes them all needs no second \
                   pass. It gives up the GPU for that: one of 132 processors works, and a matrix \
                   of 16 MB takes 1240 us where 4 us of memory traffic are due. Kept to show \
                   what a fusion must not cost.",
        },
        Row {
            name: "two_pass",
            modules: ["plain16", "dense16", "row_tree", "norms_tree"],
            summary: "the product on the whole GPU, then one workgroup; dense weights",
            formula: DENSE,
            idea: "a matrix wants every processor, a norm of a few kilobytes wants one \
                   workgroup: two dispatches, of which the second is latency only. All loads of \
                   a round are in flight together, as in gemv/workgroup. No subgroups needed.",
        },
        Row {
            name: "two_pass_q",
            modules: ["staged, found", "soa", "tree_row", "norms_tree"],
            summary: "as two_pass, over quantised weights; no subgroups needed",
            formula: SOA,
            idea: "the product of gemv_q/workgroup. The rung for adapters and browsers without \
                   subgroup operations.",
        },
        Row {
            name: "two_pass_subgroup",
            modules: ["plain16", "dense16", "split_k", "norms_subgroups"],
            summary: "two_pass with the product of gemv/split_k; dense weights",
            formula: DENSE,
            idea: "subgroup sums in the place of trees in workgroup memory, and what a lane \
                   reads of x serves RUN rows.",
        },
        Row {
            name: "two_pass_dp4a24",
            modules: [
                "plain, found, unscaled, three_digits",
                "soa",
                "int8_rows",
                "product_store, norms_subgroups",
            ],
            summary: "two_pass with the product of gemv_q/planes_dp4a24",
            formula: SOA,
            idea: "the product over activations as integers of 23 bits, whose error is that of \
                   adding f32 products, and the norms in a workgroup that sums by subgroup \
                   operations.",
        },
        Row {
            name: "last_workgroup",
            modules: ["x_chunk", "dense16", "last_workgroup", "residual"],
            summary: "one dispatch; the last workgroup to arrive norms. Dense",
            formula: DENSE,
            idea: "all workgroups share the matrix, a few rows each, every lane with all its \
                   loads of a round in flight. Each counts itself in when its rows are stored; \
                   the one that finds all others counted knows that every row is there, takes \
                   the branch into the stream, and sets the counter to zero for the next \
                   dispatch. Nobody waits for anybody, so nothing depends on which workgroups \
                   are resident.\n\
                   \n\
                   What it relies on: WGSL's atomics are relaxed, and rows cross workgroups. So \
                   rows are stored and loaded with atomics, which are coherent over the device, \
                   and a storageBarrier on either side of the counter keeps them in order (naga \
                   makes it an acquire-release barrier of device scope on Vulkan; D3D12's and \
                   Metal's are barriers of device memory). The pattern is that of CUDA's \
                   threadFenceReduction sample, with a barrier for __threadfence.",
        },
    ],
};
