//! The LM head fused with the greedy choice: no logit is written.

use crate::descriptor::*;
use crate::gemv_q;
use crate::geometry::{dense_only, quantised_only};
use crate::layout::{Format, Packing, STATE_WORDS, act_bytes};
use crate::shape::{Param, Shape};
use crate::shared::*;

/// Parameters of a head, whatever is made of its logits.
pub(crate) const HEAD_ROWS: Param =
    Param::dim("ROWS", "rows of the matrix: tokens of the vocabulary, or of a part of it", 64, 600);
pub(crate) const HEAD_COLUMNS: Param =
    Param::dim("K", "columns of the matrix, elements of x", 64, 700);
pub(crate) const HEAD_FIRST: Param =
    Param::start("FIRST", "token of row 0: a matrix too large for one binding comes in parts", 70);
pub(crate) const PART: Param = Param::choice(
    "PART",
    "which part of the matrix this is; all but the first go on from what the last one left",
    &["whole", "first", "middle", "last"],
);

/// `ROWS_PER_WG` rows a workgroup.
pub(crate) fn row_groups(s: &Shape, c: &Constants) -> usize {
    s.dim("ROWS").div_ceil(c["ROWS_PER_WG"] as usize)
}

/// Lanes, tile and order of the variants over planes, beside `other` bytes of workgroup memory.
pub(crate) fn planes_geometry(
    s: &Shape,
    caps: &Capabilities,
    other: u32,
) -> Vec<(&'static str, f64)> {
    let lanes = gemv_q::lanes(s, gemv_q::subgroup(caps).min(32), 4);
    let workgroup_memory = caps.workgroup_memory.saturating_sub(other);
    let left = Capabilities { workgroup_memory, ..caps.clone() };
    vec![
        ("LANES", f64::from(lanes)),
        ("SG", f64::from(caps.fixed_subgroup())),
        ("TILE", gemv_q::tile(s, &left, 1) as f64),
        ALONG_ROWS,
    ]
}

/// Geometry of the variants over planes_dot4.wgsl: every workgroup has at least 64 rows and at most
/// 1024, what lm_head_topk has room for.
pub(crate) fn dot4_geometry(s: &Shape, caps: &Capabilities) -> Vec<(&'static str, f64)> {
    let rows = s.dim("ROWS");
    let groups = rows.div_ceil(64).min(256.max(rows.div_ceil(1024)));
    let mut constants = gemv_q::dot4(s, caps, rows, 4, groups);
    constants.push(ALONG_ROWS);
    constants
}

/// Workgroups of theirs.
pub(crate) fn dot4_groups(s: &Shape, c: &Constants) -> usize {
    gemv_q::dot4_groups(s.dim("ROWS"), c)
}

/// What they ask of a shape.
pub(crate) fn dot4_refuses(s: &Shape, caps: &Capabilities) -> Option<String> {
    quantised_only(s, caps).or_else(|| gemv_q::below_a_block(s))
}

/// What they may try.
pub(crate) const DOT4_TUNABLES: &[(&str, &[f64])] =
    &[("WG", &[128.0, 256.0, 512.0]), ("LANES", &[4.0, 8.0, 16.0, 32.0])];

/// Weights and x once; what is left of the logits is negligible.
pub(crate) fn cost(s: &Shape) -> Cost {
    let (rows, k) = (s.float("ROWS"), s.float("K"));
    Cost {
        bytes: rows * Format::of(s).row_bytes(s.dim("K")) as f64 + act_bytes(s) * k,
        flops: 2.0 * rows * k,
    }
}

