//! Memory of the device: free and used bytes, and the check that a recording fits.
//!
//! wgpu does not report how much memory an adapter has. Vulkan does: the size of each heap, and
//! with `VK_EXT_memory_budget` the process's budget and current use. On other back ends nothing is
//! known, and a model that does not fit fails when it is allocated.

use std::sync::PoisonError;

use lathe_record::bytes;

use super::device::{Gpu, MemoryUse};
use crate::error::{Error, Result, TooLittleMemory};
use crate::plan::memory::{self, Memory};
use crate::plan::recording::Recording;

/// Memory of the heap that tensors lie in, as the driver counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes of the heap.
    pub size: u64,
    /// This process's share, where the driver reports it.
    pub budget: Option<Budget>,
}

/// A process's share of a heap, as the driver sees it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that this process may use in all, including those in use.
    pub bytes: u64,
    /// Bytes in use: memory that allocators have taken from the driver, and the driver's own.
    pub used: u64,
}

impl DeviceMemory {
    /// Maximum number of bytes that this process may still take. Without a budget it is the whole
    /// heap, whoever else uses it.
    pub fn free(self) -> u64 {
        self.budget.map_or(self.size, |budget| budget.bytes.saturating_sub(budget.used))
    }
}

impl Gpu {
    /// Memory of the heap that tensors lie in; none where the back end or the driver does not
    /// report it.
    pub fn memory(&self) -> Option<DeviceMemory> {
        vulkan::memory(&self.device)
    }

    /// Memory in use now. Polls the device first, since dropped buffers count until then.
    pub fn memory_in_use(&self) -> MemoryUse {
        // A fault shows at the next check.
        let _ = self.device.poll(wgpu::PollType::Poll);
        self.sample()
    }

    fn sample(&self) -> MemoryUse {
        let allocated = self.device.generate_allocator_report().map(|r| r.total_allocated_bytes);
        MemoryUse { allocated, used: self.memory().and_then(|m| m.budget).map(|b| b.used) }
    }

    /// Updates the peak with the memory in use now. Called after large allocations; it is too slow
    /// for decode steps, which allocate next to nothing.
    pub(crate) fn note_memory(&self) {
        let now = self.sample();
        let mut peak = self.peak.lock().unwrap_or_else(PoisonError::into_inner);
        *peak = peak.max(now);
    }

    /// Peak memory in use since the device was opened or [`Gpu::forget_peak`] was called, as
    /// sampled while tensors were filled and now.
    pub fn peak_memory(&self) -> MemoryUse {
        self.note_memory();
        *self.peak.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Restarts the peak from the memory in use now.
    pub fn forget_peak(&self) {
        let now = self.memory_in_use();
        *self.peak.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Refuses a recording before anything is allocated if `memory`, its new part, does not fit.
    ///
    /// # Errors
    /// The total exceeds [`Gpu::memory_limit`] together with the memory held, or exceeds the free
    /// memory.
    pub fn admit(&self, recording: &Recording, memory: &Memory) -> Result<()> {
        let needed = memory.total();
        let refuse = |available: u64, whose: String| {
            Err(Error::Memory(Box::new(TooLittleMemory {
                adapter: self.adapter.name.clone(),
                predicted: needed,
                available,
                whose,
                parts: memory.to_string(),
                advice: memory::advice(recording, memory),
            })))
        };
        if let Some(limit) = self.memory_limit {
            let held = self.memory_in_use().allocated.unwrap_or(0);
            let left = limit.saturating_sub(held);
            if needed > left {
                let whose = format!("left by the limit of {}", bytes(limit));
                return refuse(left, whose);
            }
        }
        let Some(device) = self.memory() else { return Ok(()) };
        if needed > device.free() {
            let whose = match device.budget {
                Some(_) => format!("free of {}", bytes(device.size)),
                None => "on the device in all".to_owned(),
            };
            return refuse(device.free(), whose);
        }
        Ok(())
    }
}

/// Query of the heap, on platforms where wgpu is built with Vulkan.
#[cfg(any(windows, target_os = "linux", target_os = "android"))]
mod vulkan {
    use ash::vk;
    use wgpu::hal::api::Vulkan;

    use super::{Budget, DeviceMemory};

    pub(super) fn memory(device: &wgpu::Device) -> Option<DeviceMemory> {
        // SAFETY: nothing of the device is destroyed, changed or kept: it is asked for handles
        // within this function, while the guard holds it.
        let device = unsafe { device.as_hal::<Vulkan>() }?;
        let has_budget =
            device.enabled_device_extensions().contains(&ash::ext::memory_budget::NAME);
        let shared = device.shared_instance();
        let (instance, physical) = (shared.raw_instance(), device.raw_physical_device());
        // SAFETY: it only reads what the physical device is; instance and physical device are alive
        // while the guard is.
        let about = unsafe { instance.get_physical_device_properties(physical) };
        // The function that is called next came with Vulkan 1.1.
        if shared.instance_api_version().min(about.api_version) < vk::API_VERSION_1_1 {
            return None;
        }
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut all = vk::PhysicalDeviceMemoryProperties2::default();
        if has_budget {
            all = all.push_next(&mut budget);
        }
        // SAFETY: alive as above; the chained structure is that of an extension which the device
        // has, and both live until their last use.
        unsafe { instance.get_physical_device_memory_properties2(physical, &mut all) };
        let heaps = all.memory_properties;
        let heaps = heaps.memory_heaps_as_slice().iter().enumerate();
        // Tensors lie in device-local memory.
        let local = heaps.filter(|(_, h)| h.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
        let local = local.map(|(i, heap)| {
            let (bytes, used) = (budget.heap_budget[i], budget.heap_usage[i]);
            let budget = has_budget.then_some(Budget { bytes, used });
            DeviceMemory { size: heap.size, budget }
        });
        // A discrete GPU may have a second, small heap of it that the host sees. Where host and
        // device share memory a driver may list it several times: there a sum refuses too little
        // rather than too much.
        match about.device_type {
            vk::PhysicalDeviceType::DISCRETE_GPU => local.max_by_key(|memory| memory.size),
            // Software says any size (llvmpipe 2 GiB) and gives what the host has.
            vk::PhysicalDeviceType::CPU if !has_budget => None,
            _ => local.reduce(|a, b| DeviceMemory {
                size: a.size + b.size,
                budget: a
                    .budget
                    .zip(b.budget)
                    .map(|(a, b)| Budget { bytes: a.bytes + b.bytes, used: a.used + b.used }),
            }),
        }
    }
}

#[cfg(not(any(windows, target_os = "linux", target_os = "android")))]
mod vulkan {
    pub(super) fn memory(_: &wgpu::Device) -> Option<super::DeviceMemory> {
        None
    }
}
