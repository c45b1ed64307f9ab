//! Test on the device itself of whether the workgroups of one dispatch can wait for each other,
//! which no API promises.

use std::sync::{Arc, PoisonError};

use lathe_kernels::{Feature, Grid, Reflection, persistent};

use super::device::{Gpu, create};
use super::pipeline::Pipelines;
use crate::error::Result;
use crate::plan::Code;

/// Rounds of the test: in each, an invocation writes a word, waits, and reads the words of two
/// others.
const ROUNDS: u32 = 250;
/// Invocations in a workgroup of a persistent kernel: measured to be faster than 128 and 512
/// (docs/persistent-kernels.md).
const INVOCATIONS: u32 = 256;
/// Workgroups of a persistent kernel: 128 were measured, fewer are for smaller devices.
const GROUPS: [u32; 3] = [128, 64, 32];
/// Sectors of weights that an invocation prefetches at a grid barrier: measured in
/// docs/findings/persistent-prefetch-next-weights.md.
const PREFETCH: u32 = 3;

impl Gpu {
    /// The grid of a persistent kernel on this device, or the reason why there is none.
    ///
    /// A grid passes when twice as many workgroups, each as large as the device allows, waited for
    /// each other and saw the others' writes. Half as many then fit whatever registers and memory
    /// they use. The test runs once per device.
    ///
    /// # Errors
    /// The device is lost.
    pub fn persistent_grid(&self) -> Result<std::result::Result<Grid, String>> {
        let mut known = self.grid.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = &*known {
            return Ok(found.clone());
        }
        let found = self.tried()?;
        Ok(known.insert(found).clone())
    }

    /// Withdraws the passed grid for this `reason`: [`Self::persistent_grid`] returns none from now on.
    pub fn distrust_persistent(&self, reason: String) {
        *self.grid.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(reason));
    }

    fn tried(&self) -> Result<std::result::Result<Grid, String>> {
        let coherent = wgpu::Features::MEMORY_DECORATION_COHERENT;
        if self.adapter.software {
            return Ok(Err("a software adapter runs few workgroups at a time".into()));
        }
        if !self.device.features().contains(coherent) {
            let masked = self.caps.mask.of(Feature::Coherent);
            return Ok(Err(format!("the device has no coherent buffers{masked}")));
        }
        if self.caps.subgroup.is_none() || self.caps.invocations < INVOCATIONS {
            return Ok(Err(format!(
                "it needs subgroups and workgroups of {INVOCATIONS} invocations"
            )));
        }
        let mut reason = String::new();
        for groups in GROUPS {
            let grid =
                Grid { groups, invocations: INVOCATIONS, prefetch: PREFETCH, layers: u32::MAX };
            let largest = Grid { groups: 2 * groups, invocations: self.caps.invocations, ..grid };
            match self.grid_barrier_fault(largest, ROUNDS)? {
                None => return Ok(Ok(grid)),
                Some(fault) => reason = fault,
            }
        }
        Ok(Err(reason))
    }

    /// Tests a grid barrier over this grid and returns the fault that was seen, if any.
    ///
    /// # Errors
    /// The device refuses the test, or is lost.
    pub fn grid_barrier_fault(&self, grid: Grid, rounds: u32) -> Result<Option<String>> {
        let Grid { groups, invocations, .. } = grid;
        let text = format!(
            "const GRID_GROUPS: u32 = {groups}u;\nconst INVOCATIONS: u32 = {invocations}u;\n\
             const ROUNDS: u32 = {rounds}u;\n{}{}",
            persistent::GRID_BARRIER,
            include_str!("grid_barrier.wgsl")
        );
        let sizes = [groups * invocations, persistent::ARRIVAL_WORDS as u32, 1];
        let what = "a test of waiting workgroups";
        let buffers = self.scoped(what, |device| {
            let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
            sizes.map(|words| create(device, "waits", 4 * u64::from(words), usage))
        })?;
        let code = Code::new(text.clone(), Arc::new(Reflection::of(&text, what)?));
        let pipeline = Pipelines::default().of_code(self, what, "main", &code, true)?;
        let bound = |name: &str| match name {
            "words" => buffers[0].as_entire_buffer_binding(),
            "grid_arrivals" => buffers[1].as_entire_buffer_binding(),
            _ => buffers[2].as_entire_buffer_binding(),
        };
        let bind_groups = pipeline.bind(self, what, &bound)?;
        let submission = self.caught(|| {
            self.submit(|encoder| {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                pipeline.encode(&mut pass, &bind_groups, [groups, 1, 1]);
            })
        })?;
        self.wait(Some(submission))?;
        let first = |buffer: &wgpu::Buffer| -> Result<u32> {
            let words: Vec<u32> = bytemuck::pod_collect_to_vec(&self.read(buffer, 0, 4)?);
            Ok(words[0])
        };
        let (gave_up, wrong) = (first(&buffers[1])?, first(&buffers[2])?);
        let size = format!("{groups} workgroups of {invocations}");
        Ok(match (gave_up, wrong) {
            (0, 0) => None,
            (0, _) => Some(format!("{size} waited and did not see what others wrote")),
            _ => Some(format!("{size} do not run at the same time")),
        })
    }
}
