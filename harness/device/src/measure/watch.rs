//! Observations made along with the times: canaries, whose work never changes, and throttling.

use std::sync::Arc;

use lathe_record::record::{Canary, Environment, Flag, Watched};

use super::ceilings::Copier;
use super::environment::environment;
use crate::error::{Error, Result};
use crate::gpu::{Gpu, Span};

/// Change of a canary that makes a result doubtful.
const DRIFT: f64 = 0.02;

/// Times of the canaries so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Canaries(Vec<Canary>);

impl Canaries {
    /// Adds the next times. Returns whether one moved since the last or since the first.
    pub(super) fn push(&mut self, now: Canary) -> bool {
        let drifted = self.have_moved(now);
        self.0.push(now);
        drifted
    }

    /// Returns true if one of these times has moved since the last or since the first.
    pub(super) fn have_moved(&self, now: Canary) -> bool {
        let moved = |a: f64, b: f64| (a / b - 1.0).abs() > DRIFT;
        let mut ends = [self.0.first(), self.0.last()].into_iter().flatten();
        ends.any(|then| moved(now.copy, then.copy) || moved(now.cycles, then.cycles))
    }

    /// The last times.
    pub(super) fn last(&self) -> Option<Canary> {
        self.0.last().copied()
    }

    /// Largest change of a canary's time so far, as a fraction of its smallest; none for fewer than
    /// two.
    pub(super) fn drift(&self) -> Option<f64> {
        let of = |time: fn(&Canary) -> f64| {
            let low = self.0.iter().map(time).fold(f64::INFINITY, f64::min);
            let high = self.0.iter().map(time).fold(0.0, f64::max);
            if low > 0.0 { high / low - 1.0 } else { 0.0 }
        };
        (self.0.len() > 1).then(|| of(|c| c.copy).max(of(|c| c.cycles)))
    }
}

/// Times the canaries of a GPU. Times nothing on a software adapter, whose speed does not matter,
/// and on a device too full for the memory they need, which is allocated here.
///
/// # Errors
/// A lost device.
pub fn canary(gpu: &Arc<Gpu>) -> Result<impl FnMut() -> Result<Option<Canary>> + use<>> {
    let copier = match gpu.adapter.software {
        true => None,
        false => unless_full(Copier::new(gpu))?,
    };
    let gpu = Arc::clone(gpu);
    Ok(move || copier.as_ref().map(|copier| copier.canary(&gpu, false)).transpose())
}

/// A measurement, or none on a device that is too full for it.
fn unless_full<T>(measured: Result<T>) -> Result<Option<T>> {
    match measured {
        Ok(measured) => Ok(Some(measured)),
        Err(lost @ Error::DeviceLost { .. }) => Err(lost),
        Err(e) => {
            tracing::warn!("no copy bandwidth and no canaries: {e}");
            Ok(None)
        }
    }
}

/// Watches a run of whole generations. Its models fill the memory that canaries need, so canaries
/// are timed before the first is loaded and after the last is freed.
#[derive(Debug)]
pub struct RunWatch {
    gpu: Arc<Gpu>,
    canaries: Canaries,
    /// Environment of the run with the copy bandwidth, which shows `compare` that a machine has
    /// changed.
    pub environment: Environment,
}

impl RunWatch {
    /// Begins a run; to be called before any model is loaded.
    ///
    /// # Errors
    /// A lost device, or one without timestamps that work.
    pub fn begin(gpu: &Arc<Gpu>) -> Result<Self> {
        let mut environment = environment(gpu);
        environment.timestamp_quantum_ns = Span::new(gpu)?.timestamp_step_ns(gpu)?;
        let mut watch = Self { gpu: Arc::clone(gpu), canaries: Canaries::default(), environment };
        watch.environment.copy_gb_s = watch.copied(&|copier| copier.bandwidth(gpu))?;
        Ok(watch)
    }

    /// Ends a run after the last model is freed: times canaries again and reads the driver's state.
    ///
    /// # Errors
    /// A lost device.
    pub fn end(&mut self) -> Result<()> {
        if self.gpu.adapter.software {
            return Ok(());
        }
        self.copied(&|_| Ok(0.0))?;
        self.environment.canary_drift = self.canaries.drift();
        if let Some(machine) = &mut self.environment.machine {
            machine.gpu.extend(self.gpu.state());
        }
        Ok(())
    }

    /// A figure measured by the copier, and the canaries of a GPU; none if the device is too full.
    fn copied(&mut self, measure: &dyn Fn(&Copier) -> Result<f64>) -> Result<Option<f64>> {
        let gpu = &self.gpu;
        let measured = Copier::new(gpu).and_then(|copier| {
            let figure = measure(&copier)?;
            // Loading and verifying leave the device idle.
            let canary = (!gpu.adapter.software).then(|| copier.canary(gpu, true));
            Ok((figure, canary.transpose()?))
        });
        let Some((figure, canary)) = unless_full(measured)? else { return Ok(None) };
        canary.map(|now| self.canaries.push(now));
        Ok(Some(figure))
    }
}

/// Timed repetitions without those during which the driver throttled the clocks.
#[derive(Debug)]
pub struct Repetitions<T> {
    wanted: usize,
    kept: Vec<T>,
    dropped: usize,
    held_down: bool,
}

impl<T> Repetitions<T> {
    /// No repetitions yet, of `wanted`.
    pub fn new(wanted: usize) -> Self {
        Self { wanted, kept: Vec::new(), dropped: 0, held_down: false }
    }

    /// The number of the next repetition; none if there are enough.
    pub fn wanted(&self) -> Option<usize> {
        (self.kept.len() < self.wanted).then(|| self.kept.len() + self.dropped)
    }

    /// Adds a repetition unless the clocks were throttled meanwhile. After `wanted` dropped ones it
    /// counts nevertheless, with a flag. Returns whether it counts.
    pub fn push(&mut self, repetition: T, held_down: bool) -> bool {
        if held_down && self.dropped < self.wanted {
            self.dropped += 1;
            return false;
        }
        self.held_down |= held_down;
        self.kept.push(repetition);
        true
    }

    /// The repetitions that count, and the record's entry on the others.
    pub fn end(self, settled: bool) -> (Vec<T>, Watched) {
        let flags = [(!settled, Flag::NotSettled), (self.held_down, Flag::Throttled)];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag);
        (self.kept, Watched { throttled: self.dropped, flags: flags.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttled_repetitions_are_dropped_until_nothing_else_comes() {
        let watched = |held_down: &[bool]| {
            let mut repetitions = Repetitions::new(3);
            let mut count = 0;
            while let Some(number) = repetitions.wanted() {
                assert_eq!(number, count);
                repetitions.push(number, held_down.get(number).copied().unwrap_or(false));
                count += 1;
            }
            repetitions.end(true)
        };
        assert_eq!(watched(&[]), (vec![0, 1, 2], Watched::default()));
        let dropped = |throttled, flags| Watched { throttled, flags };
        assert_eq!(watched(&[false, true, true]), (vec![0, 3, 4], dropped(2, Vec::new())));
        let flagged = vec![Flag::Throttled];
        assert_eq!(watched(&[true; 9]), (vec![3, 4, 5], dropped(3, flagged)));
        let (_, unsettled) = Repetitions::<()>::new(0).end(false);
        assert_eq!(unsettled.flags, [Flag::NotSettled]);
    }

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
