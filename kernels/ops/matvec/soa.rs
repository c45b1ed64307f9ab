//! Geometry of variants that read SoA-repacked quantised rows ([`crate::Packing::Soa`]): the
//! lanes of a row, and the chunks of each.

use super::MatVec;
use crate::declare::*;

/// Weights in sixteen bytes of codes; see `rows/soa.wgsl`.
pub fn chunk<P: MatVec>(p: &P) -> usize {
    if p.weight() == Format::Q8_0 { 16 } else { 32 }
}

/// Chunks of a row.
fn chunks<P: MatVec>(p: &P) -> usize {
    p.k().div_ceil(chunk(p))
}

/// Lanes for the rows that a subgroup variant takes `each` at a time. As many, up to a subgroup, as
/// are needed to fill a large GPU with subgroups; beyond that those of which at least nine tenths
/// have a chunk in every round: 1152 weights are 36 chunks, which keep 32 lanes half idle and 8
/// lanes busy.
pub fn lanes<P: MatVec>(p: &P, most: u32, each: usize) -> u32 {
    lanes_of(p, p.rows(), most, each)
}

/// Lanes for `rows` rows of the operation's row length; see [`lanes`].
pub fn lanes_of<P: MatVec>(p: &P, rows: usize, most: u32, each: usize) -> u32 {
    const SUBGROUPS: usize = 1536;
    let chunks = chunks(p) as u32;
    let fills = |lanes: u32| rows * lanes as usize >= each * SUBGROUPS * most as usize;
    let busy = |lanes: u32| f64::from(chunks) / f64::from(chunks.next_multiple_of(lanes));
    let mut lanes = most.max(4);
    while lanes > 4 && fills(lanes / 2) && busy(lanes) < 0.9 {
        lanes /= 2;
    }
    lanes
}

/// Largest subgroup an adapter may have, 32 where it has none.
pub fn subgroup(caps: &Capabilities) -> u32 {
    caps.subgroup.map_or(32, |(_, max)| max.max(4))
}

/// Chunks of each of `vectors` vectors that workgroup memory holds at a time (see `x_tile.wgsl`):
/// all of them if possible, else as many as keep any number of lanes busy.
pub fn tile<P: MatVec>(p: &P, caps: &Capabilities, vectors: usize) -> usize {
    let one = 16 * vectors * (chunk(p) / 4 + 1);
    // What else the variants keep there.
    let fits = (caps.workgroup_memory as usize).saturating_sub(2048) / one;
    let whole = if fits < 64 { (fits / 2 + 1).next_power_of_two() } else { fits / 64 * 64 };
    whole.min(chunks(p))
}

/// Constants of every variant whose rows are shared by `lanes` lanes of a subgroup.
pub fn geometry(lanes: u32, caps: &Capabilities) -> Overrides {
    vec![("LANES", f64::from(lanes)), ("SG", f64::from(caps.fixed_subgroup()))]
}

/// [`geometry`] for a variant that holds activations in workgroup memory.
pub fn staged<P: MatVec>(p: &P, lanes: u32, caps: &Capabilities) -> Overrides {
    let mut constants = geometry(lanes, caps);
    constants.push(("TILE", tile(p, caps, 1) as f64));
    constants
}

/// Refuses shapes whose activations are too few to quantise.
pub fn below_a_block<P: MatVec>(p: &P) -> Option<String> {
    (p.k() < 32).then(|| format!("K={} is below 32", p.k()))
}

/// Geometry of soa_int8.wgsl over `rows` rows, `each` to a group of lanes, in at most `groups`
/// workgroups.
pub fn dot4<P: MatVec>(
    p: &P,
    caps: &Capabilities,
    rows: usize,
    each: usize,
    groups: usize,
) -> Overrides {
    let mut constants = geometry(lanes_of(p, rows, subgroup(caps), each), caps);
    constants.extend([("EACH", each as f64), ("GROUPS", groups as f64), ("SPLIT", 1.0)]);
    constants
}

