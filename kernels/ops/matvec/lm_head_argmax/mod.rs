//! The LM head fused with the greedy choice: no logit is written.

use crate::declare::*;
use crate::matvec::geometry::{dense_only, quantised_only, rows_grid};
use crate::matvec::{head, mat_vec, weights};

crate::params! {
    /// Parameters of `lm_head_argmax`.
    pub struct LmHeadArgmax {
        rows: usize = head::ROWS,
        k: usize = head::COLUMNS,
        weight: Format = weight(&Format::ALL),
        act_format: FloatFormat = ACT_FORMAT_IN,
        first_row: usize = head::FIRST_ROW,
        part: HeadPart = head::PART,
    }
}

mat_vec!(LmHeadArgmax);

/// A variant of `rows` and `choose`.
const STAGES: &[Stage<LmHeadArgmax>] =
    &[Stage { entry: "rows", grid: &rows_grid }, Stage { entry: "choose", grid: &|_, _| 1 }];

/// schedule/head_lanes: LANES invocations a row.
const LANES: Variant<LmHeadArgmax> = Variant {
    stages: STAGES,
    tunables: "WG=64|128|256,LANES=16|32|64,ROWS_PER_WG=64|128|256",
    ..Variant::PLAIN
};

/// The declaration.
pub static OPERATION: Declaration<LmHeadArgmax> = Declaration {
    name: "lm_head_argmax",
    summary: "largest element of matrix (ROWS, K) times vector (K), next token and position",
    fuses: None,
    state: &[n_kv(4, 9), PROMPT_LEN],
    bindings: &[
        weights::<LmHeadArgmax>().drawn(&|_| Draw::TiedRows),
        spreads(Binding::input("x", floats!(act_format), len!(p => p.k))),
        Binding::in_out("tokens", &words, len!(_, s => s.n_kv + 1))
            .drawn(&|_| Draw::Sequence(1000)),
        Binding::in_out("state", &words, len!(_ => STATE_WORDS)).drawn(&|_| Draw::State),
        Binding::in_out("best_value", &f32s, len!(_ => 1))
            .drawn(&|p| Draw::Descending(3.0 * (p.k as f32).sqrt())),
        Binding::in_out("best_index", &words, len!(_ => 1)).drawn(&|_| Draw::Tokens(1000)),
        // A candidate a workgroup, which has at least a row.
        Binding::scratch("partial_values", &f32s, len!(p => p.rows)),
        Binding::scratch("partial_indices", &words, len!(p => p.rows)),
    ],
    variants: &[
        Variant::sized(
            "naive",
            &[
                Stage { entry: "rows", grid: &|p, c| groups_for(p.rows, c) },
                Stage { entry: "choose", grid: &|_, _| 1 },
            ],
        ),
        // lm_head_argmax/workgroup: LANES invocations a row, rows in turn; no subgroups needed.
        //
        // Idea: neighbouring invocations read neighbouring words, a tree in workgroup memory sums
        // them, and the first lane of each row keeps the best of its rows until the end.
        // import: prologue/lanes_dense, rows/dense16, schedule/head_lanes, epilogue/head_argmax
        Variant { name: "workgroup", unsupported: &dense_only, ..LANES },
        // lm_head_argmax/blocks: LANES invocations a quantised row, one weight at a time; no
        // subgroups needed.
        //
        // Idea: neighbouring invocations read neighbouring words, a tree in workgroup memory sums
        // them, and the first lane of each row keeps the best of its rows until the end. Every
        // weight finds its scale again, so the floor is far; `soa` reads quants sixteen bytes at
        // a time.
        // import: prologue/lanes_any, rows/words, schedule/head_lanes, epilogue/head_argmax
        Variant { name: "blocks", unsupported: &quantised_only, ..LANES },
        // lm_head_argmax/subgroup: four rows a subgroup at a time, the best of them in registers.
        //
        // Idea: gemv/subgroup_multicol (x is loaded and unpacked once for four rows, four
        // independent loads in flight), but no logit is written: after its rows a workgroup leaves
        // one candidate. Many rows a workgroup keep the second stage short, few of them balance the
        // load.
        // import: prologue/x_chunk, rows/dense16, schedule/head_subgroup, epilogue/head_argmax
        Variant {
            constants: &|_, caps| vec![("SG", f64::from(caps.fixed_subgroup()))],
            tunables: "WG=128|256|512,ROWS_PER_WG=32|64|128|256|512",
            unsupported: &dense_only,
            ..Variant::new("subgroup", STAGES)
        },
        // lm_head_argmax/soa: LANES lanes to four quantised rows, sixteen bytes of quants a
        // load.
        //
        // Idea: gemv_q/soa_multicol with the rows of a workgroup one after another: x is staged
        // and summed once for ROWS_PER_WG of them, loads of the next four rows are issued while the
        // last of these are used, and each lane keeps the best of the rows whose sums end in it.
        // import: prologue/plain, rows/soa, schedule/head_rows, epilogue/head_argmax
        Variant {
            // Candidates of up to 1024 invocations.
            constants: &|p, caps| head::soa_geometry(p, caps, 8 * 1024),
            tunables: "WG=128|256|512,LANES=4|8|16|32,ROWS_PER_WG=128|256|512|1024",
            unsupported: &quantised_only,
            packing: Packing::Soa,
            apart: true,
            ..Variant::new("soa", STAGES)
        },
        // lm_head_argmax/soa_dp4a24: as gemv_q/soa_dp4a24, activations as integers of 23
        // bits.
        //
        // Idea: a workgroup quantises x once and takes many grid-stride iterations over rows; each
        // lane keeps the best of the rows whose products end in it.
        // Source: own.
        // import: prologue/plain, prologue/found, prologue/unscaled, prologue/three_digits
        // import: rows/soa, schedule/head_int8, epilogue/head_argmax
        Variant {
            name: "soa_dp4a24",
            stages: &[
                Stage { entry: "rows", grid: &head::dot4_groups },
                Stage { entry: "choose", grid: &|_, _| 1 },
            ],
            constants: &head::dot4_geometry,
            tunables: head::DOT4_TUNABLES,
            unsupported: &head::dot4_unsupported,
            packing: Packing::Soa,
            digits: 3,
            ..Variant::PLAIN
        },
    ],
    prefer: &head::prefer,
    cost: &|p, _| head::cost(p, p.act_format),
    tolerance: &|p, _| {
        Tolerance::new(
            8.0 + 2.0 * (p.k as f64).sqrt(),
            // One value: NMSE says no more of it than its own bound does.
            9e-6,
            "K rounded additions behave as a random walk of step eps * sum|w x|; the token may \
                 be any whose logit could be the largest within twice that",
        )
    },
    cases: "
        N_KV=3:
            WEIGHT=f32|f16|bf16:
                ROWS=300,K=1152,ACT_FORMAT=f16
                ROWS=129,K=1003,FIRST_ROW=64,PART=last
            ROWS=70,K=300,WEIGHT=q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k
            # Rows longer than is staged at once, and more of them than a workgroup has.
            ROWS=9,K=6912,WEIGHT=q4_k; ROWS=21,K=5003,WEIGHT=q8_0
            ROWS=1100,K=70,WEIGHT=q5_1,ACT_FORMAT=f16
            ROWS=1
            PART=whole|first|middle|last:
                ROWS=513,K=64,WEIGHT=f16,FIRST_ROW=9
                ROWS=40,K=256,WEIGHT=q4_k,FIRST_ROW=9,PROMPT_LEN=9
            # More workgroups than one grid dimension holds, for the variant of few rows a group.
            ROWS=262147,K=5,WEIGHT=f16
    ",
    // All tokens given: repeated runs advance the position and must not write past `tokens`.
    bench: "
        PROMPT_LEN=4294967295:
            ROWS=262144,K=1152,WEIGHT=bf16; ROWS=128256,K=2048,WEIGHT=bf16
            ROWS=262144,K=1152,WEIGHT=q8_0; ROWS=128256,K=2048,WEIGHT=q6_k
    ",
};
