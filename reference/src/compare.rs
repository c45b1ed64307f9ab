//! The one comparator: is a kernel's output within its derived bound of the oracle?
//!
//! An element passes when
//!
//! `|got − value| ≤ k·2⁻²³·magnitude + absolute + rounding·|value| + smallest`
//!
//! Rounding in `f32` moves a result by a few ε = 2⁻²³ of the terms that were summed, not of their
//! sum, so the bound scales with `magnitude` (Σ|aᵢbᵢ| for a dot product) and stays honest under
//! cancellation. `absolute` is the oracle's own extra allowance, for example for another rounding
//! of a stored intermediate. `rounding` is that of the stored output type; the last term is the
//! smallest normal `f32`, since a device may flush subnormals to zero, or, for outputs stored as
//! `f16`, the spacing 2⁻²⁴ of its subnormals.
//!
//! In addition to the elements, NMSE = Σ(got − value)² / Σ value² limits a bias too small for any
//! single bound. Two errors per value are allowed on top: the smallest step of the stored type,
//! `smallest`, and half a rounding of its magnitude, which outweighs a sum that cancels. Where
//! errors grow faster than values, as those of attention do with its scores, the oracle gives the
//! growth of the limit. NaN, infinities, an output of zeros and an empty output each fail by name.
//!
//! Where an input holds a NaN or an infinity, so do values that depend on it: a result has to be
//! one of the two exactly where the value is. WGSL leaves open what is stored for values beyond the
//! stored type's largest: that largest or an infinity pass, and the NaN that SwiftShader stores.
//!
//! Source of the bound: Higham, *Accuracy and Stability of Numerical Algorithms*, ch. 3.

use std::fmt;

use thiserror::Error;

use crate::digits::MEAN_DEVIATIONS;

/// The expected output of a kernel, with the scale per element to which `f32` rounding errors are
/// proportional (for a dot product Σ|aᵢbᵢ|).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expected {
    /// The values, in `f64`.
    pub value: Vec<f64>,
    /// The scale of rounding errors, one per value and in its unit; never negative.
    pub magnitude: Vec<f64>,
    /// Absolute error allowed to a correct kernel whatever its arithmetic, one per value and in its
    /// unit; empty for none. An infinity allows nothing more, except a result that is not finite: the
    /// kernel may overflow on the way.
    pub absolute: Vec<f64>,
    /// Standard deviation of what rounded inputs add to the error, one per value and in its unit;
    /// empty for none. Magnitudes include the bound that follows: see [`digits`](crate::digits).
    pub deviation: Vec<f64>,
    /// Ratio of squared errors with these inputs to those that the limit of NMSE was derived for;
    /// values below one count as one.
    pub amplified: f64,
    /// True if an input holds a NaN or an infinity, or an oracle expects one without. Results must
    /// not be finite where values are not, and the same where values are exact. Otherwise such a
    /// value is a fault of the oracle.
    pub spreads: bool,
}

