//! `lathe map`: the beginning of a mapping for a file of another engine. What the file says of
//! itself is filled in, what only its author knows is a `?`.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use clap::Args;
use lathe_harness::error::{Error, Result};
use lathe_harness::files;
use lathe_harness::plan::PlanError;
use lathe_harness::plan::target::Target;
use lathe_harness::plan::user::{is_padding, reflected};
use lathe_kernels::reflect::{Default, Entry, Field};
use lathe_kernels::{Kernel, Param, ParamKind, Reflection, Role};

use super::Global;
use super::out;

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// WGSL file
    file: PathBuf,
    /// Kernel in whose place it is to run
    kernel: String,
    /// Print the mapping instead of writing it beside the file
    #[arg(long)]
    print: bool,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let kernel = Target::one(&opts.kernel)?.kernel;
    let (_, reflection) = reflected(&opts.file).map_err(PlanError::into_usage)?;
    let text = skeleton(kernel, &reflection);
    if global.json {
        out::json(&serde_json::json!({ "kernel": kernel.name, "mapping": text }));
        return Ok(());
    }
    if opts.print {
        out::text(&text);
        return Ok(());
    }
    let path = opts.file.with_extension("toml");
    files::write_new(&path, text.as_bytes()).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::Usage(format!(
            "{} is there, and is not overwritten: --print shows the mapping",
            path.display()
        )),
        _ => Error::io(&path)(source),
    })?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let left: usize = lines.map(|line| line.matches("\"?\"").count()).sum();
    outln!("{}: {left} values left to fill in, each a \"?\"", path.display());
    Ok(())
}

/// The mapping as far as it can be known.
fn skeleton(kernel: &'static Kernel, reflection: &Reflection) -> String {
    let mut text =
        format!("# How this file stands in the place of a variant of {}.\n", kernel.name);
    text.push_str("\n# Shapes it takes; the sweep draws inside. Remove what it takes any value of.\n[takes]\n");
    for param in kernel.params {
        let (line, about) = match param.kind {
            ParamKind::Choice { set, .. } => {
                let names: Vec<_> = set.all().iter().map(|(name, _)| *name).collect();
                (format!("{} = \"?\"", param.name), names.join(", "))
            }
            ParamKind::Dim { .. } => {
                (format!("# {} = \"multiple of 4\"", param.name), param.doc.to_owned())
            }
            ParamKind::OneOf(sizes) => {
                (format!("# {} = {}", param.name, sizes[0]), param.doc.to_owned())
            }
            ParamKind::Start { .. } => (format!("# {} = 0", param.name), param.doc.to_owned()),
            // Most go to a uniform or an override, and a text takes any of them; of one that is
            // written into the text only that value.
            ParamKind::Float { .. } => {
                let usual = kernel.default_problem().get(param).unwrap_or_default() as f32;
                (format!("# {} = {usual:?}", param.name), param.doc.to_owned())
            }
        };
        let _ = writeln!(text, "{line:<32} # {about}");
    }
    for (nth, entry) in reflection.entries.iter().enumerate() {
        let point = reflection.module.entry_points.iter().find(|p| p.name == entry.name);
        let size = match point {
            Some(p) if p.workgroup_size_overrides.is_none() => {
                let [x, y, z] = p.workgroup_size;
                format!("@workgroup_size({x}, {y}, {z})")
            }
            _ => "its workgroup's size is made of overrides".to_owned(),
        };
        let folds = if entry.unfolds { "; it reads num_workgroups" } else { "" };
        // What writes the same memory mostly stands in the other's place; only its author knows.
        let same = |other: &&Entry| !entry.writes.is_empty() && other.writes == entry.writes;
        let (off, instead) = match reflection.entries[..nth].iter().find(same) {
            Some(other) => ("# ", format!("; in the place of `{}`, or after it?", other.name)),
            None => ("", String::new()),
        };
        let _ = write!(
            text,
            "\n# {size}{folds}{instead}\n{off}[[stage]]\n{off}entry = \"{}\"\n\
             {off}workgroups = [\"?\"]  # one to three\n",
            entry.name
        );
    }
    text.push_str(&bindings(kernel, reflection));
    text.push_str(&uniforms(kernel, reflection));
    let set = |name: &str| kernel.param(name).is_some();
    let overrides: Vec<_> = reflection.overrides.iter().filter(|(name, _)| !set(name)).collect();
    if !overrides.is_empty() {
        text.push_str("\n[overrides]\n");
    }
    for (name, value) in overrides {
        let _ = match value {
            Default::Required => writeln!(text, "{} = \"?\"", key(name)),
            Default::Literal(value) => writeln!(text, "# {name} = {value}"),
            Default::Derived => writeln!(text, "# {name} follows from others"),
        };
    }
    text
}

