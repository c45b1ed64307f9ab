//! The LM head fused with the largest logits: the others are never written.

use crate::adapter::Capabilities;
use crate::codes::{FloatFormat, Format, HeadPart, Packing};
use crate::descriptor::*;
use crate::len;
use crate::matvec::geometry::{dense_only, quantised_only, rows_grid};
use crate::matvec::{head, mat_vec, nmse, weights};
use crate::param::dim;
use crate::shared::{ACT_FORMAT_IN, exceeds, weight};

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
    Stage { entry: "rows", grid: rows_grid },
    Stage { entry: "merge", grid: |p, c| mergers(p, c, rows_grid(p, c)) },
    Stage { entry: "choose", grid: |_, _| 1 },
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

/// A whole head of f32 activations.
fn whole(rows: usize, k: usize, weight: Format, top_k: usize) -> LmHeadTopk {
    let act_format = FloatFormat::F32;
    LmHeadTopk { rows, k, weight, act_format, first_row: 0, part: HeadPart::Whole, top_k }
}

/// schedule/head_lanes: LANES invocations a row.
const LANES: Variant<LmHeadTopk> = Variant {
    stages: STAGES,
    constants: |p, _| vec![list_rows(p)],
    tunables: &[
        ("WG", &[64.0, 128.0, 256.0]),
        ("LANES", &[16.0, 32.0, 64.0]),
        ("ROWS_PER_WG", &[128.0, 256.0, 512.0]),
        ("MERGERS", &[8.0, 16.0, 32.0]),
    ],
    ..Variant::PLAIN
};