impl Expected {
    /// Values and magnitudes without an absolute allowance.
    pub fn new(value: Vec<f64>, magnitude: Vec<f64>) -> Self {
        Self { value, magnitude, ..Self::default() }
    }

    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        Self::new(vec![0.0; len], vec![0.0; len])
    }

    /// Values that must be matched exactly.
    pub fn exact(values: &[f32]) -> Self {
        values.iter().map(|v| (f64::from(*v), 0.0)).collect()
    }

    /// Several outputs, one after the other.
    pub fn join(parts: impl IntoIterator<Item = Expected>) -> Self {
        let mut all = Self::default();
        for part in parts {
            let (before, after) = (all.value.len(), all.value.len() + part.value.len());
            for (all, part) in
                [(&mut all.absolute, part.absolute), (&mut all.deviation, part.deviation)]
            {
                if !part.is_empty() {
                    all.resize(before, 0.0);
                    all.extend(part);
                } else if !all.is_empty() {
                    all.resize(after, 0.0);
                }
            }
            all.value.extend(part.value);
            all.magnitude.extend(part.magnitude);
            all.amplified = all.amplified.max(part.amplified);
            all.spreads |= part.spreads;
        }
        all
    }

    /// Largest |got − value| allowed to an element, also where the kernel may overflow instead.
    ///
    /// # Panics
    /// Beyond the last element.
    pub fn bound(&self, index: usize, tolerance: &Tolerance) -> f64 {
        let absolute = self.absolute.get(index).copied().filter(|a| a.is_finite());
        tolerance.bound(self.value[index], self.magnitude[index]) + absolute.unwrap_or(0.0)
    }

    /// Rule that [`compare`] judges an element by.
    ///
    /// # Panics
    /// Beyond the last element.
    pub fn rule(&self, index: usize, tolerance: &Tolerance) -> Rule {
        if self.spreads && !self.value[index].is_finite() {
            return Rule::Kept { exact: self.magnitude[index] == 0.0 };
        }
        Rule::Within {
            bound: self.bound(index, tolerance),
            may_overflow: self.absolute.get(index) == Some(&f64::INFINITY),
            unavoidable: self.unavoidable(index, tolerance),
        }
    }

    /// Largest NMSE with these inputs.
    pub fn nmse_limit(&self, tolerance: &Tolerance) -> f64 {
        tolerance.nmse * self.amplified.max(1.0)
    }

    /// Squared error of an element that any arithmetic in f32 may have.
    fn unavoidable(&self, index: usize, tolerance: &Tolerance) -> f64 {
        // A sum may cancel: what rounding one of its terms leaves then outweighs what is left of it.
        let rounded = tolerance.k.min(0.5) * f64::from(f32::EPSILON);
        let deviation = self.deviation.get(index).copied().unwrap_or(0.0);
        (tolerance.smallest() + rounded * self.magnitude[index]).powi(2)
            + (MEAN_DEVIATIONS * deviation).powi(2)
    }

    /// The values rounded to `f32`, as input for a next operation.
    pub fn to_f32(&self) -> Vec<f32> {
        self.value.iter().map(|&v| v as f32).collect()
    }
}

/// Collects pairs of value and magnitude.
impl FromIterator<(f64, f64)> for Expected {
    fn from_iter<I: IntoIterator<Item = (f64, f64)>>(pairs: I) -> Self {
        let (value, magnitude) = pairs.into_iter().unzip();
        Expected::new(value, magnitude)
    }
}

/// Rule of one element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// A value that is not finite: it is met by any result that is not finite, or by itself alone
    /// where it is `exact`.
    Kept {
        /// The result is not computed but passed on.
        exact: bool,
    },
    /// A finite value.
    Within {
        /// Largest |got − value|.
        bound: f64,
        /// A result that is not finite passes too.
        may_overflow: bool,
        /// Squared error of any arithmetic in f32, which the limit of NMSE allows on top.
        unavoidable: f64,
    },
}

/// Allowed distance of a kernel from its oracle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Multiples of `f32` epsilon (2⁻²³) times magnitude.
    pub k: f64,
    /// Relative rounding of the stored output type, times |value|: 0 for f32, 2⁻¹¹ for f16.
    pub rounding: f64,
    /// Largest NMSE over the whole output.
    pub nmse: f64,
}

/// Largest `f16`.
const LARGEST_F16: f64 = 65_504.0;

/// Distance of neighbouring subnormal `f16`s.
const F16_SPACING: f64 = 1.0 / (1 << 24) as f64;

impl Tolerance {
    /// Allowed distance of a result from `value`, whose rounding errors scale with `magnitude`.
    pub fn bound(&self, value: f64, magnitude: f64) -> f64 {
        self.k * f64::from(f32::EPSILON) * magnitude + self.rounding * value.abs() + self.smallest()
    }

    /// Returns true if a result is what the stored type makes of a value beyond its largest.
    fn holds_beyond(&self, value: f64, bound: f64, got: f64) -> bool {
        let least = (value.abs() - bound).min(self.largest());
        value.abs() + bound > self.largest()
            && (got.is_nan()
                || got.abs() >= least && got.is_sign_negative() == value.is_sign_negative())
    }

