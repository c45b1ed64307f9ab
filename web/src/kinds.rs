//! Kinds of devices that plans are made for.

use lathe_kernels::Capabilities;
use serde::Serialize;

/// A kind of device: capabilities of many adapters, none of which need be here.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Name on the command line and in plans.
    pub name: &'static str,
    /// Devices, in words.
    pub what: &'static str,
    /// Capabilities that its plans may use.
    pub caps: Capabilities,
}

/// Limits and features that a plan's device must have, by WebGPU's names.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Needs {
    /// Range that the adapter's subgroup sizes must lie in; none for plans without subgroups.
    subgroups: Option<(u32, u32)>,
    limits: Limits,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Limits {
    max_compute_workgroup_storage_size: u32,
    max_compute_invocations_per_workgroup: u32,
    max_compute_workgroup_size_x: u32,
    max_storage_buffers_per_shader_stage: u32,
    max_storage_buffer_binding_size: u64,
}

impl Kind {
    pub(crate) fn needs(&self) -> Needs {
        let caps = &self.caps;
        Needs {
            subgroups: caps.subgroup,
            limits: Limits {
                max_compute_workgroup_storage_size: caps.workgroup_memory,
                max_compute_invocations_per_workgroup: caps.invocations,
                max_compute_workgroup_size_x: caps.invocations,
                max_storage_buffers_per_shader_stage: caps.storage_buffers,
                max_storage_buffer_binding_size: caps.binding_bytes,
            },
        }
    }
}

/// All kinds, the best first. Eight storage buffers and bindings of 128 MiB are what every WebGPU
/// device has. No kind asks for `shader-f16`: kernels unpack f16 from words, and only matrix units,
/// which browsers do not have, use its types.
pub fn kinds() -> Vec<Kind> {
    let minimal = Capabilities { web: true, ..Capabilities::minimal() };
    let large = Capabilities { workgroup_memory: 32 << 10, ..minimal.clone() };
    vec![
        Kind {
            name: "subgroups-32",
            what: "subgroups of 32, 32 KiB of workgroup memory, 1024 invocations",
            caps: Capabilities { subgroup: Some((32, 32)), invocations: 1024, ..large.clone() },
        },
        Kind {
            name: "subgroups",
            what: "subgroups of 4 to 64, 32 KiB of workgroup memory",
            caps: Capabilities { subgroup: Some((4, 64)), ..large.clone() },
        },
        Kind { name: "large", what: "no subgroups, 32 KiB of workgroup memory", caps: large },
        Kind {
            name: "minimal",
            what: "what every WebGPU device has: no subgroups, 16 KiB of workgroup memory",
            caps: minimal,
        },
    ]
}
