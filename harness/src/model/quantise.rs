//! From `f32` to ggml's quantised blocks: what `lathe synth` writes and what checks draw.
//!
//! Codes are rounded to the nearest under scales taken from the extremes of each block. Engines
//! that quantise for quality search for better scales; here a block only has to be a good one of
//! its format, and the same on every machine.

use half::f16;
use lathe_kernels::Format;

/// Encodes rows of `k` values each. The last block of a row is filled up with zeros.
///
/// # Panics
/// When `format` is dense, or `values` is no whole number of rows.
pub fn quantise(format: Format, k: usize, values: &[f32]) -> Vec<u8> {
    assert!(values.len().is_multiple_of(k), "whole rows");
    let len = format.block_len();
    let mut bytes = Vec::with_capacity(values.len() / k * format.row_bytes(k));
    let mut block = [0.0; 256];
    let block = &mut block[..len];
    for row in values.chunks_exact(k) {
        for part in row.chunks(len) {
            block[..part.len()].copy_from_slice(part);
            block[part.len()..].fill(0.0);
            encode_block(format, block, &mut bytes);
        }
    }
    bytes
}

/// Appends one block of as many values as the format takes.
pub(super) fn encode_block(format: Format, x: &[f32], out: &mut Vec<u8>) {
    match format {
        Format::F32 | Format::F16 | Format::Bf16 => panic!("{} has no blocks", format.name()),
        Format::Q8_0 => {
            let d = push_f16(out, largest(x).abs() / 127.0);
            out.extend(x.iter().map(|&v| nearest(v, d, -127.0, 127.0) as i8 as u8));
        }
        Format::Q4_0 => {
            // The value of largest size becomes code 0, which has no opposite.
            let d = push_f16(out, largest(x) / -8.0);
            push_nibbles(out, |i| nearest(x[i], d, -8.0, 7.0) as i32 + 8);
        }
        Format::Q4_1 => {
            let (low, high) = range(x);
            let d = push_f16(out, (high - low) / 15.0);
            let m = push_f16(out, low);
            push_nibbles(out, |i| nearest(x[i] - m, d, 0.0, 15.0) as i32);
        }
        Format::Q5_0 => {
            let d = push_f16(out, largest(x) / -16.0);
            push_fives(out, |i| nearest(x[i], d, -16.0, 15.0) as i32 + 16);
        }
        Format::Q5_1 => {
            let (low, high) = range(x);
            let d = push_f16(out, (high - low) / 31.0);
            let m = push_f16(out, low);
            push_fives(out, |i| nearest(x[i] - m, d, 0.0, 31.0) as i32);
        }
        Format::Q4K => {
            let codes = k_head(x, 15.0, out);
            push_k_nibbles(out, &codes);
        }
        Format::Q5K => {
            let codes = k_head(x, 31.0, out);
            for i in 0..32 {
                out.push((0..8).map(|j| (codes[32 * j + i] >> 4 & 1) << j).sum());
            }
            push_k_nibbles(out, &codes);
        }
        Format::Q6K => q6_k(x, out),
    }
}

/// The value of largest size, with its sign.
fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |a: f32, &b| if b.abs() > a.abs() { b } else { a })
}

/// The least and largest value, and zero.
fn range(x: &[f32]) -> (f32, f32) {
    x.iter().fold((0.0, 0.0), |(low, high): (f32, f32), &v| (low.min(v), high.max(v)))
}

/// Appends `v` as f16 and returns what was stored.
fn push_f16(out: &mut Vec<u8>, v: f32) -> f32 {
    let stored = f16::from_f32(v);
    out.extend(stored.to_le_bytes());
    stored.to_f32()
}

/// The code nearest to `v / d`; 0 where the scale is 0.
fn nearest(v: f32, d: f32, low: f32, high: f32) -> f32 {
    if d == 0.0 { 0.0f32.clamp(low, high) } else { (v / d).round().clamp(low, high) }
}

/// 32 codes of four bits: code `i` low, code `i + 16` high.
fn push_nibbles(out: &mut Vec<u8>, code: impl Fn(usize) -> i32) {
    out.extend((0..16).map(|i| (code(i) & 15 | (code(i + 16) & 15) << 4) as u8));
}

/// 32 codes of five bits: a word of the fifth bits, then nibbles.
fn push_fives(out: &mut Vec<u8>, code: impl Fn(usize) -> i32) {
    let high = (0..32).fold(0u32, |word, i| word | ((code(i) >> 4 & 1) as u32) << i);
    out.extend(high.to_le_bytes());
    push_nibbles(out, code);
}

