//! The memory that timed invocations rotate through: copies of weights and caches, which in total
//! exceed the last-level cache, and two draws of the other inputs. Neighbours differ in both, so a
//! stale result of one invocation is never the next one's expected result.

use std::sync::Arc;

use crate::error::Result;
use crate::execute::GpuExecutor;
use crate::gpu::DeviceBuffer;
use crate::judge::check::{Case, DRAWS, Draw};
use crate::plan::recording::TensorId;

/// Maximum number of copies of a case: tiny kernels stop being cold before they exceed a large
/// cache.
const MOST_COPIES: u64 = 511;

/// Memory of some tensors.
pub(super) type Blocks = Vec<(TensorId, Arc<DeviceBuffer>)>;

/// The memory that invocations rotate through.
#[derive(Debug)]
pub(super) struct Ring {
    /// Copies of the tensors that a cold benchmark rotates. Their number is one less than a
    /// multiple of [`DRAWS`], so that the last and the first differ too.
    copies: Vec<Blocks>,
    /// The draws of all other inputs; none where all inputs rotate.
    given: Vec<Blocks>,
    /// True if the copies are of weights or caches.
    of_large: bool,
    bytes: u64,
}

impl Ring {
    /// Copies of a prepared case that exceed `rotate_bytes` in total.
    pub(super) fn new(case: &Case, first: &GpuExecutor, rotate_bytes: u64) -> Result<Self> {
        let rotated = case.rotated();
        let bytes = |id: &TensorId| case.recording.tensors[id.0].content.device_bytes();
        let each: u64 = rotated.iter().map(bytes).sum();
        let draws = DRAWS as u64;
        let count = rotate_bytes.div_ceil(each.max(1)) + 1;
        let count = ((count + 1).next_multiple_of(draws) - 1).min(MOST_COPIES);
        let mut ring = Self {
            copies: vec![Blocks::new(); count as usize],
            given: Vec::new(),
            of_large: rotated.iter().any(|id| case.is_large(*id)),
            bytes: each * count,
        };
        for id in rotated {
            ring.add(case, first, id)?;
        }
        let given = case.given();
        if !given.is_empty() {
            let draw = Draw { large: 0, small: 1 };
            let other = |id: TensorId| Ok((id, of_draw(case, first, id, draw)?));
            let shared = |id: &TensorId| (*id, first.shared(*id));
            ring.given = vec![
                given.iter().map(shared).collect(),
                given.into_iter().map(other).collect::<Result<_>>()?,
            ];
        }
        Ok(ring)
    }

    /// A ring over the same memory for another plan, which `first` was prepared for. Tensors that
    /// this plan lays out differently have copies of their own.
    pub(super) fn beside(&self, case: &Case, first: &GpuExecutor) -> Result<Self> {
        let (of_large, bytes) = (self.of_large, self.bytes);
        let copies = vec![Blocks::new(); self.copies.len()];
        let mut ring = Self { copies, given: self.given.clone(), of_large, bytes };
        for id in case.rotated() {
            let own = first.shared(id);
            let Some(i) = self.copies[0].iter().position(|(_, known)| Arc::ptr_eq(known, &own))
            else {
                ring.add(case, first, id)?;
                continue;
            };
            for (copy, known) in ring.copies.iter_mut().zip(&self.copies) {
                copy.push((id, Arc::clone(&known[i].1)));
            }
        }
        Ok(ring)
    }

    /// Copies of one tensor: each draw is written once and copied on the device.
    fn add(&mut self, case: &Case, first: &GpuExecutor, id: TensorId) -> Result<()> {
        let name = &case.recording.tensors[id.0].name;
        let mut blocks: Vec<Arc<DeviceBuffer>> = Vec::with_capacity(self.copies.len());
        for copy in 0..self.copies.len() {
            blocks.push(match copy {
                0 => first.shared(id),
                draw if draw < DRAWS => of_draw(case, first, id, self.draw_of(draw, 0))?,
                _ => Arc::new(blocks[copy % DRAWS].copied(&first.gpu, name)?),
            });
        }
        for (copy, block) in self.copies.iter_mut().zip(blocks) {
            copy.push((id, block));
        }
        Ok(())
    }

    /// The memory of each turn in order, with the draw it holds.
    pub(super) fn turns(&self) -> impl Iterator<Item = (Blocks, Draw)> {
        let versions = self.given.len().max(1);
        (0..self.copies.len() * versions).map(move |turn| {
            let (copy, version) = (turn % self.copies.len(), turn % versions);
            let given = self.given.get(version).into_iter().flatten();
            let blocks = self.copies[copy].iter().chain(given).cloned().collect();
            (blocks, self.draw_of(copy, version))
        })
    }

    /// Two turns over the same weights and caches, if there are any, that differ in the rest.
    pub(super) fn warm(&self) -> [usize; 2] {
        // The number of copies is odd.
        if self.given.is_empty() { [0, 1] } else { [0, self.copies.len()] }
    }

    /// The draw of a copy together with a version of the other inputs.
    fn draw_of(&self, copy: usize, version: usize) -> Draw {
        match self.of_large {
            true => Draw { large: copy % DRAWS, small: version },
            false => Draw { large: 0, small: copy % DRAWS },
        }
    }

    /// Total bytes of the copies.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The copies of a tensor, in their order.
    pub(super) fn copies_of(&self, id: TensorId) -> impl Iterator<Item = &Arc<DeviceBuffer>> {
        self.copies.iter().flatten().filter(move |(own, _)| *own == id).map(|(_, block)| block)
    }

    /// Tensors that have copies.
    pub(super) fn rotates(&self, id: TensorId) -> bool {
        self.copies[0].iter().any(|(own, _)| *own == id)
    }
}

/// Memory for a tensor that holds a draw.
fn of_draw(
    case: &Case,
    first: &GpuExecutor,
    id: TensorId,
    draw: Draw,
) -> Result<Arc<DeviceBuffer>> {
    case.of_draw(&first.gpu, first.block(id), id, draw).map(Arc::new)
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
            let ring = Ring::new(&case, &first, 64 << 10).unwrap();
            let turns: Vec<(Blocks, Draw)> = ring.turns().collect();
            assert!(turns.len() > 2, "{name}: {}", turns.len());
            let held: Vec<Vec<(TensorId, Vec<u8>)>> = turns
                .iter()
                .map(|(blocks, _)| {
                    blocks.iter().map(|(id, block)| (*id, block.read(&gpu).unwrap())).collect()
                })
                .collect();
            for (turn, next) in held.iter().zip(held.iter().cycle().skip(1)) {
                for ((id, own), (same, other)) in turn.iter().zip(next) {
                    assert_eq!(id, same);
                    let tensor = &case.recording.tensors[id.0].name;
                    assert!(own != other, "{name}: neighbours hold the same {tensor}");
                }
            }
        }
    }
}
