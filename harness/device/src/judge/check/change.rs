//! Changes that are made to a case's inputs between invocations: what takes some of its inputs for
//! all of them, or is fitted to what they are drawn from, answers as before.

use std::ops::Range;
use std::sync::Arc;

use lathe_record::rng::Rng;

use crate::execute::value::Value;
use crate::plan::recording::TensorId;
use crate::plan::weights::{Raised, WeightRows};

/// Other inputs for one more invocation.
#[derive(Clone, Debug)]
pub enum Change {
    /// A stretch of a tensor holds another stretch of it, or values that were never drawn.
    #[non_exhaustive]
    Stretch {
        /// The tensor.
        tensor: TensorId,
        /// Where, in blocks of a weight format or units of floats.
        to: usize,
        /// Where the other stretch is.
        from: usize,
        /// Blocks or units.
        len: usize,
        /// Bytes of each block that are overwritten.
        part: Range<usize>,
        /// What comes there in place of the other stretch.
        raised: Option<Raised>,
    },
    /// All small inputs hold others: a value for each drawn tensor.
    Strained(Arc<[Value]>),
}

impl Change {
    /// A stretch of a tensor of so many `blocks`, each of `unit` floats where it has no weights.
    /// What tells its inputs by some of their values overlooks it: most changes are a few bytes, in
    /// the middle of a block where it has more, since half of the values, or some of each block,
    /// are not all; others are anything up to a quarter. Half of them are larger than anything
    /// drawn: what stops at the largest value that it knows does not know these.
    pub(super) fn stretch(
        tensor: TensorId,
        value: &Value,
        blocks: usize,
        unit: usize,
        is_cache: bool,
        rng: &mut Rng,
    ) -> Self {
        let block = match value {
            Value::Weights(rows) => rows.format.block_bytes(),
            _ => 4 * unit,
        };
        let mut part = 0..block;
        let len = if rng.below(4) > 0 {
            // Fewer could hide within a kernel's rounding.
            let bytes = 4 + rng.below(13) as usize;
            if matches!(value, Value::Weights(_)) && block > bytes {
                let start = rng.below((block - bytes + 1) as u32) as usize;
                part = start..start + bytes;
            }
            bytes.div_ceil(block).min(blocks)
        } else {
            ((blocks / 4).max(1) as f32).powf(rng.uniform()) as usize
        };
        let to = rng.below((blocks - len + 1) as u32) as usize;
        // Not itself, where there is another.
        let others = (blocks - len).max(1) as u32;
        let from = (to + 1 + rng.below(others) as usize) % (blocks - len + 1);
        // Of weights above the largest of a row, which may be half of the largest of all. Scores of
        // a cache's keys may leave what `exp` holds, and averages of its values are no larger than
        // these; sums of products have to fit f16.
        let (least, powers) = match value {
            Value::Weights(_) => (2, 2),
            _ if is_cache => (1, 9),
            _ => (1, 2),
        };
        let raised = (rng.below(2) > 0).then(|| Raised {
            power: least + rng.below(powers) as i32,
            is_negative: rng.below(4) == 0,
        });
        Change::Stretch { tensor, to, from, len, part, raised }
    }

    /// A matrix in which a stretch is changed, and the rows that differ.
    pub(super) fn rows(&self, all: &WeightRows) -> Option<(WeightRows, Range<usize>)> {
        let Change::Stretch { to, from, len, part, raised, .. } = self else { return None };
        Some(all.changed(*to, *from, *len, part.clone(), *raised))
    }

    /// How many times as large an NMSE may be as with the inputs that were drawn. Weights of a few
    /// rows that are eight times as large decide alone: such a row counts as 64, and the square of
    /// what it is off lies beyond 12 times the mean once in 2000.
    pub(super) fn amplifies(&self, values: &[Value]) -> f64 {
        match self {
            Change::Stretch { tensor, raised: Some(_), .. } => match &values[tensor.0] {
                Value::Weights(all) => 1.0 + 64.0 * 12.0 / all.rows() as f64,
                _ => 1.0,
            },
            _ => 1.0,
        }
    }

