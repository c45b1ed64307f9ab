//! Distance of a position's logits from those expected, and the distance that narrow storage
//! explains.
//!
//! Softmax and argmax are blind to a shift of all logits, and most of a trained model's error is
//! one, so logits are compared centred: less their mean. A repetition penalty scales logits, so
//! that their zero matters; there the shift counts.

use lathe_kernels::{FloatFormat, KvFormat};

use crate::graph::DecodeGraph;
use crate::perplexity::Distribution;
use lathe_device::plan::recording::TensorInit;

/// Factor between the largest error on ordinary text and the largest accepted, and between it and
/// the error of most positions.
const MARGIN: f64 = 8.0;

/// Largest NMSE of a position of ordinary text where all is stored in f32, with room for adapters
/// that were not measured.
const ON_TEXT_F32: f64 = 1.25e-9;

/// Storage of a run in fewer bits than f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    kv: KvFormat,
    /// True if inputs of matrices are f16.
    narrow_acts: bool,
    shift_counts: bool,
}

impl Storage {
    /// The storage of a graph's steps, and of its chunks if any of the tokens ran in chunks.
    pub(super) fn of(graph: &DecodeGraph, chunks: bool) -> Self {
        let (mut kv, mut narrow_acts) = (KvFormat::F32, false);
        for tensor in &graph.recording.tensors {
            match tensor.content {
                TensorInit::Kv { vectors, .. } => kv = vectors.format,
                TensorInit::Activation { format, .. } if chunks || !tensor.is_of_chunk() => {
                    narrow_acts |= format != FloatFormat::F32;
                }
                _ => {}
            }
        }
        // No architecture that is decoded caps its logits.
        let shift_counts = graph.sampling.is_some_and(|s| s.repeat_penalty != 1.0);
        Self { kv, narrow_acts, shift_counts }
    }

    /// True if all is stored in f32.
    pub(super) fn is_exact(self) -> bool {
        self.kv == KvFormat::F32 && !self.narrow_acts
    }

    /// Relative step of the coarsest format.
    pub(super) fn step(self) -> f32 {
        match self.kv {
            KvFormat::Q8_0 => 1.0 / 128.0,
            KvFormat::F32 | KvFormat::F16 => 1.0 / 1024.0,
        }
    }

    /// Largest NMSE of a position of ordinary text that this storage alone causes. Measured with
    /// SmolLM2-135M in float64 with nothing but storage rounded, against plain float64, over 1069
    /// positions of five prompts:
    ///
    /// | rounded | centred | with the shift |
    /// |---|---|---|
    /// | KV f16 | 2.7e-6 | 2.0e-5 |
    /// | inputs of matrices f16 | 4.2e-6 | 3.4e-5 |
    /// | both | 1.9e-5 | 7.9e-5 |
    /// | KV q8_0 | 1.5e-3 | 1.3e-2 |
    ///
    /// In f32 the device and the reference differ by up to 3.1e-10 there.
    fn on_text(self) -> f64 {
        let [centred, shifted] = match (self.kv, self.narrow_acts) {
            (KvFormat::F32, false) => [ON_TEXT_F32; 2],
            (KvFormat::F16, false) => [2.7e-6, 2.0e-5],
            (KvFormat::F32, true) => [4.2e-6, 3.4e-5],
            (KvFormat::F16, true) => [1.9e-5, 7.9e-5],
            (KvFormat::Q8_0, _) => [1.5e-3, 1.3e-2],
        };
        if self.shift_counts { shifted } else { centred }
    }

    /// NMSE up to which the logits of a position need no measurement of what the storage costs
    /// there, since that costs about as much at most positions. The first position has one slot to
    /// attend to and loses a hundredth of what others lose; it has the limit of f32.
    pub(super) fn usual(self, position: usize) -> f64 {
        match position {
            _ if self.is_exact() => self.most(),
            0 => MARGIN * ON_TEXT_F32,
            _ => self.on_text() / MARGIN,
        }
    }

    /// Largest accepted NMSE of two runs where no reference measures what the storage costs. Two
    /// correct runs lie within its cost of the exact logits, so within four times of it of each
    /// other; twice that is left for other prompts.
    pub(super) fn most(self) -> f64 {
        MARGIN * self.on_text()
    }

    /// Distance of logits.
    pub(super) fn distance(self, expected: &[f32], got: &[f32]) -> Distance {
        Distance::of(expected, got, self.shift_counts)
    }
}

/// Largest accepted NMSE of logits where no reference measures what the graph's storage costs,
/// whether the prompt ran in chunks or not.
pub fn logits_limit(graph: &DecodeGraph) -> f64 {
    Storage::of(graph, true).most()
}

/// Distance of logits from those expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Distance {
    /// Squared error over the variance of the expected logits, the shift left out where it does
    /// not count.
    pub(super) nmse: f64,
    /// Largest error of a logit over the standard deviation of the expected ones.
    largest: f64,
    /// Divergence of the probabilities, nats.
    pub(super) kl: f64,
    /// Likeliest tokens.
    pub(super) top: [usize; 2],
    shift_counts: bool,
}

/// A logit may be off by this many root mean squares of the accepted error. Among 262144 values
/// of a normal distribution the largest is 4.6 of them.
const OUTLIER: f64 = 8.0;

impl Distance {
    fn of(expected: &[f32], got: &[f32], shift_counts: bool) -> Self {
        let n = expected.len() as f64;
        let mean = |values: &[f32]| values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        let (centre, shift) = (mean(expected), mean(got) - mean(expected));
        let shift = if shift_counts { 0.0 } else { shift };
        let (mut error, mut energy, mut largest) = (0.0, 0.0, 0f64);
        for (e, g) in expected.iter().zip(got).map(|(e, g)| (f64::from(*e), f64::from(*g))) {
            let off = g - e - shift;
            error += off * off;
            largest = largest.max(off.abs());
            energy += (e - centre) * (e - centre);
        }
        let [p, q] = [expected, got].map(Distribution::of);
        let ratio = |error: f64, of: f64| if error == 0.0 { 0.0 } else { error / of };
        Self {
            nmse: ratio(error, energy),
            largest: ratio(largest, (energy / n).sqrt()),
            kl: p.divergence(&q).max(0.0),
            top: [p.likeliest(), q.likeliest()],
            shift_counts,
        }
    }

    /// Reason for which the distance is over a limit of its NMSE; none where it is not.
    pub(super) fn over(&self, limit: f64) -> Option<String> {
        let most = OUTLIER * limit.sqrt();
        let (nmse, largest) = (self.nmse, self.largest);
        let centred = if self.shift_counts { "" } else { " centred" };
        let why = if nmse.is_nan() || nmse > limit {
            format!("NMSE{centred} {nmse:.3e} > {limit:.1e}")
        } else if largest > most {
            format!(
                "NMSE{centred} {nmse:.3e}, but one logit is {largest:.3} > {most:.3} deviations off"
            )
        } else {
            return None;
        };
        let top = match self.top {
            [a, b] if a == b => format!("both find {a} likeliest"),
            [a, b] => format!("likeliest {b} for {a}"),
        };
        Some(format!("{why}, KL {:.1e}, {top}", self.kl))
    }
}
