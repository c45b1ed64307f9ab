//! Warm-up: clocks take their time to rise, so measuring starts when times no longer move.

use std::time::{Duration, Instant};

use super::{AdapterSummary, stats};

/// Largest relative difference of two successive windows that counts as steady.
const STEADY: f64 = 0.01;

/// Runs until the medians of three successive windows agree within 1 %, or a time-out. A real GPU
/// gets at least half a second: an idle one raises its clocks in steps, and a step looks steady. A
/// software adapter, which is no subject for speed, gets a moment.
/// Returns whether times had settled, or the first error of a run.
pub fn steady<E>(
    adapter: &AdapterSummary,
    run: &mut dyn FnMut() -> Result<f64, E>,
) -> Result<bool, E> {
    let (least, window, most) = if adapter.software {
        (Duration::ZERO, Duration::from_millis(2), Duration::from_millis(10))
    } else {
        (Duration::from_millis(500), Duration::from_millis(60), Duration::from_secs(5))
    };
    let begun = Instant::now();
    let mut medians: Vec<f64> = Vec::new();
    while begun.elapsed() < most {
        let mut times = Vec::new();
        let opened = Instant::now();
        while times.is_empty() || opened.elapsed() < window {
            times.push(run()?);
        }
        medians.push(stats::summarise(&times).median);
        if begun.elapsed() >= least && settled(&medians) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn settled(medians: &[f64]) -> bool {
    let Some([a, b, c]) = medians.last_chunk::<3>() else { return false };
    let (low, high) = (a.min(*b).min(*c), a.max(*b).max(*c));
    high - low <= STEADY * low
}

#[cfg(test)]
mod tests {
    use super::settled;

    #[test]
    fn settles_only_when_three_windows_agree() {
        assert!(!settled(&[1.0, 1.0]));
        assert!(settled(&[4.0, 1.0, 1.005, 1.009]));
        assert!(!settled(&[1.0, 1.0, 1.02]));
        assert!(!settled(&[4.0, 3.0, 2.0, 1.0]));
    }
}
