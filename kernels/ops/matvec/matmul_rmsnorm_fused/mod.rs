//! A product, its norm and the residual stream: the second half of a feed-forward block, or the
//! output projection of attention.

use crate::declare::*;
use crate::matvec::geometry::*;
use crate::matvec::schedule::Schedule;
use crate::matvec::{MatVec, mat_vec, nmse, soa, weights};

crate::params! {
    /// Parameters of `matmul_rmsnorm_fused`.
    pub struct MatmulRmsnormFused {
        rows: usize = dim("ROWS", "rows of the matrix, elements of the stream", 32, 300),
        k: usize = columns(1500),
        weight: Format = weight(&Format::ALL),
        act_format: FloatFormat = ACT_FORMAT,
        eps: f32 = float("EPS", "added to the mean squares", 1e-6, 1e-2),
        weight_offset: NormOffset = WEIGHT_OFFSET,
        post: Norm = POST_NORM,
        next: Norm = choice(
            "NEXT_NORM",
            "norm the stream for the next matrix; y and next_weight are used only then",
            &Norm::ALL,
        ),
    }
}

mat_vec!(MatmulRmsnormFused);

/// One workgroup for the norms.
const NORMS: Stage<MatmulRmsnormFused> = Stage { entry: "norms", grid: &|_, _| 1 };

const TWO: &[Stage<MatmulRmsnormFused>] = &[Stage { entry: "product", grid: &lanes_grid }, NORMS];

/// Lanes as in [`workgroup_lanes`], in a workgroup whose norms are summed in a tree.
fn tree_lanes(p: &MatmulRmsnormFused, caps: &Capabilities) -> Overrides {
    let mut constants = workgroup_lanes(p, caps);
    constants.push(("WG", f64::from(1u32 << caps.invocations.clamp(1, 256).ilog2())));
    constants
}

/// Thread groups of a workgroup that is wide enough for the norms too.
fn wide_teams(p: &MatmulRmsnormFused, caps: &Capabilities) -> Overrides {
    let mut constants = shared_team(caps, p.chunks16(), 1);
    constants.push(("TILE_ROWS", 2.0));
    let size = caps.subgroup.map_or(64, |(_, max)| max.max(4));
    let lanes = constants.iter().find(|c| c.0 == "LANES").map_or(1, |c| c.1 as u32);
    let wide = |teams: &u32| lanes * teams >= 256 && (lanes * teams).is_multiple_of(size);
    let teams = (1..=caps.invocations.min(512) / lanes).find(wide);
    constants.extend(teams.map(|teams| ("TEAMS", f64::from(teams))));
    constants
}

