//! Variants of `gemv`.

use super::{Family, Row};

const VECTORS: &[&str] = &[
    "y[c][Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[c][k]    W: (ROWS, K)  x: (N_VECTORS, K) f32 or f16",
    "y: (N_VECTORS, Y_OFFSET + ROWS + Y_AFTER), f32 accumulation",
];

const ONE: &[&str] = &[
    "y[Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[k]        W: (ROWS, K)  x: (K) f32 or f16, f32 accumulation",
];

pub(super) const VARIANTS: Family = Family {
    operation: "gemv",
    rows: &[
        Row {
            name: "workgroup",
            modules: ["vectors, plain16", "dense16", "fan_vectors", "store"],
            summary: "LANES invocations a row, summed through workgroup memory; no subgroups \
                      needed",
            formula: VECTORS,
            idea: "neighbouring invocations read neighbouring chunks, all loads of a round in \
                   flight together; then eight of them add up the row's sums and one adds up the \
                   eight: two barriers where a tree has log2(LANES). The rung for adapters and \
                   browsers without subgroup operations.",
        },
        Row {
            name: "subgroup",
            modules: ["vectors", "dense16", "subgroup_vectors", "store"],
            summary: "one subgroup a row, four loads in flight a lane",
            formula: VECTORS,
            idea: "coalesced 16-byte loads across the lanes, all four of a round issued before \
                   the first use and used for every vector, one subgroupAdd a vector at the end. \
                   A workgroup owns ROWS_PER_WG rows whatever the subgroup size is, so the \
                   mapping holds on adapters whose subgroup size varies.",
        },
        Row {
            name: "subgroup_multicol",
            modules: ["x_chunk", "dense16", "subgroup_rows4", "store"],
            summary: "four rows of W a subgroup",
            formula: ONE,
            idea: "x is loaded and unpacked once for four rows, and four independent loads are \
                   in flight. Meant for very tall matrices (an LM head of 262144 rows); on few \
                   rows it leaves most of a large GPU idle.",
        },
        Row {
            name: "rows8_cols",
            modules: ["vectors", "dense_eight", "rows8", "store"],
            summary: "eight rows a workgroup for up to eight vectors at once",
            formula: VECTORS,
            idea: "eight weights of each of eight rows become floats once and meet every vector, \
                   one fma a product; a load of x serves eight rows, and lanes share the 64 sums \
                   between them before they add: 72 shuffles.",
        },
        Row {
            name: "vec4",
            modules: ["plain16", "dense16", "subgroup_share", "store"],
            summary: "one subgroup a row, the lane's whole share in flight at once",
            formula: ONE,
            idea: "with SG known the trip count is a constant and up to UNROLL 16-byte loads are \
                   issued before the first use, without a branch: the ragged last one reads the \
                   row's last chunk and is dropped. A row of 1152 16-bit weights costs one wait \
                   for memory, where four loads a round cost two.",
        },
        Row {
            name: "vec2",
            modules: ["plain8", "dense8", "split_row", "store"],
            summary: "as split_row with loads of 8 bytes",
            formula: ONE,
            idea: "eight 16-bit weights meet 32 bytes of f32 activations, so lanes with 16 bytes \
                   of weights read x in strides of 32 and every load takes twice the passes \
                   through the cache. With 8 bytes of weights both streams are contiguous, and \
                   1152 weights are 32 lanes x 9 loads without a rest.",
        },
        Row {
            name: "split_row",
            modules: ["plain16", "dense16", "split_row", "store"],
            summary: "a thread group of LANES invocations a row, of any number",
            formula: ONE,
            idea: "few rows leave a large GPU idle unless each is read by many lanes; and a lane \
                   that waits for memory once wants few chunks, all in flight. 1152 rows of 1152 \
                   16-bit weights are 144 lanes with one chunk, rows of 6912 are 96 lanes with \
                   nine. With fewer lanes than a subgroup, several rows share one.",
        },
        Row {
            name: "split_k",
            modules: ["plain16", "dense16", "split_k", "store"],
            summary: "a thread group of LANES invocations over RUN rows at once",
            formula: ONE,
            idea: "x is twice the bytes of 16-bit weights and comes through the same cache; what \
                   a lane reads of it serves RUN rows. All RUN x (chunks a lane) loads of \
                   weights are in flight together; K is split over the subgroups of the thread \
                   group, which meet once in workgroup memory.",
        },
        Row {
            name: "sweep",
            modules: ["four_plain, found, swept", "dense16", "sweep", "product_store, store"],
            summary: "few workgroups, each along its rows with x in registers",
            formula: ONE,
            idea: "few workgroups that stay, all their invocations along each row: a lane meets \
                   RUN rows at a time with the eight elements of x that it keeps, and the next \
                   RUN rows are under way meanwhile. Sums of several rows are added up by halves \
                   (nine take twelve exchanges, not forty-five) and meet once, at the end. As a \
                   phase of a run its first rows are loaded before x is there.",
        },
    ],
};
