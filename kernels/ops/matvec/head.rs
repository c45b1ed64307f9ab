//! The LM head, whatever is made of its logits: parameters and geometry.

use super::geometry::quantised_only;
use super::{MatVec, soa};
use crate::declare::*;

/// Rows of a head.
pub const ROWS: Typed<usize> =
    dim("ROWS", "rows of the matrix: tokens of the vocabulary, or of a part of it", 64, 600);

/// Columns of a head.
pub const COLUMNS: Typed<usize> = dim("K", "columns of the matrix, elements of x", 64, 700);

/// First row of a part of the head, as an index into the vocabulary.
pub const FIRST_ROW: Typed<usize> =
    start("FIRST_ROW", "token of row 0: a matrix too large for one binding comes in parts", 70);

/// Part of the head that an operation reads.
pub const PART: Typed<HeadPart> = choice(
    "PART",
    "which part of the matrix this is; all but the first go on from what the last one left",
    &HeadPart::ALL,
);

/// Lanes, tile and order of the variants over SoA-repacked blocks, which use another `other` bytes
/// of workgroup memory.
pub fn soa_geometry<P: MatVec>(p: &P, caps: &Capabilities, other: u32) -> Overrides {
    let lanes = soa::lanes(p, soa::subgroup(caps).min(32), 4);
    let workgroup_memory = caps.workgroup_memory.saturating_sub(other);
    let left = Capabilities { workgroup_memory, ..caps.clone() };
    let mut constants = soa::staged(p, lanes, &left);
    constants.push(super::ALONG_ROWS);
    constants
}

/// Geometry of the variants over soa_int8.wgsl: every workgroup has at least 64 rows and at most
/// 1024, as many as lm_head_topk has room for.
pub fn dot4_geometry<P: MatVec>(p: &P, caps: &Capabilities) -> Overrides {
    let rows = p.rows();
    let groups = rows.div_ceil(64).min(256.max(rows.div_ceil(1024)));
    let mut constants = soa::dot4(p, caps, rows, 4, groups);
    constants.push(super::ALONG_ROWS);
    constants
}

/// Workgroups of the variants over soa_int8.wgsl.
pub fn dot4_groups<P: MatVec>(p: &P, c: &Constants) -> usize {
    soa::dot4_groups(p.rows(), c)
}

/// Refusals of the variants over soa_int8.wgsl.
pub fn dot4_unsupported<P: MatVec>(p: &P, caps: &Capabilities) -> Option<String> {
    quantised_only(p, caps).or_else(|| soa::below_a_block(p))
}

/// Tunables of the variants over soa_int8.wgsl.
pub const DOT4_TUNABLES: &str = "WG=128|256|512,LANES=4|8|16|32";

/// Variants from the one expected to be fastest downwards.
pub fn prefer<P: MatVec>(p: &P) -> &'static [&'static str] {
    if p.weight().is_dense() {
        &["subgroup", "workgroup", "naive"]
    } else {
        &["soa_dp4a24", "soa", "blocks", "naive"]
    }
}

/// Weights and x once; traffic of the remaining logits is negligible.
pub fn cost<P: MatVec>(p: &P, act_format: FloatFormat) -> Cost {
    let (rows, k) = (p.rows() as f64, p.k() as f64);
    Cost {
        bytes: rows * p.weight().row_bytes(p.k()) as f64 + act_format.bytes() as f64 * k,
        flops: 2.0 * rows * k,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::Format;
    use crate::matvec::mat_vec;

    struct Head {
        rows: usize,
        k: usize,
        weight: Format,
    }

    mat_vec!(Head);

    /// Shaders run without bounds checks: lm_head_topk sorts at most 1024 rows a workgroup, and its
    /// lists have room for one of every 64 rows.
    #[test]
    fn workgroups_of_a_head_have_64_to_1024_rows() {
        assert_eq!(DOT4_TUNABLES, "WG=128|256|512,LANES=4|8|16|32");
        for size in [4, 8, 16, 32, 64] {
            let caps = Capabilities { subgroup: Some((size, size)), ..Capabilities::minimal() };
            for rows in (1..3000).chain([32_000, 128_256, 151_936, 262_144, 262_147, 600_001]) {
                let head = Head { rows, k: 1152, weight: Format::Q4K };
                let constants = dot4_geometry(&head, &caps);
                for wg in [128.0, 256.0, 512.0] {
                    for lanes in [4.0, 8.0, 16.0, 32.0] {
                        let mut c: Constants =
                            constants.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
                        c.insert("WG".into(), wg);
                        c.insert("LANES".into(), lanes);
                        let groups = dot4_groups(&head, &c);
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
