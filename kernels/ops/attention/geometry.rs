//! Geometry of the attention variants: splits of the cache, lanes of a row, tiles.

use super::{Cache, Heads};
use crate::declare::*;

/// Tunables of the split variants with subgroups. [`Cache::most_splits`] caps the splits, at 64 for
/// 8 KV heads.
pub const SPLIT_TUNABLES: &str = "SPLITS=16|33|66|132|264,WG=128|256|512,IN_FLIGHT=2|4|8";

/// Tunables of the split variants without subgroups.
pub const SPLIT_WORKGROUP_TUNABLES: &str = "SPLITS=16|33|66|132|264,IN_FLIGHT=1|2|4";

/// The largest power of two up to `n`, at least 1.
pub fn power_up_to(n: usize) -> usize {
    1 << n.max(1).ilog2()
}

/// Refuses caches that cannot be read in whole chunks.
pub fn ragged<P: Cache>(p: &P) -> Option<String> {
    let (d, values) = (p.head_dim(), p.kv_format().chunk_values());
    (!d.is_multiple_of(values)).then(|| {
        let format = p.kv_format().name();
        format!("HEAD_DIM={d} is no multiple of {values}, and KV_FORMAT is {format}")
    })
}

/// Refuses shapes with too many heads for the split variants, which hold a score of every head.
pub fn too_many_heads<P: Heads>(p: &P) -> Option<String> {
    exceeds("Q_PER_KV", p.q_per_kv(), 8)
}

/// Workgroups of the stage that attends: a split of a KV head each, or of some of its heads.
pub fn split_grid<P: Cache>(p: &P, c: &Constants) -> usize {
    let parts = c.get("HEADS").map_or(1, |heads| p.q_per_kv() / *heads as usize);
    p.kv_heads() * parts * (c["SPLITS"] as usize).clamp(1, p.most_splits())
}

/// Workgroups of the stage that combines the splits.
fn combine_grid<P: Heads>(p: &P, c: &Constants) -> usize {
    (p.q_elements() / 4).div_ceil(c["COMBINE_FOURS"] as usize)
}

/// Stages of the split variants that leave the splits' results to a second dispatch.
pub const fn split_stages<P: Cache>() -> [Stage<P>; 2] {
    [Stage { entry: "attend", grid: &split_grid }, Stage { entry: "combine", grid: &combine_grid }]
}

/// Splits that make up to `workgroups` of all KV heads: one more than there are processors would
/// keep all others waiting.
fn splits_for<P: Cache>(p: &P, workgroups: usize) -> usize {
    (workgroups / p.kv_heads()).clamp(1, p.most_splits())
}

/// Number of splits that get at least one slot, if each takes `slots` at a time.
fn splits_with_slots<P: Cache>(p: &P, splits: usize, slots: usize) -> usize {
    splits.min(p.kv_size().div_ceil(slots))
}

/// Geometry of the split variants with subgroups; `each` bytes of workgroup memory an invocation
/// and `fixed` ones come on top.
pub fn split_constants<P: Cache>(
    p: &P,
    caps: &Capabilities,
    each: usize,
    fixed: usize,
) -> Overrides {
    let (smallest, largest) = caps.subgroup.unwrap_or((32, 32));
    let (smallest, largest) = (smallest.max(4) as usize, largest.max(4) as usize);
    let chunks = p.value_chunks();
    // Measured: where slots are many, sixteen quants a lane, which it loads at once with their
    // scale.
    let pairs = p.kv_format() == KvFormat::Q8_0 && p.kv_size() > 2048 && chunks.is_multiple_of(2);
    let lanes = (if pairs { chunks / 2 } else { chunks }).next_power_of_two().min(smallest);
    let room = (caps.workgroup_memory as usize).saturating_sub(64 + fixed);
    // Measured: a workgroup a processor of a large GPU where slots are few; with more of them four,
    // of which some wait for memory while others compute. But all that one KV head has leave
    // partial results to the second stage, and two for each processor are what pays.
    let splits = match (p.kv_size(), p.kv_heads()) {
        (..=2048, _) | (..=16384, ..4) => splits_for(p, 132),
        (_, ..4) => splits_for(p, 264),
        _ => splits_for(p, 512),
    };
    let mut wg = (caps.invocations as usize).min(128).max(largest);
    while wg > largest && a_head_of_sums(p, wg / smallest) + wg * each > room {
        wg /= 2;
    }
    let in_flight = rows_in_flight(p, lanes, smallest, p.q_per_kv(), FEW_SCORES);
    vec![
        ("WG", wg as f64),
        ("LANES", lanes as f64),
        ("IN_FLIGHT", in_flight as f64),
        ("SPLITS", splits_with_slots(p, splits, wg / lanes) as f64),
        // Beside what the largest workgroup to try takes.
        ("SUM_ROOM", room.saturating_sub(each * wg.max(512)) as f64),
        ("SG_MIN", smallest as f64),
        ("SG_MAX", largest as f64),
    ]
}

