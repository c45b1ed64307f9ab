//! Values as a function of seed, tensor and element.

use half::{bf16, f16};
use lathe_kernels::Format;

use crate::quantise::encode_block;

/// The values of a tensor.
pub(super) enum Values {
    /// Close to normal, mean 0.
    Normal { key: u64, scale: f32 },
    /// Uniform from 0.9 to 1.1.
    AboutOne { key: u64 },
    /// Given one by one.
    Given(Vec<f32>),
}

/// Increment and finaliser of splitmix64 (Steele, Lea, Flood 2014): a counter in, 64 random bits
/// out, so that any element can be had without those before it.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[inline]
fn random(key: u64, index: u64) -> u64 {
    mix(key.wrapping_add(GAMMA.wrapping_mul(index.wrapping_add(1))))
}

fn key(seed: u64, stream: u64) -> u64 {
    // Mixed twice, or seeds and streams that differ by one would run into each other.
    mix(mix(seed.wrapping_add(GAMMA)).wrapping_add(GAMMA.wrapping_mul(stream.wrapping_add(1))))
}

impl Values {
    pub(super) fn normal(seed: u64, stream: u64, std: f64) -> Self {
        // The sum of four uniform 16-bit integers, mean taken off, has variance 4·(2³²−1)/12. It
        // ends at 3.46 standard deviations, which no test here minds, and costs one word of
        // randomness.
        let unit = (4.0 * (65536.0f64 * 65536.0 - 1.0) / 12.0).sqrt();
        Self::Normal { key: key(seed, stream), scale: (std / unit) as f32 }
    }

    pub(super) fn about_one(seed: u64, stream: u64) -> Self {
        Self::AboutOne { key: key(seed, stream) }
    }

    /// Stores the values from number `first` on, as many as `out` holds: whole blocks.
    pub(super) fn fill(&self, stored: Format, first: u64, out: &mut [u8]) {
        match self {
            Self::Normal { key, scale } => store(stored, first, out, |i| {
                let r = random(*key, i);
                let sum = (r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48);
                (sum as i32 - 2 * 0xffff) as f32 * scale
            }),
            Self::AboutOne { key } => store(stored, first, out, |i| {
                let unit = (random(*key, i) >> 40) as f32 / (1u32 << 24) as f32;
                0.9 + 0.2 * unit
            }),
            // A value past the end cannot be: the caller asks for as many as the tensor has.
            Self::Given(values) => store(stored, first, out, |i| values[i as usize]),
        }
    }
}

#[inline]
fn store(stored: Format, first: u64, out: &mut [u8], value: impl Fn(u64) -> f32) {
    // The conversions round to the nearest, ties to even.
    match stored {
        Format::F32 => cells(first, out, |i| value(i).to_le_bytes()),
        Format::F16 => cells(first, out, |i| f16::from_f32(value(i)).to_le_bytes()),
        Format::Bf16 => cells(first, out, |i| bf16::from_f32(value(i)).to_le_bytes()),
        quantised => {
            let mut block = [0.0; 256];
            let block = &mut block[..quantised.block_len()];
            let mut bytes = Vec::with_capacity(quantised.block_bytes());
            let mut numbers = first..;
            for cell in out.chunks_exact_mut(quantised.block_bytes()) {
                for (v, i) in block.iter_mut().zip(&mut numbers) {
                    *v = value(i);
                }
                bytes.clear();
                encode_block(quantised, block, &mut bytes);
                cell.copy_from_slice(&bytes);
            }
        }
    }
}

#[inline]
fn cells<const N: usize>(first: u64, out: &mut [u8], bytes: impl Fn(u64) -> [u8; N]) {
    for (cell, i) in out.chunks_exact_mut(N).zip(first..) {
        cell.copy_from_slice(&bytes(i));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_is_splitmix64() {
        // The published sequence from seed 1234567.
        let expected = [6457827717110365317, 3203168211198807973, 9817491932198370423];
        for (index, expected) in expected.into_iter().enumerate() {
            assert_eq!(random(1234567, index as u64), expected);
        }
    }

    #[test]
    fn a_part_equals_the_same_part_of_the_whole() {
        let values = Values::normal(3, 5, 1.0);
        let mut whole = vec![0; 2 * 1000];
        values.fill(Format::F16, 0, &mut whole);
        let mut part = vec![0; 2 * 100];
        values.fill(Format::F16, 777, &mut part);
        assert_eq!(part, whole[2 * 777..2 * 877]);
    }

    #[test]
    fn blocks_in_parts_are_the_blocks_of_the_whole() {
        for &format in Format::QUANTISED {
            let values = Values::normal(3, 5, 1.0);
            let (len, bytes) = (format.block_len(), format.block_bytes());
            let mut whole = vec![0; 6 * bytes];
            values.fill(format, 0, &mut whole);
            let mut part = vec![0; 2 * bytes];
            values.fill(format, 3 * len as u64, &mut part);
            assert_eq!(part, whole[3 * bytes..5 * bytes], "{}", format.name());
        }
    }
}
