//! Matrix times vector, the bulk of every decode step.

use crate::declare::*;
use crate::matvec::geometry::*;
use crate::matvec::schedule::{Schedule, eight_lanes, passes};
use crate::matvec::units;
use crate::matvec::{MatVec, mat_vec, nmse, weights};

crate::params! {
    /// Parameters of `gemv`.
    pub struct Gemv {
        rows: usize = ROWS,
        k: usize = columns(1500),
        weight: Format = weight(&Format::DENSE),
        act_format: FloatFormat = ACT_FORMAT_IN,
        y_offset: usize = Y_OFFSET,
        y_after: usize = Y_AFTER,
        n_vectors: usize =
            dim("N_VECTORS", "vectors in x, each with a y: tokens decoded together", 1, 8),
        beta: Beta = BETA,
    }
}

mat_vec!(Gemv {
    fn rows(&self) -> usize {
        self.rows
    }
    fn n_vectors(&self) -> usize {
        self.n_vectors
    }
});

/// Vectors that begin anywhere are read element by element: left to the portable variants.
fn whole_vectors(p: &Gemv, _: &Capabilities) -> Option<String> {
    ragged_vectors(p.n_vectors, p.k)
}

/// The declaration.
pub static OPERATION: Declaration<Gemv> = Declaration {
    name: "gemv",
    summary: "matrix (ROWS, K) times vector (K), f32 accumulation",
    fuses: None,
    state: &[],
    bindings: &[
        weights(),
        spreads(Binding::input("x", floats!(act_format), len!(p => p.n_vectors * p.k))),
        spreads(Binding::in_out(
            "y",
            &f32s,
            len!(p => p.n_vectors * (p.y_offset + p.rows + p.y_after)),
        )),
        Binding::scratch("parts", &f32s, len!(p => units::parts(p))),
    ],
    variants: &[
        Schedule::NAIVE,
        // gemv/workgroup: LANES invocations a row, summed through workgroup memory; no subgroups
        // needed.
        //
        // Idea: neighbouring invocations read neighbouring chunks, all loads of a round in flight
        // together; then eight of them add up the row's sums and one adds up the eight: two
        // barriers where a tree has log2(LANES). The rung for adapters and browsers without
        // subgroup operations.
        // import: prologue/vectors, prologue/plain16, rows/dense16, schedule/row_lanes_vectors
        // import: epilogue/store
        Variant { name: "workgroup", unsupported: &|_, _| None, ..Schedule::ROW_LANES },
        // gemv/subgroup: one subgroup a row, four loads in flight a lane.
        //
        // Idea: coalesced 16-byte loads across the lanes, all four of a round issued before the
        // first use and used for every vector, one subgroupAdd a vector at the end. A workgroup
        // owns ROWS_PER_WG rows whatever the subgroup size is, so the mapping holds on adapters
        // whose subgroup size varies.
        // import: prologue/vectors, rows/dense16, schedule/subgroup_vectors, epilogue/store
        Variant {
            constants: &|_, caps| rows_per_group(caps, 1.0),
            tunables: "WG=64|128|256|512,ROWS_PER_WG=1|2|4|8|16|32",
            unsupported: &whole_vectors,
            ..Variant::new("subgroup", &[Stage::main(&|p, c| passes(p) * rows_grid(p, c))])
        },
        // gemv/subgroup_multicol: four rows of W a subgroup.
        //
        // Idea: x is loaded and unpacked once for four rows, and four independent loads are in
        // flight. Meant for very tall matrices (an LM head of 262144 rows); on few rows it leaves
        // most of a large GPU idle.
        // import: prologue/x_chunk, rows/dense16, schedule/subgroup_rows4, epilogue/store
        Variant {
            name: "subgroup_multicol",
            stages: &[Stage::main(&rows_grid)],
            constants: &|_, caps| rows_per_group(caps, 4.0),
            tunables: "WG=64|128|256|512,ROWS_PER_WG=4|8|16|32|64|128",
            ..Schedule::SUBGROUP_SHARE
        },
        // gemv/rows8_vectors: eight rows a workgroup for up to eight vectors at a time.
        //
        // Idea: eight weights of each of eight rows become floats once and meet every vector, one
        // fma a product; a load of x serves eight rows, and lanes share the 64 sums between them
        // before they add: 72 shuffles.
        // import: prologue/vectors, rows/dense_eight, schedule/rows8, epilogue/store
        Variant {
            name: "rows8_vectors",
            unsupported: &|p, caps| whole_vectors(p, caps).or_else(|| eight_lanes(caps)),
            ..Schedule::ROWS8
        },
        Variant {
            name: "matrix_units",
            stages: &[
                Stage::main(&units::groups),
                Stage { entry: "sum", grid: &units::sum_groups },
            ],
            constants: &|p, caps| units::constants(p, caps, (p.y_offset, p.y_after, p.beta)),
            tunables: units::TUNABLES,
            unsupported: &|p, _| units::unsupported(p),
            tolerance: Some(&|p, _| units::tolerance(p, p.act_format)),
            ..Variant::PLAIN
        },
        // gemv/vec4: one subgroup a row, the lane's whole share in flight at once.
        //
        // Idea: with SG known the trip count is a constant and up to UNROLL 16-byte loads are
        // issued before the first use, without a branch: the ragged last one reads the row's last
        // chunk and is dropped. A row of 1152 16-bit weights costs one wait for memory, where four
        // loads a round cost two.
        // import: prologue/plain16, rows/dense16, schedule/subgroup_share, epilogue/store
        Variant { name: "vec4", ..Schedule::SUBGROUP_SHARE },
        // gemv/vec2: as split_row with loads of 8 bytes.
        //
        // Idea: eight 16-bit weights meet 32 bytes of f32 activations, so lanes with 16 bytes of
        // weights read x in strides of 32 and every load takes twice the passes through the cache.
        // With 8 bytes of weights both streams are contiguous, and 1152 weights are 32 lanes x 9
        // loads without a rest.
        // import: prologue/plain8, rows/dense8, schedule/split_row, epilogue/store
        Variant {
            name: "vec2",
            constants: &|p, caps| shared_team(caps, p.chunks8(), 2),
            ..Schedule::SPLIT_ROW_8
        },
        // gemv/split_row: a thread group of LANES invocations a row, of any number.
        //
        // Idea: few rows leave a large GPU idle unless each is read by many lanes; and a lane that
        // waits for memory once wants few chunks, all in flight. 1152 rows of 1152 16-bit weights
        // are 144 lanes with one chunk, rows of 6912 are 96 lanes with nine. With fewer lanes than
        // a subgroup, several rows share one.
        // import: prologue/plain16, rows/dense16, schedule/split_row, epilogue/store
        Variant { name: "split_row", ..Schedule::SPLIT_ROW },
        // gemv/split_k: a thread group of LANES invocations over TILE_ROWS rows at once.
        //
        // Idea: x is twice the bytes of 16-bit weights and comes through the same cache; what a
        // lane reads of it serves TILE_ROWS rows. All TILE_ROWS x (chunks a lane) loads of weights are in
        // flight together; K is split over the subgroups of the thread group, which meet once in
        // workgroup memory.
        // import: prologue/plain16, rows/dense16, schedule/split_k, epilogue/store
        Variant {
            name: "split_k",
            constants: &|p, caps| {
                [shared_team(caps, p.chunks16(), 1), vec![("TILE_ROWS", 2.0)]].concat()
            },
            ..Schedule::SPLIT_K
        },
        // gemv/pipelined: few workgroups, each along its rows with x in registers.
        //
        // Idea: few workgroups that stay, all their invocations along each row: a lane meets TILE_ROWS
        // rows at a time with the eight elements of x that it keeps, and the next TILE_ROWS rows are
        // under way meanwhile. Sums of several rows are added up by halves (nine take twelve
        // exchanges, not forty-five) and meet once, at the end. As a stage of a run its first rows
        // are loaded before x is there.
        // import: prologue/four_plain, prologue/found, prologue/pipelined, rows/dense16
        // import: schedule/pipelined, epilogue/product_store, epilogue/store
        Variant {
            name: "pipelined",
            // 11.2 µs, where vec2 takes 15.5 (2048 × 8192 bf16, H200, Dawn).
            first_on_the_web: &|p| p.n_vectors == 1 && (1024..32_768).contains(&p.rows),
            ..Schedule::PIPELINED
        },
    ],
    prefer: &|p| {
        if p.n_vectors > 8 {
            &["matrix_units", "rows8_vectors", "subgroup", "workgroup", "naive"]
        } else if p.n_vectors > 1 {
            &["rows8_vectors", "subgroup", "workgroup", "naive"]
        } else if p.rows >= 32_768 {
            &["subgroup_multicol", "subgroup", "workgroup", "naive"]
        } else if p.chunks16() > 512 && p.weight != Format::F32 {
            &["vec2", "split_row", "workgroup", "naive"]
        } else {
            &["split_k", "split_row", "workgroup", "naive"]
        }
    },
    cost: &|p, _| {
        let (rows, k, n) = (p.rows as f64, p.k as f64, p.n_vectors as f64);
        let y = 4.0 * (1.0 + f64::from(p.beta.value())) * rows;
        let x = p.act_format.bytes() as f64 * k;
        Cost {
            bytes: rows * p.weight.row_bytes(p.k) as f64 + n * (y + x),
            flops: 2.0 * rows * k * n,
        }
    },
    tolerance: &|p, _| {
        Tolerance::new(
            8.0 + 2.0 * (p.k as f64).sqrt(),
            nmse(p.rows),
            "K rounded additions behave as a random walk of step eps * sum|w x|; the rigorous \
                 bound K*eps would hide a missing product",
        )
    },
    cases: "
        # Gemma, Llama and Qwen widths, and widths no multiple of 8, 4 or 2.
        WEIGHT=bf16
        ROWS=33,K=6912,WEIGHT=bf16; ROWS=17,K=2048,WEIGHT=bf16; ROWS=65,K=1004,WEIGHT=bf16
        ROWS=40,K=1001,WEIGHT=bf16; ROWS=1153,K=12,WEIGHT=bf16
        WEIGHT=f32|f16|bf16:
            ROWS=3,K=7
            # f16 activations and a later first element, on whole and on ragged rows.
            ROWS=40,K=1152,ACT_FORMAT=f16,Y_OFFSET=64; ROWS=9,K=1003,ACT_FORMAT=f16,Y_OFFSET=1
            ROWS=21,K=640,Y_OFFSET=3,Y_AFTER=5,N_VECTORS=4
            # Into the residual stream.
            ROWS=39,K=2048,Y_OFFSET=2,BETA=1
            ROWS=5,K=304,N_VECTORS=3,BETA=1
        # Ragged vectors share their words and chunks.
        ROWS=6,K=301,WEIGHT=f16,ACT_FORMAT=f16,N_VECTORS=8
        # More vectors than a variant keeps sums for, the last pass not full.
        ROWS=72,K=1032,WEIGHT=bf16,Y_OFFSET=4,Y_AFTER=8,N_VECTORS=8
        ROWS=64,K=768,WEIGHT=f16,N_VECTORS=19,BETA=1
        # Tiles of matrix units: whole, and not in rows, columns and vectors; parts of the columns.
        ROWS=64,K=128,WEIGHT=bf16,N_VECTORS=16; ROWS=130,K=1160,WEIGHT=bf16,N_VECTORS=33,Y_AFTER=2
        ROWS=128,K=2048,WEIGHT=f16,ACT_FORMAT=f16,N_VECTORS=32,Y_OFFSET=4,Y_AFTER=8
        ROWS=256,K=1152,WEIGHT=bf16,N_VECTORS=16,BETA=1
        ROWS=24,K=320,WEIGHT=f16,N_VECTORS=9; ROWS=70,K=96,WEIGHT=bf16,N_VECTORS=67
        # As many rows as decide for other lanes, and more rounds than one.
        ROWS=1152,K=1152,WEIGHT=bf16; ROWS=2,K=16411,WEIGHT=f16
        # More workgroups than one grid dimension holds, for the variants of few rows a group.
        ROWS=262147,K=5,WEIGHT=f16
    ",
    bench: "
        WEIGHT=bf16:
            ROWS=1152|13824,K=1152
            ROWS=1152,K=6912; ROWS=8192,K=2048; ROWS=262144,K=1152
            ROWS=1152,K=6912,N_VECTORS=4; ROWS=13824,K=1152,N_VECTORS=4
            # Llama's matrices, for eight sequences.
            ROWS=3072|16384,K=2048,N_VECTORS=8
            ROWS=2048,K=8192,N_VECTORS=8
    ",
};
