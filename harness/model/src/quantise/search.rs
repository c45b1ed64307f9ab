//! Scales with the least weighted squared error.
//!
//! For given codes the best scale (and minimum) is a least squares problem with a closed answer,
//! and for given scales the best codes are the nearest ones. The search starts from several scales
//! near that of the extremes, takes both steps in turn and keeps what is best, rounding to nearest
//! included: no block becomes worse than that.

use lathe_kernels::Format;

use super::blocks::{Block32, Layout, MOST_MIN, SuperBlock, codes_of, finite, round};
use super::{largest, range};

/// Starts on each side of the extremes' own scale, and their distance in codes.
const STARTS: i32 = 8;
const APART: f32 = 0.12;
/// Turns between the scales of sub-blocks and those of the superblock.
const TURNS: usize = 3;

/// Weights of the squared errors: rms of the block plus |x|. Large values carry more of a product,
/// and a search that saw only the rms would give them up.
pub(super) fn weights(x: &[f32]) -> Vec<f32> {
    let rms = (x.iter().map(|v| v * v).sum::<f32>() / x.len() as f32).sqrt();
    x.iter().map(|v| rms + v.abs()).collect()
}

pub(super) fn encode_block(format: Format, x: &[f32], out: &mut Vec<u8>) {
    let w = weights(x);
    match format {
        Format::Q4K | Format::Q5K | Format::Q6K => super_block(format, x, &w).push(format, out),
        _ => block_32(format, x, &w).push(format, out),
    }
}

/// The nearest code. Adding and taking off 1.5·2²³ rounds to the nearest whole number, ties to
/// even, and unlike a call of `round` it vectorises.
#[inline]
fn code(v: f32, inverse: f32, low: f32, high: f32) -> f32 {
    const WHOLE: f32 = 12_582_912.0;
    ((v * inverse).clamp(low, high) + WHOLE) - WHOLE
}

#[inline]
fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// Sums of a fit of `x ≈ d·q + m`.
#[derive(Default)]
struct Sums {
    w: f32,
    x: f32,
    q: f32,
    qq: f32,
    xq: f32,
}

/// Codes from `low` to `high` under a scale and a minimum.
#[derive(Clone, Copy)]
struct Codes {
    low: f32,
    high: f32,
}

impl Codes {
    fn sums(self, x: &[f32], w: &[f32], d: f32, m: f32) -> Sums {
        let inverse = inverse(d);
        let mut sums = Sums::default();
        for (&x, &w) in x.iter().zip(w) {
            let q = code(x - m, inverse, self.low, self.high);
            sums.w += w;
            sums.x += w * x;
            sums.q += w * q;
            sums.qq += w * q * q;
            sums.xq += w * x * q;
        }
        sums
    }

    fn error(self, x: &[f32], w: &[f32], d: f32, m: f32) -> f32 {
        let inverse = inverse(d);
        let mut error = 0.0;
        for (&x, &w) in x.iter().zip(w) {
            let e = x - m - d * code(x - m, inverse, self.low, self.high);
            error += w * e * e;
        }
        error
    }

    /// The best scale without a minimum that the starts lead to, of either sign.
    fn fit_scale(self, x: &[f32], w: &[f32], stored: fn(f32) -> f32) -> (f32, f32) {
        let top = largest(x);
        let mut best = (f32::INFINITY, 0.0);
        for end in [self.low, self.high] {
            for start in -STARTS..=STARTS {
                let d = top / (end + start as f32 * APART);
                let sums = self.sums(x, w, d, 0.0);
                let d = stored(if sums.qq > 0.0 { sums.xq / sums.qq } else { d });
                let error = self.error(x, w, d, 0.0);
                if error < best.0 {
                    best = (error, d);
                }
            }
        }
        best
    }

