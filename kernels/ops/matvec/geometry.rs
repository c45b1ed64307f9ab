//! Geometry of kernels that read rows of a matrix: the lanes of a row, and the elements of each.

use crate::declare::*;
use crate::matvec::MatVec;

/// Invocations over all rows that fill a large GPU (132 processors of 2048, at half occupancy).
const FULL: usize = 110_000;

/// Loads a lane may have in flight: the upper end of `UNROLL` in `schedule/share.wgsl`.
const IN_FLIGHT: usize = 9;

/// Refuses shapes that a variant for dense rows does not run.
pub fn dense_only<P: MatVec>(p: &P, _: &Capabilities) -> Option<String> {
    let weight = p.weight();
    (!weight.is_dense()).then(|| format!("WEIGHT={} is quantised", weight.name()))
}

/// Refuses shapes that a variant for blocks does not run.
pub fn quantised_only<P: MatVec>(p: &P, _: &Capabilities) -> Option<String> {
    let weight = p.weight();
    weight.is_dense().then(|| format!("WEIGHT={} is dense", weight.name()))
}

/// Refuses shapes that a variant does not run that reads eight elements of x at a time: a later
/// vector would begin between such eight.
pub fn ragged_vectors(vectors: usize, k: usize) -> Option<String> {
    (vectors > 1 && !k.is_multiple_of(8))
        .then(|| format!("K={k} is no multiple of 8, and N_VECTORS exceeds 1"))
}

/// Rows a subgroup variant gives a workgroup of 256: `each` to every subgroup.
pub fn rows_per_group(caps: &Capabilities, each: f64) -> Overrides {
    let size = caps.subgroup.map_or(32, |(_, max)| max.max(4));
    let subgroups = f64::from((256 / size).max(1));
    vec![("ROWS_PER_WG", each * subgroups), ("SG", f64::from(caps.fixed_subgroup()))]
}

/// Workgroups of a variant with `ROWS_PER_WG`.
pub fn rows_grid<P: MatVec>(p: &P, c: &Constants) -> usize {
    p.rows().div_ceil(c["ROWS_PER_WG"] as usize)
}

/// Lanes that share a row of `chunks`: as few as still fill a large GPU, so that each has several
/// loads in flight; every lane with as many, where the row divides that way.
fn lanes(rows: usize, chunks: usize, run: usize, most: usize) -> usize {
    let fits = |n: &usize| {
        let lanes = chunks / n;
        chunks.is_multiple_of(*n) && lanes <= most && (lanes.is_multiple_of(16) || *n == 1)
    };
    let fills = |n: &usize| rows.div_ceil(run) * chunks / n >= FULL;
    let even: Vec<usize> = (1..=IN_FLIGHT / run).filter(fits).collect();
    let best = even.iter().rev().find(|n| fills(n)).or(even.first());
    match best {
        Some(n) if chunks / n >= 16 => chunks / n,
        // The power of two that leaves the fewest idle in the last round, at most nine rounds.
        _ => (chunks.div_ceil(IN_FLIGHT / run)).next_power_of_two().clamp(16, most.max(16)),
    }
}

/// Lanes of the portable variants: no more than chunks, and more of them where rows are few.
pub fn workgroup_lanes<P: MatVec>(p: &P, caps: &Capabilities) -> Overrides {
    let most = if p.rows() < 4096 { 64 } else { 32 };
    let lanes = p.chunks16().next_power_of_two().clamp(8, most);
    vec![("LANES", lanes as f64), ("WG", f64::from(caps.invocations.min(256)))]
}

/// Workgroups in which LANES lanes have a row.
pub fn lanes_grid<P: MatVec>(p: &P, c: &Constants) -> usize {
    p.rows().div_ceil(((c["WG"] / c["LANES"]) as usize).max(1))
}

/// A team's lanes and the teams of a workgroup (`schedule/team.wgsl`), of `TILE_ROWS` rows at a time.
pub fn team<P: MatVec>(p: &P, caps: &Capabilities, chunks: usize, run: usize) -> Overrides {
    let most = (caps.invocations as usize).min(512);
    let lanes = lanes(p.rows(), chunks, run, most);
    // Several thread groups fill whole subgroups, of any size an adapter may have.
    let size = caps.subgroup.map_or(64, |(_, max)| max.max(4)) as usize;
    let whole = (1..=size).find(|teams| (lanes * teams).is_multiple_of(size)).unwrap_or(1);
    let wanted = (192 / (lanes * whole)).max(1) * whole;
    let teams = if lanes * wanted <= most && lanes < 128 { wanted } else { 1 };
    let sg = f64::from(caps.fixed_subgroup());
    vec![("LANES", lanes as f64), ("TEAMS", teams as f64), ("SG", sg)]
}

/// A thread group that gives every lane `each` loads of a row, up to 512 lanes, and two such a
/// workgroup where they fit: measured faster than longer shares
/// (docs/findings/gemv-wants-one-load-a-lane.md).
pub fn shared_team(caps: &Capabilities, chunks: usize, each: usize) -> Overrides {
    let most = (caps.invocations as usize).min(512);
    let lanes = chunks.div_ceil(each).next_multiple_of(16).min(most);
    // Several thread groups fill whole subgroups, of any size an adapter may have.
    let size = caps.subgroup.map_or(64, |(_, max)| max.max(4)) as usize;
    let teams = if 2 * lanes <= most && (2 * lanes).is_multiple_of(size) { 2 } else { 1 };
    let sg = f64::from(caps.fixed_subgroup());
    vec![("LANES", lanes as f64), ("TEAMS", f64::from(teams)), ("SG", sg)]
}

