//! Small statistics of timing samples.

use serde::Serialize;

/// Median and spread of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Middle value.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Interquartile range over the median, as a fraction.
    pub spread: f64,
    /// Number of samples.
    pub samples: usize,
}

/// The value below which a fraction `q` of `sorted` lies, interpolated linearly. Zero for none.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// Summarises samples.
pub fn summarise(samples: &[f64]) -> Summary {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = quantile(&sorted, 0.5);
    let range = quantile(&sorted, 0.75) - quantile(&sorted, 0.25);
    Summary {
        median,
        min: sorted.first().copied().unwrap_or(0.0),
        spread: if median > 0.0 { range / median } else { 0.0 },
        samples: samples.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let v = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(quantile(&v, 0.0), 1.0);
        assert_eq!(quantile(&v, 0.5), 2.5);
        assert_eq!(quantile(&v, 1.0), 4.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn summary_of_unsorted_samples() {
        let s = summarise(&[5.0, 1.0, 3.0]);
        assert_eq!((s.median, s.min, s.samples), (3.0, 1.0, 3));
        assert!((s.spread - 2.0 / 3.0).abs() < 1e-12); // quartiles 2 and 4
    }
}