fn shape(rows: usize, k: usize, format: Format) -> Shape {
    Shape::new(&[
        ("ROWS", rows as f64),
        ("K", k as f64),
        ("WEIGHT", format.code()),
        ("ACTS", 0.0),
        ("FIRST", 0.0),
        ("PART", 0.0),
        ("SEEN", 3.0),
        ("GIVEN", 1.0),
    ])
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "lm_head_argmax",
    summary: "largest element of matrix (ROWS, K) times vector (K), next token and position",
    params: &[
        HEAD_ROWS,
        HEAD_COLUMNS,
        weight(Format::ALL),
        ACTS_IN,
        HEAD_FIRST,
        PART,
        seen(4, 9),
        GIVEN,
    ],
    bindings: &[
        Binding::input("weights", Elem::Weights, |s| s.dim("ROWS") * s.dim("K")),
        Binding::input("x", Elem::Act, |s| s.dim("K")),
        Binding::in_out("tokens", Elem::U32, |s| s.dim("SEEN") + 1),
        Binding::in_out("state", Elem::U32, |_| STATE_WORDS),
        Binding::in_out("best_value", Elem::F32, |_| 1),
        Binding::in_out("best_index", Elem::U32, |_| 1),
        // A candidate a workgroup, which has at least a row.
        Binding::scratch("partial_values", Elem::F32, |s| s.dim("ROWS")),
        Binding::scratch("partial_indices", Elem::U32, |s| s.dim("ROWS")),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[
                Stage { entry: "rows", grid: |s, c| s.dim("ROWS").div_ceil(c["WG"] as usize) },
                Stage { entry: "choose", grid: |_, _| 1 },
            ],
            tunables: WORKGROUPS,
            ..PLAIN
        },
        Variant {
            name: "workgroup",
            stages: &[
                Stage { entry: "rows", grid: row_groups },
                Stage { entry: "choose", grid: |_, _| 1 },
            ],
            tunables: &[
                ("WG", &[64.0, 128.0, 256.0]),
                ("LANES", &[16.0, 32.0, 64.0]),
                ("ROWS_PER_WG", &[64.0, 128.0, 256.0]),
            ],
            refuses: dense_only,
            ..PLAIN
        },
        Variant {
            name: "blocks",
            stages: &[
                Stage { entry: "rows", grid: row_groups },
                Stage { entry: "choose", grid: |_, _| 1 },
            ],
            tunables: &[
                ("WG", &[64.0, 128.0, 256.0]),
                ("LANES", &[16.0, 32.0, 64.0]),
                ("ROWS_PER_WG", &[64.0, 128.0, 256.0]),
            ],
            refuses: quantised_only,
            ..PLAIN
        },
        Variant {
            name: "subgroup",
            stages: &[
                Stage { entry: "rows", grid: row_groups },
                Stage { entry: "choose", grid: |_, _| 1 },
            ],
            constants: |_, caps| vec![("SG", f64::from(caps.fixed_subgroup()))],
            tunables: &[
                ("WG", &[128.0, 256.0, 512.0]),
                ("ROWS_PER_WG", &[32.0, 64.0, 128.0, 256.0, 512.0]),
            ],
            refuses: dense_only,
            ..PLAIN
        },
        Variant {
            name: "planes",
            stages: &[
                Stage { entry: "rows", grid: row_groups },
                Stage { entry: "choose", grid: |_, _| 1 },
            ],
            // Candidates of up to 1024 invocations.
            constants: |s, caps| planes_geometry(s, caps, 8 * 1024),
            tunables: &[
                ("WG", &[128.0, 256.0, 512.0]),
                ("LANES", &[4.0, 8.0, 16.0, 32.0]),
                ("ROWS_PER_WG", &[128.0, 256.0, 512.0, 1024.0]),
            ],
            refuses: quantised_only,
            packing: Packing::Planes,
            ..PLAIN
        },
        Variant {
            name: "planes_dp4a24",
            stages: &[
                Stage { entry: "rows", grid: dot4_groups },
                Stage { entry: "choose", grid: |_, _| 1 },
            ],
            constants: dot4_geometry,
            tunables: DOT4_TUNABLES,
            refuses: dot4_refuses,
            packing: Packing::Planes,
            ..PLAIN
        },
    ],
    prefer: |s| {
        if Format::of(s).is_dense() {
            &["subgroup", "workgroup", "naive"]
        } else {
            &["planes_dp4a24", "planes", "blocks", "naive"]
        }
    },
    cost,
    tolerance: |s| Tolerance {
        k: 8.0 + 2.0 * s.float("K").sqrt(),
        rounding: 0.0,
        // One value: NMSE says no more of it than its own bound does.
        nmse: 9e-6,
        reason: "K rounded additions behave as a random walk of step eps * sum|w x|; the token may \
                 be any whose logit could be the largest within twice that",
    },
    cases: || {
        let mut cases = Vec::new();
        for &f in Format::DENSE {
            cases.push(shape(300, 1152, f).with("ACTS", 1.0));
            cases.push(shape(129, 1003, f).with("PART", 3.0).with("FIRST", 64.0));
        }
        for &f in Format::QUANTISED {
            cases.push(shape(70, 300, f));
        }
        // Rows longer than is staged at once, and more of them than a workgroup has.
        cases.push(shape(9, 6912, Format::Q4K));
        cases.push(shape(21, 5003, Format::Q8_0));
        cases.push(shape(1100, 70, Format::Q5_1).with("ACTS", 1.0));
        cases.push(shape(1, 1, Format::F32));
        for part in 0..4 {
            let part = |s: Shape| s.with("PART", f64::from(part)).with("FIRST", 9.0);
            cases.push(part(shape(513, 64, Format::F16)));
            cases.push(part(shape(40, 256, Format::Q4K)).with("GIVEN", 9.0));
        }
        // More workgroups than one grid dimension holds, for the variant of few rows a group.
        cases.push(shape(262_147, 5, Format::F16));
        cases
    },
    // All tokens given: repeated runs advance the position and must not write past `tokens`.
    bench: || {
        let given = |s: Shape| s.with("SEEN", 1.0).with("GIVEN", f64::from(u32::MAX));
        [
            (262_144, 1152, Format::Bf16),
            (128_256, 2048, Format::Bf16),
            (262_144, 1152, Format::Q8_0),
            (128_256, 2048, Format::Q6K),
        ]
        .map(|(rows, k, f)| given(shape(rows, k, f)))
        .to_vec()
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Shaders run without bounds checks: lm_head_topk sorts at most 1024 rows a workgroup, and its lists have
    /// room for one of every 64 rows.
    #[test]
    fn workgroups_of_a_head_have_64_to_1024_rows() {
        let tunable = |name| DOT4_TUNABLES.iter().find(|t| t.0 == name).map_or(&[][..], |t| t.1);
        for size in [4, 8, 16, 32, 64] {
            let caps = Capabilities { subgroup: Some((size, size)), ..Capabilities::minimal() };
            for rows in (1..3000).chain([32_000, 128_256, 151_936, 262_144, 262_147, 600_001]) {
                let s = shape(rows, 1152, Format::Q4K);
                let constants = dot4_geometry(&s, &caps);
                for &wg in tunable("WG") {
                    for &lanes in tunable("LANES") {
                        let mut c: Constants =
                            constants.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
                        c.insert("WG".into(), wg);
                        c.insert("LANES".into(), lanes);
                        let groups = dot4_groups(&s, &c);
                        let turn = (c["EACH"] * wg / lanes) as usize;
                        let each = rows.div_ceil(turn).div_ceil(groups) * turn;
                        assert!(each.min(rows.next_multiple_of(turn)) <= 1024, "{each} of {rows}");
                        assert!(groups <= rows.div_ceil(64), "{groups} of {rows} rows");
                        assert!(groups * each >= rows);
                    }
                }
            }
        }
    }
}