/// The declaration.
pub static OPERATION: Declaration<MatmulRmsnormFused> = Declaration {
    name: "matmul_rmsnorm_fused",
    summary: "matrix times vector, normed, added to the residual stream, and its next norm",
    fuses: None,
    state: &[],
    bindings: &[
        weights(),
        spreads(Binding::input("x", floats!(act_format), len!(p => p.k))),
        spreads(Binding::in_out("stream", &f32s, len!(p => p.rows))),
        spreads(Binding::input("post_weight", &f32s, len!(p => p.rows))),
        spreads(Binding::input("next_weight", &f32s, len!(p => p.rows))),
        // Stays as it is without NEXT_NORM.
        spreads(Binding::in_out("y", floats!(act_format), len!(p => p.rows))),
        Binding::scratch("branch", &f32s, len!(p => p.rows)),
        Binding::counter("arrived", len!(_ => 1)),
    ],
    variants: &[
        Variant::sized(
            "naive",
            &[Stage { entry: "product", grid: &|p, c| groups_for(p.rows, c) }, NORMS],
        ),
        // matmul_rmsnorm_fused/single_workgroup: the whole matrix on one workgroup; dense weights.
        //
        // Idea: the norm needs all rows, so one workgroup that makes them all needs no second pass.
        // It gives up the GPU for that: one of 132 processors works, and a matrix of 16 MB takes
        // 1240 us where 4 us of memory traffic are due. Kept to show what a fusion must not cost.
        // import: prologue/x_chunk, rows/dense16, schedule/single_workgroup, epilogue/residual
        Variant {
            tunables: "WG=128|256|512|1024",
            unsupported: &dense_only,
            ..Variant::new("single_workgroup", &[Stage::main(&|_, _| 1)])
        },
        // matmul_rmsnorm_fused/two_pass: the product on the whole GPU, then one workgroup; dense
        // weights.
        //
        // Idea: a matrix wants every processor, a norm of a few kilobytes wants one workgroup: two
        // dispatches, of which the second is latency only. All loads of a round are in flight
        // together, as in gemv/workgroup. No subgroups needed.
        // import: prologue/plain16, rows/dense16, schedule/row_tree, epilogue/norms_tree
        Variant {
            constants: &tree_lanes,
            tunables: "WG=64|128|256,LANES=8|16|32|64,UNROLL=4|9",
            unsupported: &dense_only,
            ..Variant::new("two_pass", TWO)
        },
        // matmul_rmsnorm_fused/two_pass_q: as two_pass, over quantised weights; no subgroups
        // needed.
        //
        // Idea: the product of gemv_q/workgroup. The rung for adapters and browsers without
        // subgroup operations.
        // import: prologue/staged, prologue/found, rows/soa, schedule/tree_row, epilogue/norms_tree
        Variant { name: "two_pass_q", stages: TWO, ..Schedule::TREE },
        // matmul_rmsnorm_fused/two_pass_subgroup: two_pass with the product of gemv/split_k; dense
        // weights.
        //
        // Idea: subgroup sums in the place of trees in workgroup memory, and what a lane reads of x
        // serves TILE_ROWS rows.
        // import: prologue/plain16, rows/dense16, schedule/split_k, epilogue/norms_subgroups
        Variant {
            name: "two_pass_subgroup",
            stages: &[Stage { entry: "product", grid: &team_grid }, NORMS],
            constants: &wide_teams,
            ..Schedule::SPLIT_K
        },
        // matmul_rmsnorm_fused/two_pass_dp4a24: two_pass with the product of gemv_q/soa_dp4a24.
        //
        // Idea: the product over activations as integers of 23 bits, whose error is that of adding
        // f32 products, and the norms in a workgroup that sums by subgroup operations.
        // import: prologue/plain, prologue/found, prologue/unscaled, prologue/three_digits
        // import: rows/soa, schedule/int8_rows, epilogue/product_store, epilogue/norms_subgroups
        Variant {
            name: "two_pass_dp4a24",
            stages: &[Stage { entry: "product", grid: &|p, c| soa::dot4_groups(p.rows, c) }, NORMS],
            ..Schedule::INT8_ROWS
        },
        // matmul_rmsnorm_fused/last_workgroup: one dispatch; the last workgroup to arrive norms.
        // Dense.
        //
        // Idea: all workgroups share the matrix, a few rows each, every lane with all its loads of
        // a round in flight. Each counts itself in when its rows are stored; the one that finds all
        // others counted knows that every row is there, takes the branch into the stream, and sets
        // the counter to zero for the next dispatch. Nobody waits for anybody, so nothing depends
        // on which workgroups are resident.
        //
        // What it relies on: WGSL's atomics are relaxed, and rows cross workgroups. So rows are
        // stored and loaded with atomics, which are coherent over the device, and a storageBarrier
        // on either side of the counter keeps them in order (naga makes it an acquire-release
        // barrier of device scope on Vulkan; D3D12's and Metal's are barriers of device memory).
        // The pattern is that of CUDA's threadFenceReduction sample, with a barrier for
        // __threadfence.
        // import: prologue/x_chunk, rows/dense16, schedule/last_workgroup, epilogue/residual
        Variant {
            constants: &|p, _| {
                // Four loads a lane where rows are short; half as many arrivals as rows at the
                // most.
                let spans = p.weight.row_bytes(p.k).div_ceil(16 * 256);
                vec![("ROWS_PER_WG", if spans == 1 { 4.0 } else { 2.0 })]
            },
            tunables: "WG=128|192|224|256|320|448|512,ROWS_PER_WG=1|2|4",
            unsupported: &dense_only,
            ..Variant::new("last_workgroup", &[Stage::main(&rows_grid)])
        },
    ],
    prefer: &|p| {
        if p.weight.is_dense() {
            // What `last_workgroup` relies on is more than WGSL promises: by hint or tuned choice.
            &["two_pass_subgroup", "two_pass", "naive"]
        } else {
            &["two_pass_dp4a24", "two_pass_q", "naive"]
        }
    },
    cost: &|p, _| {
        let (rows, k) = (p.rows as f64, p.k as f64);
        let act = p.act_format.bytes() as f64;
        let count = |norm: Norm| f64::from(u8::from(norm == Norm::Rms));
        let (post, next) = (count(p.post), count(p.next));
        let norms = 4.0 * post + next * (4.0 + act);
        Cost {
            bytes: rows * (p.weight.row_bytes(p.k) as f64 + 8.0 + norms) + act * k,
            flops: 2.0 * rows * k + rows * (1.0 + 4.0 * (post + next)),
        }
    },
    tolerance: &|p, _| {
        Tolerance::new(
            // Quants may be summed with an offset that is taken out per 32 weights, as in gemv_q.
            (p.rows as f64).sqrt()
                + if p.weight.is_dense() {
                    16.0 + 2.0 * (p.k as f64).sqrt()
                } else {
                    64.0 + 4.0 * (p.k as f64).sqrt()
                },
            nmse(p.rows),
            "a product as in gemv or gemv_q and norms as in rms_norm; how far an error of the \
                 product reaches the stream and y is in the reference's magnitude",
        )
    },
    cases: "
        EPS=1e-6:
            WEIGHT=f32|f16|bf16:
                ROWS=48,K=6912,POST_NORM=rms
                ROWS=130,K=1152,ACT_FORMAT=f16,WEIGHT_OFFSET=gemma,POST_NORM=rms,NEXT_NORM=rms
                ROWS=67,K=1001,NEXT_NORM=rms
                POST_NORM=rms
            ROWS=2048,K=64,WEIGHT=bf16,NEXT_NORM=rms
            ROWS=2601,K=12,WEIGHT=f16,ACT_FORMAT=f16,POST_NORM=rms,NEXT_NORM=rms
            WEIGHT=q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k:
                ROWS=9,K=1152,POST_NORM=rms
                ROWS=20,K=300,ACT_FORMAT=f16,NEXT_NORM=rms
    ",
    bench: "
        ROWS=1152,EPS=1e-6,POST_NORM=rms,NEXT_NORM=rms:
            K=6912,WEIGHT=bf16,NEXT_NORM=none|rms
            K=1024,WEIGHT=bf16
            ROWS=2048,K=8192,WEIGHT=bf16,POST_NORM=none
            K=6912,NEXT_NORM=none
            K=6912,WEIGHT=q4_0
            ROWS=2048,K=8192,WEIGHT=q4_k,POST_NORM=none
    ",
};