    /// Changes a stretch of a tensor whose floats come in units.
    pub(super) fn make(&self, value: &mut Value, unit: usize) {
        let Change::Stretch { to, from, len, raised, .. } = self else { return };
        match value {
            Value::Weights(all) => {
                if let Some((changed, _)) = self.rows(all) {
                    *all = changed;
                }
            }
            Value::F32(values) => {
                let most = raised.map(|raised| raised.above(values));
                let to = unit * to..unit * (to + len);
                values.copy_within(unit * from..unit * (from + len), to.start);
                match (raised, most) {
                    // A unit that has a scale: as it stores another, it stores a multiple of it.
                    (Some(raised), _) if unit > 2 => raised.multiply(&mut values[to]),
                    (_, Some(most)) => values[to].fill(most),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use lathe_kernels::{Format, Order};

    use super::*;

    fn changed(value: &Value, blocks: usize, unit: usize) -> Vec<(Value, bool)> {
        let mut rng = Rng::new(7);
        let change = |_| {
            let change = Change::stretch(TensorId(0), value, blocks, unit, false, &mut rng);
            let mut value = value.clone();
            change.make(&mut value, unit);
            let Change::Stretch { raised, .. } = change else { panic!("no stretch") };
            (value, raised.is_some())
        };
        (0..64).map(change).collect()
    }

    fn most(values: &[f32]) -> f32 {
        values.iter().fold(0.0, |most, v| most.max(v.abs()))
    }

    #[test]
    fn half_of_all_changes_are_larger_than_anything_drawn() {
        let drawn = Rng::new(1).normals(1 << 10);
        let all = changed(&Value::F32(drawn.clone()), 1 << 9, 2);
        for (value, is_raised) in &all {
            let Value::F32(values) = value else { panic!("no floats") };
            assert_ne!(values, &drawn);
            assert_eq!(most(values) > most(&drawn), *is_raised);
        }
        assert!((16..48).contains(&all.iter().filter(|(_, is_raised)| *is_raised).count()));
    }

    #[test]
    fn dense_weights_get_larger_ones_too() {
        let drawn = Rng::new(1).normals(1 << 10);
        let rows = WeightRows::from_f32(Format::F16, Order::RowWise, 64, &drawn);
        for (value, is_raised) in changed(&Value::Weights(rows), 1 << 10, 2) {
            let Value::Weights(rows) = value else { panic!("no weights") };
            let halves: Vec<f32> = rows
                .joined()
                .chunks_exact(2)
                .map(|half| half::f16::from_le_bytes([half[0], half[1]]).to_f32())
                .collect();
            assert!(halves.iter().all(|v| v.is_finite()));
            assert_eq!(most(&halves) > most(&drawn) + 0.01, is_raised);
        }
    }

    /// Against activations that are rounded to 8 bits, as gemv_q/planes_dp4a has them.
    #[test]
    fn few_rows_that_are_larger_err_by_more_and_within_what_is_allowed() {
        const K: usize = 256;
        let mut rng = Rng::new(3);
        let x = rng.normals(K);
        let rounded = |x: &[f32]| -> Vec<f32> {
            let step = most(x) / 127.0;
            x.iter().map(|v| (v / step).round() * step).collect()
        };
        let rounded: Vec<f32> = x.chunks(32).flat_map(rounded).collect();
        let nmse = |all: &WeightRows| {
            let weights: Vec<f32> = bytemuck::pod_collect_to_vec(&all.joined());
            let product = |x: &[f32]| -> Vec<f64> {
                let row = |w: &[f32]| w.iter().zip(x).map(|(w, x)| f64::from(w * x)).sum();
                weights.chunks(K).map(row).collect()
            };
            lathe_reference::nmse(product(&x), product(&rounded))
        };
        let drawn = rng.normals(20 * K);
        let all = WeightRows::from_f32(Format::F32, Order::RowWise, K, &drawn);
        let (value, usual) = (Value::Weights(all.clone()), nmse(&all));
        let shares: Vec<f64> = (0..1000)
            .map(|_| {
                let change = Change::stretch(TensorId(0), &value, 20 * K, 2, false, &mut rng);
                let changed = change.rows(&all).map(|(changed, _)| nmse(&changed));
                let allowed = change.amplifies(std::slice::from_ref(&value));
                changed.unwrap_or(usual) / (4.0 * usual * allowed)
            })
            .collect();
        assert!(shares.iter().all(|share| *share < 1.0), "{shares:?}");
        let amplified = 1.0 + 768.0 / 20.0;
        assert!(shares.iter().any(|share| share * amplified > 1.0), "{shares:?}");
    }
}
