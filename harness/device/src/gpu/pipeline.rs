//! Pipelines, one per source, entry point and constants.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use lathe_kernels::reflect::Buffer;
use lathe_kernels::{ReflectError, persistent};

use super::device::Gpu;
use crate::error::{Error, Result};
use crate::plan::recording::PersistentKernel;
use crate::plan::{Code, Plan};

/// A compiled dispatch.
#[derive(Debug)]
pub struct Pipeline {
    pipeline: wgpu::ComputePipeline,
    /// Layouts of its bind groups, including unused groups between used ones.
    layouts: Vec<wgpu::BindGroupLayout>,
    /// The buffers it uses.
    buffers: Vec<Buffer>,
}

/// Memory of a WGSL variable.
pub(crate) type Bound<'a> = dyn Fn(&str) -> wgpu::BufferBinding<'a> + 'a;

impl Pipeline {
    /// Bind groups with the memory that `bound` gives each variable.
    pub(crate) fn bind(
        &self,
        gpu: &Gpu,
        name: &str,
        bound: &Bound<'_>,
    ) -> Result<Vec<wgpu::BindGroup>> {
        let group = |(group, layout): (u32, &wgpu::BindGroupLayout)| {
            let own = self.buffers.iter().filter(|buffer| buffer.group == group);
            let entry = |buffer: &Buffer| wgpu::BindGroupEntry {
                binding: buffer.binding,
                resource: wgpu::BindingResource::Buffer(bound(&buffer.name)),
            };
            let entries: Vec<_> = own.map(entry).collect();
            gpu.scoped(name, |device| {
                device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: None,
                    layout,
                    entries: &entries,
                })
            })
        };
        (0..).zip(&self.layouts).map(group).collect()
    }

    /// Encodes a dispatch over bind groups of its own.
    pub(crate) fn encode(
        &self,
        pass: &mut wgpu::ComputePass<'_>,
        bind_groups: &[wgpu::BindGroup],
        [x, y, z]: [u32; 3],
    ) {
        pass.set_pipeline(&self.pipeline);
        for (group, bound) in (0..).zip(bind_groups) {
            pass.set_bind_group(group, bound, &[]);
        }
        pass.dispatch_workgroups(x, y, z);
    }
}

/// Pipelines compiled so far, shared by equal dispatches. A clone shares them too.
#[derive(Clone, Debug, Default)]
pub struct Pipelines {
    compiled: Arc<Mutex<HashMap<String, Arc<Pipeline>>>>,
}

impl Pipelines {
    /// The pipelines of a plan's stages, in order.
    pub fn of(&self, gpu: &Gpu, plan: &Plan) -> Result<Vec<Arc<Pipeline>>> {
        let name = format!("{}/{}", plan.kernel.name, plan.variant);
        let stages = plan.stages.iter().map(|stage| {
            let made = self.of_code(gpu, &name, &stage.entry, &stage.code, plan.built_in);
            // The fault of a user's file is not the device's.
            made.map_err(|e| match plan.built_in {
                true => e,
                false => ReflectError::User {
                    path: plan.variant.clone(),
                    reason: format!("the device refuses it: {e}"),
                }
                .into(),
            })
        });
        stages.collect()
    }

    /// The pipeline of a persistent kernel.
    pub fn of_persistent(&self, gpu: &Gpu, kernel: &PersistentKernel) -> Result<Arc<Pipeline>> {
        let name = format!("a persistent kernel of {} operations", kernel.ops.len());
        self.of_code(gpu, &name, persistent::ENTRY, &kernel.code, true)
    }

    /// The pipeline of an entry point; `built_in` is true for code of this project.
    pub(super) fn of_code(
        &self,
        gpu: &Gpu,
        name: &str,
        entry: &str,
        code: &Code,
        built_in: bool,
    ) -> Result<Arc<Pipeline>> {
        let mut hasher = DefaultHasher::new();
        code.text.hash(&mut hasher);
        let key = format!("{name}/{entry}/{:x}/{:?}", hasher.finish(), code.constants);
        if let Some(found) = self.lock().get(&key) {
            return Ok(Arc::clone(found));
        }
        let what = format!("{name} ({entry})");
        // Overrides are resolved, and branches that their values rule out are gone.
        let resolved = code.reflection.resolved(entry, &code.constants);
        let (module, _) = resolved.map_err(|e| match built_in {
            true => Error::from(ReflectError::Constants(format!("{what}: {e}"))),
            false => e.into(),
        })?;
        let made = gpu.scoped(&what, |device| {
            compile(device, name, (module, code, entry), gpu.checks.cover(built_in), built_in)
        })?;
        let made = Arc::new(made);
        self.lock().insert(key, Arc::clone(&made));
        Ok(made)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Pipeline>>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compiles an entry point, with wgpu's run-time checks where it is `checked`.
fn compile(
    device: &wgpu::Device,
    label: &str,
    (module, code, entry): (naga::Module, &Code, &str),
    checked: bool,
    built_in: bool,
) -> Pipeline {
    let label = Some(label);
    let source = wgpu::ShaderSource::Naga(Cow::Owned(module));
    let source = wgpu::ShaderModuleDescriptor { label, source };
    let module = match checked {
        true => device.create_shader_module(source),
        // SAFETY: the source is one of this project's own, validated at build time. Its loops are
        // bounded by constants, by the length of a binding or by the step state, whose position a
        // session keeps below the context; where a benchmark lets the position run on, what is
        // written is bounded by the binding. Its divisors are non-zero constants. The correctness
        // sweep runs it between guard words on every shape class. Or it is a user's file, and the
        // user has vouched for as much with --unchecked-files.
        false => unsafe {
            device.create_shader_module_trusted(source, wgpu::ShaderRuntimeChecks::unchecked())
        },
    };
    let used = code.reflection.entry(entry).map(|e| e.buffers.as_slice()).unwrap_or_default();
    let buffers: Vec<_> = used.iter().map(|&i| code.reflection.buffers[i].clone()).collect();
    let entry_of = |buffer: &Buffer| wgpu::BindGroupLayoutEntry {
        binding: buffer.binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: match buffer.uniform {
                Some(_) => wgpu::BufferBindingType::Uniform,
                None => wgpu::BufferBindingType::Storage { read_only: !buffer.writable },
            },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    let layout = |group: u32| {
        let own = buffers.iter().filter(|b| b.group == group);
        let entries: Vec<_> = own.map(entry_of).collect();
        let entries = &entries[..];
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries })
    };
    let groups = buffers.iter().map(|b| b.group + 1).max().unwrap_or(1);
    let layouts: Vec<_> = (0..groups).map(layout).collect();
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label,
        bind_group_layouts: &layouts.iter().map(Some).collect::<Vec<_>>(),
        immediate_size: 0,
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label,
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some(entry),
        compilation_options: wgpu::PipelineCompilationOptions {
            constants: &[],
            // What WGSL promises, and what a user's file may count on; our own do not.
            zero_initialize_workgroup_memory: checked || !built_in,
        },
        cache: None,
    });
    Pipeline { pipeline, layouts, buffers }
}