    /// The largest value of the stored type.
    pub fn largest(&self) -> f64 {
        if self.rounding > 0.0 { LARGEST_F16 } else { f64::from(f32::MAX) }
    }

    /// The absolute error of the stored type even in a value near zero.
    fn smallest(&self) -> f64 {
        if self.rounding > 0.0 { F16_SPACING } else { f64::from(f32::MIN_POSITIVE) }
    }
}

/// The element that uses most of its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worst {
    /// Index in the output.
    pub index: usize,
    /// Value of the kernel.
    pub got: f64,
    /// Value of the oracle.
    pub expected: f64,
    /// The largest |got − expected| allowed here.
    pub bound: f64,
}

impl Worst {
    /// The share of the bound that is used; above 1 is a failure.
    pub fn ratio(&self) -> f64 {
        (self.got - self.expected).abs() / self.bound
    }
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Worst { index, got, expected, bound } = self;
        write!(f, "[{index}] is {got:e}, expected {expected:e} ± {bound:.3e}")
    }
}

/// Result of a comparison that passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// NMSE over the whole output.
    pub nmse: f64,
    /// The element with the largest |got − expected| / bound.
    pub worst: Worst,
    /// Elements compared.
    pub elements: usize,
}

/// The reason why an output is wrong.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Mismatch {
    /// Nothing was compared, and nothing is not agreement.
    #[error("nothing to compare: the output is empty")]
    Empty,
    /// The output has another length than the oracle's.
    #[error("{got} elements, expected {expected}")]
    Length {
        /// Elements in the output.
        got: usize,
        /// Elements in the oracle's answer.
        expected: usize,
    },
    /// The oracle's own answer or the bound is not finite: an error of the test's input.
    #[error("the oracle itself is at fault: [{index}] expects {expected:e} ± {bound:e}")]
    Oracle {
        /// Index in the output.
        index: usize,
        /// Value of the oracle.
        expected: f64,
        /// The bound that follows from it.
        bound: f64,
    },
    /// The output holds NaN or an infinity.
    #[error("not finite: {0}")]
    NotFinite(Worst),
    /// A NaN or an infinity of an input is lost on the way to the output.
    #[error("[{index}] is {got:e}, expected {expected}: a value that is not finite vanished")]
    Vanished {
        /// Index in the output.
        index: usize,
        /// Value of the kernel.
        got: f64,
        /// Value of the oracle.
        expected: f64,
    },
    /// Every element is zero and should not be: most likely the kernel never ran.
    #[error("all {elements} elements are zero: {worst}")]
    AllZero {
        /// Elements in the output.
        elements: usize,
        /// The element that should be furthest from zero, by its bound.
        worst: Worst,
    },
    /// Elements are out of bound.
    #[error("{exceeded} of {elements} elements out of bound, worst {worst}")]
    Element {
        /// The worst of them.
        worst: Worst,
        /// Number of elements that exceed their bound.
        exceeded: usize,
        /// Elements compared.
        elements: usize,
    },
    /// Each element is in bound, but the whole output is too far off.
    #[error("NMSE {nmse:.3e} over the limit {limit:.3e}, worst {worst}")]
    Nmse {
        /// NMSE over the whole output.
        nmse: f64,
        /// The limit.
        limit: f64,
        /// The worst element, in bound.
        worst: Worst,
    },
    /// Integers differ.
    #[error(
        "{differing} of {elements} integers differ, first [{index}] is {got}, expected {expected}"
    )]
    Exact {
        /// Index of the first difference.
        index: usize,
        /// Value of the kernel there.
        got: u32,
        /// Value of the oracle there.
        expected: u32,
        /// Number of integers that differ.
        differing: usize,
        /// Elements compared.
        elements: usize,
    },
}

impl Mismatch {
    /// The element farthest past its bound, where the mismatch is one of elements.
    pub fn worst(&self) -> Option<&Worst> {
        match self {
            Mismatch::NotFinite(worst)
            | Mismatch::AllZero { worst, .. }
            | Mismatch::Element { worst, .. }
            | Mismatch::Nmse { worst, .. } => Some(worst),
            Mismatch::Empty
            | Mismatch::Length { .. }
            | Mismatch::Oracle { .. }
            | Mismatch::Vanished { .. }
            | Mismatch::Exact { .. } => None,
        }
    }
}

