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
    /// Half-width of the median's 95 % interval over the median (order statistics; makes no
    /// assumption about the distribution).
    pub noise: f64,
}

/// The value below which a fraction `q` of the values lies, interpolated linearly. Zero for none.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// Summarises samples.
pub fn summarise(samples: &[f64]) -> Summary {
    // To sort what is in order costs little, and this is called after each sample.
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |q| quantile(&sorted, q);
    // The ranks n/2 ± 0.98 √n enclose the median in 95 % of cases.
    let reach = 0.98 / (samples.len().max(1) as f64).sqrt();
    let (median, range) = (at(0.5), at(0.75) - at(0.25));
    let interval = at(0.5 + reach) - at(0.5 - reach);
    Summary {
        median,
        min: at(0.0),
        spread: if median > 0.0 { range / median } else { 0.0 },
        noise: if median > 0.0 { interval / 2.0 / median } else { 0.0 },
    }
}

/// The interval that covers the median of the distribution with at least this confidence, whatever
/// the distribution: between the order statistics that the sign test leaves (David and Nagaraja,
/// Order Statistics, 3rd ed. 2003, section 7.1). None for too few values.
pub fn median_interval(values: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let tail = (1.0 - confidence) / 2.0;
    let n = values.len();
    // How many values lie below the median is binomial. Its logarithm, since halves to the power
    // of a thousand are no numbers.
    let mut log = -(n as f64) * std::f64::consts::LN_2;
    let (mut below, mut rank) = (log.exp(), 0);
    while below <= tail && rank < n / 2 {
        rank += 1;
        log += ((n + 1 - rank) as f64 / rank as f64).ln();
        below += log.exp();
    }
    let low = rank.checked_sub(1)?;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some((sorted[low], sorted[n - rank]))
}

/// A mean and its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mean {
    /// Mean of all values; 0 for none.
    pub mean: f64,
    /// Its standard error: the values' standard deviation (n − 1) over √n, as if they were
    /// independent. None for fewer than two.
    pub std_error: Option<f64>,
}

/// The mean of values and its standard error.
pub fn mean(values: &[f64]) -> Mean {
    let (mean, sd) = mean_sd(values);
    let std_error = (values.len() > 1).then(|| sd / (values.len() as f64).sqrt());
    Mean { mean, std_error }
}

/// Half-width of the 95 % interval of a mean of few values, by Student's t with n − 1 degrees of
/// freedom. None for fewer than two.
pub fn half_interval(values: &[f64]) -> Option<f64> {
    /// 97.5 % quantiles for 1, 2, … degrees of freedom.
    const T: [f64; 20] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    ];
    let freedom = values.len().checked_sub(1).filter(|n| *n > 0)?;
    let t = T.get(freedom - 1).copied().unwrap_or(1.96 + 2.5 / freedom as f64);
    Some(t * mean_sd(values).1 / (values.len() as f64).sqrt())
}

/// Mean and standard deviation of samples (over n - 1; zero for one).
pub fn mean_sd(samples: &[f64]) -> (f64, f64) {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n.max(1.0);
    let squares: f64 = samples.iter().map(|v| (v - mean) * (v - mean)).sum();
    (mean, if n > 1.0 { (squares / (n - 1.0)).sqrt() } else { 0.0 })
}

