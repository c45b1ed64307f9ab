//! Inputs of a checked or benchmarked invocation, drawn as its declaration says.

use lathe_kernels::layout::STATE_WORDS;
use lathe_kernels::{
    Draw, Elem, FloatFormat, KernelBinding, Matrix, Packing, Problem, Role, StateWord,
};

use crate::data::rng::Rng;
use crate::execute::value::Value;
use crate::plan::layout::KvOrder;
use crate::plan::recording::Content;
use crate::plan::weights::WeightRows;

/// Tokens that a sequence has room for beyond those that the shape says: a step's position may run
/// on while it is timed.
pub const TOKENS_BEYOND: usize = 4096;

/// Content and value of one binding.
pub(super) fn draw(
    binding: &KernelBinding,
    problem: &Problem,
    packing: Packing,
    rng: &mut Rng,
) -> (Content, Value) {
    let draw = binding.draw(&problem.shape);
    let len = match (binding.role, binding.name) {
        (Role::InOut, "tokens") => binding.len(problem) + TOKENS_BEYOND,
        _ => binding.len(problem),
    };
    match binding.elem(problem) {
        Elem::F32 if binding.role == Role::Output => floats(FloatFormat::F32, unwritten(len)),
        Elem::F32 => {
            let values = values(draw, len, rng);
            (Content::Values(values.as_slice().into()), Value::F32(values))
        }
        Elem::Floats(format) => match binding.role {
            Role::Output => floats(format, unwritten(len)),
            _ => floats(format, values(draw, len, rng)),
        },
        Elem::Kv(vectors) => {
            let values = vectors.round(&rng.normals(len));
            (Content::Kv { len, vectors, order: KvOrder::Heads }, Value::F32(values))
        }
        Elem::U32 => (Content::Words(len), Value::U32(words(draw, len, problem, rng))),
        Elem::Weights(matrix) => {
            let rows = weights(draw, matrix, len, rng);
            (Content::Weights(rows.clone(), packing), Value::Weights(rows))
        }
        Elem::Rope(spec) => (Content::Rope(spec.clone()), Value::Rope(spec)),
    }
}

/// What a correct invocation overwrites.
fn unwritten(len: usize) -> Vec<f32> {
    vec![f32::NAN; len]
}

fn floats(format: FloatFormat, mut values: Vec<f32>) -> (Content, Value) {
    values.iter_mut().for_each(|v| *v = format.round(*v));
    (Content::Activation { len: values.len(), format }, Value::F32(values))
}

fn values(draw: Draw, len: usize, rng: &mut Rng) -> Vec<f32> {
    match draw {
        Draw::Ties => (0..len).map(|_| rng.below(4096) as f32 / 64.0 - 32.0).collect(),
        Draw::Descending(factor) => {
            let mut values = rng.normals(len);
            values.iter_mut().for_each(|v| *v *= factor);
            values.sort_by(|a, b| b.total_cmp(a));
            values
        }
        _ => rng.normals(len),
    }
}

fn words(draw: Draw, len: usize, problem: &Problem, rng: &mut Rng) -> Vec<u32> {
    match draw {
        Draw::State => {
            let mut state = vec![0; len];
            // A row a sequence: all are at one position, each has its own prompt.
            for (i, row) in state.chunks_mut(STATE_WORDS).enumerate() {
                row[StateWord::Position as usize] = problem.state.n_kv as u32 - 1;
                let given = problem.state.prompt_len as u32;
                row[StateWord::Given as usize] = given.saturating_add(i as u32);
                row[StateWord::Seed as usize] = rng.next_u64() as u32;
                row[StateWord::Choice as usize] = rng.next_u64() as u32;
            }
            state
        }
        Draw::Count(first) => (0..len as u32).map(|i| first + i).collect(),
        Draw::Tokens(vocab) => (0..len).map(|_| rng.below(vocab as u32)).collect(),
        _ => (0..len).map(|_| rng.below(1000)).collect(),
    }
}

fn weights(draw: Draw, matrix: Matrix, len: usize, rng: &mut Rng) -> WeightRows {
    let Matrix { format, order, k, .. } = matrix;
    let mut values = rng.normals(len);
    match draw {
        Draw::UnitProducts => {
            let gain = (k as f32).sqrt().recip();
            values.iter_mut().for_each(|v| *v *= gain);
        }
        Draw::TiedRows => {
            for row in 0..len / k {
                let other = match row % 8 {
                    5 => row - 5,
                    3 => row / 2,
                    _ => row,
                };
                values.copy_within(other * k..(other + 1) * k, row * k);
            }
        }
        _ => {}
    }
    WeightRows::from_f32(format, order, k, &values)
}