/// Bytes in which subgroups leave their sums of a head and the largest scores.
fn a_head_of_sums<P: Heads>(p: &P, subgroups: usize) -> usize {
    subgroups.max(1) * (4 * p.head_dim() + 8)
}

/// Scores a round of a thread group.
const FEW_SCORES: usize = 8;

/// Scores a round where a stage has many rows of the cache: one workgroup per processor has fewer
/// loads in flight than several.
const MANY_SCORES: usize = 32;

/// Rows that a lane has in flight in a workgroup of `heads` heads, for up to `scores` scores a
/// round.
fn rows_in_flight<P: Cache>(
    p: &P,
    lanes: usize,
    smallest: usize,
    heads: usize,
    scores: usize,
) -> usize {
    let held = p.value_chunks().div_ceil(lanes);
    // Measured: as many scores a round as lanes to own them where a row takes a subgroup of 32 and
    // slots are many. Registers grow with what a lane holds.
    let vectors = heads * held * p.chunk_fours();
    let most = if smallest < 16 { 16 } else { 64 };
    let scores = if lanes >= 32 && p.kv_size() > 2048 { lanes.max(scores) } else { scores };
    power_up_to((8 / held).min(most / vectors.max(1)).min(scores / heads.min(8)))
}

/// Splits that every workgroup of the next stage may combine: up to a number of splits and of
/// bytes. More were measured to cost more than a second stage
/// (docs/findings/persistent-attention-geometry.md).
fn fused_splits<P: Heads>(p: &P) -> usize {
    const MOST: usize = 4;
    const MOST_BYTES: usize = 32 << 10;
    (MOST_BYTES / (4 * p.q_elements())).min(MOST)
}

/// Whole rows of a lane up to which a workgroup takes fewer heads.
const FEW_ROWS: usize = 6;

/// Division of the KV heads of a stage among workgroups.
struct Share {
    /// Query heads that a workgroup takes.
    heads: usize,
    splits: usize,
    /// Rows of the cache that a lane gets, at least.
    rows: usize,
}

/// Geometry of the split variants as a stage. Every workgroup has a split or some heads of one; the
/// second stage is as wide as the first. `inlines` if the next stage may take the second stage's
/// place. None if the sums of the subgroups do not fit.
pub fn split_stage<P: Cache>(
    p: &P,
    caps: &Capabilities,
    grid: Grid,
    fixed: usize,
    inlines: bool,
) -> Option<Overrides> {
    let (wg, groups) = (grid.invocations as usize, grid.groups as usize);
    let smallest = caps.subgroup?.0.max(4) as usize;
    let mut constants = stage_constants(p, caps, grid, fixed)?;
    let lanes = constants.iter().find(|c| c.0 == "LANES").map_or(1, |c| c.1 as usize);
    let teams = wg / lanes;
    // Measured: of keys and values so short, more splits are more to combine and nothing sooner
    // (docs/findings/persistent-attention-geometry.md).
    const WORTH_A_SPLIT: usize = 10 << 10;
    let worth = (2 * p.kv_size() * p.vector_bytes() / WORTH_A_SPLIT).max(1);
    let of =
        |heads: usize, splits: usize| Share { heads, splits, rows: p.kv_size() / (splits * teams) };
    // Measured: few slots want many workgroups with little to do each, a head and a row or two a
    // lane, rather than more splits (docs/findings/persistent-attention-geometry.md).
    let parts = |heads: usize| p.q_per_kv() / heads;
    let whole = |heads: &usize| {
        p.q_per_kv().is_multiple_of(*heads) && p.kv_heads() * parts(*heads) <= groups
    };
    let share = |heads: usize| of(heads, splits_for(p, groups / parts(heads)).min(worth));
    let apart = (1..p.q_per_kv()).filter(whole).map(share).find(|share| share.rows <= FEW_ROWS);
    let mut share = apart.unwrap_or_else(|| share(p.q_per_kv()));
    // Measured: half of the splits pays where there is no second stage then, and only there.
    let few = fused_splits(p);
    if inlines && few > 0 && few < share.splits && share.splits <= 2 * few {
        let fewer = of(share.heads, few);
        if fewer.rows <= FEW_ROWS {
            share = fewer;
        }
    }
    // Measured: four rounds or more, each with as much under way as that leaves
    // (docs/findings/persistent-attention-geometry.md).
    let most = |scores: usize| rows_in_flight(p, lanes, smallest, share.heads, scores);
    let few = most(FEW_SCORES).min(power_up_to(share.rows));
    let in_flight = few.max(most(MANY_SCORES).min(power_up_to(share.rows / 4)));
    // All workgroups share the sums of the second stage, in whole subgroups of fours.
    let fours = (p.q_elements() / 4).div_ceil(groups).next_power_of_two();
    let fours = fours.max(8).min(wg);
    constants.extend([
        ("SPLITS", share.splits as f64),
        ("IN_FLIGHT", in_flight as f64),
        ("HEADS", share.heads as f64),
        ("COMBINE", wg as f64),
        ("COMBINE_FOURS", fours as f64),
    ]);
    Some(constants)
}

