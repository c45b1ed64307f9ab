//! Attention of one new token over the KV cache, grouped-query, full or sliding window.

use crate::descriptor::*;
use crate::layout::act_bytes;
use crate::shape::{Param, Shape};
use crate::shared::*;

fn shape(group: u32, kv_heads: u32, head_dim: u32, capacity: u32, kv: u32, seen: u32) -> Shape {
    Shape::new(&[
        ("GROUP", f64::from(group)),
        ("KV_HEADS", f64::from(kv_heads)),
        ("HEAD_DIM", f64::from(head_dim)),
        ("CAPACITY", f64::from(capacity)),
        ("KV", f64::from(kv)),
        ("ACTS", 0.0),
        ("SCALE", f64::from(1.0 / (head_dim as f32).sqrt())),
        ("SEEN", f64::from(seen)),
    ])
}

/// Bytes of a slot's row in one head of a cache.
pub(crate) fn row_bytes(s: &Shape) -> usize {
    s.dim("HEAD_DIM") * if s.dim("KV") == 1 { 2 } else { 4 }
}

/// Why caches cannot be read 16 bytes at a time.
pub(crate) fn ragged(s: &Shape) -> Option<String> {
    let bytes = row_bytes(s);
    (!bytes.is_multiple_of(16))
        .then(|| format!("rows of {bytes} bytes are no whole 16-byte chunks"))
}

/// `n` as a value of an override.
pub(crate) fn number(n: usize) -> f64 {
    n as f64
}

/// The largest power of two up to `n`, at least 1.
pub(crate) fn power_up_to(n: usize) -> usize {
    1 << n.max(1).ilog2()
}

/// Most splits of a KV head the scratch memory has room for; `splits()` in split_common.wgsl.
pub(crate) fn most_splits(s: &Shape) -> usize {
    512usize.div_ceil(s.dim("KV_HEADS")).min(s.dim("CAPACITY").div_ceil(8))
}

pub(crate) fn split_grid(s: &Shape, c: &Constants) -> usize {
    s.dim("KV_HEADS") * (c["SPLITS"] as usize).clamp(1, most_splits(s))
}

pub(crate) fn combine_grid(s: &Shape, c: &Constants) -> usize {
    heads(s) * s.dim("HEAD_DIM").div_ceil(4 * c["COMBINE_FOURS"] as usize)
}

/// Splits that make up to `workgroups` of all KV heads: one more than there are processors would
/// keep all others waiting.
fn splits_for(s: &Shape, workgroups: usize) -> f64 {
    number((workgroups / s.dim("KV_HEADS")).clamp(1, most_splits(s)))
}

/// Geometry of the split variants with subgroups; `each` bytes of workgroup memory an invocation
/// and `fixed` ones come on top.
pub(crate) fn split_constants(
    s: &Shape,
    caps: &Capabilities,
    each: usize,
    fixed: usize,
) -> Vec<(&'static str, f64)> {
    let (smallest, largest) = caps.subgroup.unwrap_or((32, 32));
    let (smallest, largest) = (smallest.max(4) as usize, largest.max(4) as usize);
    // Rows of less than a chunk are refused, by what is made here too.
    let chunks = (row_bytes(s) / 16).max(1);
    let lanes = chunks.next_power_of_two().min(smallest);
    let held = chunks.div_ceil(lanes);
    // The upper half of the subgroups leaves its sums in workgroup memory, with room for tops.
    let sums = s.dim("GROUP") * (4 * s.dim("HEAD_DIM") + 16);
    let room = (caps.workgroup_memory as usize).saturating_sub(64 + fixed);
    // Measured: a workgroup a processor of a large GPU where slots are few; with more of them four,
    // of which some wait for memory while others compute. But all that one KV head has leave partial
    // results to the second stage, and two for each processor are what pays.
    let splits = match (s.dim("CAPACITY"), s.dim("KV_HEADS")) {
        (..=2048, _) | (..=16384, ..4) => splits_for(s, 132),
        (_, ..4) => splits_for(s, 264),
        _ => splits_for(s, 512),
    };
    let mut wg = (caps.invocations as usize).min(128).max(largest);
    while wg > largest && (wg / smallest / 2).max(1) * sums + wg * each > room {
        wg /= 2;
    }
    // Measured: as many scores a round as lanes to own them where a row takes a subgroup of 32 and
    // slots are many, else eight. Registers grow with what a lane holds.
    let vectors = held_vectors(s, lanes);
    let most = if smallest < 16 { 16 } else { 64 };
    let scores = if lanes >= 32 && s.dim("CAPACITY") > 2048 { lanes } else { 8 };
    let in_flight = (8 / held).min(most / vectors.max(1)).min(scores / s.dim("GROUP").min(8));
    let in_flight = power_up_to(in_flight);
    vec![
        ("WG", number(wg)),
        ("LANES", number(lanes)),
        ("IN_FLIGHT", number(in_flight)),
        ("SPLITS", splits),
        ("SG_MIN", number(smallest)),
        ("SG_MAX", number(largest)),
    ]
}