/// What uniforms hold: a line for each that is no struct, a section for each that is one.
fn uniforms(kernel: &'static Kernel, reflection: &Reflection) -> String {
    let line = |name: &str, field: &Field| {
        let own = name.rsplit('.').next().unwrap_or(name);
        // A mapping need not name it.
        if is_padding(name) {
            return String::new();
        }
        let value = alike(kernel, own).map_or("?", |param| param.name);
        match field.offsets.len() {
            1 => format!("{} = \"{value}\"\n", key(name)),
            n => format!("{} = [{}]\n", key(name), vec!["\"?\""; n].join(", ")),
        }
    };
    let (mut whole, mut structs) = (String::new(), String::new());
    for buffer in &reflection.buffers {
        match buffer.uniform.as_deref() {
            None => {}
            Some([field]) if field.name.is_empty() => whole.push_str(&line(&buffer.name, field)),
            Some(fields) => {
                let _ = write!(structs, "\n[uniforms.{}]\n", key(&buffer.name));
                fields.iter().for_each(|field| structs.push_str(&line(&field.name, field)));
            }
        }
    }
    if whole.is_empty() { structs } else { format!("\n[uniforms]\n{whole}{structs}") }
}

/// A name as a key of TOML: that of a field within a field has a dot, which divides keys.
fn key(name: &str) -> String {
    let is_bare = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_bare { name.to_owned() } else { format!("\"{name}\"") }
}

/// The section of bindings, and where a file may have memory of its own that of scratch: what has
/// our name needs no line, what only one can be is filled in.
fn bindings(kernel: &Kernel, reflection: &Reflection) -> String {
    let storage = || reflection.buffers.iter().enumerate().filter(|(_, b)| b.uniform.is_none());
    let is_written = |i: &usize| reflection.entries.iter().any(|e| e.writes.contains(i));
    let of_role = |written: bool| {
        let is = move |b: &&lathe_kernels::KernelBinding| match b.role {
            Role::Input => !written,
            Role::Output | Role::InOut => written,
            Role::Scratch | Role::Counter => false,
        };
        let free = |b: &&lathe_kernels::KernelBinding| storage().all(|(_, own)| own.name != b.name);
        kernel.bindings.iter().filter(is).filter(free).map(|b| b.name).collect::<Vec<_>>()
    };
    let (mut text, mut scratch) = (String::new(), String::new());
    for (i, buffer) in storage() {
        if kernel.binding(&buffer.name).is_some() {
            continue;
        }
        let written = is_written(&i);
        let same = storage()
            .filter(|(i, b)| is_written(i) == written && kernel.binding(&b.name).is_none())
            .count();
        let known = of_role(written);
        let memory = format!("{} = \"?\"", key(&buffer.name));
        if written && known.is_empty() {
            // Nothing of the kernel's is left that it could be.
            let _ = writeln!(
                scratch,
                "{memory:<24} # bytes, such as \"4 * {}\"",
                kernel.params[0].name
            );
            continue;
        }
        let value = match (known.as_slice(), same) {
            ([one], 1) => one,
            _ => "?",
        };
        let did = if written { "written" } else { "read" };
        let mut about = format!("{did}; one of {}", known.join(", "));
        if written && same > known.len() {
            about.push_str(", or scratch memory: see below");
            let _ = writeln!(scratch, "# {memory:<22} # bytes, if it is none of the kernel's");
        }
        let line = format!("{} = \"{value}\"", key(&buffer.name));
        let _ = writeln!(text, "{line:<24} # {about}");
    }
    let section = |name: &str, text: String| match text.is_empty() {
        true => text,
        false => format!("\n[{name}]\n{text}"),
    };
    section("bindings", text) + &section("scratch", scratch)
}

