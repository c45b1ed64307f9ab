//! The LM head fused with the largest logits: the others are never written.

use crate::declare::*;
use crate::matvec::geometry::{dense_only, quantised_only, rows_grid};
use crate::matvec::{head, mat_vec, nmse, weights};

crate::params! {
    /// Parameters of `lm_head_topk`.
    pub struct LmHeadTopk {
        rows: usize = head::ROWS,
        k: usize = head::COLUMNS,
        weight: Format = weight(&Format::ALL),
        act_format: FloatFormat = ACT_FORMAT_IN,
        first_row: usize = head::FIRST_ROW,
        part: HeadPart = head::PART,
        top_k: usize = dim("TOP_K", "logits wanted", 16, 64),
    }
}

mat_vec!(LmHeadTopk);

/// Entries that a workgroup sorts at once.
const LIST: usize = 1024;

/// A quarter of them, so that sorting more than fit goes on.
const MOST: usize = LIST / 4;

/// Workgroups that merge, at the most.
const MOST_MERGERS: usize = 64;

impl LmHeadTopk {
    /// Lists of the first stage: one of every workgroup, of 64 rows at the least.
    fn most_lists(&self) -> usize {
        self.rows.div_ceil(64)
    }
}

fn too_many(p: &LmHeadTopk) -> Option<String> {
    exceeds("TOP_K", p.top_k, MOST)
}

fn dense(p: &LmHeadTopk, caps: &Capabilities) -> Option<String> {
    too_many(p).or_else(|| dense_only(p, caps))
}

fn quantised(p: &LmHeadTopk, caps: &Capabilities) -> Option<String> {
    too_many(p).or_else(|| quantised_only(p, caps))
}

/// A variant of `rows`, `merge` and `choose`; merging is left out where all lists fit at once.
const STAGES: &[Stage<LmHeadTopk>] = &[
    Stage { entry: "rows", grid: &rows_grid },
    Stage { entry: "merge", grid: &|p, c| mergers(p, c, rows_grid(p, c)) },
    Stage { entry: "choose", grid: &|_, _| 1 },
];

/// Rows of a workgroup: some 500 lists are merged in a quarter of the time of 1000 (measured on the
/// H200 with 128256 and 262144 rows), and a list's workgroup holds 1024 rows.
fn list_rows(p: &LmHeadTopk) -> (&'static str, f64) {
    let rows = p.rows.div_ceil(512).next_multiple_of(64).clamp(256, LIST);
    ("ROWS_PER_WG", rows as f64)
}

/// Workgroups that merge the lists of `groups` others.
fn mergers(p: &LmHeadTopk, c: &Constants, groups: usize) -> usize {
    match groups * p.top_k {
        0..=LIST => 0,
        _ => c["MERGERS"] as usize,
    }
}

/// schedule/head_lanes: LANES invocations a row.
const LANES: Variant<LmHeadTopk> = Variant {
    stages: STAGES,
    constants: &|p, _| vec![list_rows(p)],
    tunables: "WG=64|128|256,LANES=16|32|64,ROWS_PER_WG=128|256|512,MERGERS=8|16|32",
    ..Variant::PLAIN
};

