//! Blocks as scales and codes: how they are rounded to the nearest, and how they lie in bytes.

use half::f16;
use lathe_kernels::Format;

use super::{largest, nearest, range, stored};

/// A block of 32 codes under one scale, with a minimum where the format has one.
pub(super) struct Block32 {
    /// Scale, rounded to f16.
    pub(super) d: f32,
    /// Minimum added to all values, rounded to f16. Zero in formats without one.
    pub(super) m: f32,
    /// Codes, from the format's least one on, which may be negative.
    pub(super) codes: [i32; 32],
}

/// The least and largest code, and whether there is a minimum.
pub(super) fn codes_of(format: Format) -> (i32, i32, bool) {
    match format {
        Format::Q8_0 => (-127, 127, false),
        Format::Q4_0 => (-8, 7, false),
        Format::Q5_0 => (-16, 15, false),
        Format::Q4_1 => (0, 15, true),
        Format::Q5_1 => (0, 31, true),
        other => panic!("{} has no blocks of 32", other.name()),
    }
}

impl Block32 {
    pub(super) fn nearest(format: Format, x: &[f32]) -> Self {
        let (least, most, shifted) = codes_of(format);
        let (d, m) = match format {
            _ if shifted => {
                let (low, high) = range(x);
                ((high - low) / most as f32, low)
            }
            Format::Q8_0 => (largest(x).abs() / 127.0, 0.0),
            // The value of largest size becomes the least code, which has no opposite.
            _ => (largest(x) / least as f32, 0.0),
        };
        let (d, m) = (finite(d), finite(m));
        Self { d, m, codes: round(x, d, m, least, most) }
    }

    pub(super) fn push(&self, format: Format, out: &mut Vec<u8>) {
        let (least, _, shifted) = codes_of(format);
        push_f16(out, self.d);
        if shifted {
            push_f16(out, self.m);
        }
        let code = |i: usize| (self.codes[i] - least) as u32;
        match format {
            Format::Q8_0 => out.extend(self.codes.iter().map(|&q| q as i8 as u8)),
            Format::Q4_0 | Format::Q4_1 => push_nibbles(out, code),
            _ => {
                // A word of the fifth bits goes first.
                let high = (0..32).fold(0u32, |word, i| word | (code(i) >> 4 & 1) << i);
                out.extend(high.to_le_bytes());
                push_nibbles(out, code);
            }
        }
    }
}

/// The codes of values under a scale and a minimum.
pub(super) fn round(x: &[f32], d: f32, m: f32, least: i32, most: i32) -> [i32; 32] {
    let (low, high) = (least as f32, most as f32);
    std::array::from_fn(|i| nearest(x[i] - m, d, low, high) as i32)
}

/// A superblock of 8 times 32 codes, each under a scale and a minimum of six bits.
#[derive(Clone)]
pub(super) struct SuperBlock {
    /// Scale of the sub-blocks' scales, rounded to f16.
    pub(super) d: f32,
    /// Scale of the sub-blocks' minimums, rounded to f16; minimums are subtracted.
    pub(super) dmin: f32,
    pub(super) scales: [u8; 8],
    pub(super) mins: [u8; 8],
    pub(super) codes: [u8; 256],
}

impl SuperBlock {
    /// The largest code.
    pub(super) fn most(format: Format) -> f32 {
        if format == Format::Q4K { 15.0 } else { 31.0 }
    }

    pub(super) fn nearest(format: Format, x: &[f32]) -> Self {
        let most = Self::most(format);
        let ranges: Vec<_> = x.chunks_exact(32).map(range).collect();
        let widest = ranges.iter().fold(0.0f32, |a, (low, high)| a.max(high - low));
        let deepest = ranges.iter().fold(0.0f32, |a, (low, _)| a.max(-low));
        let (d, dmin) = (finite(widest / most / 63.0), finite(deepest / 63.0));
        let scale = |j: usize| nearest((ranges[j].1 - ranges[j].0) / most, d, 0.0, 63.0) as u8;
        let min = |j: usize| nearest(-ranges[j].0, dmin, 0.0, 63.0) as u8;
        let (scales, mins) = (std::array::from_fn(scale), std::array::from_fn(min));
        let mut block = Self { d, dmin, scales, mins, codes: [0; 256] };
        block.round(x, most);
        block
    }