/// Workgroups of TEAMS thread groups.
pub fn team_grid<P: MatVec>(p: &P, c: &Constants) -> usize {
    let run = c.get("TILE_ROWS").map_or(1, |r| *r as usize);
    p.rows().div_ceil(c["TEAMS"] as usize * run)
}

/// Rows of a workgroup of schedule/pipelined among `groups`: two outputs of gate and up stay together.
fn swept_rows<P: MatVec>(p: &P, groups: usize) -> usize {
    let rows = p.rows().div_ceil(groups);
    if P::PAIRED { rows.next_multiple_of(4) } else { rows }
}

/// Geometry of schedule/pipelined on at most `groups` workgroups of `wg`: the lanes of a thread
/// group, and its rows at a time, with which a lane has the least to do one after the other.
fn swept<P: MatVec>(p: &P, caps: &Capabilities, groups: usize, wg: usize) -> Overrides {
    let rows = swept_rows(p, groups);
    let geometry = |lanes: usize| {
        let each = rows.div_ceil(wg / lanes);
        let turns = each.div_ceil(16);
        let (run, spans) = (each.div_ceil(turns), p.chunks16().div_ceil(lanes));
        // In products of a chunk. What is loaded of x, and the sums of a turn, are guessed from
        // their instructions.
        (spans * (turns * (2 * run + 4) + 2), lanes, run)
    };
    let lanes = [8, 16, 32, 64, 128, 256, 512].into_iter().filter(|lanes| *lanes <= wg);
    let (_, lanes, run) = lanes.map(geometry).min().unwrap_or((0, wg, 1));
    vec![
        ("WG", wg as f64),
        ("LANES", lanes as f64),
        ("TILE_ROWS", run as f64),
        ("GROUPS", groups as f64),
        ("SG", f64::from(caps.fixed_subgroup())),
    ]
}

/// Geometry of schedule/pipelined with enough workgroups to fill a large GPU: twice its processors, or
/// as many as keep rows to 64 each. No more invocations than chunks of their rows, or than fours of
/// a vector that each workgroup makes first.
pub fn sweep<P: MatVec>(p: &P, caps: &Capabilities) -> Overrides {
    let groups = p.rows().div_ceil(64).max(264);
    let work = (swept_rows(p, groups) * p.chunks16()).max(p.k().div_ceil(4));
    let most = 1 << caps.invocations.min(256).ilog2();
    let least = caps.fixed_subgroup().max(32) as usize;
    swept(p, caps, groups, work.next_power_of_two().max(least).min(most))
}

/// Geometry of schedule/pipelined as a stage. A workgroup has at most one row per invocation, so the
/// workgroups of a small grid take several turns.
pub fn pipelined_stage<P: MatVec>(p: &P, caps: &Capabilities, grid: Grid) -> Option<Overrides> {
    let wg = grid.invocations as usize;
    let groups = p.rows().div_ceil(wg).max(grid.groups as usize);
    (wg.is_power_of_two() && one_size(caps).is_none()).then(|| swept(p, caps, groups, wg))
}

/// Workgroups of schedule/pipelined.
pub fn pipelined_groups<P: MatVec>(p: &P, c: &Constants) -> usize {
    p.rows().div_ceil(swept_rows(p, c["GROUPS"] as usize))
}

/// Refuses adapters without one subgroup size of at least 4 lanes, for variants with a place in
/// workgroup memory per subgroup.
pub fn one_size(caps: &Capabilities) -> Option<String> {
    (caps.fixed_subgroup() < 4)
        .then(|| "subgroups of several sizes, or of fewer than 4 lanes".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::Format;
    use crate::matvec::mat_vec;

    fn caps() -> Capabilities {
        Capabilities { subgroup: Some((32, 32)), invocations: 1024, ..Capabilities::minimal() }
    }

    struct Matrix {
        rows: usize,
        k: usize,
        weight: Format,
    }

    mat_vec!(Matrix);

    fn team_of(rows: usize, k: usize) -> (f64, f64) {
        let matrix = Matrix { rows, k, weight: Format::Bf16 };
        let team = team(&matrix, &caps(), matrix.chunks16(), 1);
        (team[0].1, team[1].1)
    }

    #[test]
    fn few_rows_get_many_lanes() {
        // 144 chunks: one a lane. 864: nine.
        assert_eq!(team_of(1152, 1152), (144.0, 1.0));
        assert_eq!(team_of(1152, 6912), (96.0, 2.0));
        // 144 chunks of many rows: nine a lane.
        assert_eq!(team_of(13824, 1152), (16.0, 12.0));
        assert_eq!(team_of(2048, 2048), (64.0, 3.0));
    }

    #[test]
    fn a_sweep_has_no_invocations_without_work() {
        let wg = |rows, k| sweep(&Matrix { rows, k, weight: Format::Bf16 }, &caps())[0];
        for (rows, k, expected) in
            [(84, 64, 32.0), (84, 300, 128.0), (1536, 1152, 256.0), (262_144, 1152, 256.0)]
        {
            assert_eq!(wg(rows, k), ("WG", expected), "{rows} x {k}");
        }
    }

    #[test]
    fn teams_beside_each_other_fill_subgroups() {
        for rows in [1, 7, 1152, 13824] {
            for k in [1, 12, 300, 1001, 1003, 1152, 2048, 6912, 8192] {
                let (lanes, teams) = team_of(rows, k);
                assert!(lanes * teams <= 512.0);
                assert!(teams == 1.0 || (lanes * teams) % 32.0 == 0.0, "{lanes} x {teams}");
            }
        }
    }
}
