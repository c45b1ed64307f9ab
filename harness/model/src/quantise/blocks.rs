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

/// Numbers of a superblock's format.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Values of a sub-block.
    pub(super) len: usize,
    /// The least and largest code.
    pub(super) low: f32,
    pub(super) high: f32,
    /// The least and largest scale of a sub-block.
    pub(super) scales: [i32; 2],
    /// Sub-blocks have a minimum, of six bits.
    pub(super) shifted: bool,
}

/// The largest minimum of a sub-block.
pub(super) const MOST_MIN: i32 = 63;

impl Layout {
    pub(super) fn of(format: Format) -> Self {
        match format {
            Format::Q4K => Self { len: 32, low: 0.0, high: 15.0, scales: [0, 63], shifted: true },
            Format::Q5K => Self { high: 31.0, ..Self::of(Format::Q4K) },
            Format::Q6K => {
                Self { len: 16, low: -32.0, high: 31.0, scales: [-128, 127], shifted: false }
            }
            other => panic!("{} has no superblocks", other.name()),
        }
    }
}

/// A superblock of 256 codes: 8 sub-blocks, each under a scale and a minimum of six bits, or 16,
/// each under a signed scale of eight bits.
#[derive(Clone)]
pub(super) struct SuperBlock {
    pub(super) layout: Layout,
    /// Scale of the sub-blocks' scales, rounded to f16.
    pub(super) d: f32,
    /// Scale of the sub-blocks' minimums, rounded to f16; minimums are subtracted.
    pub(super) dmin: f32,
    pub(super) scales: [i32; 16],
    pub(super) mins: [i32; 16],
    pub(super) codes: [i32; 256],
}

impl SuperBlock {
    pub(super) fn nearest(layout: Layout, x: &[f32]) -> Self {
        let parts = x.chunks_exact(layout.len).map(|part| match layout.shifted {
            true => {
                let (low, high) = range(part);
                ((high - low) / layout.high, -low)
            }
            false => (largest(part).abs() / layout.high, 0.0),
        });
        Self::rounded(layout, x, &parts.collect::<Vec<_>>())
    }

    /// Rounds the step and the depth below zero of each sub-block, and then the values.
    pub(super) fn rounded(layout: Layout, x: &[f32], parts: &[(f32, f32)]) -> Self {
        let [least, most] = layout.scales.map(|scale| scale as f32);
        let (mut step, mut depth) = (0.0f32, 0.0f32);
        for (s, m) in parts {
            step = step.max(if layout.shifted { *s } else { s.abs() });
            depth = depth.max(*m);
        }
        let (d, dmin) = (finite(step / most), finite(depth / MOST_MIN as f32));
        let (mut scales, mut mins) = ([0; 16], [0; 16]);
        for (j, (s, m)) in parts.iter().enumerate() {
            scales[j] = nearest(*s, d, least.max(-most), most) as i32;
            mins[j] = nearest(*m, dmin, 0.0, MOST_MIN as f32) as i32;
        }
        let mut block = Self { layout, d, dmin, scales, mins, codes: [0; 256] };
        block.round(x);
        block
    }

    /// The step and the minimum of a sub-block, under a scale and a minimum in codes.
    pub(super) fn part(&self, scale: i32, min: i32) -> (f32, f32) {
        (self.d * scale as f32, -self.dmin * min as f32)
    }

    /// Takes the codes nearest to the values.
    pub(super) fn round(&mut self, x: &[f32]) {
        let Layout { len, low, high, .. } = self.layout;
        for (i, x) in x[..256].iter().enumerate() {
            let (step, min) = self.part(self.scales[i / len], self.mins[i / len]);
            self.codes[i] = nearest(x - min, step, low, high) as i32;
        }
    }

    pub(super) fn push(&self, format: Format, out: &mut Vec<u8>) {
        // Codes from zero on; no format has negative bytes of them.
        let code = |i: usize| (self.codes[i] - self.layout.low as i32) as u8;
        if format == Format::Q6K {
            for (half, run) in [(0, 0), (0, 32), (128, 0), (128, 32)] {
                let low = |i: usize| code(i) & 15 | (code(i + 64) & 15) << 4;
                out.extend((0..32).map(|i| low(half + run + i)));
            }
            for half in [0, 128] {
                let high = |i: usize, j: usize| (code(half + 32 * j + i) >> 4 & 3) << (2 * j);
                out.extend((0..32).map(|i| (0..4).map(|j| high(i, j)).sum::<u8>()));
            }
            out.extend(self.scales.iter().map(|&s| s as i8 as u8));
            return push_f16(out, self.d);
        }
        let (sc, mn) = (self.scales.map(|s| s as u8), self.mins.map(|m| m as u8));
        push_f16(out, self.d);
        push_f16(out, self.dmin);
        out.extend((0..4).map(|j| sc[j] | sc[j + 4] >> 4 << 6));
        out.extend((0..4).map(|j| mn[j] | mn[j + 4] >> 4 << 6));
        out.extend((4..8).map(|j| sc[j] & 15 | (mn[j] & 15) << 4));
        if format == Format::Q5K {
            let high = |i: usize, j: usize| (code(32 * j + i) >> 4 & 1) << j;
            out.extend((0..32).map(|i| (0..8).map(|j| high(i, j)).sum::<u8>()));
        }
        // Two sub-blocks of 32 codes to every 32 bytes, low nibbles first.
        for pair in [0, 64, 128, 192] {
            out.extend((pair..pair + 32).map(|i| code(i) & 15 | (code(i + 32) & 15) << 4));
        }
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