fn same_length(expected: usize, got: usize) -> Result<(), Mismatch> {
    match (expected, got) {
        (0, 0) => Err(Mismatch::Empty),
        _ if expected != got => Err(Mismatch::Length { got, expected }),
        _ => Ok(()),
    }
}

/// Compares an output with the oracle's answer, element by element and by NMSE.
///
/// # Errors
/// The first that applies, in the order of [`Mismatch`]. A tolerance that is NaN fails.
///
/// # Panics
/// When `expected` has not one magnitude per value, or absolute allowances for some only.
pub fn compare(
    expected: &Expected,
    got: &[f32],
    tolerance: &Tolerance,
) -> Result<Agreement, Mismatch> {
    assert_eq!(expected.value.len(), expected.magnitude.len(), "one magnitude per value");
    let elements = expected.value.len();
    assert!([0, elements].contains(&expected.absolute.len()), "one allowance per value, or none");
    same_length(elements, got.len())?;

    let mut worst = Worst { index: 0, got: 0.0, expected: 0.0, bound: f64::MAX };
    let (mut not_finite, mut vanished) = (None, None);
    let (mut exceeded, mut compared) = (0, 0);
    let (mut error, mut energy, mut unavoidable) = (0.0, 0.0, 0.0);
    for (index, (&value, &got)) in expected.value.iter().zip(got).enumerate() {
        let got = f64::from(got);
        let (bound, may_overflow, own) = match expected.rule(index, tolerance) {
            Rule::Kept { exact } => {
                if !is_kept(value, exact, got) {
                    vanished.get_or_insert(Mismatch::Vanished { index, got, expected: value });
                }
                continue;
            }
            Rule::Within { bound, may_overflow, unavoidable } => (bound, may_overflow, unavoidable),
        };
        if !(value.is_finite() && bound.is_finite() && bound > 0.0) {
            return Err(Mismatch::Oracle { index, expected: value, bound });
        }
        let this = Worst { index, got, expected: value, bound };
        let overflowed = may_overflow && !got.is_finite();
        if overflowed || tolerance.holds_beyond(value, bound, got) {
            continue;
        }
        if !got.is_finite() {
            not_finite.get_or_insert(this);
        }
        if compared == 0 || this.ratio() > worst.ratio() {
            worst = this;
        }
        compared += 1;
        exceeded += usize::from(this.ratio() > 1.0);
        error += (got - value) * (got - value);
        energy += value * value;
        unavoidable += own;
    }

    if let Some(this) = not_finite {
        return Err(Mismatch::NotFinite(this));
    }
    if let Some(lost) = vanished {
        return Err(lost);
    }
    if exceeded > 0 {
        return Err(if got.iter().all(|&g| g == 0.0) {
            Mismatch::AllZero { elements, worst }
        } else {
            Mismatch::Element { worst, exceeded, elements }
        });
    }
    let nmse = quotient(error, energy);
    let limit = expected.nmse_limit(tolerance);
    if nmse <= limit || error <= limit * energy + unavoidable {
        // Where all values are zero any error is infinitely large beside them: this one is none.
        let nmse = if energy == 0.0 { 0.0 } else { nmse };
        Ok(Agreement { nmse, worst, elements })
    } else {
        let limit = limit + quotient(unavoidable, energy);
        Err(Mismatch::Nmse { nmse, limit, worst })
    }
}

/// Returns true if a result stands for a value that is not finite: any that is not finite, or the
/// same where the value is exact.
fn is_kept(value: f64, exact: bool, got: f64) -> bool {
    match exact {
        true => got == value || (got.is_nan() && value.is_nan()),
        false => !got.is_finite(),
    }
}

