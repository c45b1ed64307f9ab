//! The largest logits of an LM head, rows times x, in descending order; equal logits are ordered by
//! index.
//!
//! Rounding may exchange neighbours, so a list is judged by its content. [`judge`] requires each
//! index once, with its row's logit within its bound as the value, values in order, and nothing
//! left out. The last means that the i-th value is the i-th largest logit within the largest bound
//! of all: sorting moves no value farther than the farthest one moved.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::{Expected, Tolerance};

/// The index that fills a list with fewer rows than wanted.
pub const NONE: u32 = u32::MAX;

/// The value that fills it.
pub const NO_VALUE: f32 = -3.402_823_4e38;

/// A logit with its index; exact ones (of earlier parts of the head) have magnitude 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Token.
    pub index: u32,
    /// Logit.
    pub value: f64,
    /// The scale of its rounding errors.
    pub magnitude: f64,
}

/// The first `k` of `rows` as a kernel should return them, filled up with [`NO_VALUE`].
pub fn top_k(rows: &[Row], k: usize) -> (Expected, Vec<u32>) {
    let mut order: Vec<&Row> = rows.iter().collect();
    order.sort_by(|a, b| b.value.total_cmp(&a.value).then(a.index.cmp(&b.index)));
    let magnitude = rows.iter().map(|r| r.magnitude).fold(0.0, f64::max);
    let filler = (f64::from(NO_VALUE), 0.0);
    let value = |i: usize| order.get(i).map_or(filler, |r| (r.value, magnitude));
    let index = |i: usize| order.get(i).map_or(NONE, |r| r.index);
    ((0..k).map(value).collect(), (0..k).map(index).collect())
}

/// The fault in a list, if any; the values themselves are compared with [`top_k`]'s.
pub fn judge(
    rows: &[Row],
    tolerance: &Tolerance,
    values: &[f32],
    indices: &[u32],
) -> Result<(), String> {
    let mut by_index: Vec<&Row> = rows.iter().collect();
    by_index.sort_by_key(|r| (r.index, Reverse(r.value.to_bits())));
    let mut listed = BTreeSet::new();
    for (i, (&value, &index)) in values.iter().zip(indices).enumerate() {
        if i >= rows.len() {
            if index != NONE || value != NO_VALUE {
                return Err(format!(
                    "[{i}] is ({value:e}, {index}), beyond all {} rows",
                    rows.len()
                ));
            }
            continue;
        }
        let at = by_index.partition_point(|r| r.index < index);
        let bound = |r: &Row| tolerance.bound(r.value, r.magnitude);
        let close = |r: &&&Row| (f64::from(value) - r.value).abs() <= bound(r);
        let mut of_index = by_index[at..].iter().take_while(|r| r.index == index);
        if !of_index.any(|r| close(&r)) {
            return Err(format!(
                "[{i}] is ({value:e}, {index}), which is no row's logit and index"
            ));
        }
        if !listed.insert(index) {
            return Err(format!("[{i}] lists index {index} again"));
        }
        let behind =
            i > 0 && (value > values[i - 1] || (value == values[i - 1] && index < indices[i - 1]));
        if behind {
            return Err(format!("[{i}] is ({value:e}, {index}), which belongs before [{}]", i - 1));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { k: 4.0, rounding: 0.0, nmse: 1e-6 };

    fn rows() -> Vec<Row> {
        let row = |(index, value): (u32, f64)| Row { index, value, magnitude: 2.0 };
        [(10, 1.0), (11, 3.0), (12, 2.0), (13, 3.0)].map(row).to_vec()
    }

    #[test]
    fn by_hand() {
        let (values, indices) = top_k(&rows(), 3);
        assert_eq!((values.value, indices), (vec![3.0, 3.0, 2.0], vec![11, 13, 12]));
        let (values, indices) = top_k(&rows()[..1], 2);
        assert_eq!(indices, [10, NONE]);
        assert_eq!(values.to_f32(), [1.0, NO_VALUE]);
    }

    #[test]
    fn judges() {
        let judge = |values: &[f32], indices: &[u32]| judge(&rows(), &TOLERANCE, values, indices);
        assert_eq!(judge(&[3.0, 3.0, 2.0], &[11, 13, 12]), Ok(()));
        assert_eq!(judge(&[3.000_000_2, 3.0], &[13, 11]), Ok(()));
        assert_eq!(judge(&[3.0, 3.0, 2.0, 1.0, NO_VALUE], &[11, 13, 12, 10, NONE]), Ok(()));
        let wrong = |values: &[f32], indices: &[u32], why: &str| {
            let error = judge(values, indices).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        wrong(&[3.0, 3.0], &[13, 11], "belongs before");
        wrong(&[3.0, 2.0, 3.0], &[11, 12, 13], "belongs before");
        wrong(&[3.0, 3.0], &[11, 11], "again");
        wrong(&[3.0, 3.0], &[11, 12], "no row's");
        wrong(&[3.0, 3.0], &[11, 14], "no row's");
        wrong(&[3.0, 3.0, 2.0, 1.0, 0.0], &[11, 13, 12, 10, 9], "beyond all");
    }
}
