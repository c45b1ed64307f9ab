//! What is watched beside the times: work that never changes, and whether the driver holds the
//! clocks down.

use std::sync::Arc;

use super::copy::Copier;
use crate::data::record::Canary;
use crate::error::{Error, Result};
use crate::gpu::Gpu;

/// Change of a canary that makes a result doubtful.
const DRIFT: f64 = 0.02;

/// Times of the canaries so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Canaries(Vec<Canary>);

impl Canaries {
    /// Adds the next; says whether one moved since the last time or since the first.
    pub(super) fn push(&mut self, now: Canary) -> bool {
        let ends = [self.0.first(), self.0.last()];
        let moved = |a: f64, b: f64| (a / b - 1.0).abs() > DRIFT;
        let has_moved =
            |then: &Canary| moved(now.copy, then.copy) || moved(now.cycles, then.cycles);
        let drifted = ends.into_iter().flatten().any(has_moved);
        self.0.push(now);
        drifted
    }

    /// The last.
    pub(super) fn last(&self) -> Option<Canary> {
        self.0.last().copied()
    }

    /// Largest change of a canary's time so far, as a fraction of its smallest; none before there
    /// are two.
    pub(super) fn drift(&self) -> Option<f64> {
        let of = |time: fn(&Canary) -> f64| {
            let low = self.0.iter().map(time).fold(f64::INFINITY, f64::min);
            let high = self.0.iter().map(time).fold(0.0, f64::max);
            if low > 0.0 { high / low - 1.0 } else { 0.0 }
        };
        (self.0.len() > 1).then(|| of(|c| c.copy).max(of(|c| c.cycles)))
    }
}

/// Watches a device.
pub trait Watch {
    /// Whether the driver holds the clocks down now.
    fn is_throttled(&self) -> bool;

    /// Times the canaries, where there are any.
    ///
    /// # Errors
    /// What the device says.
    fn canary(&mut self) -> Result<Option<Canary>>;
}

/// Watches a GPU; of a software adapter, which is no subject for speed, nothing.
#[derive(Debug)]
pub struct GpuWatch {
    gpu: Arc<Gpu>,
    copier: Option<Copier>,
}

impl GpuWatch {
    /// Takes memory for the canary that copies. A device too full for it has no canaries.
    ///
    /// # Errors
    /// A lost device.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let copier = match gpu.adapter.software {
            true => None,
            false => match Copier::new(gpu) {
                Ok(copier) => Some(copier),
                Err(lost @ Error::DeviceLost { .. }) => return Err(lost),
                Err(e) => {
                    tracing::warn!("no canaries: {e}");
                    None
                }
            },
        };
        Ok(Self { gpu: Arc::clone(gpu), copier })
    }
}

impl Watch for GpuWatch {
    fn is_throttled(&self) -> bool {
        self.gpu.is_throttled()
    }

    fn canary(&mut self) -> Result<Option<Canary>> {
        self.copier.as_ref().map(|copier| copier.canary(&self.gpu)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canaries_move_against_the_last_and_the_first() {
        let mut canaries = Canaries::default();
        let at = |copy: f64, cycles: f64| Canary { copy, cycles };
        assert!(!canaries.push(at(1.0, 1.0)));
        assert_eq!(canaries.drift(), None);
        assert!(!canaries.push(at(1.015, 1.0)));
        // Little since the last, much since the first.
        assert!(canaries.push(at(1.03, 1.0)));
        // The clock of the multiprocessors alone.
        assert!(canaries.push(at(1.0, 0.9)));
        assert!((canaries.drift().expect("four") - 1.0 / 9.0).abs() < 1e-9);
        assert_eq!(canaries.last(), Some(at(1.0, 0.9)));
    }
}