/// Constants that stages of split attention have in common, with all heads of a KV head in a
/// workgroup.
pub fn stage_constants<P: Cache>(
    p: &P,
    caps: &Capabilities,
    grid: Grid,
    fixed: usize,
) -> Option<Overrides> {
    let (wg, smallest) = (grid.invocations as usize, caps.subgroup?.0.max(4) as usize);
    let all = caps.workgroup_memory as usize;
    let room = all.checked_sub(24 * wg + fixed + 64)?;
    let head = a_head_of_sums(p, wg / smallest);
    if head > room || !wg.is_power_of_two() {
        return None;
    }
    // The other stages of the run share the rest.
    let room = room.min(all / 2).max(head);
    let mut constants = split_constants(p, caps, 0, fixed);
    constants.extend([("WG", wg as f64), ("SUM_ROOM", room as f64)]);
    Some(constants)
}

/// The output of split attention, made by the stage that reads it: each of its workgroups combines
/// the splits of all heads.
pub const fn fused_split_combine<P: Cache>() -> FusedProducer<P> {
    FusedProducer {
        output: "y",
        function: "combined_chunk",
        pays: &|p, c| {
            let splits = (c["SPLITS"] as usize).min(p.most_splits());
            splits <= fused_splits(p)
        },
    }
}

/// Geometry of the split variants for a workgroup that has all slots of a KV head.
pub fn without_splits(mut constants: Overrides) -> Overrides {
    constants.retain(|(name, _)| !matches!(*name, "SPLITS" | "COMBINE" | "COMBINE_FOURS"));
    constants
}

/// Adds the second stage's constants: many splits are shared by more of its invocations.
pub fn two_stages(mut constants: Overrides) -> Overrides {
    let many = constants.iter().any(|c| c.0 == "SPLITS" && c.1 > 128.0);
    constants.push(("COMBINE_FOURS", if many { 4.0 } else { 8.0 }));
    constants
}

/// Fours of the queries that a lane holds: whole chunks of its rows, for every head of the group.
fn held_vectors<P: Cache>(p: &P, lanes: usize) -> usize {
    p.q_per_kv() * p.value_chunks().div_ceil(lanes) * p.chunk_fours()
}

/// Refuses shapes that the split variants with subgroups do not run.
pub fn split_unsupported<P: Cache>(p: &P, caps: &Capabilities) -> Option<String> {
    let lanes =
        split_constants(p, caps, 0, 0).iter().find(|(n, _)| *n == "LANES").map_or(1.0, |c| c.1);
    let held = held_vectors(p, lanes as usize);
    ragged(p).or_else(|| too_many_heads(p)).or_else(|| {
        (held > 32).then(|| {
            let (q_per_kv, d) = (p.q_per_kv(), p.head_dim());
            format!("Q_PER_KV={q_per_kv} of HEAD_DIM={d} take {held} vec4 a lane, 32 at most")
        })
    })
}

