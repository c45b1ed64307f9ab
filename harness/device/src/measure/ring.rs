//! The memory that timed invocations rotate through: copies of weights and caches, which in total
//! exceed the last-level cache, and two draws of the other inputs. Neighbours differ in both, so a
//! stale result of one invocation is never the next one's expected result.

use std::sync::Arc;

use lathe_kernels::Role;

use crate::error::Result;
use crate::execute::GpuExecutor;
use crate::gpu::DeviceBuffer;
use crate::judge::check::{Case, DRAWS, Draw};
use crate::plan::recording::TensorId;

/// Maximum number of copies of a case: tiny kernels stop being cold before they exceed a large
/// cache.
const MOST_COPIES: u64 = 511;

/// The memory that invocations rotate through.
#[derive(Debug)]
pub(super) struct Ring {
    /// All tensors that the kernel binds.
    tensors: Vec<Rotated>,
    /// Copies of each tensor that a cold benchmark rotates. Their number is one less than a
    /// multiple of [`DRAWS`], so that the last and the first differ too.
    copies: usize,
    /// Draws of each other input; one where all inputs rotate.
    versions: usize,
    /// True if the copies are of weights or caches.
    of_large: bool,
    /// Total bytes of the copies.
    pub bytes: u64,
}

/// The memory of one tensor.
#[derive(Clone, Debug)]
struct Rotated {
    id: TensorId,
    /// Blocks that turns take one after the other.
    blocks: Vec<Arc<DeviceBuffer>>,
    /// Content of the blocks before a sample, repeated; empty for an input.
    renewed: Vec<Renewed>,
}

/// Content of memory before a sample.
#[derive(Clone, Debug)]
pub(super) enum Renewed {
    /// Poison, which an invocation cannot mistake for a result.
    Poison,
    Zeros,
    /// The drawn content.
    Drawn(Arc<DeviceBuffer>),
}

impl Ring {
    /// Copies of a prepared case that exceed `rotate_bytes` in total.
    pub(super) fn new(case: &Case, first: &GpuExecutor, rotate_bytes: u64) -> Result<Self> {
        let rotated = case.rotated();
        let bytes = |id: &TensorId| case.recording.tensors[id.0].content.device_bytes();
        let each: u64 = rotated.iter().map(bytes).sum();
        let count = rotate_bytes.div_ceil(each.max(1)) + 1;
        let count = ((count + 1).next_multiple_of(DRAWS as u64) - 1).min(MOST_COPIES);
        let ring = Self {
            tensors: Vec::new(),
            copies: count as usize,
            versions: if case.given().is_empty() { 1 } else { 2 },
            of_large: rotated.iter().any(|id| case.is_large(*id)),
            bytes: each * count,
        };
        ring.of(case, first, &[])
    }

    /// A ring over the same memory for another plan, which `first` was prepared for. Tensors that
    /// this plan lays out differently have copies of their own.
    pub(super) fn beside(&self, case: &Case, first: &GpuExecutor) -> Result<Self> {
        Self { tensors: Vec::new(), ..*self }.of(case, first, &self.tensors)
    }

    /// The ring of a case, with the memory that it shares with `known`.
    fn of(mut self, case: &Case, first: &GpuExecutor, known: &[Rotated]) -> Result<Self> {
        let (rotated, given) = (case.rotated(), case.given());
        for id in case.bound(|_| true) {
            let count = match (rotated.contains(&id), given.contains(&id)) {
                (true, _) => self.copies,
                (_, true) => self.versions,
                _ => 1,
            };
            let own = first.shared(id);
            let same = |known: &&Rotated| {
                Arc::ptr_eq(&known.blocks[0], &own) && known.blocks.len() == count
            };
            let tensor = match known.iter().find(same) {
                Some(known) => Rotated { id, ..known.clone() },
                None => Rotated::new(case, first, id, count)?,
            };
            self.tensors.push(tensor);
        }
        Ok(self)
    }

    /// Number of turns until memory and draws repeat.
    pub(super) fn turns(&self) -> usize {
        self.copies * self.versions
    }

    /// The memory of a turn.
    pub(super) fn blocks(&self, turn: usize) -> Vec<(TensorId, Arc<DeviceBuffer>)> {
        let block = |t: &Rotated| (t.id, Arc::clone(&t.blocks[turn % t.blocks.len()]));
        self.tensors.iter().map(block).collect()
    }

    /// The draw that the memory of a turn holds.
    pub(super) fn draw(&self, turn: usize) -> Draw {
        let (copy, version) = (turn % self.copies % DRAWS, turn % self.versions);
        match self.of_large {
            true => Draw { large: copy, small: version },
            false => Draw { large: 0, small: copy },
        }
    }

