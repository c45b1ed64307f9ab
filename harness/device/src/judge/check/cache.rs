//! KV caches that are checked and never timed.

use lathe_kernels::KvVectors;
use lathe_record::rng::Rng;

use super::stress::{massive_value, wrong};

/// Makes usual values of a cache stress inputs: one kind of them, and with `nan` in one cache of
/// three one NaN or infinity that is read.
pub(super) fn strain(
    values: &mut [f32],
    vectors: KvVectors,
    unread: &[usize],
    nan: bool,
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
        3 => values[at] = massive_value(values[at], rng),
        _ => {}
    }
    if nan && rng.below(3) == 0 {
        values[one(rng)] = wrong(rng);
    }
}

/// Puts NaN into the vectors that no invocation may read.
pub(super) fn poison(values: &mut [f32], vectors: KvVectors, unread: &[usize]) {
    for vector in unread {
        values[vector * vectors.head_dim..][..vectors.head_dim].fill(f32::NAN);
    }
}
