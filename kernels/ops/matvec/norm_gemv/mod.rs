//! RMSNorm as the prologue of a matrix times vector: a dispatch less where a norm has one reader.

use crate::declare::*;
use crate::matvec::schedule::Schedule;
use crate::matvec::{mat_vec, nmse, weights};

crate::params! {
    /// Parameters of `norm_gemv`.
    pub struct NormGemv {
        rows: usize = ROWS,
        k: usize = columns(1500),
        weight: Format = weight(&Format::ALL),
        y_offset: usize = Y_OFFSET,
        eps: f32 = EPS,
        weight_offset: NormOffset = WEIGHT_OFFSET,
    }
}

mat_vec!(NormGemv);

/// The declaration.
pub static OPERATION: Declaration<NormGemv> = Declaration {
    name: "norm_gemv",
    summary: "matrix (ROWS, K) times the RMSNorm of a vector (K)",
    fuses: Some(Fusion {
        of: &["rms_norm", "gemv_q"],
        against: &|_| None,
        against_stage: &|_| None,
        // A head was measured with one. Others read their input anew for every row, and with it the
        // norm's weights.
        pays_with: &|p, variant| match p.rows {
            16_384.. => variant == "soa_dp4a24",
            _ => variant != "naive",
        },
    }),
    state: &[],
    bindings: &[
        weights(),
        spreads(Binding::input("x", &f32s, len!(p => p.k))),
        spreads(Binding::input("norm_weight", &f32s, len!(p => p.k))),
        spreads(Binding::in_out("y", &f32s, len!(p => p.y_offset + p.rows))),
    ],
    variants: &[
        Schedule::NAIVE,
        // norm_gemv/workgroup: LANES invocations a row, summed through workgroup memory; no
        // subgroups.
        //
        // Idea: every row's lanes meet all of x anyway, so they sum its squares beside the product:
        // no barrier and no load waits for the norm. Two barriers join the lanes. The rung for
        // adapters and browsers without subgroup operations.
        // import: prologue/rms16, prologue/found, rows/dense16, schedule/row_lanes, epilogue/store
        Variant { name: "workgroup", ..Schedule::ROW_LANES },
        // norm_gemv/subgroup: one subgroup a row, the lane's whole share in flight at once.
        //
        // Idea: gemv/vec4 with the squares of x summed beside the product: the loads of weights
        // wait for nothing, and one subgroupAdd of two numbers ends the row.
        // import: prologue/rms16, rows/dense16, schedule/subgroup_share, epilogue/store
        Variant { name: "subgroup", ..Schedule::SUBGROUP_SHARE },
        // norm_gemv/vec2: as split_row with loads of 8 bytes.
        //
        // Idea: sixteen bytes of 16-bit weights meet 64 bytes of x and g, read in strides of 32:
        // nine times the passes through the cache of the weights alone. With 8 bytes all three
        // streams are contiguous, and five passes do.
        // import: prologue/rms8, rows/dense8, schedule/split_row, epilogue/store
        Variant { name: "vec2", ..Schedule::SPLIT_ROW_8 },
        // norm_gemv/split_row: a thread group of LANES invocations a row, of any number.
        //
        // Idea: gemv/split_row with the squares of x summed beside the product; both sums meet in
        // workgroup memory at the one barrier there is.
        // import: prologue/rms16, rows/dense16, schedule/split_row, epilogue/store
        Variant { name: "split_row", ..Schedule::SPLIT_ROW },
        // norm_gemv/split_k: a thread group of LANES invocations over TILE_ROWS rows at once.
        //
        // Idea: gemv/split_k, which gains more here: x * g and the squares are made once for TILE_ROWS
        // rows.
        // import: prologue/rms16, rows/dense16, schedule/split_k, epilogue/store
        Variant { name: "split_k", ..Schedule::SPLIT_K },
        // norm_gemv/pipelined: few workgroups, each along its rows with x in registers.
        //
        // Idea: gemv/pipelined; every lane sees its part of x once, and sums its squares then. The
        // norm's weights are loaded before x is there.
        // import: prologue/four_rms, prologue/found, prologue/pipelined, rows/dense16, schedule/pipelined
        // import: epilogue/product_store, epilogue/store
        Variant {
            name: "pipelined",
            // 7.3 µs, where split_k takes 7.8 (4096 × 2048 bf16, H200, Dawn).
            first_on_the_web: &|p| (1024..32_768).contains(&p.rows),
            ..Schedule::PIPELINED
        },
        // norm_gemv/workgroup_q: LANES invocations a row over quantised weights; no subgroups
        // needed.
        //
        // Idea: as planes, joined by a tree in workgroup memory. The rung for adapters and browsers
        // without subgroup operations.
        // import: prologue/staged_rms, prologue/rms, prologue/found, rows/soa, schedule/tree_row
        // import: epilogue/store
        Variant { name: "workgroup_q", ..Schedule::TREE },
        // norm_gemv/soa: as gemv_q/soa, LANES lanes a row, over quantised weights.
        //
        // Idea: x times g goes to workgroup memory once; every row's lanes meet all of x, so each
        // adds up the squares of its chunks beside the product, and the norm's scale is applied to
        // the finished sum.
        // import: prologue/staged_rms, prologue/rms, rows/soa, schedule/subgroup_tiles
        // import: epilogue/store
        Variant { name: "soa", ..Schedule::SUBGROUP_TILES },
        // norm_gemv/soa_dp4a24: as gemv_q/soa_dp4a24, activations as integers of 23 bits.
        //
        // Idea: every workgroup quantises all of x times g into its memory before its first
        // product; on that way it sees every square, so the norm costs a sum over the workgroup and
        // no second look at x. The norm's scale is one factor on each product.
        // Source: own.
        // import: prologue/rms, prologue/found, prologue/rms_factor, prologue/three_digits
        // import: rows/soa, schedule/int8_rows, epilogue/product_store, epilogue/store
        Variant { name: "soa_dp4a24", ..Schedule::INT8_ROWS },
    ],
    prefer: &|p| match (p.rows, p.weight) {
        (_, quantised) if !quantised.is_dense() => &["soa_dp4a24", "soa", "workgroup_q", "naive"],
        // x and the norm's weights weigh more than a row: few loads of them count, until lanes
        // run short.
        (4096.., _) => &["split_k", "subgroup", "workgroup", "naive"],
        (_, Format::F32) => &["split_row", "subgroup", "workgroup", "naive"],
        _ => &["vec2", "split_row", "workgroup", "naive"],
    },
    cost: &|p, _| {
        let (rows, k) = (p.rows as f64, p.k as f64);
        Cost {
            bytes: rows * p.weight.row_bytes(p.k) as f64 + 4.0 * rows + 8.0 * k,
            flops: 2.0 * rows * k + 4.0 * k,
        }
    },
    tolerance: &|p, _| {
        Tolerance::new(
            // Quants may be summed with an offset that is taken out per 32 weights, as in gemv_q.
            if p.weight.is_dense() {
                16.0 + 3.0 * (p.k as f64).sqrt()
            } else {
                64.0 + 4.0 * (p.k as f64).sqrt()
            },
            nmse(p.rows),
            "K rounded products and additions behave as a random walk of step eps * sum|w n|; \
                 so does the sum of K squares, of which a root of 2 ULP scales the row",
        )
    },
    cases: "
        EPS=1e-6:
            # Both conventions of a norm's weight, alternating from format to format. A later first
            # element, on whole and on ragged rows.
            WEIGHT=f32|bf16:
                ROWS=40,K=1152,Y_OFFSET=64; ROWS=3,K=7
                ROWS=9,K=1003,Y_OFFSET=1,EPS=1e-5,WEIGHT_OFFSET=gemma
            WEIGHT=f16:
                ROWS=40,K=1152,Y_OFFSET=64,WEIGHT_OFFSET=gemma; ROWS=3,K=7,WEIGHT_OFFSET=gemma
                ROWS=9,K=1003,Y_OFFSET=1,EPS=1e-5
            # Gemma, Llama and Qwen widths, and widths no multiple of 8, 4 or 2.
            WEIGHT=bf16
            ROWS=33,K=6912,WEIGHT=bf16; ROWS=17,K=2048,WEIGHT=bf16; ROWS=65,K=1004,WEIGHT=bf16
            ROWS=40,K=1001,WEIGHT=bf16
            ROWS=37,K=1152,WEIGHT=q8_0|q4_1|q5_1|q5_k
            ROWS=37,K=1152,WEIGHT=q4_0|q5_0|q4_k|q6_k,Y_OFFSET=64,WEIGHT_OFFSET=gemma
            ROWS=5,EPS=1e-5:
                K=301,WEIGHT=q4_0; K=303,WEIGHT=q5_0; K=305,WEIGHT=q4_k; K=307,WEIGHT=q6_k
                WEIGHT_OFFSET=gemma:
                    K=300,WEIGHT=q8_0; K=302,WEIGHT=q4_1; K=304,WEIGHT=q5_1; K=306,WEIGHT=q5_k
            # As many rows as decide for other lanes, and more workgroups than one dimension holds.
            ROWS=1536,K=1152,WEIGHT=bf16,WEIGHT_OFFSET=gemma
            ROWS=262147,K=5,WEIGHT=f16
    ",
    bench: "
        K=2048,WEIGHT=bf16,EPS=1e-6:
            ROWS=1536|13824,K=1152
            ROWS=3072|4096|16384|12288
            ROWS=1536,K=1152,WEIGHT=q4_0
            ROWS=3072,WEIGHT=q4_k,EPS=1e-5
    ",
};