/// Geometry of soa_int8.wgsl over all rows. Measured: one row where rows are few and short, so that
/// subgroups are many; two where a row takes a subgroup several rounds; four where there are rows
/// for all, which also iterate over rows, so that not every few rows quantise x anew. Few long rows
/// are shared by four subgroups, from 1536 rows on by four groups of 16 lanes where a weight is
/// more than one code of four or eight bits.
pub fn dot4_constants<P: MatVec>(p: &P, caps: &Capabilities) -> Overrides {
    let (rows, k) = (p.rows(), p.k());
    let most = subgroup(caps);
    let (each, groups, most, split, wg) = match (rows, k, p.weight()) {
        (0..1536, 4096.., _) | (0..4096, 4096.., Format::Q4_0 | Format::Q4_1 | Format::Q8_0) => {
            (2, 1056, most, 4, 1024)
        }
        (0..4096, 4096.., _) => (1, 1056, most.min(16), 4, 1024),
        (0..3072, ..) => (1, 1056, most, 1, 256),
        (0..16384, ..) => (2, 1056, most, 1, 256),
        _ => (4, 264, most, 1, 256),
    };
    let mut constants = geometry(lanes_of(p, rows, most, each), caps);
    // Beside three bytes an activation a workgroup holds a float a subgroup of four and at most one
    // a part of a row: what does not fit takes fewer invocations.
    let mut wg = caps.invocations.min(wg);
    let bytes = |wg: u32| 112 * k.div_ceil(32) + (1 + each) * wg as usize;
    while wg > 64 && bytes(wg) > caps.workgroup_memory as usize {
        wg /= 2;
    }
    constants.extend([
        ("EACH", each as f64),
        ("GROUPS", f64::from(groups)),
        ("SPLIT", f64::from(split)),
        ("WG", f64::from(wg)),
    ]);
    constants
}

/// Geometry of soa_int8.wgsl as a stage: of `each`, lanes and shares of a row those with which
/// the workgroups of a grid have the least to do one after the other.
pub fn dot4_stage<P: MatVec>(
    p: &P,
    caps: &Capabilities,
    grid: Grid,
    each: &[usize],
) -> Option<Overrides> {
    let size = caps.fixed_subgroup().max(4) as usize;
    let wg = grid.invocations as usize;
    let (rows, chunks) = (p.rows().div_ceil(grid.groups as usize), chunks(p));
    let lanes = [8, 16, 32].into_iter().filter(|lanes| *lanes <= size);
    let splits = [1, 2, 4, 8, 16];
    let all = lanes.flat_map(|lanes| splits.map(|split| (lanes, split)));
    let all = all.filter(|(lanes, split)| lanes * split <= wg);
    let all = all.flat_map(|(lanes, split)| each.iter().map(move |each| (lanes, split, *each)));
    // In chunks of weights that a lane multiplies. What it loads of x, and the sums at the end, are
    // guessed from their instructions.
    let cost = |&(lanes, split, each): &(usize, usize, usize)| {
        let turns = rows.div_ceil(each * (wg / (lanes * split)));
        let rounds = chunks.div_ceil(lanes * split);
        let sums = if split > 1 { 2.5 } else { 1.0 };
        turns as f64 * (rounds as f64 * (each as f64 + 0.5) + sums)
    };
    let (lanes, split, each) = all.min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    Some(vec![
        ("WG", wg as f64),
        ("LANES", lanes as f64),
        ("SPLIT", split as f64),
        ("EACH", each as f64),
        ("GROUPS", f64::from(grid.groups)),
        ("SG", f64::from(caps.fixed_subgroup())),
    ])
}

/// Workgroups of soa_int8.wgsl over `rows` rows.
pub fn dot4_groups(rows: usize, c: &Constants) -> usize {
    let teams = (c["WG"] / c["LANES"]) as usize;
    let turn = c["EACH"] as usize * (teams / (c["SPLIT"] as usize).min(teams).max(1));
    let sets = rows.div_ceil(turn.max(1));
    sets.div_ceil(sets.div_ceil(c["GROUPS"] as usize))
}