/// Appends `d`, `dmin` and the packed 6-bit scales and minimums of a superblock, and returns its
/// 256 codes of up to `most`.
fn k_head(x: &[f32], most: f32, out: &mut Vec<u8>) -> [u8; 256] {
    let ranges: Vec<_> = x.chunks_exact(32).map(range).collect();
    let widest = ranges.iter().fold(0.0f32, |a, (low, high)| a.max(high - low));
    let deepest = ranges.iter().fold(0.0f32, |a, (low, _)| a.max(-low));
    let d = push_f16(out, widest / most / 63.0);
    let dmin = push_f16(out, deepest / 63.0);
    let scale = |j: usize| nearest((ranges[j].1 - ranges[j].0) / most, d, 0.0, 63.0);
    let min = |j: usize| nearest(-ranges[j].0, dmin, 0.0, 63.0);
    let (sc, mn): (Vec<u8>, Vec<u8>) = (0..8).map(|j| (scale(j) as u8, min(j) as u8)).unzip();
    out.extend((0..4).map(|j| sc[j] | sc[j + 4] >> 4 << 6));
    out.extend((0..4).map(|j| mn[j] | mn[j + 4] >> 4 << 6));
    out.extend((4..8).map(|j| sc[j] & 15 | (mn[j] & 15) << 4));
    let mut codes = [0; 256];
    for (i, code) in codes.iter_mut().enumerate() {
        let (step, below) = (d * f32::from(sc[i / 32]), dmin * f32::from(mn[i / 32]));
        *code = nearest(x[i] + below, step, 0.0, most) as u8;
    }
    codes
}

/// Two sub-blocks of 32 codes to every 32 bytes, low nibbles first.
fn push_k_nibbles(out: &mut Vec<u8>, codes: &[u8; 256]) {
    for pair in codes.chunks_exact(64) {
        out.extend((0..32).map(|i| pair[i] & 15 | (pair[i + 32] & 15) << 4));
    }
}

fn q6_k(x: &[f32], out: &mut Vec<u8>) {
    let steps: Vec<f32> = x.chunks_exact(16).map(|c| largest(c).abs() / 31.0).collect();
    let d = f16::from_f32(steps.iter().fold(0.0f32, |a, &b| a.max(b)) / 127.0);
    let scales: Vec<f32> = steps.iter().map(|&s| nearest(s, d.to_f32(), 0.0, 127.0)).collect();
    let code = |i: usize| nearest(x[i], d.to_f32() * scales[i / 16], -32.0, 31.0) as i32 + 32;
    for half in 0..2 {
        for run in 0..2 {
            let at = |i: usize| 128 * half + 32 * run + i;
            out.extend((0..32).map(|i| (code(at(i)) & 15 | (code(at(i) + 64) & 15) << 4) as u8));
        }
    }
    for half in 0..2 {
        out.extend((0..32).map(|i| {
            let high = |j: usize| (code(128 * half + 32 * j + i) >> 4 & 3) << (2 * j);
            (0..4).map(high).sum::<i32>() as u8
        }));
    }
    out.extend(scales.iter().map(|&s| s as i8 as u8));
    out.extend(d.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::rng::Rng;
    use crate::plan::weights::decode;

    /// Largest error as a share of the block's largest value, by the bits of a code.
    #[test]
    fn decoding_gives_the_values_back_within_half_a_step() {
        let mut rng = Rng::new(11);
        let values: Vec<f32> = (0..4 * 512).map(|_| rng.normal()).collect();
        for (format, share) in [
            (Format::Q8_0, 0.005),
            (Format::Q4_0, 0.14),
            (Format::Q4_1, 0.075),
            (Format::Q5_0, 0.07),
            (Format::Q5_1, 0.04),
            (Format::Q4K, 0.1),
            (Format::Q5K, 0.06),
            (Format::Q6K, 0.025),
        ] {
            let bytes = quantise(format, 512, &values);
            assert_eq!(bytes.len(), 4 * format.row_bytes(512));
            let mut back = vec![0.0; 512];
            for (row, bytes) in values.chunks(512).zip(bytes.chunks(format.row_bytes(512))) {
                decode(format, bytes, &mut back);
                let most = largest(row).abs();
                for (i, (&v, &b)) in row.iter().zip(&back).enumerate() {
                    let name = format.name();
                    assert!((v - b).abs() <= share * most, "{name}[{i}]: {v} became {b} of {most}");
                }
            }
        }
    }

    #[test]
    fn zeros_stay_zeros() {
        for &format in Format::QUANTISED {
            let bytes = quantise(format, 256, &[0.0; 256]);
            let mut back = [f32::NAN; 256];
            decode(format, &bytes, &mut back);
            assert_eq!(back, [0.0; 256], "{}", format.name());
        }
    }

    #[test]
    fn a_ragged_row_ends_in_zeros() {
        let values: Vec<f32> = (0..2 * 37).map(|i| (i % 7) as f32 - 3.0).collect();
        let bytes = quantise(Format::Q8_0, 37, &values);
        assert_eq!(bytes.len(), 2 * 2 * 34);
        let mut row = [f32::NAN; 64];
        decode(Format::Q8_0, &bytes[68..], &mut row);
        assert!((row[0] - values[37]).abs() < 0.02);
        assert_eq!(row[37..], [0.0; 27]);
    }
}
