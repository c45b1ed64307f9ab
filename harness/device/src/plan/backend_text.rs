//! Texts of a kernel in the language of each back end: naga's writers and their known limits.

use std::fmt;

use lathe_kernels::{Capabilities, Mask, Reflection};
use naga::back::{hlsl, msl, spv, wgsl};
use naga::valid::ModuleInfo;
use serde::Serialize;

/// A language that a browser or engine may compile kernels from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// SPIR-V 1.3, of Vulkan.
    Spirv,
    /// Metal's shading language 2.4.
    Msl,
    /// Direct3D's, shader model 6.2.
    Hlsl,
    /// WGSL again.
    Wgsl,
}

/// A back end that cannot write a variant, known beforehand.
#[derive(Debug, Serialize)]
pub struct Limitation {
    back_end: &'static str,
    reason: &'static str,
}

impl fmt::Display for Limitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.back_end, self.reason)
    }
}

/// An adapter on which every variant is allowed: the output shows the code, not one machine's
/// limits.
pub fn generous() -> Capabilities {
    Capabilities {
        subgroup: Some((32, 32)),
        f16: true,
        workgroup_memory: 32 << 10,
        invocations: 1024,
        binding_bytes: 1 << 31,
        storage_buffers: 16,
        bind_groups: 4,
        grid_dimension: 65535,
        cooperative_matrices: Vec::new(),
        mask: Mask::default(),
    }
}

impl Language {
    /// All, in the order of reports.
    pub const ALL: [Language; 4] = [Language::Spirv, Language::Msl, Language::Hlsl, Language::Wgsl];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Language::Spirv => "SPIR-V",
            Language::Msl => "MSL",
            Language::Hlsl => "HLSL",
            Language::Wgsl => "WGSL",
        }
    }

    /// The reason why naga 30 cannot write a source for a back end, if any. Its writers would panic
    /// or produce text that no compiler accepts, so they are not called then.
    pub fn limitation(self, source: &Reflection) -> Option<Limitation> {
        let matrices = &source.needs_cooperative_matrix;
        let reason = match self {
            Language::Hlsl if !matrices.is_empty() => "HLSL has no cooperative matrices",
            Language::Msl if matrices.iter().any(|c| [c.m, c.n, c.k] != [8; 3]) => {
                "Metal's simdgroup matrices are 8x8"
            }
            _ => return None,
        };
        Some(Limitation { back_end: self.name(), reason })
    }

    /// Writes an entry point of a module whose overrides are applied; SPIR-V as eight hexadecimal
    /// words per line.
    pub fn write(
        self,
        module: &naga::Module,
        info: &ModuleInfo,
        entry: &str,
    ) -> Result<String, String> {
        let point = Some((naga::ShaderStage::Compute, entry.to_owned()));
        let text = match self {
            Language::Spirv => {
                let options = spv::Options { lang_version: (1, 3), ..Default::default() };
                let (shader_stage, entry_point) = (naga::ShaderStage::Compute, entry.into());
                let pipeline = spv::PipelineOptions { shader_stage, entry_point };
                let words = spv::write_vec(module, info, &options, Some(&pipeline));
                let words = words.map_err(|e| e.to_string())?;
                let lines = words.chunks(8).map(|line| {
                    let words: Vec<_> = line.iter().map(|word| format!("{word:08x}")).collect();
                    words.join(" ") + "\n"
                });
                Ok(lines.collect())
            }
            Language::Msl => {
                let options = msl::Options {
                    lang_version: (2, 4),
                    fake_missing_bindings: true,
                    ..Default::default()
                };
                let pipeline = msl::PipelineOptions { entry_point: point, ..Default::default() };
                let written = msl::write_string(module, info, &options, &pipeline);
                written.map(|(text, _)| text).map_err(|e| e.to_string())
            }
            Language::Hlsl => {
                let options = hlsl::Options {
                    shader_model: hlsl::ShaderModel::V6_2,
                    fake_missing_bindings: true,
                    ..Default::default()
                };
                let pipeline = hlsl::PipelineOptions { entry_point: point };
                let mut text = String::new();
                let written = hlsl::Writer::new(&mut text, &options, &pipeline)
                    .write(module, info, None)
                    .map(drop)
                    .map_err(|e| e.to_string());
                written.map(|()| text)
            }
            Language::Wgsl => wgsl::write_string(module, info, wgsl::WriterFlags::empty())
                .map_err(|e| e.to_string()),
        }?;
        if text.is_empty() { Err("wrote nothing".into()) } else { Ok(text) }
    }
}