    /// Two turns over the same weights and caches, if there are any, that differ in the rest.
    pub(super) fn warm(&self) -> [usize; 2] {
        // The number of copies is odd.
        if self.versions == 1 { [0, 1] } else { [0, self.copies] }
    }

    /// Memory that is written, with its content before a sample that begins with turn `next`.
    /// Copies whose turn comes last are last: a device's cache has those when all are renewed, and
    /// they are gone from it until then.
    pub(super) fn renewed(&self, next: usize) -> impl Iterator<Item = (&DeviceBuffer, &Renewed)> {
        (0..self.copies).flat_map(move |i| {
            let written = self.tensors.iter().filter(move |t| i < t.blocks.len());
            written.filter(|t| !t.renewed.is_empty()).map(move |t| {
                let at = (next + i) % t.blocks.len();
                (&*t.blocks[at], &t.renewed[at % t.renewed.len()])
            })
        })
    }

    /// The drawn content of a tensor that is read and written.
    pub(super) fn drawn(&self, id: TensorId) -> Option<&DeviceBuffer> {
        match self.tensors.iter().find(|t| t.id == id)?.renewed.first()? {
            Renewed::Drawn(drawn) => Some(drawn),
            _ => None,
        }
    }
}

impl Rotated {
    /// `count` blocks of a tensor: each draw is written once and copied on the device.
    fn new(case: &Case, first: &GpuExecutor, id: TensorId, count: usize) -> Result<Self> {
        let (gpu, name) = (&first.gpu, &case.recording.tensors[id.0].name);
        let mut blocks: Vec<Arc<DeviceBuffer>> = vec![first.shared(id)];
        for i in 1..count {
            let draw = Draw { large: i, small: i };
            blocks.push(Arc::new(match i < DRAWS {
                true => case.of_draw(gpu, first.block(id), id, draw)?,
                false => blocks[i % DRAWS].copied(gpu, name)?,
            }));
        }
        let saved =
            |block: &Arc<DeviceBuffer>| Ok(Renewed::Drawn(Arc::new(block.copied(gpu, name)?)));
        let renewed = match case.role(id) {
            Some(Role::Output | Role::Scratch) => vec![Renewed::Poison],
            Some(Role::Counter) => vec![Renewed::Zeros],
            Some(Role::InOut) => blocks.iter().take(DRAWS).map(saved).collect::<Result<_>>()?,
            Some(Role::Input) | None => Vec::new(),
        };
        Ok(Self { id, blocks, renewed })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::gpu::{Pipelines, Policy};
    use crate::plan::Plan;

    /// Neighbours differ in every tensor that rotates, the last and the first too, so a stale
    /// result is never the next invocation's expected one.
    #[test]
    fn neighbours_differ() {
        let Some(gpu) = crate::measure::test_gpu() else { return };
        for (name, shape) in [
            ("gemv", "ROWS=40,K=64"),
            ("gemv_q", "ROWS=40,K=256,WEIGHT=q4_0"),
            ("attention_decode", "KV_SIZE=40,N_KV=33"),
            ("rms_norm", ""),
        ] {
            let kernel = lathe_kernels::kernel(name).unwrap();
            let problem = kernel.parse_over(&kernel.default_problem(), shape).unwrap();
            let plan = Plan::of(kernel, &kernel.variants[0], &problem.shape, &gpu.caps).unwrap();
            let case = Case::new(&gpu, plan, &problem, 7).unwrap();
            let first = case.prepare(&gpu, &Pipelines::default(), Policy::Plain).unwrap();
            let rotated = [case.rotated(), case.given()].concat();
            let ring = Ring::new(&case, &first, 64 << 10).unwrap();
            assert!(ring.turns() > 2, "{name}: {}", ring.turns());
            let read =
                |(id, block): &(TensorId, Arc<DeviceBuffer>)| (*id, block.read(&gpu).unwrap());
            let held: Vec<Vec<(TensorId, Vec<u8>)>> = (0..ring.turns())
                .map(|turn| ring.blocks(turn).iter().map(read).collect())
                .collect();
            for (turn, next) in held.iter().zip(held.iter().cycle().skip(1)) {
                for ((id, own), (same, other)) in turn.iter().zip(next) {
                    assert_eq!(id, same);
                    let tensor = &case.recording.tensors[id.0].name;
                    let rotates = rotated.contains(id);
                    assert!(!rotates || own != other, "{name}: neighbours hold the same {tensor}");
                }
            }
        }
    }
}
