//! Pipelines, one per source, entry point and constants.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lathe_kernels::reflect::{Buffer, Reflection};
use lathe_kernels::{Constants, ReflectError, phases};

use super::device::{Checks, Gpu};
use crate::error::{Error, Result};
use crate::plan::run::Run;
use crate::plan::{Plan, PlannedStage};

/// A compiled dispatch.
#[derive(Debug)]
pub struct Pipeline {
    /// wgpu's pipeline.
    pub pipeline: wgpu::ComputePipeline,
    /// Layouts of its bind groups, including unused groups between used ones.
    pub layouts: Vec<wgpu::BindGroupLayout>,
    /// The buffers it uses.
    pub bindings: Vec<Slot>,
}

/// The binding of a buffer.
#[derive(Clone, Debug)]
pub struct Slot {
    /// `@group`.
    pub group: u32,
    /// `@binding`.
    pub binding: u32,
    /// The variable.
    pub name: String,
}

/// Pipelines compiled so far, shared by equal dispatches. A clone shares them too.
#[derive(Clone, Debug, Default)]
pub struct Pipelines {
    compiled: Arc<Mutex<HashMap<String, Arc<Pipeline>>>>,
}

impl Pipelines {
    /// The pipelines of a plan's stages, in order.
    pub fn of(&self, gpu: &Gpu, plan: &Plan) -> Result<Vec<Arc<Pipeline>>> {
        plan.stages.iter().map(|stage| self.stage(gpu, plan, stage)).collect()
    }

    /// The pipeline of a persistent kernel.
    pub fn of_run(&self, gpu: &Gpu, run: &Run) -> Result<Arc<Pipeline>> {
        let text = &run.text.text;
        if let Some(found) = self.lock().get(text) {
            return Ok(Arc::clone(found));
        }
        let code = Code {
            label: "a run".into(),
            reflection: &run.text.reflection,
            entry: phases::ENTRY,
            module: run.text.reflection.resolved(phases::ENTRY, &Constants::new())?.0,
            checked: gpu.checks == Checks::Everywhere,
            built_in: true,
        };
        let what = format!("a run of {} operations", run.ops.len());
        let pipeline = Arc::new(gpu.scoped(&what, |device| compile(device, code))?);
        self.lock().insert(text.clone(), Arc::clone(&pipeline));
        Ok(pipeline)
    }

    fn stage(&self, gpu: &Gpu, plan: &Plan, stage: &PlannedStage) -> Result<Arc<Pipeline>> {
        let key = key(plan, stage);
        if let Some(found) = self.lock().get(&key) {
            return Ok(Arc::clone(found));
        }
        let (own, entry) = (plan.code(stage), stage.entry.as_str());
        let what = format!("{}/{} ({entry})", plan.kernel.name, plan.variant);
        let compile = || {
            let code = Code {
                label: format!("{}/{}", plan.kernel.name, plan.variant),
                reflection: own.reflection,
                entry,
                module: own.reflection.resolved(entry, own.constants)?.0,
                checked: gpu.checks.cover(plan),
                built_in: plan.built_in,
            };
            gpu.scoped(&what, |device| self::compile(device, code))
        };
        let pipeline = Arc::new(compile().map_err(|e| {
            match e {
                Error::Reflect(e) if plan.built_in => {
                    ReflectError::Constants(format!("{what}: {e}")).into()
                }
                // The fault of a user's file is not the device's.
                e if plan.built_in => e,
                e => ReflectError::User {
                    path: plan.variant.clone(),
                    reason: format!("the device refuses it: {e}"),
                }
                .into(),
            }
        })?);
        self.lock().insert(key, Arc::clone(&pipeline));
        Ok(pipeline)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Pipeline>>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(plan: &Plan, stage: &PlannedStage) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let code = plan.code(stage);
    let mut hasher = DefaultHasher::new();
    code.text.hash(&mut hasher);
    format!(
        "{}/{}/{}/{:x}/{:?}",
        plan.kernel.name,
        plan.variant,
        stage.entry,
        hasher.finish(),
        code.constants
    )
}

/// The input of a compilation.
struct Code<'a> {
    label: String,
    reflection: &'a Reflection,
    entry: &'a str,
    /// The module with overrides resolved and without branches that their values rule out.
    module: naga::Module,
    /// True if compiled with wgpu's run-time checks.
    checked: bool,
    /// True for code of this project.
    built_in: bool,
}

fn compile(device: &wgpu::Device, code: Code<'_>) -> Pipeline {
    let Code { label, reflection, entry, module, checked, built_in } = code;
    let label = label.as_str();
    let source = wgpu::ShaderModuleDescriptor {
        label: Some(label),
        source: wgpu::ShaderSource::Naga(Cow::Owned(module)),
    };
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
    let used = reflection.entry(entry).map(|e| e.buffers.as_slice()).unwrap_or_default();
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
    let buffers = || used.iter().map(|&i| &reflection.buffers[i]);
    let groups = buffers().map(|b| b.group + 1).max().unwrap_or(1);
    let layout = |group: u32| {
        let entries: Vec<_> = buffers().filter(|b| b.group == group).map(entry_of).collect();
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some(label),
            entries: &entries,
        })
    };
    let layouts: Vec<_> = (0..groups).map(layout).collect();
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(label),
        bind_group_layouts: &layouts.iter().map(Some).collect::<Vec<_>>(),
        immediate_size: 0,
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(label),
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
    let slot = |b: &Buffer| Slot { group: b.group, binding: b.binding, name: b.name.clone() };
    let bindings = buffers().map(slot).collect();
    Pipeline { pipeline, layouts, bindings }
}