/// Compares integers, which have no tolerance.
///
/// # Errors
/// [`Mismatch::Empty`], [`Mismatch::Length`] or [`Mismatch::Exact`].
pub fn compare_exact(expected: &[u32], got: &[u32]) -> Result<(), Mismatch> {
    same_length(expected.len(), got.len())?;
    let differ = |&(_, (expected, got)): &(usize, (&u32, &u32))| expected != got;
    let mut differing = expected.iter().zip(got).enumerate().filter(differ);
    match differing.next() {
        None => Ok(()),
        Some((index, (&expected_id, &got_id))) => Err(Mismatch::Exact {
            index,
            got: got_id,
            expected: expected_id,
            differing: 1 + differing.count(),
            elements: got.len(),
        }),
    }
}

/// Normalised mean squared error: Σ(got − expected)² / Σ expected². 0/0 is 0, x/0 infinite.
///
/// # Panics
/// When one side is longer than the other.
pub fn nmse(expected: impl IntoIterator<Item = f64>, got: impl IntoIterator<Item = f64>) -> f64 {
    let (error, energy) = squares(expected, got);
    quotient(error, energy)
}

/// 0/0 is 0, x/0 infinite.
fn quotient(error: f64, energy: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / energy }
}

/// Σ(got − expected)² and Σ expected².
fn squares(
    expected: impl IntoIterator<Item = f64>,
    got: impl IntoIterator<Item = f64>,
) -> (f64, f64) {
    let (mut expected, mut got) = (expected.into_iter(), got.into_iter());
    let (mut error, mut energy) = (0.0, 0.0);
    loop {
        match (expected.next(), got.next()) {
            (Some(e), Some(g)) => {
                error += (g - e) * (g - e);
                energy += e * e;
            }
            (None, None) => break (error, energy),
            _ => panic!("NMSE needs as many values as expected ones"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;
    use proptest::prelude::*;

    const EPSILON: f64 = 1.0 / 8_388_608.0; // 2^-23

    const TOLERANCE: Tolerance = Tolerance { k: 4.0, rounding: 0.0, nmse: 1e-9 };
    const STORED_AS_F16: Tolerance =
        Tolerance { rounding: 1.0 / 2048.0, nmse: 2.5e-7, ..TOLERANCE };

    fn expected() -> Expected {
        [(1.0, 1.0), (-2.0, 3.0), (0.5, 8.0), (0.0, 1.0)].into_iter().collect()
    }

    fn output() -> Vec<f32> {
        expected().to_f32()
    }

    fn with(index: usize, value: f32) -> Result<Agreement, Mismatch> {
        let mut got = output();
        got[index] = value;
        compare(&expected(), &got, &TOLERANCE)
    }

    #[test]
    fn equal_agrees() {
        let agreement = compare(&expected(), &output(), &TOLERANCE).unwrap();
        assert_eq!((agreement.nmse, agreement.elements), (0.0, 4));
        assert_eq!(agreement.worst.ratio(), 0.0);
    }

    #[test]
    fn the_bound_by_hand() {
        // Element 2 may move by 4·2^-23·8 = 2^-18 (and 2^-126): 2^-18 passes, 2^-17 does not.
        let agreement = with(2, 0.5 + 2f32.powi(-18)).unwrap();
        assert_eq!(agreement.worst.index, 2);
        assert_relative_eq!(agreement.worst.bound, 2f64.powi(-18));
        assert_relative_eq!(agreement.worst.ratio(), 1.0);
        // NMSE: 2^-36 over 1 + 4 + 0.25.
        assert_relative_eq!(agreement.nmse, 2f64.powi(-36) / 5.25);
        let Err(Mismatch::Element { worst, exceeded: 1, elements: 4 }) =
            with(2, 0.5 + 2f32.powi(-17))
        else {
            panic!("twice the bound passed")
        };
        assert_eq!((worst.index, worst.expected), (2, 0.5));
    }

    #[test]
    fn rounding_of_the_stored_type_widens_the_bound() {
        // 2^-11 of |−2| is 2^-10.
        let tolerance = Tolerance { k: 0.0, rounding: 2f64.powi(-11), nmse: 1.0 };
        let mut got = output();
        got[1] += 2f32.powi(-10);
        assert!(compare(&expected(), &got, &tolerance).is_ok());
        got[1] += 2f32.powi(-11);
        assert!(compare(&expected(), &got, &tolerance).is_err());
    }

    #[test]
    fn flushed_subnormals_agree() {
        let tiny: Expected = [(1e-39, 1e-39), (1.0, 1.0)].into_iter().collect();
        assert!(compare(&tiny, &[0.0, 1.0], &TOLERANCE).is_ok());
    }

    #[test]
    fn one_flipped_element_fails() {
        for (index, &value) in output().iter().enumerate() {
            let flipped = if value == 0.0 { 1e-5 } else { -value };
            let mismatch = with(index, flipped).unwrap_err();
            let Mismatch::Element { worst, exceeded: 1, .. } = mismatch else {
                panic!("{mismatch}")
            };
            assert_eq!(worst.index, index);
        }
    }

    #[test]
    fn one_nan_or_infinity_fails() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mismatch = with(3, bad).unwrap_err();
            assert!(matches!(mismatch, Mismatch::NotFinite(worst) if worst.index == 3));
        }
    }

    #[test]
    fn what_is_not_finite_must_not_vanish() {
        let values: Expected =
            [(f64::NAN, f64::NAN), (f64::INFINITY, 1.0), (1.0, 1.0)].into_iter().collect();
        let spread = Expected { spreads: true, ..values.clone() };
        for got in [[f32::NAN, f32::INFINITY, 1.0], [f32::INFINITY, f32::NAN, 1.0]] {
            assert_eq!(compare(&spread, &got, &TOLERANCE).unwrap().worst.index, 2);
            let mismatch = compare(&values, &got, &TOLERANCE).unwrap_err();
            assert!(matches!(mismatch, Mismatch::Oracle { index: 0, .. }), "{mismatch}");
        }
        let vanished = compare(&spread, &[f32::NAN, f32::MAX, 1.0], &TOLERANCE).unwrap_err();
        assert!(matches!(vanished, Mismatch::Vanished { index: 1, .. }), "{vanished}");
        // It must not spread to what does not depend on it, and the rest must be right.
        let mismatch = compare(&spread, &[f32::NAN; 3], &TOLERANCE).unwrap_err();
        assert!(matches!(mismatch, Mismatch::NotFinite(worst) if worst.index == 2), "{mismatch}");
        let mismatch = compare(&spread, &[f32::NAN, f32::NAN, 2.0], &TOLERANCE).unwrap_err();
        assert!(matches!(mismatch, Mismatch::Element { .. }), "{mismatch}");
    }

    #[test]
    fn an_exact_value_that_is_not_finite_is_met_by_itself() {
        let all = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        for (i, expected) in all.iter().enumerate() {
            let expected = Expected { spreads: true, ..Expected::exact(&[*expected, 1.0]) };
            for (j, got) in all.iter().enumerate() {
                let met = compare(&expected, &[*got, 1.0], &Tolerance { k: 0.0, ..TOLERANCE });
                assert_eq!(met.is_ok(), i == j, "{expected:?}, {got}");
            }
        }
    }

    #[test]
    fn a_kernel_that_may_overflow_is_right_or_not_finite() {
        let absolute = vec![0.0, f64::INFINITY];
        let values: Expected = [(1.0, 1.0), (1e6, 1e6)].into_iter().collect();
        let values = Expected { absolute, ..values };
        for (got, passes) in [([1.0, 1e6], true), ([1.0, f32::NAN], true), ([1.0, 2e6], false)] {
            assert_eq!(compare(&values, &got, &TOLERANCE).is_ok(), passes, "{got:?}");
        }
        assert!(compare(&values, &[f32::NAN, 1e6], &TOLERANCE).is_err());
    }

    #[test]
    fn beyond_the_stored_type_lies_its_largest_or_an_infinity() {
        let values: Expected = [(1e6, 1e6), (-7e4, 7e4), (3.0, 3.0)].into_iter().collect();
        for got in [
            [f32::INFINITY, -65504.0, 3.0],
            [65504.0, f32::NEG_INFINITY, 3.0],
            [f32::NAN, -65504.0, 3.0],
        ] {
            assert!(compare(&values, &got, &STORED_AS_F16).is_ok());
            assert!(compare(&values, &got, &TOLERANCE).is_err());
        }
        for got in [
            [65504.0, -65504.0, f32::NAN],
            [-65504.0, -65504.0, 3.0],
            [f32::NEG_INFINITY, -65504.0, 3.0],
            [1e3, -65504.0, 3.0],
        ] {
            assert!(compare(&values, &got, &STORED_AS_F16).is_err());
        }
    }

    #[test]
    fn all_zeros_fail() {
        let mismatch = compare(&expected(), &[0.0; 4], &TOLERANCE).unwrap_err();
        assert!(
            matches!(mismatch, Mismatch::AllZero { elements: 4, worst } if worst.index == 0),
            "{mismatch}"
        );
        let zeros: Expected = [(0.0, 1.0), (0.0, 0.0)].into_iter().collect();
        assert!(compare(&zeros, &[0.0, -0.0], &TOLERANCE).is_ok());
    }

    #[test]
    fn a_missing_or_extra_element_fails() {
        for length in [0, 3, 5] {
            let mut got = output();
            got.resize(length, 0.0);
            let mismatch = compare(&expected(), &got, &TOLERANCE).unwrap_err();
            assert_eq!(mismatch, Mismatch::Length { got: length, expected: 4 });
        }
        let nothing = compare(&Expected::default(), &[], &TOLERANCE);
        assert_eq!(nothing, Err(Mismatch::Empty));
    }

    #[test]
    fn nmse_fails_while_elements_pass() {
        let tolerance = Tolerance { nmse: 1e-16, ..TOLERANCE };
        let mut got = output();
        got[2] += 2f32.powi(-18);
        let mismatch = compare(&expected(), &got, &tolerance).unwrap_err();
        assert!(matches!(mismatch, Mismatch::Nmse { worst, .. } if worst.ratio() <= 1.0));
    }

    #[test]
    fn the_limit_of_nmse_grows_as_the_oracle_says() {
        let tolerance = Tolerance { nmse: 1e-12, ..TOLERANCE };
        let mut got = output();
        got[2] += 2f32.powi(-18);
        // 2^-36 over 5.25 is 2.8e-12.
        for (amplified, passes) in [(0.0, false), (2.0, false), (3.0, true)] {
            let expected = Expected { amplified, ..expected() };
            assert_eq!(compare(&expected, &got, &tolerance).is_ok(), passes, "{amplified}");
        }
        let parts = [expected(), Expected { amplified: 3.0, ..expected() }, expected()];
        assert_eq!(Expected::join(parts).amplified, 3.0);
    }

    #[test]
    fn subnormal_f16_agree_and_a_bias_of_normal_ones_does_not() {
        // Half a spacing of subnormals off, at 20 to 36 spacings: NMSE 3e-4, and no f16 is nearer.
        let tolerance = STORED_AS_F16;
        let values = |scale: f64| -> Expected {
            (0..16).map(|i| scale * (20.5 + f64::from(i))).map(|v| (v, v)).collect()
        };
        let tiny = values(F16_SPACING);
        let below: Vec<f32> =
            tiny.value.iter().map(|v| ((v / F16_SPACING).floor() * F16_SPACING) as f32).collect();
        assert!(compare(&tiny, &below, &tolerance).unwrap().nmse > 1e-4);
        // The same share of values that f16 holds to 11 bits: an error, by its bound and by NMSE.
        let normal = values(1.0);
        let scaled: Vec<f32> = below.iter().map(|v| v / F16_SPACING as f32).collect();
        assert!(matches!(compare(&normal, &scaled, &tolerance), Err(Mismatch::Element { .. })));
        let wide = Tolerance { rounding: 0.1, ..tolerance };
        assert!(matches!(compare(&normal, &scaled, &wide), Err(Mismatch::Nmse { .. })));
    }

    #[test]
    fn beside_zeros_only_what_the_type_cannot_express_agrees() {
        let zeros: Expected = [(0.0, 1.0), (0.0, 1.0)].into_iter().collect();
        // In bound by the magnitude, and still a bias beside values that are all zero.
        let mismatch = compare(&zeros, &[1e-7, -2e-7], &TOLERANCE).unwrap_err();
        assert!(matches!(mismatch, Mismatch::Nmse { .. }), "{mismatch}");
        let agreement = compare(&zeros, &[F16_SPACING as f32, 0.0], &STORED_AS_F16).unwrap();
        assert_eq!(agreement.nmse, 0.0);
        let unlimited = Tolerance { nmse: f64::INFINITY, ..TOLERANCE };
        assert!(compare(&zeros, &[0.0, 0.0], &unlimited).is_ok());
        // Half a rounding of a sum that cancels.
        let agreement = compare(&zeros, &[f32::EPSILON / 2.0, 0.0], &TOLERANCE).unwrap();
        assert_eq!(agreement.nmse, 0.0);
    }

    #[test]
    fn an_oracle_that_is_not_finite_fails_even_against_itself() {
        for bad in [(f64::NAN, 1.0), (f64::INFINITY, 1.0), (1.0, f64::NAN), (1.0, -1e9)] {
            let broken: Expected = [(1.0, 1.0), bad].into_iter().collect();
            let mismatch = compare(&broken, &broken.to_f32(), &TOLERANCE).unwrap_err();
            assert!(matches!(mismatch, Mismatch::Oracle { index: 1, .. }), "{mismatch}");
        }
    }

    #[test]
    fn a_tolerance_of_nan_fails() {
        for tolerance in [
            Tolerance { k: f64::NAN, ..TOLERANCE },
            Tolerance { rounding: f64::NAN, ..TOLERANCE },
            Tolerance { nmse: f64::NAN, ..TOLERANCE },
        ] {
            assert!(compare(&expected(), &output(), &tolerance).is_err());
        }
    }

    #[test]
    fn messages_name_index_got_expected_and_bound() {
        let message = with(1, 7.0).unwrap_err().to_string();
        assert_eq!(
            message,
            "1 of 4 elements out of bound, worst [1] is 7e0, expected -2e0 ± 1.431e-6"
        );
    }

    #[test]
    fn integers_compare_exactly() {
        assert_eq!(compare_exact(&[1, 2, 3], &[1, 2, 3]), Ok(()));
        let mismatch = compare_exact(&[1, 2, 3], &[1, 5, 4]).unwrap_err();
        assert_eq!(mismatch.to_string(), "2 of 3 integers differ, first [1] is 5, expected 2");
        assert_eq!(compare_exact(&[1], &[]), Err(Mismatch::Length { got: 0, expected: 1 }));
        assert_eq!(compare_exact(&[], &[]), Err(Mismatch::Empty));
    }

    #[test]
    fn nmse_by_hand() {
        // (0 + 1) / (9 + 16)
        assert_relative_eq!(nmse([3.0, 4.0], [3.0, 5.0]), 0.04);
        assert_eq!(nmse([0.0], [0.0]), 0.0);
        assert_eq!(nmse([0.0], [1.0]), f64::INFINITY);
        assert!(nmse([1.0], [f64::NAN]).is_nan());
    }

    proptest! {
        #[test]
        fn errors_pass_exactly_when_in_bound(
            value in -1.0f32..1.0,
            k in 1.0f64..64.0,
            share in prop_oneof![0.0f64..0.9, 1.1f64..2.0],
        ) {
            // A magnitude of 16 keeps the rounding of `got` itself far below the bound.
            let expected: Expected = [(f64::from(value), 16.0)].into_iter().collect();
            let got = (f64::from(value) + share * k * EPSILON * 16.0) as f32;
            let tolerance = Tolerance { k, rounding: 0.0, nmse: f64::INFINITY };
            prop_assert_eq!(compare(&expected, &[got], &tolerance).is_ok(), share < 1.0);
        }
    }
}