/// The parameter that a field is called like.
fn alike(kernel: &'static Kernel, field: &str) -> Option<&'static Param> {
    let bare = |name: &str| -> String {
        let name = name.to_ascii_lowercase();
        let name = name.trim_start_matches("num_").trim_start_matches("n_");
        name.chars().filter(|c| *c != '_').collect()
    };
    kernel.params.iter().find(|param| bare(param.name) == bare(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_is_filled_in_and_the_rest_is_asked() {
        let kernel = lathe_kernels::kernel("gemv").expect("gemv");
        let text = "
            struct Params { n_rows: u32, k: u32, alpha: f32 }
            @group(0) @binding(0) var<uniform> params: Params;
            @group(0) @binding(1) var<storage, read_write> W: array<f32>;
            @group(0) @binding(2) var<storage, read> x: array<f32>;
            @group(0) @binding(3) var<storage, read_write> result: array<f32>;
            override TILE: u32;
            override K: u32;
            @compute @workgroup_size(32)
            fn gemv_main(@builtin(global_invocation_id) id: vec3<u32>) {
                result[id.x] = params.alpha * W[id.x] * x[id.x] * f32(params.n_rows + params.k + TILE + K);
            }";
        let reflection = Reflection::of(text, "theirs.wgsl").expect("a module");
        let text = skeleton(kernel, &reflection);
        for line in [
            "WEIGHT = \"?\"",
            "entry = \"gemv_main\"",
            "# @workgroup_size(32, 1, 1)",
            "W = \"weights\"",
            "result = \"y\"",
            "n_rows = \"ROWS\"",
            "k = \"K\"",
            "alpha = \"?\"",
            "TILE = \"?\"",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("[scratch]"), "{text}");
        assert!(!text.contains("or after it?"), "{text}");
        assert!(!text.contains("\nx = ") && !text.contains("\nK = "), "{text}");
        toml::from_str::<toml::Table>(&text).expect("a mapping");
    }

    #[test]
    fn alternatives_and_padding_are_not_asked() {
        let kernel = lathe_kernels::kernel("rms_norm").expect("rms_norm");
        let text = "
            struct Params { size: u32, eps: f32, padded_rows: u32, _pad0: u32, padding: vec2<u32> }
            @group(0) @binding(0) var<uniform> u: Params;
            @group(0) @binding(1) var<storage, read> input: array<f32>;
            @group(0) @binding(2) var<storage, read> weight: array<f32>;
            @group(0) @binding(3) var<storage, read_write> y: array<f32>;
            @compute @workgroup_size(64)
            fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                y[id.x] = input[id.x] * weight[id.x] + u.eps * f32(u.size + u.padded_rows + u._pad0 + u.padding.x);
            }
            @compute @workgroup_size(32)
            fn main_small(@builtin(global_invocation_id) id: vec3<u32>) {
                y[id.x] = input[id.x] * weight[id.x] + u.eps;
            }";
        let reflection = Reflection::of(text, "theirs.wgsl").expect("a module");
        let mapping = skeleton(kernel, &reflection);
        for line in [
            "\n# EPS = 1e-6",
            "\n[[stage]]\nentry = \"main\"",
            "in the place of `main`, or after it?",
            "\n# [[stage]]\n# entry = \"main_small\"\n# workgroups",
            "\neps = \"EPS\"",
            "\npadded_rows = \"?\"",
            "\npadding = [\"?\", \"?\"]",
        ] {
            assert!(mapping.contains(line), "{line}: {mapping}");
        }
        assert!(!mapping.contains("_pad0"), "{mapping}");
        let mapping: toml::Table = toml::from_str(&mapping).expect("a mapping");
        assert_eq!(mapping["stage"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn vectors_have_all_their_numbers_and_memory_of_its_own_a_section() {
        let kernel = lathe_kernels::kernel("gemv").expect("gemv");
        let text = "
            struct Inner { k: u32, scales: vec3<f32> }
            struct Params { inner: Inner, strides: array<vec4<u32>, 2> }
            @group(0) @binding(0) var<uniform> params: Params;
            @group(0) @binding(1) var<uniform> rows: u32;
            @group(0) @binding(2) var<storage, read_write> partial: array<f32>;
            @group(0) @binding(3) var<storage, read_write> y: array<f32>;
            @compute @workgroup_size(32)
            fn first(@builtin(global_invocation_id) id: vec3<u32>) {
                partial[id.x] = params.inner.scales.x * f32(params.strides[1].x + params.inner.k + rows);
            }
            @compute @workgroup_size(32)
            fn second(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = partial[id.x]; }";
        let reflection = Reflection::of(text, "theirs.wgsl").expect("a module");
        let mapping = skeleton(kernel, &reflection);
        for line in [
            "[uniforms]\nrows = \"ROWS\"",
            "\"inner.k\" = \"K\"",
            "\"inner.scales\" = [\"?\", \"?\", \"?\"]",
            "strides = [\"?\", \"?\", \"?\", \"?\", \"?\", \"?\", \"?\", \"?\"]",
            "[scratch]\npartial = \"?\"",
        ] {
            assert!(mapping.contains(line), "{line}: {mapping}");
        }
        toml::from_str::<toml::Table>(&mapping).expect("a mapping");
        // TOML's bare keys are ASCII.
        let other = text.replace("partial", "größen").replace("params", "maße");
        let reflection = Reflection::of(&other, "theirs.wgsl").expect("a module");
        let mapping = skeleton(kernel, &reflection);
        assert!(mapping.contains("[uniforms.\"maße\"]") && mapping.contains("\"größen\" = "));
        toml::from_str::<toml::Table>(&mapping).expect("a mapping");
        // One of two may be the output.
        let text = text.replace("var<storage, read_write> y:", "var<storage, read_write> out:");
        let text = text.replace("y[id.x] =", "out[id.x] =");
        let reflection = Reflection::of(&text, "theirs.wgsl").expect("a module");
        let mapping = skeleton(kernel, &reflection);
        for line in
            ["one of y, or scratch memory", "[scratch]\n# partial = \"?\"", "\n# out = \"?\""]
        {
            assert!(mapping.contains(line), "{line}: {mapping}");
        }
    }
}