/// Upper quantile of the standard normal distribution: exceeded with probability `p`, for `p` up to
/// a half. Within 4.5e-4 (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.23).
pub fn normal_quantile(p: f64) -> f64 {
    let t = (-2.0 * p.ln()).sqrt();
    let above = 2.515517 + t * (0.802853 + t * 0.010328);
    let below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
    t - above / below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_have_the_intervals_of_the_sign_test() {
        // Tables of the binomial distribution: of 41 values the 14th to the 28th at 95 %, of 10 the
        // first to the last at 99 %, of 8 too; of 7 no two (2 / 2^7 is 1.6 %).
        let values = |n: u16| (1..=n).rev().map(f64::from).collect::<Vec<_>>();
        assert_eq!(median_interval(&values(41), 0.95), Some((14.0, 28.0)));
        assert_eq!(median_interval(&values(10), 0.99), Some((1.0, 10.0)));
        assert_eq!(median_interval(&values(8), 0.99), Some((1.0, 8.0)));
        assert_eq!(median_interval(&values(7), 0.99), None);
        assert_eq!(median_interval(&[], 0.5), None);
        assert_eq!(median_interval(&values(9), f64::NAN), None);
        // Far from the ends of a long run: half of n, and 2.576 roots of a quarter of n.
        let (low, high) = median_interval(&values(10_000), 0.99).unwrap();
        assert!((low - 4871.0).abs() <= 1.0 && (low + high - 10_001.0).abs() < 1e-9, "{low}");
    }

    #[test]
    fn intervals_of_few_values_follow_students_t() {
        // Of 1, 2, 3: sd 1, t 4.303 with two degrees of freedom.
        let half = half_interval(&[1.0, 2.0, 3.0]).unwrap();
        assert!((half - 4.303 / 3f64.sqrt()).abs() < 1e-9);
        assert_eq!(half_interval(&[1.0]), None);
        // Against the table for 24 degrees of freedom: 2.064.
        let many: Vec<f64> = (0..25).map(f64::from).collect();
        let t = half_interval(&many).unwrap() * 5.0 / mean_sd(&many).1;
        assert!((t - 2.064).abs() < 0.003, "{t}");
    }

    #[test]
    fn normal_quantiles_are_those_of_the_tables() {
        for (p, z) in [(0.025, 1.959964), (0.005, 2.575829), (5e-5, 3.890592), (1e-6, 4.753424)] {
            assert!((normal_quantile(p) - z).abs() < 4.5e-4, "{p}: {}", normal_quantile(p));
        }
    }

    #[test]
    fn mean_and_standard_deviation() {
        assert_eq!(mean_sd(&[]), (0.0, 0.0));
        assert_eq!(mean_sd(&[3.0]), (3.0, 0.0));
        assert_eq!(mean_sd(&[1.0, 2.0, 3.0, 4.0, 5.0]), (3.0, 2.5f64.sqrt()));
    }

    #[test]
    fn quantiles_interpolate() {
        let v = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(quantile(&v, 0.0), 1.0);
        assert_eq!(quantile(&v, 0.5), 2.5);
        assert_eq!(quantile(&v, 1.0), 4.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn noise_shrinks_with_samples_and_ignores_the_tail() {
        let wave =
            |n: usize| -> Vec<f64> { (0..n).map(|i| 1.0 + (i % 10) as f64 / 100.0).collect() };
        assert!(summarise(&wave(1000)).noise < summarise(&wave(50)).noise);
        let mut tailed = wave(1000);
        tailed[3] = 1e9;
        assert!(summarise(&tailed).noise < 0.01);
        assert_eq!(summarise(&[2.0; 30]).noise, 0.0);
    }

    #[test]
    fn summary_of_unsorted_samples() {
        let s = summarise(&[5.0, 1.0, 3.0]);
        assert_eq!((s.median, s.min), (3.0, 1.0));
        assert!((s.spread - 2.0 / 3.0).abs() < 1e-12); // quartiles 2 and 4
    }

    #[test]
    fn a_mean_has_the_error_of_its_values() {
        // Deviations -3, -1, 1, 3: variance 20/3, error √(20/3/4).
        let m = mean(&[1e9 + 2.0, 1e9 + 4.0, 1e9 + 6.0, 1e9 + 8.0]);
        assert_eq!(m.mean, 1e9 + 5.0);
        assert!((m.std_error.unwrap() - (5.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(mean(&[7.0]), Mean { mean: 7.0, std_error: None });
        assert_eq!(mean(&[]), Mean { mean: 0.0, std_error: None });
    }
}
