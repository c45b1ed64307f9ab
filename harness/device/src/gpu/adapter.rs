//! Finding adapters and choosing one.

use lathe_kernels::{CooperativeMatrix, Feature, Mask, MatrixScalar};
use lathe_record::AdapterSummary;

use crate::error::{Error, Result};

/// Shapes and types of the matrices that a subgroup of this device multiplies.
pub(super) fn cooperative_matrices(
    adapter: &wgpu::Adapter,
    features: wgpu::Features,
) -> Vec<CooperativeMatrix> {
    if !features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
        return Vec::new();
    }
    let scalar = |s| match s {
        wgpu::CooperativeScalarType::F16 => MatrixScalar::F16,
        wgpu::CooperativeScalarType::F32 => MatrixScalar::F32,
        wgpu::CooperativeScalarType::I32 => MatrixScalar::I32,
        wgpu::CooperativeScalarType::U32 => MatrixScalar::U32,
    };
    let mut all: Vec<_> = adapter
        .cooperative_matrix_properties()
        .iter()
        .map(|p| CooperativeMatrix {
            m: p.m_size,
            n: p.n_size,
            k: p.k_size,
            inputs: scalar(p.ab_type),
            sums: scalar(p.cr_type),
        })
        .collect();
    // Saturating and wrapping integer forms are listed apart.
    all.sort_unstable();
    all.dedup();
    all
}

/// wgpu's features that a mask hides.
pub(super) fn hidden(mask: &Mask) -> wgpu::Features {
    let features = |feature| match feature {
        Feature::Subgroups => wgpu::Features::SUBGROUP | wgpu::Features::SUBGROUP_BARRIER,
        Feature::F16 => wgpu::Features::SHADER_F16,
        Feature::Timestamps => {
            wgpu::Features::TIMESTAMP_QUERY
                | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS
                | wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES
        }
        Feature::Coherent => wgpu::Features::MEMORY_DECORATION_COHERENT,
        Feature::Matrices => wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX,
    };
    let hidden = Feature::ALL.into_iter().filter(|feature| mask.hides(*feature));
    hidden.fold(wgpu::Features::empty(), |all, feature| all | features(feature))
}

/// Summary of an adapter's own features and limits.
fn summary(index: usize, adapter: &wgpu::Adapter) -> AdapterSummary {
    offered(index, adapter, adapter.features(), &adapter.limits())
}

/// Summary of an adapter through a device opened with these features and limits.
pub(super) fn offered(
    index: usize,
    adapter: &wgpu::Adapter,
    features: wgpu::Features,
    limits: &wgpu::Limits,
) -> AdapterSummary {
    let info = adapter.get_info();
    let subgroups = features.contains(wgpu::Features::SUBGROUP);
    AdapterSummary {
        index,
        name: info.name,
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        backend: info.backend.to_string(),
        pci: Some(info.device_pci_bus_id).filter(|id| !id.is_empty()),
        kind: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => "discrete-gpu",
            wgpu::DeviceType::IntegratedGpu => "integrated-gpu",
            wgpu::DeviceType::VirtualGpu => "virtual-gpu",
            wgpu::DeviceType::Cpu => "cpu",
            wgpu::DeviceType::Other => "other",
        }
        .to_owned(),
        software: info.device_type == wgpu::DeviceType::Cpu,
        subgroup_size: subgroups.then_some([info.subgroup_min_size, info.subgroup_max_size]),
        f16: features.contains(wgpu::Features::SHADER_F16),
        timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
        max_binding_bytes: limits.max_storage_buffer_binding_size,
        max_buffer_bytes: limits.max_buffer_size,
        workgroup_memory: limits.max_compute_workgroup_storage_size,
        invocations: limits.max_compute_invocations_per_workgroup,
        storage_buffers: limits.max_storage_buffers_per_shader_stage,
        cooperative_matrices: cooperative_matrices(adapter, features)
            .iter()
            .map(ToString::to_string)
            .collect(),
    }
}

/// An instance; with `strict` its adapters offer WebGPU's features alone.
pub(super) fn instance(strict: bool) -> wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::PRIMARY;
    // Validation layers only where asked for: they change timings and are not everywhere.
    descriptor.flags = if std::env::var_os("LATHE_VALIDATION").is_some() {
        wgpu::InstanceFlags::debugging()
    } else {
        wgpu::InstanceFlags::empty()
    };
    descriptor.flags.set(wgpu::InstanceFlags::STRICT_WEBGPU_COMPLIANCE, strict);
    wgpu::Instance::new(descriptor)
}

pub(super) fn enumerate(instance: &wgpu::Instance) -> Vec<wgpu::Adapter> {
    pollster::block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY))
}

/// All adapters of this machine.
pub fn adapters() -> Vec<AdapterSummary> {
    let all = enumerate(&instance(false));
    all.iter().enumerate().map(|(i, a)| summary(i, a)).collect()
}

/// The error for a machine without any adapter, with advice.
pub fn none_found() -> Error {
    Error::NoAdapter(
        "wgpu found none. Install a GPU driver, or software Vulkan (Debian and Ubuntu: \
         `apt-get install mesa-vulkan-drivers`, Fedora: `dnf install mesa-vulkan-drivers`)"
            .into(),
    )
}

/// The adapter of an index or a part of a name; without either, real GPUs come before software.
pub(super) fn choose(
    mut all: Vec<wgpu::Adapter>,
    wanted: Option<&str>,
) -> Result<(AdapterSummary, wgpu::Adapter)> {
    let summaries: Vec<_> = all.iter().enumerate().map(|(i, a)| summary(i, a)).collect();
    if summaries.is_empty() {
        return Err(none_found());
    }
    let at = match wanted {
        Some("") => return Err(Error::Usage("the adapter's name is empty".into())),
        None => {
            let rank = |s: &AdapterSummary| match s.kind.as_str() {
                "discrete-gpu" => 0,
                "integrated-gpu" => 1,
                "virtual-gpu" => 2,
                "other" => 3,
                _ => 4,
            };
            (0..summaries.len()).min_by_key(|i| (rank(&summaries[*i]), *i))
        }
        Some(text) => match text.parse::<usize>() {
            Ok(index) => (index < summaries.len()).then_some(index),
            Err(_) => {
                summaries.iter().position(|s| s.name.to_lowercase().contains(&text.to_lowercase()))
            }
        },
    };
    let Some(at) = at else {
        let known: Vec<_> = summaries.iter().map(|s| format!("{} {:?}", s.index, s.name)).collect();
        return Err(Error::NoAdapter(format!(
            "none matches {:?}; there is {}",
            wanted.unwrap_or_default(),
            known.join(", ")
        )));
    };
    let summary = summaries.into_iter().nth(at).expect("index just found");
    Ok((summary, all.swap_remove(at)))
}