/// With what the second stage takes: many splits are shared by more invocations of it.
pub(crate) fn two_stages(mut constants: Vec<(&'static str, f64)>) -> Vec<(&'static str, f64)> {
    let many = constants.iter().any(|c| c.0 == "SPLITS" && c.1 > 128.0);
    constants.push(("COMBINE_FOURS", if many { 4.0 } else { 8.0 }));
    constants
}

/// Fours of the queries that a lane holds: whole chunks of its rows, for every head of the group.
fn held_vectors(s: &Shape, lanes: usize) -> usize {
    let fours = if s.dim("KV") == 1 { 2 } else { 1 };
    s.dim("GROUP") * (row_bytes(s) / 16).max(1).div_ceil(lanes) * fours
}

pub(crate) fn split_refuses(s: &Shape, caps: &Capabilities) -> Option<String> {
    let lanes =
        split_constants(s, caps, 0, 0).iter().find(|(n, _)| *n == "LANES").map_or(1.0, |c| c.1);
    let held = held_vectors(s, lanes as usize);
    ragged(s).or_else(|| too_many_heads(s)).or_else(|| {
        (held > 32).then(|| format!("a lane would hold {held} vectors of the query, 32 at most"))
    })
}

pub(crate) fn too_many_heads(s: &Shape) -> Option<String> {
    (s.dim("GROUP") > 8).then(|| format!("GROUP={} exceeds 8", s.dim("GROUP")))
}

/// Geometry of split_workgroup.wgsl beside `each` bytes of workgroup memory an invocation and `fixed` ones.
pub(crate) fn workgroup_constants(
    s: &Shape,
    caps: &Capabilities,
    each: usize,
    fixed: usize,
) -> Vec<(&'static str, f64)> {
    let lanes = (row_bytes(s) / 16).next_power_of_two().min(8);
    let group = s.dim("GROUP");
    let bytes = |wg: usize, in_flight: usize| {
        let scores = wg / lanes * in_flight * group;
        fixed
            + 4 * (group * s.dim("HEAD_DIM") + scores + wg * (in_flight * group + 8))
            + (8 + each) * wg
    };
    let least = (row_bytes(s) / 16).next_power_of_two().max(32);
    let (mut wg, mut in_flight) = (least.max(128), 2);
    let most = caps.workgroup_memory.min(16 << 10) as usize;
    while in_flight > 1 && bytes(wg, in_flight) > most {
        in_flight /= 2;
    }
    while wg > least && bytes(wg, in_flight) > most {
        wg /= 2;
    }
    vec![
        ("WG", number(wg)),
        ("LANES", number(lanes)),
        ("IN_FLIGHT", number(in_flight)),
        ("SPLITS", splits_for(s, 264)),
    ]
}

/// Bytes of workgroup memory of attention_tiled.wgsl.
pub(crate) fn tiled_bytes(s: &Shape, rows: usize, wg: usize, tile: usize, lanes: usize) -> usize {
    let row = row_bytes(s);
    rows * s.dim("HEAD_DIM") * 4
        + tile * (2 * row + 16)
        + 4 * tile * rows * (lanes + 1)
        + wg * (8 + 16 * (1 + s.dim("KV")))
}

/// Geometry of attention_tiled.wgsl for `rows` rows a workgroup in `room` bytes.
pub(crate) fn tiled_constants(
    s: &Shape,
    rows: usize,
    least_wg: usize,
    tiles: usize,
    room: usize,
) -> Vec<(&'static str, f64)> {
    let chunks = row_bytes(s).div_ceil(16);
    let wg = (rows * chunks).next_power_of_two().max(least_wg);
    let lanes = |tile: usize| {
        power_up_to(wg / (tile * rows).max(1)).clamp(1, 8).min(chunks.next_power_of_two())
    };
    let mut tile = tiles;
    while tile > 1 && tiled_bytes(s, rows, wg, tile, lanes(tile)) > room {
        tile /= 2;
    }
    vec![
        ("WG", number(wg)),
        ("ROWS", number(rows)),
        ("TILE", number(tile)),
        ("LANES", number(lanes(tile))),
    ]
}

const LARGE_TILES: u32 = 32 << 10;

pub(crate) const SPLIT_STAGES: &[Stage] =
    &[Stage { entry: "attend", grid: split_grid }, Stage { entry: "combine", grid: combine_grid }];

/// Splits worth trying; what exceeds [`most_splits`], 64 of 8 KV heads, is that many.
pub(crate) const SPLITS: &[f64] = &[16.0, 33.0, 66.0, 132.0, 264.0];

pub(crate) static KERNEL: Kernel = Kernel {
    name: "attention_decode",
    summary: "attention of one token over a full or ring KV cache, grouped queries, f32 or f16",
    params: &[
        GROUP,
        kv_heads(4),
        HEAD_DIM,
        Param::dim(
            "CAPACITY",
            "slots of the cache; min(SEEN, CAPACITY) of them are attended",
            256,
            700,
        ),
        KV,
        ACTS_OUT,
        SCALE,
        seen(256, 900),
    ],
    bindings: &[
        STATE,
        Binding::input("q", Elem::F32, |s| heads(s) * s.dim("HEAD_DIM")),
        Binding::input("k_cache", Elem::Kv, cache_len),
        Binding::input("v_cache", Elem::Kv, cache_len),
        Binding::scratch("scores", Elem::F32, |s| heads(s) * s.dim("CAPACITY")),
        Binding::scratch("tops", Elem::F32, |s| 2 * heads(s) * most_splits(s)),
        Binding::scratch("partials", Elem::F32, |s| heads(s) * most_splits(s) * s.dim("HEAD_DIM")),
        Binding::counter("counters", |s| s.dim("KV_HEADS")),
        Binding::output("y", Elem::Act, |s| heads(s) * s.dim("HEAD_DIM")),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[
                Stage {
                    entry: "score",
                    grid: |s, c| (heads(s) * s.dim("CAPACITY")).div_ceil(c["WG"] as usize),
                },
                Stage {
                    entry: "mix",
                    grid: |s, c| (heads(s) * s.dim("HEAD_DIM")).div_ceil(2 * c["WG"] as usize),
                },
            ],
            tunables: WORKGROUPS,
            ..PLAIN
        },
        Variant {
            name: "streaming",
            stages: &[Stage { entry: "main", grid: |s, _| heads(s) }],
            tunables: &[("WG", &[64.0, 128.0, 256.0])],
            refuses: |s, _| {
                let d = s.dim("HEAD_DIM");
                (!d.is_multiple_of(4) || d > 1024)
                    .then(|| format!("HEAD_DIM={d} is no multiple of 4 up to 1024"))
            },
            ..PLAIN
        },
        Variant {
            name: "tiled_small",
            stages: &[Stage { entry: "main", grid: |s, _| heads(s) }],
            constants: |s, _| tiled_constants(s, 1, 64, 32, 12 << 10),
            tunables: &[("TILE", &[4.0, 8.0, 16.0, 32.0])],
            refuses: |s, _| ragged(s),
            ..PLAIN
        },
        Variant {
            name: "tiled_large",
            stages: &[Stage { entry: "main", grid: |s, _| s.dim("KV_HEADS") }],
            constants: |s, caps| {
                let room = (caps.workgroup_memory as usize).min(48 << 10);
                tiled_constants(s, s.dim("GROUP"), 256, 128, room)
            },
            tunables: &[("TILE", &[16.0, 32.0, 64.0])],
            refuses: |s, caps| {
                ragged(s).or_else(|| {
                    let has = caps.workgroup_memory;
                    (has < LARGE_TILES).then(|| {
                        format!(
                            "needs {LARGE_TILES} bytes of workgroup memory, the adapter has {has}"
                        )
                    })
                })
            },
            ..PLAIN
        },
        Variant {
            name: "online",
            stages: &[Stage { entry: "main", grid: |s, _| heads(s) }],
            tunables: &[("WG", &[64.0, 128.0, 256.0])],
            refuses: |s, _| {
                let d = s.dim("HEAD_DIM");
                (!d.is_multiple_of(4) || d > 1024)
                    .then(|| format!("HEAD_DIM={d} is no multiple of 4 up to 1024"))
            },
            ..PLAIN
        },
        Variant {
            name: "online_subgroup",
            stages: &[Stage { entry: "main", grid: |s, _| heads(s) }],
            constants: |s, caps| {
                let size = caps.subgroup.map_or(32, |(min, _)| min.max(4));
                // As many subgroups as workgroup memory holds accumulators for.
                let slot = 4 * s.dim("HEAD_DIM") as u32 + 8;
                let most = (caps.workgroup_memory / slot).min(caps.invocations / size).max(1);
                let subgroups = 1u32 << most.min(32).ilog2();
                vec![
                    ("WG", f64::from(subgroups * size)),
                    ("SG_MIN", f64::from(size)),
                    ("SUBGROUPS", f64::from(subgroups)),
                ]
            },
            tunables: &[],
            refuses: |s, _| {
                let d = s.dim("HEAD_DIM");
                (!d.is_multiple_of(4) || d > 256)
                    .then(|| format!("HEAD_DIM={d} is no multiple of 4 up to 256"))
            },
            ..PLAIN
        },
        Variant {
            name: "split_kv_workgroup",
            stages: SPLIT_STAGES,
            constants: |s, caps| workgroup_constants(s, caps, 0, 0),
            tunables: &[("SPLITS", SPLITS), ("IN_FLIGHT", &[1.0, 2.0, 4.0])],
            refuses: |s, _| ragged(s).or_else(|| too_many_heads(s)),
            ..PLAIN
        },
        Variant {
            name: "split_kv",
            stages: SPLIT_STAGES,
            constants: |s, caps| two_stages(split_constants(s, caps, 0, 0)),
            tunables: &[
                ("SPLITS", SPLITS),
                ("WG", &[128.0, 256.0, 512.0]),
                ("IN_FLIGHT", &[2.0, 4.0, 8.0]),
            ],
            refuses: split_refuses,
            ..PLAIN
        },
        Variant {
            name: "split_kv_last",
            stages: &[Stage { entry: "attend", grid: split_grid }],
            constants: |s, caps| {
                // One workgroup reads the results of all splits of a KV head.
                let most = ((128 << 10) / (s.dim("GROUP") * 4 * s.dim("HEAD_DIM"))).max(8);
                let mut constants = split_constants(s, caps, 24, 0);
                for (_, splits) in constants.iter_mut().filter(|c| c.0 == "SPLITS") {
                    *splits = splits.min(number(most));
                }
                constants
            },
            tunables: &[
                ("SPLITS", SPLITS),
                ("WG", &[128.0, 256.0, 512.0]),
                ("IN_FLIGHT", &[2.0, 4.0, 8.0]),
            ],
            refuses: split_refuses,
            ..PLAIN
        },
    ],
    prefer: |s| {
        // Below, the second dispatch costs more than the one workgroup a head that it saves.
        if s.dim("CAPACITY") <= 128 {
            &["online_subgroup", "split_kv", "online", "streaming", "naive"]
        } else {
            &["split_kv", "online_subgroup", "split_kv_workgroup", "online", "streaming", "naive"]
        }
    },
    cost: |s| {
        let slots = s.float("SEEN").min(s.float("CAPACITY"));
        let cache = 2.0 * slots * s.float("KV_HEADS") * row_bytes(s) as f64;
        let query = s.float("KV_HEADS") * s.float("GROUP") * s.float("HEAD_DIM");
        Cost { bytes: cache + (4.0 + act_bytes(s)) * query, flops: 4.0 * slots * query }
    },
    tolerance: |s| Tolerance {
        k: 16.0 + s.float("HEAD_DIM").sqrt() + s.float("SEEN").sqrt(),
        rounding: 0.0,
        nmse: 1e-9,
        reason: "score errors act through exp on every weight (in the reference's magnitude); sums \
                 over head_dim and slots behave as random walks",
    },
    cases: || {
        // Every variant compiles anew for every shape: few shapes, each for several reasons.
        let f16 = |s: Shape| s.with("ACTS", 1.0);
        vec![
            shape(4, 1, 256, 512, 1, 700),       // Gemma, local layer, ring wrapped
            f16(shape(4, 1, 256, 1024, 0, 300)), // Gemma, global layer
            f16(shape(4, 8, 64, 300, 1, 257)),   // Llama
            shape(2, 8, 128, 130, 0, 129),       // Qwen
            shape(2, 8, 128, 130, 1, 130),
            shape(1, 1, 32, 1, 1, 1),
            shape(2, 1, 32, 16, 0, 17),
            shape(8, 1, 64, 40, 1, 40),
            shape(3, 2, 80, 100, 1, 70), // teams with idle lanes
            // Several rounds of every team, the last one ragged.
            shape(1, 1, 64, 9000, 1, 8771),
        ]
    },
    bench: || {
        let mut shapes = Vec::new();
        for context in [512, 8192, 32_768] {
            for (group, kv_heads, head_dim) in [(4, 1, 256), (4, 8, 64), (2, 8, 128)] {
                shapes.push(shape(group, kv_heads, head_dim, context, 1, context));
            }
        }
        shapes
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    /// What split_subgroup.wgsl holds in arrays of fixed length, by its own count.
    #[test]
    fn what_lanes_hold_fits_or_is_refused() {
        for size in [4, 8, 16, 32, 64] {
            let caps = Capabilities {
                subgroup: Some((size, size)),
                workgroup_memory: 32 << 10,
                ..Capabilities::minimal()
            };
            let groups = [1, 2, 3, 4, 5, 6, 7, 8];
            let kinds = [(0, 1024), (1, 1024), (0, 4096), (1, 4096)];
            for (group, (kv, slots)) in groups.into_iter().flat_map(|g| kinds.map(|k| (g, k))) {
                for head_dim in (8..=256).step_by(8) {
                    let s = shape(group, 1, head_dim, slots, kv, 9);
                    if split_refuses(&s, &caps).is_some() {
                        continue;
                    }
                    let constants = split_constants(&s, &caps, 0, 0);
                    let of = |name| {
                        let found = constants.iter().find(|(n, _)| *n == name);
                        found.map_or(0, |(_, value)| *value as usize)
                    };
                    let chunk_fours = 1 + kv as usize;
                    let row_chunks = head_dim as usize / (4 * chunk_fours);
                    let held = row_chunks.div_ceil(of("LANES"));
                    let text = format!("{s} on subgroups of {size}");
                    assert!(group as usize * held * chunk_fours <= 32, "MOST_HELD: {text}");
                    assert!(of("IN_FLIGHT") * group as usize <= 64, "MOST_SCORES: {text}");
                    assert!(of("IN_FLIGHT") * held <= 32, "MOST_LOADS: {text}");
                }
            }
        }
    }
}
