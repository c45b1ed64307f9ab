//! KV caches that are checked and never timed.

use lathe_kernels::KvVectors;
use lathe_record::rng::Rng;

use super::stress;

/// Makes usual values of a cache stress inputs of one kind. If that `spreads`, one value of one
/// cache of three that is read is not finite.
pub(super) fn strain(
    values: &mut [f32],
    vectors: KvVectors,
    unread: &[usize],
    spreads: bool,
    rng: &mut Rng,
) {
    let d = vectors.head_dim;
    let read: Vec<usize> =
        (0..values.len() / d).filter(|vector| unread.binary_search(vector).is_err()).collect();
    if read.is_empty() {
        return;
    }
    let one = |rng: &mut Rng| {
        read[rng.below(read.len() as u32) as usize] * d + rng.below(d as u32) as usize
    };
    let at = one(rng);
    match rng.below(5) {
        // A column of each vector, as keys of trained models have it.
        0 => values.iter_mut().skip(at % d).step_by(d).for_each(|v| *v *= 64.0),
        // A vector that draws attention, or one that hardly has values.
        1 => {
            let by = [16.0, 1.0 / 1024.0][rng.below(2) as usize];
            values[at / d * d..][..d].iter_mut().for_each(|v| *v *= by);
        }
        2 => values.iter_mut().for_each(|v| *v += 3.0),
        3 => stress::massive(&mut values[at..=at], rng),
        _ => {}
    }
    if spreads && rng.below(3) == 0 {
        let at = one(rng);
        stress::spoil(&mut values[at..=at], rng);
        // An infinite score has all of the weight or none, as a maximum has it; a NaN has none.
        if rng.below(2) == 0 {
            values[at] = f32::NAN;
        }
    }
}

/// Fills the vectors that no invocation may read with NaN. Of stress inputs some are large instead:
/// a maximum may drop a NaN, but not a number.
pub(super) fn poison(
    values: &mut [f32],
    vectors: KvVectors,
    unread: &[usize],
    is_stress: bool,
    rng: &mut Rng,
) {
    let large = is_stress && rng.below(2) == 0;
    for vector in unread {
        for v in &mut values[vector * vectors.head_dim..][..vectors.head_dim] {
            *v = if large { 8192.0 * *v } else { f32::NAN };
        }
    }
}