/// Geometry of split_workgroup.wgsl with another `each` bytes of workgroup memory per invocation
/// and `fixed` bytes in all.
pub fn workgroup_constants<P: Cache>(
    p: &P,
    caps: &Capabilities,
    each: usize,
    fixed: usize,
) -> Overrides {
    let lanes = p.value_chunks().next_power_of_two().min(8);
    let group = p.q_per_kv();
    let bytes = |wg: usize, in_flight: usize| {
        let scores = wg / lanes * in_flight * group;
        fixed + 4 * (group * p.head_dim() + scores + wg * (in_flight * group + 8)) + (8 + each) * wg
    };
    let least = p.value_chunks().next_power_of_two().max(32);
    let (mut wg, mut in_flight) = (least.max(128), 2);
    let most = caps.workgroup_memory.min(16 << 10) as usize;
    while in_flight > 1 && bytes(wg, in_flight) > most {
        in_flight /= 2;
    }
    while wg > least && bytes(wg, in_flight) > most {
        wg /= 2;
    }
    vec![
        ("WG", wg as f64),
        ("LANES", lanes as f64),
        ("IN_FLIGHT", in_flight as f64),
        ("SPLITS", splits_with_slots(p, splits_for(p, 264), wg / lanes * in_flight) as f64),
    ]
}

/// Bytes of workgroup memory of parts/tiled.wgsl.
pub fn tiled_bytes<P: Cache>(p: &P, rows: usize, wg: usize, tile: usize, lanes: usize) -> usize {
    rows * p.head_dim() * 4
        + tile * (32 * p.value_chunks() + 16)
        + 4 * tile * rows * (lanes + 1)
        + wg * (8 + 16 * p.chunk_fours())
}

/// Geometry of parts/tiled.wgsl for `rows` rows a workgroup in `room` bytes.
pub fn tiled_constants<P: Cache>(
    p: &P,
    rows: usize,
    least_wg: usize,
    tiles: usize,
    room: usize,
) -> Overrides {
    let chunks = p.value_chunks();
    let wg = (rows * chunks).next_power_of_two().max(least_wg);
    let lanes = |tile: usize| {
        power_up_to(wg / (tile * rows).max(1)).clamp(1, 8).min(chunks.next_power_of_two())
    };
    let mut tile = tiles;
    while tile > 1 && tiled_bytes(p, rows, wg, tile, lanes(tile)) > room {
        tile /= 2;
    }
    vec![
        ("WG", wg as f64),
        ("ROWS", rows as f64),
        ("TILE", tile as f64),
        ("LANES", lanes(tile) as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv_append::KvAppend;

    /// Arrays of fixed length in split_subgroup.wgsl, by its own count.
    #[test]
    fn what_lanes_hold_fits_or_is_refused() {
        for size in [4, 8, 16, 32, 64] {
            let caps = Capabilities {
                subgroup: Some((size, size)),
                workgroup_memory: 32 << 10,
                ..Capabilities::minimal()
            };
            let kinds = [1024, 4096].map(|n| KvFormat::ALL.iter().map(move |f| (*f, n)));
            let kinds: Vec<_> = kinds.into_iter().flatten().collect();
            for (q_per_kv, (kv_format, kv_size)) in
                (1..=8).flat_map(|g| kinds.iter().map(move |k| (g, *k)))
            {
                for head_dim in (8..=256).step_by(8) {
                    let p = KvAppend { q_per_kv, kv_heads: 1, head_dim, kv_size, kv_format };
                    if split_unsupported(&p, &caps).is_some() {
                        continue;
                    }
                    let constants = split_constants(&p, &caps, 0, 0);
                    let of = |name| {
                        let found = constants.iter().find(|(n, _)| *n == name);
                        found.map_or(0, |(_, value)| *value as usize)
                    };
                    let chunk_fours = kv_format.chunk_values() / 4;
                    let held = (head_dim / (4 * chunk_fours)).div_ceil(of("LANES"));
                    let text = format!("{p:?} on subgroups of {size}");
                    assert!(q_per_kv * held * chunk_fours <= 32, "MOST_FOURS: {text}");
                    assert!(of("IN_FLIGHT") * q_per_kv <= 64, "MOST_SCORES: {text}");
                    assert!(of("IN_FLIGHT") * held <= 32, "MOST_LOADS: {text}");
                    // The first slot of the last split is one of the cache.
                    let slots = of("WG") / of("LANES");
                    assert!((of("SPLITS") - 1) * slots < kv_size, "SPLITS: {text}");
                }
            }
        }
    }
}
