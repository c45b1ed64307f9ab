//! Quantises `f32` to ggml's blocks, in two ways.
//!
//! [`quantise`] rounds to the nearest under scales taken from the extremes of each block.
//! `lathe synth` and checks use it, since they only need valid blocks that are the same on every
//! machine. [`quantise_searched`] searches for the scales with the least squared error, for
//! `lathe quantize`.

mod blocks;
mod search;

use blocks::{Block32, Layout, SuperBlock};
use half::{bf16, f16};
use lathe_kernels::Format;

use crate::gguf::writer::GgufWriter;

/// Stores rows of `k` values each; in a dense format rounded to the nearest, ties to even. The last
/// block of a row is filled up with zeros.
///
/// # Panics
/// When `values` is no whole number of rows.
pub fn quantise(format: Format, k: usize, values: &[f32]) -> Vec<u8> {
    rows(format, k, values, encode_block)
}

/// Quantises like [`quantise`], with a search over the scales of each block. It minimises Σ w·(x -
/// x̂)² with w = rms of the block + |x|, a compromise between equal weights and large values first.
///
/// # Panics
/// When `values` is no whole number of rows.
pub fn quantise_searched(format: Format, k: usize, values: &[f32]) -> Vec<u8> {
    rows(format, k, values, search::encode_block)
}

/// The bytes of each value.
fn cells<const N: usize>(values: &[f32], bytes: impl Fn(f32) -> [u8; N]) -> Vec<u8> {
    let mut out = vec![0; N * values.len()];
    for (cell, v) in out.chunks_exact_mut(N).zip(values) {
        cell.copy_from_slice(&bytes(*v));
    }
    out
}

/// Decodes a row of stored weights exactly. Plain values are decoded without the reference, which
/// is to judge results made of them; blocks with it, as nothing else on the host decodes them.
pub fn decode(format: Format, bytes: &[u8], row: &mut [f32]) {
    match format.floats() {
        Some(floats) => row.copy_from_slice(&floats.decode(bytes, row.len())),
        None => oracle_format(format).decode(bytes, row),
    }
}

/// The reference's name of a format. Two crates that do not know each other list the same ones; a
/// test holds them to it.
pub fn oracle_format(format: Format) -> lathe_reference::Format {
    lathe_reference::Format::ALL[format as usize]
}

fn rows(
    format: Format,
    k: usize,
    values: &[f32],
    encode: fn(Format, &[f32], &mut Vec<u8>),
) -> Vec<u8> {
    match format {
        Format::F32 => return cells(values, f32::to_le_bytes),
        Format::F16 => return cells(values, |v| f16::from_f32(v).to_le_bytes()),
        Format::Bf16 => return cells(values, |v| bf16::from_f32(v).to_le_bytes()),
        _ => assert!(values.len().is_multiple_of(k), "whole rows"),
    }
    let len = format.block_len();
    let mut bytes = Vec::with_capacity(values.len() / k * format.row_bytes(k));
    let mut block = [0.0; 256];
    let block = &mut block[..len];
    for row in values.chunks_exact(k) {
        for part in row.chunks(len) {
            block[..part.len()].copy_from_slice(part);
            block[part.len()..].fill(0.0);
            encode(format, block, &mut bytes);
        }
    }
    bytes
}

/// Storage of rows of a length when `asked` for. A row of a GGUF file is whole blocks. Others take
/// llama-quantize's substitute for superblocks, or f16 where no block fits.
pub fn fitting(asked: Format, row_len: u64) -> Format {
    let fits = |format: &Format| row_len.is_multiple_of(format.block_len() as u64);
    let smaller = match asked {
        Format::Q4K => Format::Q5_0,
        Format::Q5K => Format::Q5_1,
        Format::Q6K => Format::Q8_0,
        other => other,
    };
    [asked, smaller].into_iter().find(fits).unwrap_or(Format::F16)
}

/// Adds the keys of the weights' type and, where one is quantised, of the version of the formats.
pub(super) fn file_types(writer: &mut GgufWriter, weights: Format, embed: Option<Format>) {
    writer.add("general.file_type", &file_type(weights));
    if !(weights.is_dense() && embed.is_none_or(Format::is_dense)) {
        writer.add("general.quantization_version", &2u32);
    }
}

/// `general.file_type`: llama.cpp's llama_ftype, for superblocks the mixture of a single type.
fn file_type(format: Format) -> u32 {
    match format {
        Format::F32 => 0,
        Format::F16 => 1,
        Format::Q4_0 => 2,
        Format::Q4_1 => 3,
        Format::Q8_0 => 7,
        Format::Q5_0 => 8,
        Format::Q5_1 => 9,
        Format::Q4K => 14,
        Format::Q5K => 16,
        Format::Q6K => 18,
        Format::Bf16 => 32,
    }
}

