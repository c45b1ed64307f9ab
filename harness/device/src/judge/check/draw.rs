//! Inputs of a checked or benchmarked invocation, drawn as its declaration specifies.

use lathe_kernels::{
    Draw, Elem, FloatFormat, KernelBinding, Matrix, Packing, Problem, Role, STATE_WORDS, StateWord,
};
use lathe_record::rng::Rng;

use super::cache;
use super::stress::{self, Stress, power};
use crate::execute::value::Value;
use crate::plan::layout::KvOrder;
use crate::plan::recording::TensorInit;
use crate::plan::weights::WeightRows;

/// Tokens that a growing sequence ([`Draw::Sequence`]) has room for beyond those of the shape.
const TOKENS_BEYOND: usize = 4096;

/// Kinds of values that inputs are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputKind {
    /// Usual values, and the only kind that is timed. A kernel may rightly be faster where values
    /// are large; such a time would not tell its usual one.
    Typical,
    /// Usual values that are never timed: NaN in every vector of a KV cache that no invocation may
    /// read.
    Untimed,
    /// Stress inputs: values of this kind, scores at which `exp` overflows, ties, NaN where it is
    /// defined.
    Stress(Stress),
}

/// Content and value of one binding.
pub(super) fn draw(
    binding: &KernelBinding,
    problem: &Problem,
    packing: Packing,
    kind: InputKind,
    rng: &mut Rng,
) -> (TensorInit, Value) {
    let draw = binding.draw(&problem.shape);
    let beyond = if matches!(draw, Draw::Sequence(_)) { TOKENS_BEYOND } else { 0 };
    let len = binding.len(problem) + beyond;
    match binding.elem(problem) {
        Elem::F32 if binding.role == Role::Output => floats(FloatFormat::F32, unwritten(len)),
        Elem::F32 => {
            let mut values = values(draw, len, FloatFormat::F32, kind, rng);
            let is_query = matches!((draw, kind), (Draw::Queries { .. }, InputKind::Stress(_)));
            if is_query && binding.spreads && rng.below(3) == 0 {
                stress::spoil(&mut values, rng);
            }
            (TensorInit::Values(values.as_slice().into()), Value::F32(values))
        }
        Elem::Floats(format) => match binding.role {
            Role::Output => floats(format, unwritten(len)),
            _ => floats(format, values(draw, len, format, kind, rng)),
        },
        Elem::Kv(vectors) => {
            let mut values = rng.normals(len);
            let unread = match kind {
                InputKind::Typical => Vec::new(),
                InputKind::Untimed | InputKind::Stress(_) => {
                    let mut unread = binding.unread(problem);
                    unread.sort_unstable();
                    unread
                }
            };
            let is_stress = matches!(kind, InputKind::Stress(_));
            if is_stress && draw == Draw::Cache {
                cache::strain(&mut values, vectors, &unread, binding.spreads, rng);
            }
            cache::poison(&mut values, vectors, &unread, is_stress, rng);
            let values = vectors.round(&values);
            (TensorInit::Kv { len, vectors, order: KvOrder::Heads }, Value::F32(values))
        }
        Elem::U32 => (TensorInit::Words(len), Value::U32(words(draw, len, problem, rng))),
        Elem::Weights(matrix) => {
            let rows = weights(draw, matrix, len, rng);
            (TensorInit::Weights(rows.clone(), packing), Value::Weights(rows))
        }
        Elem::Rope(spec) => (TensorInit::Rope(spec.clone()), Value::Rope(spec)),
    }
}

/// Values that a correct invocation overwrites: NaN.
fn unwritten(len: usize) -> Vec<f32> {
    vec![f32::NAN; len]
}

fn floats(format: FloatFormat, mut values: Vec<f32>) -> (TensorInit, Value) {
    values.iter_mut().for_each(|v| *v = format.round(*v));
    (TensorInit::Activation { len: values.len(), format }, Value::F32(values))
}

/// Factor of stress queries. Scores of typical queries have a variance of about one, so among a few
/// slots some stress scores exceed 88, where `exp` overflows.
const STRESS_QUERIES: f32 = 64.0;

