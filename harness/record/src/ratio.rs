//! A ratio of two times.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{paired, stats};

/// A ratio of two times with its confidence interval. `ab` computes a 99 % interval at each look,
/// so that the final one covers at least 95 % despite early stopping. All others are 95 %. Its
/// figures are finite, so that they survive JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Ratio {
    /// An unknown ratio: anything from nothing to a million.
    pub const UNKNOWN: Self = Self { median: 1.0, low: 0.0, high: 1e6 };

    /// Half of its width in log space, which for small widths is a fraction of the ratio.
    pub fn half_width(&self) -> f64 {
        (self.high.ln() - self.low.ln()) / 2.0
    }

    /// Back from logarithms.
    pub(crate) fn exp(median: f64, (low, high): (f64, f64)) -> Self {
        Self { median: median.exp(), low: low.exp(), high: high.exp() }
    }

    /// Median of the ratios of several processes, with the 95 % interval of their logarithms' mean
    /// around it. Unknown where one process knows nothing.
    pub fn over_processes(ratios: impl Iterator<Item = Self>) -> Self {
        let logs: Option<Vec<f64>> =
            ratios.map(|ratio| (ratio != Self::UNKNOWN).then(|| ratio.median.ln())).collect();
        let Some((middle, half)) =
            logs.and_then(|logs| Some((paired::median(&logs), stats::half_interval(&logs)?)))
        else {
            return Self::UNKNOWN;
        };
        Self::exp(middle, (middle - half, middle + half))
    }

    /// Distance of its ends from 1, in log space.
    pub(super) fn reach(&self) -> f64 {
        self.low.ln().abs().max(self.high.ln().abs())
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.low <= 0.0 {
            return f.write_str("unknown");
        }
        write!(f, "{:.4} [{:.4}, {:.4}]", self.median, self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::Ratio;

    #[test]
    fn shows_its_interval_unless_nothing_is_known() {
        let ratio = Ratio { median: 1.03, low: 1.0264, high: 1.0337 };
        assert_eq!(ratio.to_string(), "1.0300 [1.0264, 1.0337]");
        assert_eq!(Ratio::UNKNOWN.to_string(), "unknown");
    }

    #[test]
    fn ratios_of_processes_have_the_interval_of_their_mean() {
        let of = |log: f64| Ratio::exp(log, (log - 0.1, log + 0.1));
        let ratio = Ratio::over_processes([0.01, 0.02, 0.03].map(of).into_iter());
        assert!((ratio.median - 0.02f64.exp()).abs() < 1e-12);
        assert!((ratio.half_width() - 4.303 * 0.01 / 3f64.sqrt()).abs() < 1e-9);
        // One that knows nothing is not one in which both are equal.
        assert_eq!(Ratio::over_processes([of(0.05), Ratio::UNKNOWN].into_iter()), Ratio::UNKNOWN);
    }
}
