//! A normed branch into the residual stream, and the stream's norm, as the prologue of a matrix
//! times vector: a dispatch less where a norm of Gemma's has one reader.

use crate::declare::*;
use crate::matvec::schedule::Schedule;
use crate::matvec::{joined_tolerance, mat_vec, weights};

crate::params! {
    /// Parameters of `residual_norm_gemv`.
    pub struct ResidualNormGemv {
        rows: usize = ROWS,
        k: usize = columns(1500),
        weight: Format = weight(&Format::ALL),
        y_offset: usize = Y_OFFSET,
        eps: f32 = EPS,
    }
}

mat_vec!(ResidualNormGemv);

/// The declaration.
pub static OPERATION: Declaration<ResidualNormGemv> = Declaration {
    name: "residual_norm_gemv",
    summary: "x + rms_norm(delta) into next_x, and a matrix (ROWS, K) times its RMSNorm",
    fuses: Some(Fusion {
        of: &["residual_rms_norm", "gemv"],
        against: &|_| None,
        against_stage: &|_| None,
        pays_with: &|_, variant| variant != "naive",
    }),
    state: &[],
    bindings: &[
        weights(),
        spreads(Binding::input("x", &f32s, len!(p => p.k))),
        spreads(Binding::input("delta", &f32s, len!(p => p.k))),
        spreads(Binding::input("post_weight", &f32s, len!(p => p.k))),
        spreads(Binding::input("norm_weight", &f32s, len!(p => p.k))),
        spreads(Binding::in_out("y", &f32s, len!(p => p.y_offset + p.rows))),
        Binding::output("next_x", &f32s, len!(p => p.k)),
    ],
    variants: &[
        Schedule::NAIVE,
        // residual_norm_gemv/workgroup: LANES invocations a row, summed through workgroup memory;
        // no subgroups.
        //
        // Idea: norm_gemv/workgroup over the stream that every workgroup makes first, in its own
        // memory: one pass over four short vectors and a tree. The rung for adapters and browsers
        // without subgroup operations.
        // import: prologue/joined, prologue/joined_tree, prologue/joined_norm, prologue/joined16
        // import: rows/dense16, schedule/row_lanes, epilogue/store
        Variant { name: "workgroup", ..Schedule::ROW_LANES },
        // residual_norm_gemv/pipelined: few workgroups, each along its rows with the stream in
        // workgroup memory.
        //
        // Idea: norm_gemv/sweep. Few workgroups make the stream seldom, and the first rows' weights
        // are under way meanwhile.
        // import: prologue/joined, prologue/joined_subgroups, prologue/joined_norm, prologue/pipelined
        // import: rows/dense16, schedule/pipelined, epilogue/product_store, epilogue/store
        Variant { name: "pipelined", ..Schedule::PIPELINED },
        // residual_norm_gemv/workgroup_q: LANES invocations a row over quantised weights; no
        // subgroups needed.
        //
        // Idea: norm_gemv/workgroup_q over the stream that every workgroup makes first. The rung
        // for adapters and browsers without subgroup operations.
        // import: prologue/joined, prologue/joined_tree, prologue/joined_norm, prologue/staged_rms
        // import: rows/soa, schedule/tree_row, epilogue/store
        Variant { name: "workgroup_q", ..Schedule::TREE },
        // residual_norm_gemv/soa_dp4a24: as gemv_q/soa_dp4a24, activations as integers of 23
        // bits.
        //
        // Idea: every workgroup quantises all of the normed vector anyway; it makes the stream
        // first, while its first weights are under way.
        // Source: own.
        // import: prologue/joined, prologue/joined_subgroups, prologue/joined_norm
        // import: prologue/rms_factor, prologue/three_digits, rows/soa, schedule/int8_rows
        // import: epilogue/product_store, epilogue/store
        Variant { name: "soa_dp4a24", ..Schedule::INT8_ROWS },
    ],
    prefer: &|p| match p.weight.is_dense() {
        true => &["pipelined", "workgroup", "naive"],
        false => &["soa_dp4a24", "workgroup_q", "naive"],
    },
    cost: &|p, _| {
        let (rows, k) = (p.rows as f64, p.k as f64);
        Cost {
            bytes: rows * p.weight.row_bytes(p.k) as f64 + 4.0 * rows + 20.0 * k,
            flops: 2.0 * rows * k + 9.0 * k,
        }
    },
    tolerance: &|p, _| joined_tolerance(p, p.rows),
    cases: "
        EPS=1e-6:
            WEIGHT=f32|f16|bf16:
                # A later first element, on whole and on ragged rows.
                ROWS=40,K=1152,Y_OFFSET=64
                ROWS=9,K=1003,Y_OFFSET=1,EPS=1e-5
                ROWS=3,K=7
            # Gemma's widths, widths no multiple of 8, 4 or 2, and more fours than registers keep.
            WEIGHT=bf16
            ROWS=33,K=2560,WEIGHT=bf16; ROWS=65,K=1004,WEIGHT=bf16; ROWS=40,K=1001,WEIGHT=bf16
            ROWS=9,K=5126,WEIGHT=bf16
            ROWS=37,K=1152,WEIGHT=q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k,Y_OFFSET=64
            ROWS=5,EPS=1e-5:
                K=300,WEIGHT=q8_0; K=301,WEIGHT=q4_0; K=302,WEIGHT=q4_1; K=303,WEIGHT=q5_0
                K=304,WEIGHT=q5_1; K=305,WEIGHT=q4_k; K=306,WEIGHT=q5_k; K=307,WEIGHT=q6_k
            # As many rows as decide for other lanes, and more workgroups than one dimension holds.
            ROWS=1536,K=1152,WEIGHT=bf16; ROWS=262147,K=5,WEIGHT=f16
    ",
    bench: "
        EPS=1e-6:
            ROWS=1536,K=1152,WEIGHT=bf16|q4_0
    ",
};