/// The declaration.
pub static OPERATION: Declaration<LmHeadTopk> = Declaration {
    name: "lm_head_topk",
    summary: "largest TOP_K elements of matrix (ROWS, K) times vector (K), in order",
    fuses: None,
    state: &[],
    bindings: &[
        weights::<LmHeadTopk>().drawn(|_| Draw::TiedRows),
        Binding::input("x", |p, _| Elem::Floats(p.act_format), len!(p => p.k)),
        Binding::<LmHeadTopk>::in_out("top_values", f32s, len!(p => p.top_k))
            .drawn(|p| Draw::Descending(3.0 * (p.k as f32).sqrt())),
        Binding::<LmHeadTopk>::in_out("top_indices", words, len!(p => p.top_k))
            .drawn(|_| Draw::Count(0x10_0000)),
        Binding::scratch("lists", words, len!(p => 2 * p.most_lists() * p.top_k)),
        Binding::scratch("merged", words, len!(p => 2 * MOST_MERGERS * p.top_k)),
    ],
    variants: &[
        Variant { unsupported: |p, _| too_many(p), ..Variant::sized("naive", STAGES) },
        // lm_head_topk/workgroup: LANES invocations a row, rows in turn; no subgroups needed.
        //
        // Idea: neighbouring invocations read neighbouring words, a tree in workgroup memory sums
        // them, and the logits stay there to be sorted.
        // import: prologue/lanes_dense, rows/dense16, schedule/head_lanes, epilogue/head_topk
        Variant { name: "workgroup", unsupported: dense, ..LANES },
        // lm_head_topk/blocks: LANES invocations a quantised row, one weight at a time; no
        // subgroups needed.
        //
        // Idea: neighbouring invocations read neighbouring words, a tree in workgroup memory sums
        // them, and the logits stay there to be sorted. Every weight finds its scale again, so the
        // floor is far; `planes` reads quants sixteen bytes at a time.
        // import: prologue/lanes_any, rows/words, schedule/head_lanes, epilogue/head_topk
        Variant { name: "blocks", unsupported: quantised, ..LANES },
        // lm_head_topk/subgroup: four rows a subgroup at a time, sorted in workgroup memory.
        //
        // Idea: gemv/subgroup_multicol (x is loaded and unpacked once for four rows, four
        // independent loads in flight), but the logits stay in workgroup memory, and of them TOP_K
        // are written. Many rows a workgroup keep the merging short, few of them balance the load.
        // import: prologue/x_chunk, rows/dense16, schedule/head_subgroup, epilogue/head_topk
        Variant {
            name: "subgroup",
            stages: STAGES,
            constants: |p, caps| vec![list_rows(p), ("SG", f64::from(caps.fixed_subgroup()))],
            tunables: &[
                ("WG", &[128.0, 256.0, 512.0]),
                ("ROWS_PER_WG", &[128.0, 256.0, 512.0, 1024.0]),
                ("MERGERS", &[8.0, 16.0, 32.0]),
            ],
            unsupported: dense,
            ..Variant::PLAIN
        },
        // lm_head_topk/planes: LANES lanes to four quantised rows, sixteen bytes of quants a load.
        //
        // Idea: gemv_q/planes_multicol with the rows of a workgroup one after another: x is staged
        // and summed once for ROWS_PER_WG of them, and loads of the next four rows are issued while
        // the last of these are used. Their logits are sorted in workgroup memory at the end, as in
        // the other variants.
        // import: prologue/plain, rows/soa, schedule/head_rows, epilogue/head_topk
        Variant {
            name: "planes",
            stages: STAGES,
            constants: |p, caps| {
                let mut constants = head::planes_geometry(p, caps, 8 * LIST as u32);
                constants.push(list_rows(p));
                constants
            },
            tunables: &[
                ("WG", &[128.0, 256.0, 512.0]),
                ("LANES", &[4.0, 8.0, 16.0, 32.0]),
                ("ROWS_PER_WG", &[256.0, 512.0, 1024.0]),
                ("MERGERS", &[8.0, 16.0, 32.0]),
            ],
            unsupported: quantised,
            packing: Packing::Planes,
            ..Variant::PLAIN
        },
        // lm_head_topk/planes_dp4a24: as gemv_q/planes_dp4a24, activations as integers of 23 bits.
        //
        // Idea: a workgroup quantises x once and takes many grid-stride iterations over rows; their
        // logits are sorted in workgroup memory at the end, as in the other variants.
        // Source: own.
        // import: prologue/plain, prologue/found, prologue/unscaled, prologue/three_digits
        // import: rows/soa, schedule/head_int8, epilogue/head_topk
        Variant {
            name: "planes_dp4a24",
            stages: &[
                Stage { entry: "rows", grid: head::dot4_groups },
                Stage { entry: "merge", grid: |p, c| mergers(p, c, head::dot4_groups(p, c)) },
                Stage { entry: "choose", grid: |_, _| 1 },
            ],
            constants: head::dot4_geometry,
            tunables: head::DOT4_TUNABLES,
            unsupported: |p, caps| too_many(p).or_else(|| head::dot4_unsupported(p, caps)),
            packing: Packing::Planes,
            ..Variant::PLAIN
        },
    ],
    prefer: head::prefer,
    cost: |p, _| head::cost(p, p.act_format),
    tolerance: |p, _| Tolerance {
        k: 8.0 + 2.0 * (p.k as f64).sqrt(),
        rounding: 0.0,
        nmse: nmse(p.rows),
        reason: "K rounded additions behave as a random walk of step eps * sum|w x|; sorted values \
                 move no farther than the farthest of them, and a logit belongs to its index",
    },
    cases: || {
        let act_format = FloatFormat::F16;
        let mut cases: Vec<Case<LmHeadTopk>> = Vec::new();
        for &f in Format::DENSE {
            cases.push(LmHeadTopk { act_format, ..whole(700, 1152, f, 50) }.into());
            let (part, first_row) = (HeadPart::Last, 64);
            cases.push(LmHeadTopk { part, first_row, ..whole(129, 1003, f, 20) }.into());
        }
        for &f in Format::QUANTISED {
            cases.push(whole(70, 300, f, 16).into());
        }
        // Rows longer than is staged at once, and more of them than a workgroup has.
        cases.push(whole(9, 6912, Format::Q4K, 8).into());
        cases.push(whole(21, 5003, Format::Q8_0, 8).into());
        cases.push(LmHeadTopk { act_format, ..whole(1100, 70, Format::Q5_1, 8) }.into());
        // Fewer rows than wanted.
        cases.push(whole(1, 1, Format::F32, 5).into());
        for &part in HeadPart::ALL {
            let part = |p: LmHeadTopk| Case::from(LmHeadTopk { part, first_row: 9, ..p });
            cases.push(part(whole(13, 64, Format::F16, 40)));
            cases.push(part(whole(40, 256, Format::Q4K, 8)));
        }
        // Lists to merge, and more workgroups than one grid dimension holds.
        cases.push(whole(100_003, 5, Format::F16, 64).into());
        // More rows a workgroup, several grid-stride iterations over them, and lists that are no
        // power of two long.
        cases.push(whole(140_003, 40, Format::Q4_0, 50).into());
        cases.push(whole(140_003, 8, Format::Bf16, 50).into());
        cases
    },
    bench: || {
        [
            (262_144, 1152, Format::Bf16),
            (128_256, 2048, Format::Bf16),
            (262_144, 1152, Format::Q8_0),
        ]
        .map(|(rows, k, f)| whole(rows, k, f, 64).into())
        .into()
    },
};