fn values(draw: Draw, len: usize, format: FloatFormat, kind: InputKind, rng: &mut Rng) -> Vec<f32> {
    let is_stress = matches!(kind, InputKind::Stress(_));
    match draw {
        Draw::Ties | Draw::TiesAndNan => {
            let mut values = logits(len, is_stress, rng);
            if is_stress && draw == Draw::TiesAndNan {
                // None in most tensors, since one leaves no choice; else one, some, all.
                let wrong = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][rng.below(3) as usize];
                let one = rng.below(len as u32) as usize;
                match rng.below(8) {
                    0 => values[one] = wrong,
                    1 => values.iter_mut().filter(|_| rng.below(50) == 0).for_each(|v| *v = wrong),
                    2 => {
                        values.fill(wrong);
                        values[one] = [wrong, f32::NAN][rng.below(2) as usize];
                    }
                    _ => {}
                }
            }
            values
        }
        Draw::Descending(factor) => {
            let mut values = rng.normals(len);
            values.iter_mut().for_each(|v| *v *= factor);
            values.sort_by(|a, b| b.total_cmp(a));
            values
        }
        Draw::Queries { of, row } if is_stress => {
            let mut values = rng.normals(len);
            if kind == InputKind::Stress(Stress::Massive) {
                stress::massive(&mut values, rng);
                return values;
            }
            let queries = values.chunks_mut(row.max(1)).flat_map(|row| row.iter_mut().take(of));
            queries.for_each(|v| *v *= STRESS_QUERIES);
            values
        }
        _ => match kind {
            InputKind::Typical | InputKind::Untimed => rng.normals(len),
            InputKind::Stress(stress) => stress.values(len, format, rng),
        },
    }
}

/// Logits that tie, in whose border the largest may stand alone. Strained: also all equal, or a unit
/// or two in the last place apart.
fn logits(len: usize, is_stress: bool, rng: &mut Rng) -> Vec<f32> {
    // Nobody knows the largest, and f32 holds all.
    let first = match is_stress {
        false => rng.below(4096) as i32 - 2048,
        true => rng.below(8192) as i32 - 6144,
    };
    let power = if is_stress { power(-3..=3, rng) } else { 1.0 };
    // So far below or above zero that nothing but their distance from the largest holds in `exp`.
    let mean = if is_stress { [0.0, 0.0, -512.0, 512.0][rng.below(4) as usize] } else { 0.0 };
    let at = |steps: u32| mean + power / 64.0 * (first + steps as i32) as f32;
    match rng.below(if is_stress { 4 } else { 2 }) {
        0 => (0..len).map(|_| at(rng.below(4096))).collect(),
        1 => {
            let mut values: Vec<f32> = (0..len).map(|_| at(rng.below(4096))).collect();
            if !values.is_empty() {
                values[border(len, rng)] = at(4096);
            }
            values
        }
        2 => vec![at(rng.below(4096)); len],
        _ => {
            let near = at(rng.below(4096)).to_bits() + rng.below(4);
            (0..len).map(|_| f32::from_bits(near + rng.below(3))).collect()
        }
    }
}

/// An index at which a tile may begin or end, mostly the last one.
fn border(len: usize, rng: &mut Rng) -> usize {
    let tile = 32 << rng.below(8);
    let whole = len / tile * tile;
    [len - 1, len - 1, whole, whole.saturating_sub(1), 0][rng.below(5) as usize].min(len - 1)
}

fn words(draw: Draw, len: usize, problem: &Problem, rng: &mut Rng) -> Vec<u32> {
    match draw {
        Draw::State | Draw::SeededState => {
            let mut state = vec![0; len];
            // A row a sequence: all are at one position, each has its own prompt.
            for (i, row) in state.chunks_mut(STATE_WORDS).enumerate() {
                row[StateWord::Position as usize] = problem.state.n_kv as u32 - 1;
                let given = problem.state.prompt_len as u32;
                row[StateWord::PromptLen as usize] = given.saturating_add(i as u32);
                row[StateWord::Seed as usize] = rng.next_u64() as u32;
                row[StateWord::Choice as usize] = rng.next_u64() as u32;
            }
            state
        }
        Draw::Count(first) => (0..len as u32).map(|i| first + i).collect(),
        Draw::Tokens(vocab) => {
            let (vocab, last) = (vocab as u32, (vocab as u32).div_ceil(16));
            let token = |i| match i % 3 {
                // Ids beyond sixteen bits are the last ones of a large vocabulary.
                0 => vocab - 1 - rng.below(last),
                _ => rng.below(vocab),
            };
            (0..len).rev().map(token).collect()
        }
        Draw::Sequence(vocab) => (0..len).map(|_| rng.below(vocab as u32)).collect(),
        _ => (0..len).map(|_| rng.below(1000)).collect(),
    }
}

