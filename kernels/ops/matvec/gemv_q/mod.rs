//! Quantised matrix times vector: ggml blocks are decoded as they are read.

use crate::declare::*;
use crate::matvec::geometry::{lanes_grid, ragged_vectors};
use crate::matvec::schedule::{Schedule, eight_lanes, whole_chunks};
use crate::matvec::soa::{self, geometry, lanes, staged, subgroup};
use crate::matvec::{mat_vec, nmse, units, weights};

crate::params! {
    /// Parameters of `gemv_q`.
    pub struct GemvQ {
        rows: usize = ROWS,
        k: usize = columns(1000),
        weight: Format = weight(&Format::QUANTISED),
        act_format: FloatFormat = ACT_FORMAT_IN,
        y_offset: usize = Y_OFFSET,
        y_after: usize = Y_AFTER,
        n_vectors: usize = dim(
            "N_VECTORS",
            "vectors multiplied at once: x is (N_VECTORS, K), y is (N_VECTORS, Y_OFFSET + ROWS + Y_AFTER)",
            1,
            8,
        ),
        order: Order = mostly(
            "ORDER",
            "how the values of the matrix run through its blocks; model files are row_wise",
            &Order::ALL,
        ),
        beta: Beta = BETA,
    }
}

mat_vec!(GemvQ {
    fn rows(&self) -> usize {
        self.rows
    }
    const HAS_ORDER: bool = true;
    fn order(&self) -> Order {
        self.order
    }
    fn n_vectors(&self) -> usize {
        self.n_vectors
    }
});

impl GemvQ {
    /// Workgroups that share the columns of the same rows in `column_wise`: enough to fill a large
    /// GPU, each with some columns left.
    fn splits(&self) -> usize {
        let tiles = self.rows.div_ceil(256);
        (512 / tiles).min(self.k / 64).clamp(1, 16)
    }

    /// Sums of parts of the columns.
    fn parts(&self) -> usize {
        match self.order {
            Order::ColumnWise => self.n_vectors * self.splits() * self.rows,
            _ => units::parts(self),
        }
    }
}

/// Vectors of x must begin on sixteen bytes.
fn vectors_aligned(p: &GemvQ, _: &Capabilities) -> Option<String> {
    whole_chunks(p).or_else(|| ragged_vectors(p.n_vectors, p.k))
}

/// Quantised vectors of three bytes an element that soa_dp4a24_vectors holds at a time: as many as
/// have room and sums, dealt out evenly over the passes that takes. None where there is no room for
/// one.
fn vectors_in_memory(p: &GemvQ, caps: &Capabilities) -> Option<usize> {
    // A float a subgroup of four lanes, WG up to 512.
    const OTHERS: usize = 512;
    let one = 112 * p.k.div_ceil(32);
    let room = ((caps.workgroup_memory as usize).saturating_sub(OTHERS) / one).min(8);
    let n = p.n_vectors;
    (room > 0).then(|| n.div_ceil(n.div_ceil(room)))
}

/// Lanes of soa_dp4a24_vectors: every vector's sums cross all of them at the end of a row, so as
/// few, from eight on, as leave the subgroups that a large GPU wants. Measured from 2 to 8 vectors.
fn vector_lanes(p: &GemvQ, caps: &Capabilities) -> u32 {
    let most = subgroup(caps);
    let wanted = if p.n_vectors > 4 { 380 } else { 800 };
    let enough = |lanes: &u32| p.rows / 4 * *lanes as usize >= wanted * most as usize;
    (3..7).map(|log| 1 << log).filter(|lanes| *lanes < most).find(enough).unwrap_or(most)
}

/// Workgroups of soa_dp4a24_vectors: sets of rows times passes over the vectors.
fn vector_groups(p: &GemvQ, c: &Constants) -> usize {
    let sets = p.rows.div_ceil(4 * ((c["WG"] / c["LANES"]) as usize).max(1));
    let passes = p.n_vectors.div_ceil(c["X_VECTORS"] as usize);
    sets.div_ceil(sets.div_ceil((c["GROUPS"] as usize / passes).max(1))) * passes
}

