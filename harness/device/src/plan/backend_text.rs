//! Texts of a kernel in the language of each back end: naga's writers and their known limits.

use std::fmt;

use lathe_kernels::{Capabilities, Mask, Reflection};
use naga::back::{hlsl, msl, spv, wgsl};
use naga::valid::{Capabilities as Caps, ModuleInfo, ValidationFlags, Validator};
use naga::{Binding, BuiltIn, Expression, MathFunction, Module, TypeInner};
use serde::Serialize;

use super::for_loops::with_for_loops;

/// A language that a browser or engine may compile kernels from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// SPIR-V 1.3, of Vulkan.
    Spirv,
    /// Metal's shading language 2.4.
    Msl,
    /// Direct3D's, shader model 6.2.
    Hlsl,
    /// WGSL as browsers take it.
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
        web: false,
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
    pub fn write(self, module: &Module, info: &ModuleInfo, entry: &str) -> Result<String, String> {
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
                .map(|text| for_browsers(module, &text))
                .map_err(|e| e.to_string()),
        }?;
        if text.is_empty() { Err("wrote nothing".into()) } else { Ok(text) }
    }
}

/// Largest f32 as naga writes it. That number is larger than any f32, so Tint refuses it.
const LARGEST: &str = "340282350000000000000000000000000000000f";

/// naga's WGSL with the directives that browsers ask for and naga does not write, and with loops
/// that they know to end.
fn for_browsers(module: &Module, text: &str) -> String {
    let mut head = String::new();
    if uses_subgroups(module) {
        head += "enable subgroups;\n";
    }
    if builtins(module).any(|b| matches!(b, BuiltIn::SubgroupId | BuiltIn::NumSubgroups)) {
        head += "requires subgroup_id;\n";
    }
    if uses_packed_products(module) {
        head += "requires packed_4x8_integer_dot_product;\n";
    }
    head + &with_for_loops(&text.replace(LARGEST, "0x1.fffffep+127f"))
}

fn uses_subgroups(module: &Module) -> bool {
    let without = Caps::all().difference(Caps::SUBGROUP | Caps::SUBGROUP_BARRIER);
    Validator::new(ValidationFlags::all(), without).validate(module).is_err()
}

/// Built-in values that entry points receive, alone or as members of structs.
fn builtins(module: &Module) -> impl Iterator<Item = BuiltIn> + '_ {
    let arguments = module.entry_points.iter().flat_map(|point| &point.function.arguments);
    let members = module.types.iter().flat_map(|(_, ty)| match &ty.inner {
        TypeInner::Struct { members, .. } => members.as_slice(),
        _ => &[],
    });
    let bindings = arguments.map(|a| &a.binding).chain(members.map(|m| &m.binding));
    bindings.filter_map(|binding| match binding {
        Some(Binding::BuiltIn(builtin)) => Some(*builtin),
        _ => None,
    })
}

/// Returns true if a function computes with four bytes of a word at once.
fn uses_packed_products(module: &Module) -> bool {
    use MathFunction as M;
    let functions = module.functions.iter().map(|(_, function)| function);
    let functions = functions.chain(module.entry_points.iter().map(|point| &point.function));
    functions.flat_map(|function| function.expressions.iter()).any(|(_, expression)| {
        matches!(
            expression,
            Expression::Math {
                fun: M::Dot4I8Packed
                    | M::Dot4U8Packed
                    | M::Pack4xI8
                    | M::Pack4xU8
                    | M::Pack4xI8Clamp
                    | M::Pack4xU8Clamp
                    | M::Unpack4xI8
                    | M::Unpack4xU8,
                ..
            }
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        let module = naga::front::wgsl::parse_str(text).unwrap_or_else(|e| panic!("{e}"));
        let info = Validator::new(ValidationFlags::all(), Caps::all()).validate(&module);
        let info = info.unwrap_or_else(|e| panic!("{e:?}"));
        Language::Wgsl.write(&module, &info, "main").unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn browsers_get_directives_for_what_is_used() {
        let head = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n\
                    @compute @workgroup_size(64) fn main(";
        let text =
            |arguments: &str, body: &str| written(&format!("{head}{arguments}) {{ {body} }}"));
        let lane = "@builtin(local_invocation_index) i: u32";
        // A name is no use.
        let plain = text(lane, "let subgroupRows = i; x[subgroupRows] = 1u;");
        assert!(!plain.contains("enable") && !plain.contains("requires"), "{plain}");
        let sum = text(lane, "x[i] = subgroupAdd(i);");
        assert!(sum.starts_with("enable subgroups;\n") && !sum.contains("requires"), "{sum}");
        let id = text("@builtin(subgroup_id) i: u32", "x[i] = 1u;");
        assert!(id.starts_with("enable subgroups;\nrequires subgroup_id;\n"), "{id}");
        assert!(
            naga::front::wgsl::parse_str(&lathe_kernels::dialect::for_naga(&id)).is_ok(),
            "{id}"
        );
        let dot = text(lane, "x[i] = dot4U8Packed(i, x[i]);");
        assert!(dot.starts_with("requires packed_4x8_integer_dot_product;\n"), "{dot}");
        let largest = text(lane, "x[i] = bitcast<u32>(-3.4028234663852886e38f);");
        assert!(largest.contains("-0x1.fffffep+127f"), "{largest}");
        assert!(naga::front::wgsl::parse_str(&largest).is_ok(), "{largest}");
    }
}
