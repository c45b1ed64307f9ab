//! A ratio of two times.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A ratio of times and the interval it lies in: of one `ab` run 99 % at a look, which is 95 % and
/// more where the run stopped; elsewhere 95 %.
/// What this command computes is finite, so that it survives JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// Median.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Ratio {
    /// Nothing is known: any ratio from nothing to a million.
    pub const UNKNOWN: Self = Self { median: 1.0, low: 0.0, high: 1e6 };

    /// Half of its width in log space, which for small widths is a fraction of the ratio.
    pub fn half_width(&self) -> f64 {
        (self.high.ln() - self.low.ln()) / 2.0
    }

    /// Back from logarithms.
    pub(crate) fn exp(median: f64, (low, high): (f64, f64)) -> Self {
        Self { median: median.exp(), low: low.exp(), high: high.exp() }
    }

    /// How far its ends lie from 1, in log space.
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
}
