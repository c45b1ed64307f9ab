//! Limits of adapters that need not be present: the check of a text against them needs no device.
//!
//! Each number has a public source; a device without one is left out. Limits without a source are
//! those of the first profile, which every WebGPU adapter offers.

use lathe_kernels::{Capabilities, Feature, Reflection};

/// Features and limits of a device, with their sources.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Name on the command line.
    pub name: &'static str,
    /// Devices and drivers.
    pub what: &'static str,
    /// Sources of the numbers.
    pub sources: &'static [&'static str],
    /// The numbers.
    pub caps: Capabilities,
}

/// All profiles, the most limited first.
pub fn profiles() -> Vec<Profile> {
    let minimal = Capabilities::minimal();
    vec![
        Profile {
            name: "minimal",
            what: "every WebGPU adapter: default limits, no optional feature",
            sources: &["WebGPU, Limits: https://www.w3.org/TR/webgpu/#limits"],
            caps: minimal.clone(),
        },
        Profile {
            name: "adreno",
            what: "Adreno 6xx from 615 on, under Mesa's Turnip",
            sources: &[
                // maxComputeSharedMemorySize 32 KiB (cs_shared_mem_size), maxComputeWorkGroupSize
                // 1024 a dimension, maxComputeWorkGroupCount 65535, maxStorageBufferRange 2^27,
                // minSubgroupSize threadsize_base = 64, maxSubgroupSize twice that. 16-bit storage,
                // without which there is no shader-f16, only from a6xx_gen3 on.
                "Mesa, src/freedreno/vulkan/tu_device.cc: tu_get_properties",
                "Mesa, src/freedreno/common/freedreno_devices.py: a6xx_base",
            ],
            caps: Capabilities {
                subgroup: Some((64, 128)),
                workgroup_memory: 32 << 10,
                invocations: 1024,
                // max_descriptor_set_size is in the millions; a bind group has 1000 entries.
                storage_buffers: 1000,
                ..minimal.clone()
            },
        },
        Profile {
            name: "uhd620",
            what: "Intel UHD 620 and other graphics of generation 9 under Mesa's ANV",
            sources: &[
                // maxComputeSharedMemorySize 64 KiB; maxComputeWorkGroupInvocations the lesser of
                // 1024 and 32 a thread; maxPerStageDescriptorStorageBuffers UINT16_MAX;
                // minSubgroupSize 8, maxSubgroupSize 32; shaderFloat16 from generation 8 on.
                "Mesa, src/intel/vulkan/anv_device.c: anv_GetPhysicalDeviceProperties",
                // 8 execution units of 7 threads a subslice: 56, for more than 1024 invocations.
                "Intel, The Compute Architecture of Intel Processor Graphics Gen9",
            ],
            caps: Capabilities {
                subgroup: Some((8, 32)),
                f16: true,
                workgroup_memory: 64 << 10,
                invocations: 1024,
                // As above: what a bind group may have.
                storage_buffers: 1000,
                ..minimal.clone()
            },
        },
        Profile {
            name: "apple",
            what: "Apple silicon from A14 and M1 on (GPU family Apple7), as wgpu 30 offers it",
            sources: &[
                // Maximum threads per threadgroup 1024, total threadgroup memory 32 KB, 31 entries
                // in the buffer argument table.
                "Apple, Metal Feature Set Tables, GPU implementation limits by family: \
                 https://developer.apple.com/metal/Metal-Feature-Set-Tables.pdf",
                // Two of the 31 buffers are wgpu's own; subgroups of 4 to 64; shader-f16 always.
                "wgpu-hal 30.0.1, src/metal/adapter.rs and src/metal/mod.rs",
            ],
            caps: Capabilities {
                subgroup: Some((4, 64)),
                f16: true,
                workgroup_memory: 32 << 10,
                invocations: 1024,
                storage_buffers: 29,
                ..minimal
            },
        },
    ]
}

/// Requirements of an entry point that an adapter does not meet, in words; `memory` and
/// `invocations` are its workgroup's.
pub fn lacking(
    reflection: &Reflection,
    entry: &str,
    (memory, invocations): (u32, u32),
    caps: &Capabilities,
) -> Vec<String> {
    let used = reflection.entry(entry).map_or(&[][..], |e| e.buffers.as_slice());
    let buffers = || used.iter().map(|&i| &reflection.buffers[i]);
    let mut lacking = features_lacking(reflection, caps);
    let more = |needed: u32, has: u32, what: &str| {
        let masked = caps.mask.of_limit();
        (needed > has).then(|| format!("needs {needed} {what}, the adapter has {has}{masked}"))
    };
    lacking.extend(more(memory, caps.workgroup_memory, "bytes of workgroup memory"));
    lacking.extend(more(invocations, caps.invocations, "invocations a workgroup"));
    if let Some(group) = buffers().map(|b| b.group).max().filter(|g| *g >= caps.bind_groups) {
        let has = caps.bind_groups;
        lacking.push(format!("uses @group({group}), the adapter has {has} groups"));
    }
    let storage = buffers().filter(|b| b.uniform.is_none()).count() as u32;
    lacking.extend(more(storage, caps.storage_buffers, "storage buffers"));
    lacking
}

/// Optional features that the text requires and the adapter lacks, without which the text may not
/// compile at all.
pub(crate) fn features_lacking(reflection: &Reflection, caps: &Capabilities) -> Vec<String> {
    let mut lacking = Vec::new();
    if reflection.needs_subgroup && caps.subgroup.is_none() {
        lacking.push(format!("needs subgroup operations{}", caps.mask.of(Feature::Subgroups)));
    }
    if reflection.needs_f16 && !caps.f16 {
        let masked = caps.mask.of(Feature::F16);
        lacking.push(format!("needs 16-bit floats (shader-f16){masked}"));
    }
    for wanted in &reflection.needs_cooperative_matrix {
        let offered = &caps.cooperative_matrices;
        if !offered.contains(wanted) {
            let offered: Vec<_> = offered.iter().map(ToString::to_string).collect();
            let offered = match offered.as_slice() {
                [] => "none".to_owned(),
                some => some.join(", "),
            };
            let masked = caps.mask.of(Feature::Matrices);
            lacking.push(format!(
                "needs cooperative matrices {wanted}, the adapter has {offered}{masked}"
            ));
        }
    }
    lacking
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_profile_is_webgpus_default() {
        let (caps, default) = (&profiles()[0].caps, wgpu::Limits::default());
        assert_eq!(caps.workgroup_memory, default.max_compute_workgroup_storage_size);
        assert_eq!(caps.invocations, default.max_compute_invocations_per_workgroup);
        assert_eq!(caps.storage_buffers, default.max_storage_buffers_per_shader_stage);
        assert_eq!(caps.binding_bytes, default.max_storage_buffer_binding_size);
        assert_eq!(caps.grid_dimension, default.max_compute_workgroups_per_dimension);
        assert!(caps.subgroup.is_none() && !caps.f16);
    }

    #[test]
    fn every_profile_has_sources_and_offers_what_all_do() {
        let all = profiles();
        let offers = |caps: &Capabilities| {
            let Capabilities { workgroup_memory, invocations, storage_buffers, .. } = *caps;
            [u64::from(workgroup_memory), invocations.into(), storage_buffers.into()]
                .into_iter()
                .chain([caps.binding_bytes])
        };
        for profile in &all {
            assert!(!profile.sources.is_empty() && !profile.what.is_empty(), "{}", profile.name);
            let mut pairs = offers(&profile.caps).zip(offers(&all[0].caps));
            assert!(pairs.all(|(own, least)| own >= least), "{}", profile.name);
        }
    }
}