    /// The best scale and minimum that the starts lead to; with `below` the minimum is at most
    /// zero.
    fn fit_both(
        self,
        x: &[f32],
        w: &[f32],
        below: bool,
        stored: fn(f32) -> f32,
    ) -> (f32, f32, f32) {
        let (low, high) = range(x);
        let mut ranges = vec![(low, high)];
        if !below {
            let own = |f: fn(f32, f32) -> f32, from| x.iter().copied().fold(from, f);
            ranges.push((own(f32::min, f32::INFINITY), own(f32::max, f32::NEG_INFINITY)));
        }
        let mut best = (f32::INFINITY, 0.0, 0.0);
        for (low, high) in ranges {
            for start in -STARTS..=STARTS {
                let d = (high - low) / (self.high + start as f32 * APART);
                let s = self.sums(x, w, d, low);
                let determinant = s.w * s.qq - s.q * s.q;
                let (mut d, mut m) = (d, low);
                if determinant > 0.0 {
                    d = (s.w * s.xq - s.x * s.q) / determinant;
                    m = (s.qq * s.x - s.q * s.xq) / determinant;
                }
                if below && m > 0.0 {
                    m = 0.0;
                    d = if s.qq > 0.0 { s.xq / s.qq } else { d };
                }
                let (d, m) = (stored(d), stored(m));
                let error = self.error(x, w, d, m);
                if error < best.0 {
                    best = (error, d, m);
                }
            }
        }
        best
    }
}

fn block_32(format: Format, x: &[f32], w: &[f32]) -> Block32 {
    let (least, most, shifted) = codes_of(format);
    let codes = Codes { low: least as f32, high: most as f32 };
    let near = Block32::nearest(format, x);
    let (error, d, m) = if shifted {
        codes.fit_both(x, w, false, finite)
    } else {
        let (error, d) = codes.fit_scale(x, w, finite);
        (error, d, 0.0)
    };
    match error < codes.error(x, w, near.d, near.m) {
        true => Block32 { d, m, codes: round(x, d, m, least, most) },
        false => near,
    }
}

fn super_block(format: Format, x: &[f32], w: &[f32]) -> SuperBlock {
    let layout = Layout::of(format);
    let Layout { len, low, high, scales: [least_scale, most_scale], shifted } = layout;
    let codes = Codes { low, high };
    let of_part = |b: &SuperBlock, j: usize, scale: i32, min: i32| {
        let part = len * j..len * (j + 1);
        let (d, m) = b.part(scale, min);
        codes.error(&x[part.clone()], &w[part], d, m)
    };
    let count = x.len() / len;
    let error =
        |b: &SuperBlock| -> f32 { (0..count).map(|j| of_part(b, j, b.scales[j], b.mins[j])).sum() };
    let mut best = SuperBlock::nearest(layout, x);
    let mut least = error(&best);
    let mut keep = |block: &SuperBlock| {
        let error = error(block);
        if error < least {
            (least, best) = (error, block.clone());
        }
    };

    let parts = x.chunks_exact(len).zip(w.chunks_exact(len)).map(|(x, w)| match shifted {
        true => {
            let (_, step, min) = codes.fit_both(x, w, true, |v| v);
            (step, -min)
        }
        false => (codes.fit_scale(x, w, |v| v).1, 0.0),
    });
    let mut block = SuperBlock::rounded(layout, x, &parts.collect::<Vec<_>>());
    for _ in 0..TURNS {
        for j in 0..count {
            let near = |v: i32, least: i32, most: i32| (v - 1).max(least)..=(v + 1).min(most);
            let scales = near(block.scales[j], least_scale, most_scale);
            let mins = near(block.mins[j], 0, if shifted { MOST_MIN } else { 0 });
            let mut found = f32::INFINITY;
            for (scale, min) in scales.flat_map(|s| mins.clone().map(move |m| (s, m))) {
                let error = of_part(&block, j, scale, min);
                if error < found {
                    (found, block.scales[j], block.mins[j]) = (error, scale, min);
                }
            }
        }
        keep(&block);
        block.round(x);
        // Σ w·(x - d·a + dmin·b)² with a = scale·code, b = min, in f64: the sums nearly cancel.
        let [mut aa, mut ab, mut bb, mut xa, mut xb] = [0.0f64; 5];
        for i in 0..x.len() {
            let a = f64::from(block.scales[i / len] * block.codes[i]);
            let b = f64::from(block.mins[i / len]);
            let (x, w) = (f64::from(x[i]), f64::from(w[i]));
            aa += w * a * a;
            ab += w * a * b;
            bb += w * b * b;
            xa += w * x * a;
            xb += w * x * b;
        }
        let determinant = aa * bb - ab * ab;
        if determinant > 1e-9 * aa * bb {
            block.d = finite(((xa * bb - xb * ab) / determinant) as f32);
            block.dmin = finite(((xa * ab - xb * aa) / determinant) as f32);
        } else if aa > 0.0 && bb == 0.0 {
            block.d = finite((xa / aa) as f32);
        } else {
            break;
        }
        keep(&block);
    }
    best.round(x);
    best
}