    /// Takes the codes nearest to the values.
    pub(super) fn round(&mut self, x: &[f32], most: f32) {
        for (i, code) in self.codes.iter_mut().enumerate() {
            let step = self.d * f32::from(self.scales[i / 32]);
            let below = self.dmin * f32::from(self.mins[i / 32]);
            *code = nearest(x[i] + below, step, 0.0, most) as u8;
        }
    }

    pub(super) fn push(&self, format: Format, out: &mut Vec<u8>) {
        let (sc, mn) = (&self.scales, &self.mins);
        push_f16(out, self.d);
        push_f16(out, self.dmin);
        out.extend((0..4).map(|j| sc[j] | sc[j + 4] >> 4 << 6));
        out.extend((0..4).map(|j| mn[j] | mn[j + 4] >> 4 << 6));
        out.extend((4..8).map(|j| sc[j] & 15 | (mn[j] & 15) << 4));
        if format == Format::Q5K {
            for i in 0..32 {
                out.push((0..8).map(|j| (self.codes[32 * j + i] >> 4 & 1) << j).sum());
            }
        }
        // Two sub-blocks of 32 codes to every 32 bytes, low nibbles first.
        for pair in self.codes.chunks_exact(64) {
            out.extend((0..32).map(|i| pair[i] & 15 | (pair[i + 32] & 15) << 4));
        }
    }
}

/// A superblock of 16 times 16 codes from -32 to 31, each under a signed scale of eight bits.
#[derive(Clone)]
pub(super) struct SuperBlock6 {
    /// Scale of the sub-blocks' scales, rounded to f16.
    pub(super) d: f32,
    pub(super) scales: [i8; 16],
    pub(super) codes: [i8; 256],
}

impl SuperBlock6 {
    pub(super) fn nearest(x: &[f32]) -> Self {
        let steps: Vec<f32> = x.chunks_exact(16).map(|c| largest(c).abs() / 31.0).collect();
        let d = finite(steps.iter().fold(0.0f32, |a, &b| a.max(b)) / 127.0);
        let scales = std::array::from_fn(|j| nearest(steps[j], d, 0.0, 127.0) as i8);
        let mut block = Self { d, scales, codes: [0; 256] };
        block.round(x);
        block
    }

    /// Takes the codes nearest to the values.
    pub(super) fn round(&mut self, x: &[f32]) {
        for (i, code) in self.codes.iter_mut().enumerate() {
            let step = self.d * f32::from(self.scales[i / 16]);
            *code = nearest(x[i], step, -32.0, 31.0) as i8;
        }
    }

    pub(super) fn push(&self, out: &mut Vec<u8>) {
        let code = |i: usize| (i32::from(self.codes[i]) + 32) as u32;
        for half in 0..2 {
            for run in 0..2 {
                let at = |i: usize| 128 * half + 32 * run + i;
                let low = |i: usize| (code(at(i)) & 15 | (code(at(i) + 64) & 15) << 4) as u8;
                out.extend((0..32).map(low));
            }
        }
        for half in 0..2 {
            out.extend((0..32).map(|i| {
                let high = |j: usize| (code(128 * half + 32 * j + i) >> 4 & 3) << (2 * j);
                (0..4).map(high).sum::<u32>() as u8
            }));
        }
        out.extend(self.scales.iter().map(|&s| s as u8));
        push_f16(out, self.d);
    }
}

/// Rounds `v` to f16, clamped to its largest finite value: infinite scales would make every value
/// infinite or NaN.
pub(super) fn finite(v: f32) -> f32 {
    stored(v.clamp(-65504.0, 65504.0))
}

fn push_f16(out: &mut Vec<u8>, v: f32) {
    out.extend(f16::from_f32(v).to_le_bytes());
}

/// 32 codes of four bits: code `i` low, code `i + 16` high.
fn push_nibbles(out: &mut Vec<u8>, code: impl Fn(usize) -> u32) {
    out.extend((0..16).map(|i| (code(i) & 15 | (code(i + 16) & 15) << 4) as u8));
}