/// Appends one block of as many values as the format takes.
fn encode_block(format: Format, x: &[f32], out: &mut Vec<u8>) {
    match format {
        Format::Q4K | Format::Q5K | Format::Q6K => {
            SuperBlock::nearest(Layout::of(format), x).push(format, out);
        }
        _ => Block32::nearest(format, x).push(format, out),
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

/// `v` as f16 stores it.
fn stored(v: f32) -> f32 {
    f16::from_f32(v).to_f32()
}

/// The code nearest to `v / d`; 0 where the scale is 0.
fn nearest(v: f32, d: f32, low: f32, high: f32) -> f32 {
    if d == 0.0 { 0.0f32.clamp(low, high) } else { (v / d).round().clamp(low, high) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_record::rng::Rng;

    #[test]
    fn both_crates_list_the_same_formats() {
        assert_eq!(Format::ALL.len(), lathe_reference::Format::ALL.len());
        for &ours in Format::ALL {
            let oracle = oracle_format(ours);
            assert_eq!(ours.name(), oracle.name());
            assert_eq!(ours.block_len(), oracle.block_len());
            assert_eq!(ours.block_bytes(), oracle.block_bytes());
        }
    }

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
    fn rows_that_no_block_fits_fall_back() {
        assert_eq!(fitting(Format::Q4K, 2048), Format::Q4K);
        assert_eq!(fitting(Format::Q4K, 1152), Format::Q5_0);
        assert_eq!(fitting(Format::Q5K, 1152), Format::Q5_1);
        assert_eq!(fitting(Format::Q6K, 1152), Format::Q8_0);
        assert_eq!(fitting(Format::Q4_0, 1152), Format::Q4_0);
        assert_eq!(fitting(Format::Q6K, 1004), Format::F16);
        assert_eq!(fitting(Format::F32, 1), Format::F32);
    }

    /// Weighted as the search weighs it, and plain.
    fn errors(format: Format, values: &[f32], bytes: &[u8]) -> (f64, f64) {
        let mut back = vec![0.0; values.len()];
        decode(format, bytes, &mut back);
        let (mut weighted, mut plain) = (0.0, 0.0);
        for (x, b) in values.chunks(format.block_len()).zip(back.chunks(format.block_len())) {
            for ((x, b), w) in x.iter().zip(b).zip(search::weights(x)) {
                let error = f64::from(x - b).powi(2);
                weighted += f64::from(w) * error;
                plain += error;
            }
        }
        (weighted, plain)
    }

    #[test]
    fn a_search_is_better_than_rounding_and_never_worse_in_a_block() {
        let mut rng = Rng::new(5);
        let normal: Vec<f32> = (0..64 * 256).map(|_| rng.normal()).collect();
        // Few large values among small ones, and all of one sign.
        let spiky: Vec<f32> = normal.iter().map(|v| v * v * v * 0.01).collect();
        let shifted: Vec<f32> = normal.iter().map(|v| 3.0 + 0.1 * v).collect();
        for &format in Format::QUANTISED {
            let name = format.name();
            for values in [&normal, &spiky, &shifted] {
                for x in values.chunks(format.block_len()) {
                    let near = quantise(format, x.len(), x);
                    let searched = quantise_searched(format, x.len(), x);
                    let (rounded, found) = (errors(format, x, &near), errors(format, x, &searched));
                    assert!(found.0 <= rounded.0 * (1.0 + 1e-5), "{name}: {found:?} {rounded:?}");
                }
            }
            let near = errors(format, &normal, &quantise(format, 256, &normal)).1;
            let found = errors(format, &normal, &quantise_searched(format, 256, &normal)).1;
            let ratio = (found / near).sqrt();
            eprintln!("{name}: {ratio:.3} of the error of rounding to nearest");
            let most = if format == Format::Q8_0 { 1.0 } else { 0.97 };
            assert!(ratio <= most, "{name}: {ratio}");
        }
    }

    #[test]
    fn extreme_values_stay_finite() {
        for &format in Format::QUANTISED {
            for scale in [1e-30f32, 1e-7, 1e4, 1e30] {
                let x: Vec<f32> = (0..256).map(|i| (i as f32 - 100.0) * scale).collect();
                for bytes in [quantise(format, 256, &x), quantise_searched(format, 256, &x)] {
                    let mut back = vec![f32::NAN; 256];
                    decode(format, &bytes, &mut back);
                    assert!(back.iter().all(|v| v.is_finite()), "{} {scale}", format.name());
                }
            }
        }
    }

    #[test]
    fn zeros_stay_zeros() {
        for &format in Format::QUANTISED {
            for encode in [quantise, quantise_searched] {
                let bytes = encode(format, 256, &[0.0; 256]);
                let mut back = [f32::NAN; 256];
                decode(format, &bytes, &mut back);
                assert_eq!(back, [0.0; 256], "{}", format.name());
            }
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
