//! What a rate is held against: the bandwidths that the run measured.

use lathe_record::record::Environment;

use super::markup::sound;

/// The measured bandwidths of a run, 10^9 bytes a second.
#[derive(Clone, Copy)]
pub(super) struct Bandwidths {
    /// Copy, read plus written.
    pub(super) copy: Option<f64>,
    /// Reading alone.
    pub(super) read: Option<f64>,
}

impl Bandwidths {
    pub(super) fn of(env: &Environment) -> Self {
        let positive = |rate: Option<f64>| rate.and_then(sound).filter(|rate| *rate > 0.0);
        Self { copy: positive(env.copy_gb_s), read: positive(env.read_gb_s) }
    }

    /// The better of both.
    pub(super) fn best(self) -> Option<f64> {
        self.copy.into_iter().chain(self.read).reduce(f64::max)
    }

    /// Above this a rate cannot be one of memory. `bench` refuses what lies 2 % above the better
    /// bandwidth; where reading was not measured, a kernel that reads is allowed more, since
    /// reading alone is faster than copying.
    pub(super) fn ceiling(self) -> Option<f64> {
        let margin = if self.read.is_some() { 1.02 } else { 1.1 };
        self.best().map(|best| best * margin)
    }
}
