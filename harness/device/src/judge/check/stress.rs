//! Values of stress inputs: kinds that trained models hold and random ones do not.

use std::ops::RangeInclusive;

use lathe_kernels::{FloatFormat, Format};
use lathe_record::rng::Rng;

use crate::plan::weights::{Bytes, WeightRows};

/// Kind of values in all inputs of one invocation that are drawn as
/// [`Draw::Normal`](lathe_kernels::Draw::Normal).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stress {
    /// Normal values times a power of two, about a small mean.
    Scaled,
    /// Normal values with massive ones in a few places.
    Massive,
    /// Values whose mean is up to 256 times their deviation.
    Offset,
    /// Values that differ by a thousandth. Equal ones round the same way in every sum of theirs,
    /// which no bound of a random walk allows for.
    NearEqual,
    /// Small values, zeros of both signs and subnormals among them.
    Tiny,
    /// Values that f16 does not hold, where f32 is stored; else its largest.
    Large,
    /// One element of one input is NaN or infinite.
    NotFinite,
}

impl Stress {
    /// Kinds in the order in which seeds take turns with them. Kernels go wrong most often where
    /// values are massive.
    pub const TURNS: [Self; 8] = [
        Self::NearEqual,
        Self::Massive,
        Self::Offset,
        Self::NotFinite,
        Self::Tiny,
        Self::Large,
        Self::Massive,
        Self::Scaled,
    ];

    /// Kind of a case's stress inputs.
    pub(super) fn of(seed: u64) -> Self {
        Self::TURNS[(seed % Self::TURNS.len() as u64) as usize]
    }

    /// A seed near this one whose kind has the given turn.
    pub(super) fn turn(seed: u64, turn: usize) -> u64 {
        let turns = Self::TURNS.len();
        seed / turns as u64 * turns as u64 + (turn % turns) as u64
    }

    /// True if tensors that are read and written get such values too. Otherwise they keep what
    /// the invocation before left there.
    pub(super) fn renews(self) -> bool {
        self != Self::Scaled
    }

    /// Name and values of the kind, for pages.
    pub fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Scaled => {
                ("scaled", "normal times 2^-3 to 2^2, about a mean of up to two deviations")
            }
            Self::Massive => {
                ("massive", "normal, and one to three in 2048 are 25,000 to 50,000 in size")
            }
            Self::Offset => ("offset", "normal about a mean of 32 to 256, of either sign"),
            Self::NearEqual => ("near-equal", "one value of 1/8 to 64 in size times 1 to 1.001"),
            Self::Tiny => (
                "tiny",
                "normal times 2^-12, half of them ±0, 1e-40 (a subnormal) or 3e-6 (one of f16)",
            ),
            Self::Large => ("large", "normal times 2^18; stored as f16 times 2^13, up to 49,152"),
            Self::NotFinite => ("not finite", "normal, and one element is NaN, +inf or -inf"),
        }
    }

    /// Values of the kind; those of [`Stress::NotFinite`] before [`spoil`].
    pub(super) fn values(self, len: usize, format: FloatFormat, rng: &mut Rng) -> Vec<f32> {
        let mut values = rng.normals(len);
        match self {
            Self::Scaled => {
                let power = power(-3..=2, rng);
                let mean = f32::from(rng.below(5) as i8 - 2);
                values.iter_mut().for_each(|v| *v = power * (mean + *v));
            }
            Self::Massive => values.chunks_mut(2048).for_each(|part| massive(part, rng)),
            Self::Offset => {
                let mean = sign(rng) * power(5..=8, rng);
                values.iter_mut().for_each(|v| *v += mean);
            }
            Self::NearEqual => {
                let first = sign(rng) * power(-3..=5, rng) * (1.0 + rng.uniform());
                values.fill_with(|| first * (1.0 + rng.uniform() / 1024.0));
            }
            Self::Tiny => {
                values.iter_mut().for_each(|v| *v *= 2f32.powi(-12));
                let small = [0.0, -0.0, 1e-40, 3e-6];
                let some = values.iter_mut().filter(|_| rng.below(2) == 0).enumerate();
                some.for_each(|(i, v)| *v = small[i % small.len()]);
            }
            Self::Large => {
                let power = if format == FloatFormat::F16 { 2f32.powi(13) } else { 2f32.powi(18) };
                values.iter_mut().for_each(|v| *v *= power);
            }
            Self::NotFinite => {}
        }
        values
    }
}

/// Massive over usual activations, as trained models have at a sequence's first token.
const MASSIVE: f32 = 25_000.0;

/// Makes one to three of the values massive.
pub(super) fn massive(values: &mut [f32], rng: &mut Rng) {
    for _ in 0..1 + rng.below(3) {
        let (sign, at) = (sign(rng), rng.below(values.len() as u32) as usize);
        values[at] = sign * MASSIVE * (1.0 + values[at].abs().min(1.0));
    }
}