fn weights(draw: Draw, matrix: Matrix, len: usize, rng: &mut Rng) -> WeightRows {
    let Matrix { format, order, k, .. } = matrix;
    // Times a power of two of each matrix, which takes no time: nobody knows how large weights are.
    let gain = match draw {
        Draw::UnitProducts => (k as f32).sqrt().recip(),
        _ => power(-2..=1, rng),
    };
    let mut values = rng.normals(len);
    values.iter_mut().for_each(|v| *v *= gain);
    if draw == Draw::TinyRows {
        // The normal f16 begin at 2^-14; one row in three and at least the first.
        for row in values.chunks_mut(k).step_by(3) {
            row.iter_mut().for_each(|v| *v *= 2f32.powi(-14));
        }
    }
    if draw == Draw::TiedRows {
        for row in 0..len / k {
            let other = match row % 8 {
                5 => row - 5,
                3 => row / 2,
                _ => row,
            };
            values.copy_within(other * k..(other + 1) * k, row * k);
        }
        // By the sign of their products these rows are far above or far below all others.
        let last = len / k - 1;
        let far = [border(len / k, rng), last];
        let far = &far[usize::from(far[0] == last)..];
        let rows = far.iter().flat_map(|row| row * k..(row + 1) * k);
        rows.for_each(|i| values[i] *= 8.0);
    }
    WeightRows::from_f32(format, order, k, &values)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRESS: InputKind = InputKind::Stress(Stress::Scaled);

    fn drawn(draw: Draw, kind: InputKind, seed: u64) -> Vec<f32> {
        values(draw, 1 << 15, FloatFormat::F32, kind, &mut Rng::new(seed))
    }

    /// Largest logits vary by seed: a search that stops at one tensor's largest value would miss a
    /// larger one in the next.
    #[test]
    fn nobody_knows_the_largest_logit() {
        let largest =
            |seed| drawn(Draw::Ties, InputKind::Typical, seed).into_iter().fold(f32::MIN, f32::max);
        let all: Vec<f32> = (0..32).map(largest).collect();
        assert!(all.iter().all(|v| (31.9..96.0).contains(v)), "{all:?}");
        assert!(all.iter().filter(|v| **v > 40.0).count() > 16, "{all:?}");
    }

    #[test]
    fn logits_tie_whatever_their_scale() {
        for seed in 0..64 {
            for kind in [InputKind::Typical, STRESS] {
                let mut values = drawn(Draw::Ties, kind, seed);
                values.sort_by(f32::total_cmp);
                values.dedup();
                assert!(values.len() <= 4097, "seed {seed}: {} values", values.len());
            }
        }
    }

    #[test]
    fn nan_is_drawn_where_it_is_defined_and_not_timed() {
        let nans =
            |draw, kind, seed| drawn(draw, kind, seed).iter().filter(|v| !v.is_finite()).count();
        let sum = |draw, kind| -> usize { (0..32).map(|seed| nans(draw, kind, seed)).sum() };
        assert_eq!(sum(Draw::TiesAndNan, InputKind::Typical), 0);
        assert_eq!(sum(Draw::Ties, STRESS), 0);
        assert_eq!(sum(Draw::Normal, STRESS), 0);
        let counts: Vec<usize> = (0..32).map(|seed| nans(Draw::TiesAndNan, STRESS, seed)).collect();
        assert!(counts.contains(&0) && counts.contains(&(1 << 15)), "{counts:?}");
        assert!(counts.iter().any(|n| (1..1 << 10).contains(n)), "{counts:?}");
    }

    #[test]
    fn only_queries_are_large_among_stress_rows() {
        let draw = Draw::Queries { of: 64, row: 256 };
        let most = |values: &[f32]| values.iter().fold(0.0, |most: f32, v| most.max(v.abs()));
        for row in drawn(draw, STRESS, 7).chunks(256) {
            assert!(most(&row[..64]) > 64.0 && most(&row[64..]) < 6.0);
        }
        assert!(most(&drawn(draw, InputKind::Typical, 7)) < 6.0);
    }
}