/// The declaration.
pub static OPERATION: Declaration<GemvQ> = Declaration {
    name: "gemv_q",
    summary: "quantised matrix (ROWS, K) times vector (K), f32 accumulation",
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
        Binding::scratch("parts", &f32s, len!(p => p.parts())),
    ],
    variants: &[
        Schedule::NAIVE,
        // gemv_q/blocks: one subgroup a row over blocks as the file has them.
        //
        // Idea: a lane takes 32 weights of one scale and reads the words it needs, all of them
        // before the first use; blocks of 18, 22, 34 and 210 bytes lie across words, so two words
        // are shifted into one. For whoever cannot repack: what `soa` gains over it is what
        // repacking is worth.
        // import: prologue/plain, rows/file_blocks, schedule/subgroup_blocks, epilogue/store
        Variant {
            constants: &|_, caps| geometry(subgroup(caps).min(32), caps),
            tunables: "WG=64|128|256,LANES=4|8|16|32",
            unsupported: &|p, _| match (p.order, p.n_vectors) {
                (Order::RowWise, vectors) => exceeds("N_VECTORS", vectors, 1),
                (order, _) => Some(format!("ORDER={} is not row_wise", order.name())),
            },
            apart: true,
            ..Variant::new("blocks", &[Stage::main(&lanes_grid)])
        },
        // gemv_q/workgroup: LANES invocations a row, summed through workgroup memory; no subgroups
        // needed.
        //
        // Idea: the loads of `soa`, then a tree in workgroup memory. The rung for adapters and
        // browsers without subgroup operations. Several vectors are taken one after another: the
        // weights for the later ones come from the cache.
        // import: prologue/staged, rows/soa, schedule/tree_vectors, epilogue/store
        Variant { name: "workgroup", unsupported: &vectors_aligned, ..Schedule::TREE },
        // gemv_q/soa: LANES lanes a row, four chunks in flight a lane.
        //
        // Idea: with the fields of a row's blocks apart every load is sixteen aligned bytes of
        // quants, 32 neighbours under one scale, coalesced across the lanes; scales come from their
        // own plane at the same time instead of before. All of a round is issued before the first
        // use. One row has all lanes (LANES 32) for matrices of few rows: the more lanes a row, the
        // more of the GPU they fill.
        // import: prologue/staged, rows/soa, schedule/subgroup_tiles, epilogue/store
        Variant { name: "soa", ..Schedule::SUBGROUP_TILES },
        // gemv_q/soa_multicol: EACH (2 or 4) rows of W to LANES lanes.
        //
        // Idea: a chunk of 16 bytes meets 128 bytes of x, eight times what it is itself: with one
        // row a lane workgroup memory would serve x at its full width. The rows share each load of
        // x; a chunk of each is in flight, and the next are issued before these are used. LANES is
        // chosen to divide the chunks of a row: 1152 weights are 36 chunks, which 32 lanes read in
        // two rounds and 8 lanes in five.
        // import: prologue/plain, rows/soa, schedule/soa_rows4, epilogue/store
        Variant {
            name: "soa_multicol",
            // EACH rows to every group of lanes.
            stages: &[Stage::main(&|p, c| lanes_grid(p, c).div_ceil(c["EACH"] as usize))],
            constants: &|p, caps| staged(p, lanes(p, subgroup(caps), 4), caps),
            tunables: "WG=64|128|256|512,LANES=4|8|16|32,EACH=2|4",
            ..Schedule::SUBGROUP_TILES
        },
        // gemv_q/rows8_vectors: eight rows a workgroup for up to eight vectors at a time.
        //
        // Idea: as gemv/rows8_vectors: eight quants of each of eight rows become floats once and meet
        // every vector, one fma a product. Lanes take neighbouring words of quants, so x is read as
        // in gemv, without workgroup memory and without rounding.
        // import: prologue/vectors_eight, rows/soa_eight, schedule/rows8, epilogue/store
        Variant {
            name: "rows8_vectors",
            unsupported: &|p, caps| {
                whole_chunks(p).or_else(|| no_multiple("K", p.k, 8)).or_else(|| eight_lanes(caps))
            },
            packing: Packing::Soa,
            apart: true,
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
            unsupported: &|p, _| match p.order {
                Order::RowWise => units::unsupported(p),
                order => Some(format!("ORDER={} is not row_wise", order.name())),
            },
            packing: Packing::Soa,
            tolerance: Some(&|p, _| units::tolerance(p, p.act_format)),
            ..Variant::PLAIN
        },
        // gemv_q/soa_dp4a24_vectors: several vectors of activations in 23 bits.
        //
        // Idea: the quants of four rows become bytes once and meet every vector, three quarters of
        // an instruction a weight and vector where floats take one and their conversions. A
        // workgroup holds as many quantised vectors as its memory has room for; with more,
        // neighbouring workgroups have the same rows and the next vectors, so that the weights
        // cross the bus once.
        // Source: own.
        // import: prologue/plain, prologue/unscaled, prologue/three_digits, rows/soa
        // import: schedule/int8_vectors, epilogue/store
        Variant {
            constants: &|p, caps| {
                let held = vectors_in_memory(p, caps).unwrap_or(1);
                let mut constants = geometry(vector_lanes(p, caps), caps);
                // Measured: of eight vectors, whose rounding takes longer than the rows of one
                // turn, one workgroup for each processor of a large GPU; larger ones for long rows
                // and for many.
                let groups = if p.n_vectors > 4 { 132.0 } else { 264.0 };
                let large = p.n_vectors > 4 && (p.k > 4096 || p.rows >= 65_536);
                let wg: u32 = if large { 512 } else { 256 };
                let wg = f64::from(wg.min(caps.invocations));
                constants.extend([("X_VECTORS", held as f64), ("GROUPS", groups), ("WG", wg)]);
                constants
            },
            tunables: "WG=128|256|512,LANES=8|16|32,GROUPS=132|264|528|65535",
            unsupported: &|p, caps| {
                let full = || {
                    let room = vectors_in_memory(p, caps);
                    room.is_none().then(|| format!("K={} needs more workgroup memory", p.k))
                };
                vectors_aligned(p, caps).or_else(|| soa::below_a_block(p)).or_else(full)
            },
            packing: Packing::Soa,
            digits: 3,
            ..Variant::new("soa_dp4a24_vectors", &[Stage::main(&vector_groups)])
        },
        // gemv_q/soa_dp4a24: activations in 23 bits; three dot4I8Packed for four weights.
        //
        //   d = max |x| of 32 / 4161400, xq = round(x / d)
        //
        // Idea: as soa_dp4a16 with one byte more: xq = 65536 t + 256 h + l. Three dot4I8Packed
        // take four weights, three quarters of an instruction a weight and a third to unpack (of
        // four bits an eighth: quants go as they lie), where a float takes three; and an activation
        // is off by at most 2^-23 of the largest of its 32 (of four bits every second one by
        // 2^-19), about what adding f32 products rounds away unless one of the 32 is massive.
        // Source: own.
        // import: prologue/plain, prologue/found, prologue/unscaled, prologue/three_digits
        // import: rows/soa, schedule/int8_rows, epilogue/product_store, epilogue/store
        Variant { name: "soa_dp4a24", ..Schedule::INT8_ROWS },
        // gemv_q/soa_dp4a16: activations in 16 bits; two dot4I8Packed for four weights.
        //
        //   d = max |x| of 32 / 32639, xq = round(x / d)
        //
        // Idea: as soa_dp4a, with integers of sixteen bits in two signed bytes, xq = 256 h + l:
        // two dot4I8Packed take four weights, one with h and one with l, and the sums join once a
        // chunk. A weight so costs half an instruction plus a third to unpack, where a float takes
        // three. The rounding costs 2e-5 of the activations' size (an NMSE near 4e-10), 257 times
        // less than with eight bits; in every layer of a decode it adds up to 3e-8, so it takes a
        // hint. 32639 = 256 * 127 + 127 keeps h and l within a signed byte. Workgroups take several
        // grid-stride iterations over rows and quantise x once.
        // Source: own; integers per 32 activations as in ggml's q8_1.
        // import: prologue/plain, prologue/found, prologue/unscaled, prologue/two_digits, rows/soa
        // import: schedule/int8_rows, epilogue/product_store, epilogue/store
        Variant { name: "soa_dp4a16", digits: 2, ..Schedule::INT8_ROWS },
        // gemv_q/soa_dp4a: activations in 8 bits; one dot4I8Packed for four weights.
        //
        //   d = max |x| of 32 / 127, xq = round(x / d)
        //
        // Idea: against 8-bit activations quants stay integers: dot4I8Packed takes four at a time,
        // and x meets a chunk with 32 bytes instead of 128. Every workgroup quantises x into its
        // own memory while its first weights are on their way. The rounding costs about 5e-3 of the
        // activations' size (an NMSE near 3e-5), so this one runs only when a hint asks for it.
        // Source: ggml's q8_1 products (mmvq).
        // import: prologue/plain, prologue/found, prologue/unscaled, prologue/one_digit, rows/soa
        // import: schedule/int8_rows, epilogue/product_store, epilogue/store
        Variant {
            name: "soa_dp4a",
            tunables: "WG=64|128|256|512,LANES=4|8|16|32",
            unsupported: &|p, caps| {
                // One such row in twenty cancels to where nothing can be held against it.
                let few = || (p.rows < 4).then(|| format!("ROWS={} is below 4", p.rows));
                (Schedule::INT8_ROWS.unsupported)(p, caps).or_else(few)
            },
            digits: 1,
            ..Schedule::INT8_ROWS
        },
        // gemv_q/column_wise: columns of W added up, for blocks that run down the columns.
        //
        // Idea: with ORDER column_wise sixteen bytes of quants are 32 rows of one column, and one
        // activation meets them all: a lane keeps 32 sums, multiplies the scale with the activation
        // once, and sums what offsets and minimums take off once for all 32. Eight lanes read 128
        // neighbouring bytes, WG / 8 columns at a time, four in flight; SPLITS workgroups share the
        // columns of 256 rows, and a second dispatch adds them up: no order of the loads makes a
        // column-wise matrix give whole rows to many workgroups without it.
        // import: prologue/x_one, rows/soa, schedule/column_wise, epilogue/store
        Variant {
            name: "column_wise",
            stages: &[
                Stage::main(&|p, _| p.rows.div_ceil(256) * p.splits() * p.n_vectors),
                Stage { entry: "sum", grid: &|p, _| (p.rows * p.n_vectors).div_ceil(64) },
            ],
            constants: &|p, _| vec![("SPLITS", p.splits() as f64)],
            tunables: "WG=64|128|256",
            unsupported: &|p, _| match (p.order, p.weight) {
                (Order::ColumnWise, Format::Q8_0 | Format::Q6K) => Some(format!(
                    "WEIGHT={} has no 32 weights of one scale in 16 bytes",
                    p.weight.name()
                )),
                (Order::ColumnWise, _) => None,
                (order, _) => Some(format!("ORDER={} is not column_wise", order.name())),
            },
            packing: Packing::Soa,
            ..Variant::PLAIN
        },
    ],
    prefer: &|p| match (p.order, p.n_vectors) {
        (Order::ColumnWise, _) => &["column_wise", "naive"],
        (_, 1) if p.rows >= 6144 => &["soa_dp4a24", "soa_multicol", "soa", "workgroup", "naive"],
        (_, 1) => &["soa_dp4a24", "soa", "workgroup", "naive"],
        // It rounds weights to f16, which suits vectors that are.
        (_, 9..) if p.act_format == FloatFormat::F16 => {
            &["matrix_units", "rows8_vectors", "soa_dp4a24_vectors", "workgroup", "naive"]
        }
        // Rounding the vectors takes a workgroup longer than few rows.
        (_, 3..) if p.rows < 8192 => &["rows8_vectors", "soa_dp4a24_vectors", "workgroup", "naive"],
        _ => &["soa_dp4a24_vectors", "rows8_vectors", "workgroup", "naive"],
    },
    cost: &|p, _| {
        let (rows, k, n) = (p.rows as f64, p.k as f64, p.n_vectors as f64);
        // What a row's last block holds beyond it need not be read.
        let weight = p.weight.block_bytes() as f64 / p.weight.block_len() as f64;
        let y_bytes = 4.0 * (1.0 + f64::from(p.beta.value())) * rows;
        Cost {
            bytes: rows * k * weight + n * (y_bytes + p.act_format.bytes() as f64 * k),
            flops: 2.0 * rows * k * n,
        }
    },
    tolerance: &|p, _| {
        Tolerance::new(
            64.0 + 4.0 * (p.k as f64).sqrt(),
            nmse(p.rows),
            "K rounded additions behave as a random walk of step eps * sum|w x|. Quants may be \
                 summed with an offset of up to 48 steps that is taken out per 32 weights, and \
                 scale and minimum apart: then terms some times larger than w x are rounded. What \
                 a massive x loses where they all but cancel is in the reference's magnitude",
        )
    },
    cases: "
        # 1152 is no whole number of superblocks of 256. With BETA into the residual stream.
        WEIGHT=q8_0|q4_1|q5_1|q5_k:
            ROWS=37,K=1152; ROWS=39,K=320,BETA=1
        WEIGHT=q4_0|q5_0|q4_k|q6_k:
            ROWS=37,K=1152,ACT_FORMAT=f16,Y_OFFSET=64; ROWS=39,K=320,Y_OFFSET=2,BETA=1
        # No whole number of anything.
        ROWS=5,K=300
        ROWS=9,K=300,WEIGHT=q6_k; ROWS=3,K=6912,WEIGHT=q4_k; ROWS=33,K=2048,WEIGHT=q4_0
        K=7,WEIGHT=q5_1
        ROWS=33,K=512,WEIGHT=q4_k,Y_OFFSET=3,Y_AFTER=6,N_VECTORS=3
        ROWS=9,K=1152,WEIGHT=q6_k,ACT_FORMAT=f16,N_VECTORS=8
        ROWS=40,K=72,N_VECTORS=2,BETA=1
        ROWS=9,K=301,N_VECTORS=2
        # More vectors than sums stay in registers, the last pass not full.
        ROWS=40,K=256,WEIGHT=q4_k,N_VECTORS=19,Y_OFFSET=2,BETA=1
        # Tiles of matrix units: whole, and not in rows, columns and vectors; parts of the columns.
        ACT_FORMAT=f16:
            WEIGHT=q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k:
                ROWS=64,K=256,N_VECTORS=16; ROWS=70,K=1152,N_VECTORS=33,Y_OFFSET=4,BETA=1
            ROWS=128,K=768,WEIGHT=q4_k,N_VECTORS=64,Y_AFTER=4
            ROWS=40,K=296,WEIGHT=q5_0,N_VECTORS=9
        # The packings of rows that are no whole number of superblocks.
        ROWS=67,K=1152,WEIGHT=q4_k,ORDER=flat
        ROWS=21,K=1152,WEIGHT=q4_k,N_VECTORS=5,ORDER=flat
        ROWS=520,K=33,WEIGHT=q4_k,N_VECTORS=2,ORDER=column_wise
        ROWS=300,K=300,WEIGHT=q5_k,ORDER=column_wise,BETA=1
    ",
    bench: "
        WEIGHT=q4_k|q4_0:
            ROWS=8192,K=2048; ROWS=262144,K=1152
        ROWS=8192,K=2048,WEIGHT=q4_k,N_VECTORS=4|8
        # Llama's matrices, for eight sequences.
        ROWS=3072,K=2048,WEIGHT=q4_k,N_VECTORS=8; ROWS=2048,K=8192,WEIGHT=q4_k,N_VECTORS=8
        ORDER=flat|column_wise:
            ROWS=1152,K=6912,WEIGHT=q4_k; ROWS=262144,K=1152,WEIGHT=q4_k
        ROWS=2048,K=8192,WEIGHT=q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k
    ",
};