/// The declaration.
pub static OPERATION: Declaration<LmHeadTopk> = Declaration {
    name: "lm_head_topk",
    summary: "largest TOP_K elements of matrix (ROWS, K) times vector (K), in order",
    fuses: None,
    state: &[],
    bindings: &[
        weights::<LmHeadTopk>().drawn(&|_| Draw::TiedRows),
        Binding::input("x", floats!(act_format), len!(p => p.k)),
        Binding::<LmHeadTopk>::in_out("top_values", &f32s, len!(p => p.top_k))
            .drawn(&|p| Draw::Descending(3.0 * (p.k as f32).sqrt())),
        Binding::<LmHeadTopk>::in_out("top_indices", &words, len!(p => p.top_k))
            .drawn(&|_| Draw::Count(0x10_0000)),
        Binding::scratch("lists", &words, len!(p => 2 * p.most_lists() * p.top_k)),
        Binding::scratch("merged", &words, len!(p => 2 * MOST_MERGERS * p.top_k)),
    ],
    variants: &[
        Variant { unsupported: &|p, _| too_many(p), ..Variant::sized("naive", STAGES) },
        // lm_head_topk/workgroup: LANES invocations a row, rows in turn; no subgroups needed.
        //
        // Idea: neighbouring invocations read neighbouring words, a tree in workgroup memory sums
        // them, and the logits stay there to be sorted.
        // import: prologue/lanes_dense, rows/dense16, schedule/head_lanes, epilogue/head_topk
        Variant { name: "workgroup", unsupported: &dense, ..LANES },
        // lm_head_topk/blocks: LANES invocations a quantised row, one weight at a time; no
        // subgroups needed.
        //
        // Idea: neighbouring invocations read neighbouring words, a tree in workgroup memory sums
        // them, and the logits stay there to be sorted. Every weight finds its scale again, so the
        // floor is far; `soa` reads quants sixteen bytes at a time.
        // import: prologue/lanes_any, rows/words, schedule/head_lanes, epilogue/head_topk
        Variant { name: "blocks", unsupported: &quantised, ..LANES },
        // lm_head_topk/subgroup: four rows a subgroup at a time, sorted in workgroup memory.
        //
        // Idea: gemv/subgroup_multicol (x is loaded and unpacked once for four rows, four
        // independent loads in flight), but the logits stay in workgroup memory, and of them TOP_K
        // are written. Many rows a workgroup keep the merging short, few of them balance the load.
        // import: prologue/x_chunk, rows/dense16, schedule/head_subgroup, epilogue/head_topk
        Variant {
            constants: &|p, caps| vec![list_rows(p), ("SG", f64::from(caps.fixed_subgroup()))],
            tunables: "WG=128|256|512,ROWS_PER_WG=128|256|512|1024,MERGERS=8|16|32",
            unsupported: &dense,
            ..Variant::new("subgroup", STAGES)
        },
        // lm_head_topk/soa: LANES lanes to four quantised rows, sixteen bytes of quants a load.
        //
        // Idea: gemv_q/soa_multicol with the rows of a workgroup one after another: x is staged
        // and summed once for ROWS_PER_WG of them, and loads of the next four rows are issued while
        // the last of these are used. Their logits are sorted in workgroup memory at the end, as in
        // the other variants.
        // import: prologue/plain, rows/soa, schedule/head_rows, epilogue/head_topk
        Variant {
            constants: &|p, caps| {
                let mut constants = head::soa_geometry(p, caps, 8 * LIST as u32);
                constants.push(list_rows(p));
                constants
            },
            tunables: "WG=128|256|512,LANES=4|8|16|32,ROWS_PER_WG=256|512|1024,MERGERS=8|16|32",
            unsupported: &quantised,
            packing: Packing::Soa,
            apart: true,
            ..Variant::new("soa", STAGES)
        },
        // lm_head_topk/soa_dp4a24: as gemv_q/soa_dp4a24, activations as integers of 23 bits.
        //
        // Idea: a workgroup quantises x once and takes many grid-stride iterations over rows; their
        // logits are sorted in workgroup memory at the end, as in the other variants.
        // Source: own.
        // import: prologue/plain, prologue/found, prologue/unscaled, prologue/three_digits
        // import: rows/soa, schedule/head_int8, epilogue/head_topk
        Variant {
            name: "soa_dp4a24",
            stages: &[
                Stage { entry: "rows", grid: &head::dot4_groups },
                Stage { entry: "merge", grid: &|p, c| mergers(p, c, head::dot4_groups(p, c)) },
                Stage { entry: "choose", grid: &|_, _| 1 },
            ],
            constants: &head::dot4_geometry,
            tunables: head::DOT4_TUNABLES,
            unsupported: &|p, caps| too_many(p).or_else(|| head::dot4_unsupported(p, caps)),
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
            nmse(p.rows),
            "K rounded additions behave as a random walk of step eps * sum|w x|; sorted values \
                 move no farther than the farthest of them, and a logit belongs to its index",
        )
    },
    cases: "
        WEIGHT=f32|f16|bf16:
            ROWS=700,K=1152,ACT_FORMAT=f16,TOP_K=50
            ROWS=129,K=1003,FIRST_ROW=64,PART=last,TOP_K=20
        ROWS=70,K=300,WEIGHT=q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k,TOP_K=16
        # Rows longer than is staged at once, and more of them than a workgroup has.
        ROWS=9,K=6912,WEIGHT=q4_k,TOP_K=9; ROWS=21,K=5003,WEIGHT=q8_0,TOP_K=8
        ROWS=1100,K=70,WEIGHT=q5_1,ACT_FORMAT=f16,TOP_K=8
        # Fewer rows than wanted.
        TOP_K=5
        PART=whole|first|middle|last:
            ROWS=13,K=64,WEIGHT=f16,FIRST_ROW=9,TOP_K=40
            ROWS=40,K=256,WEIGHT=q4_k,FIRST_ROW=9,TOP_K=8
        # Lists to merge, and more workgroups than one grid dimension holds.
        ROWS=100003,K=5,WEIGHT=f16,TOP_K=64
        # More rows a workgroup, several grid-stride iterations over them, and lists that are no
        # power of two long.
        ROWS=140003,K=40,WEIGHT=q4_0,TOP_K=50; ROWS=140003,K=8,WEIGHT=bf16,TOP_K=50
    ",
    bench: "
        ROWS=262144,K=1152,WEIGHT=bf16,TOP_K=64:
            ROWS=262144
            ROWS=128256,K=2048
            WEIGHT=q8_0
    ",
};
