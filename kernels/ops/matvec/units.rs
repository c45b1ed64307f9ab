//! Geometry of the products on matrix units (`schedule/matrix_units.wgsl`): tiles of rows and
//! vectors, and parts of the columns.

use super::MatVec;
use crate::declare::*;

/// Subgroups of a workgroup.
const SUBGROUPS: usize = 4;

/// Workgroups that keep the memory of a large GPU busy.
const ENOUGH: usize = 512;

/// Fragments of sixteen vectors that a subgroup multiplies with each fragment of weights.
fn fragments<P: MatVec>(p: &P) -> usize {
    p.n_vectors().div_ceil(16).clamp(1, 4)
}

/// Vectors in whole tiles.
fn padded<P: MatVec>(p: &P) -> usize {
    p.n_vectors().next_multiple_of(16 * fragments(p))
}

/// Columns of a tile, unless tuned.
const TILE_COLUMNS: usize = 64;

/// Workgroups without parts of the columns, each with `rows` rows.
fn tiles<P: MatVec>(p: &P, rows: usize) -> usize {
    p.rows().div_ceil(rows) * (padded(p) / (16 * fragments(p)))
}

/// Most parts of the columns: each has a few tiles, and their sums stay few beside the weights.
fn most_splits<P: MatVec>(p: &P) -> usize {
    let most = 2 * ENOUGH / tiles(p, 16 * SUBGROUPS);
    most.min(p.k() / (2 * TILE_COLUMNS)).clamp(1, 16)
}

/// Sums of parts of the columns, rows in tiles of any size.
pub fn parts<P: MatVec>(p: &P) -> usize {
    most_splits(p) * padded(p) * p.rows().next_multiple_of(256)
}

/// Values of the overrides for a product that begins at an element of each y, adds to it or not, and
/// has others' elements behind.
pub fn constants<P: MatVec>(p: &P, caps: &Capabilities, y: (usize, usize, Beta)) -> Overrides {
    let rows = 16 * SUBGROUPS;
    let splits = ENOUGH.div_ceil(tiles(p, rows)).clamp(1, most_splits(p));
    let (first, after, beta) = y;
    // Rows of whole fragments that begin on 16 bytes.
    let is_whole = padded(p) == p.n_vectors()
        && p.rows().is_multiple_of(256)
        && first.is_multiple_of(4)
        && after.is_multiple_of(4);
    let is_direct = splits == 1 && is_whole && beta == Beta::Zero;
    vec![
        ("FM", fragments(p) as f64),
        ("SPLITS", splits as f64),
        ("DIRECT", f64::from(u8::from(is_direct))),
        ("SUBGROUPS", SUBGROUPS as f64),
        ("SG", f64::from(caps.subgroup.map_or(32, |(_, max)| max))),
    ]
}

/// Workgroups of the product.
pub fn groups<P: MatVec>(p: &P, c: &Constants) -> usize {
    c["SPLITS"] as usize * tiles(p, (16.0 * c["FN"] * c["SUBGROUPS"]) as usize)
}

/// Workgroups of the second stage, which adds the sums of parts; none where sums are y.
pub fn sum_groups<P: MatVec>(p: &P, c: &Constants) -> usize {
    if c["DIRECT"] == 0.0 { (p.n_vectors() * p.rows()).div_ceil(256) } else { 0 }
}

/// Overrides worth trying.
pub const TUNABLES: &str = "FN=1|2,TK=32|64|128,SUBGROUPS=4|8";

/// Refuses what the tiles cannot read: fewer vectors than half of a fragment, vectors that begin
/// anywhere, and weights of more than 16 bits.
pub fn unsupported<P: MatVec>(p: &P) -> Option<String> {
    if p.n_vectors() < 2 {
        return Some(format!("N_VECTORS={} is below 2", p.n_vectors()));
    }
    no_multiple("K", p.k(), 8)
        .or_else(|| (p.weight() == Format::F32).then(|| "WEIGHT=f32 exceeds 16 bits".into()))
}

/// Tolerance: sums on matrix units truncate, and what is rounded to f16 errs by up to 2^-11.
/// Quantised weights are; those of f16 and bf16 and activations of f16 are not, and activations of
/// f32 are two f16 of 21 bits together.
pub fn tolerance<P: MatVec>(p: &P, act_format: FloatFormat) -> Tolerance {
    let rounded = u32::from(!p.weight().is_dense());
    let two = act_format == FloatFormat::F32;
    let k = p.k() as f64;
    let outputs = p.rows() * p.n_vectors();
    Tolerance {
        f16_operands: rounded,
        f16_range: two,
        ..Tolerance::new(
            if two { 16.0 } else { 8.0 } + 2.0 * k.sqrt() + k / 16.0,
            match outputs {
                0..64 => 9e-6,
                _ if rounded > 0 => 1e-6,
                _ => 1e-9,
            },
            "matrix units truncate sums, up to one unit in the last place every 16 products; else \
             as f32. Two f16 keep 21 bits of an f32 activation, four units in the last place. \
             Quantised weights rounded to f16 err by up to 2^-11 each, of which the reference \
             allows six standard deviations; f32 activations beyond 65504 are not held",
        )
    }
}