/// Values that are not finite.
const WRONG: [f32; 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

/// Makes one of the values NaN or infinite.
pub(super) fn spoil(values: &mut [f32], rng: &mut Rng) {
    let wrong = WRONG[rng.below(3) as usize];
    if let Some(v) = values.get_mut(rng.below(values.len() as u32) as usize) {
        *v = wrong;
    }
}

/// Rows with a NaN or an infinity in one block of each, as the scale of quantised ones.
pub(super) fn spoiled(rows: &WeightRows, rng: &mut Rng) -> WeightRows {
    let (row, block) = (rows.row_bytes(), rows.format.block_bytes());
    let mut bytes = rows.joined().into_owned();
    let which = rng.below(3) as usize;
    for row in bytes.chunks_exact_mut(row) {
        let at = rng.below((row.len() / block) as u32) as usize * block;
        let scale = if rows.format == Format::Q6K { at + 208 } else { at };
        match rows.format {
            Format::F32 => row[at..at + 4].copy_from_slice(&WRONG[which].to_le_bytes()),
            Format::Bf16 => row[at..at + 2].copy_from_slice(&WRONG[which].to_le_bytes()[2..]),
            _ => {
                let half = [0x7e00u16, 0x7c00, 0xfc00][which];
                row[scale..scale + 2].copy_from_slice(&half.to_le_bytes());
            }
        }
    }
    WeightRows { parts: vec![Bytes::owned(bytes)], ..rows.clone() }
}

fn sign(rng: &mut Rng) -> f32 {
    if rng.below(2) == 0 { 1.0 } else { -1.0 }
}

/// A power of two.
pub(super) fn power(exponents: RangeInclusive<i32>, rng: &mut Rng) -> f32 {
    let many = exponents.end() - exponents.start() + 1;
    2f32.powi(exponents.start() + rng.below(many as u32) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_kernels::Order;

    fn values(stress: Stress, format: FloatFormat) -> Vec<f32> {
        (0..16).flat_map(|seed| stress.values(4096, format, &mut Rng::new(seed))).collect()
    }

    fn largest(values: &[f32]) -> f32 {
        values.iter().fold(0.0, |most, v| most.max(v.abs()))
    }

    #[test]
    fn seeds_take_turns() {
        let all: Vec<Stress> =
            (0..8).map(|turn| Stress::of(Stress::turn(0x1234_5678_9abc, turn))).collect();
        assert_eq!(all, Stress::TURNS);
        assert_eq!(Stress::turn(23, 9), 17);
    }

    #[test]
    fn kinds_hold_what_they_say() {
        let f32s = |stress| values(stress, FloatFormat::F32);
        let massive = f32s(Stress::Massive);
        let count = massive.iter().filter(|v| v.abs() >= MASSIVE).count();
        // One to three in each of 16 times 2 parts.
        assert!((32..=96).contains(&count) && largest(&massive) <= 2.0 * MASSIVE, "{count}");
        assert!(f32s(Stress::Offset).iter().all(|v| (26.0..263.0).contains(&v.abs())));
        let near = Stress::NearEqual.values(4096, FloatFormat::F32, &mut Rng::new(1));
        assert!(near.iter().all(|v| (v / near[0] - 1.0).abs() < 1e-3) && near[0] != near[1]);
        assert!(largest(&f32s(Stress::Large)) > 65_504.0);
        assert!(largest(&values(Stress::Large, FloatFormat::F16)) < 65_504.0);
        let tiny = f32s(Stress::Tiny);
        assert!(largest(&tiny) < 2e-3 && tiny.iter().any(|v| v.is_subnormal()));
        for stress in Stress::TURNS {
            assert!(f32s(stress).iter().all(|v| v.is_finite()), "{stress:?}");
        }
    }

    #[test]
    fn one_value_is_spoiled_or_one_block_of_each_row() {
        let mut values = vec![1.0; 100];
        spoil(&mut values, &mut Rng::new(3));
        assert_eq!(values.iter().filter(|v| !v.is_finite()).count(), 1);
        spoil(&mut [], &mut Rng::new(3));
        for format in Format::ALL.iter().copied() {
            let values: Vec<f32> = (0..3 * 512).map(|i| (i % 13) as f32 - 6.5).collect();
            let rows = WeightRows::from_f32(format, Order::RowWise, 512, &values);
            assert!(rows.is_finite());
            for seed in 0..9 {
                let spoiled = spoiled(&rows, &mut Rng::new(seed));
                for row in 0..3 {
                    assert!(!spoiled.slice(row..row + 1).is_finite(), "{format:?} {seed} {row}");
                }
            }
        }
    }
}
