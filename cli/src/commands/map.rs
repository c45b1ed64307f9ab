//! `lathe map`: the beginning of a mapping for a file of another engine. Facts from the file are
//! filled in, what only its author knows is a `?`.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use clap::Args;
use lathe_harness::error::{Error, Result};
use lathe_harness::files;
use lathe_harness::plan::PlanError;
use lathe_harness::plan::target::Target;
use lathe_harness::plan::user::{is_padding, reflected};
use lathe_kernels::reflect::{Default, Field};
use lathe_kernels::{Kernel, ParamKind, Reflection, Role};

use crate::global::Global;
use crate::out;

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// WGSL file
    file: PathBuf,
    /// Kernel in whose place it is to run
    kernel: String,
    /// Print the mapping instead of writing it beside the file
    #[arg(long)]
    print: bool,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
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
    let mut text = format!(
        "# How this file stands in the place of a variant of {}.\n\n# Shapes it takes; the sweep \
         draws inside. Remove what it takes any value of.\n[takes]\n",
        kernel.name
    );
    for param in kernel.params {
        let _ = match param.kind {
            ParamKind::Choice { set, .. } => {
                let names: Vec<_> = set.all().iter().map(|(name, _)| *name).collect();
                writeln!(text, "{} = \"?\"  # {}", param.name, names.join(", "))
            }
            // Most go to a uniform or an override, and a text takes any of them.
            _ => writeln!(text, "# {} = \"?\"  # {}", param.name, param.doc),
        };
    }
    for entry in &reflection.entries {
        let folds = if entry.unfolds { "; it reads num_workgroups" } else { "" };
        let _ = write!(
            text,
            "\n# Remove it where no invocation runs it{folds}.\n[[stage]]\nentry = \"{}\"\n\
             workgroups = [\"?\"]  # one to three\n",
            entry.name
        );
    }
    section(&mut text, "bindings", &bindings(kernel, reflection));
    let mut whole = String::new();
    for buffer in &reflection.buffers {
        let (name, fields) = (key(&buffer.name), buffer.uniform.as_deref().unwrap_or_default());
        match fields {
            [field] if field.name.is_empty() => whole += &uniform(kernel, &buffer.name, field),
            _ => {
                let lines = fields.iter().map(|field| uniform(kernel, &field.name, field));
                section(&mut text, &format!("uniforms.{name}"), &lines.collect::<String>());
            }
        }
    }
    section(&mut text, "uniforms", &whole);
    let free = |(name, _): &&(String, Default)| kernel.param(name).is_none();
    let overrides = reflection.overrides.iter().filter(free).map(|(name, value)| match value {
        Default::Required => format!("{} = \"?\"\n", key(name)),
        Default::Literal(value) => format!("# {name} = {value}\n"),
        Default::Derived => format!("# {name} follows from others\n"),
    });
    section(&mut text, "overrides", &overrides.collect::<String>());
    text
}

/// Adds a section, unless it is empty.
fn section(text: &mut String, name: &str, lines: &str) {
    if !lines.is_empty() {
        let _ = write!(text, "\n[{name}]\n{lines}");
    }
}

/// A line for each storage buffer: a buffer with our name needs none, an unambiguous one is filled
/// in.
fn bindings(kernel: &Kernel, reflection: &Reflection) -> String {
    let is_written = |i: usize| reflection.entries.iter().any(|e| e.writes.contains(&i));
    let theirs: Vec<_> = reflection
        .buffers
        .iter()
        .enumerate()
        .filter(|(_, b)| b.uniform.is_none() && kernel.binding(&b.name).is_none())
        .map(|(i, b)| (b.name.as_str(), is_written(i)))
        .collect();
    let mut text = String::new();
    for (name, written) in &theirs {
        let is_free = |name: &str| reflection.buffers.iter().all(|b| b.name != name);
        let ours = kernel.bindings.iter().filter(|b| match b.role {
            Role::Input => !written,
            Role::Output | Role::InOut => *written,
            Role::Scratch | Role::Counter => false,
        });
        let ours: Vec<_> = ours.map(|b| b.name).filter(|name| is_free(name)).collect();
        let alone = theirs.iter().filter(|(_, other)| other == written).count() == 1;
        let value = if let ([one], true) = (ours.as_slice(), alone) { one } else { "?" };
        let _ = match written {
            false => {
                writeln!(text, "{} = \"{value}\"  # read; one of {}", key(name), ours.join(", "))
            }
            true => writeln!(
                text,
                "{} = \"{value}\"  # written; {}memory of its own: [scratch] NAME = bytes",
                key(name),
                ours.iter().map(|name| format!("{name}, or ")).collect::<String>()
            ),
        };
    }
    text
}

/// The line of a uniform, or of a field of one; none of padding.
fn uniform(kernel: &Kernel, name: &str, field: &Field) -> String {
    let bare = |name: &str| -> String {
        let name = name.to_ascii_lowercase();
        let name = name.trim_start_matches("num_").trim_start_matches("n_");
        name.chars().filter(|c| *c != '_').collect()
    };
    if is_padding(name) {
        return String::new();
    }
    let own = bare(name.rsplit('.').next().unwrap_or(name));
    let alike = kernel.params.iter().find(|param| bare(param.name) == own);
    let value = alike.map_or("?", |param| param.name);
    match field.offsets.len() {
        1 => format!("{} = \"{value}\"\n", key(name)),
        n => format!("{} = [{}]\n", key(name), vec!["\"?\""; n].join(", ")),
    }
}

/// A name as a key of TOML: the name of a nested field has a dot, which divides keys.
fn key(name: &str) -> String {
    let is_bare = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_bare { name.to_owned() } else { format!("\"{name}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_is_filled_in_and_the_rest_is_asked() {
        let kernel = lathe_kernels::kernel("gemv").expect("gemv");
        let text = "
            struct Inner { k: u32, scales: vec3<f32> }
            struct Params { n_rows: u32, alpha: f32, _pad0: u32, inner: Inner }
            @group(0) @binding(0) var<uniform> maße: Params;
            @group(0) @binding(1) var<uniform> rows: u32;
            @group(0) @binding(2) var<storage, read_write> W: array<f32>;
            @group(0) @binding(3) var<storage, read> x: array<f32>;
            @group(0) @binding(4) var<storage, read_write> result: array<f32>;
            override TILE: u32;
            override K: u32;
            @compute @workgroup_size(32)
            fn gemv_main(@builtin(global_invocation_id) id: vec3<u32>) {
                let k = maße.inner.k + maße.n_rows + maße._pad0 + rows + TILE + K;
                result[id.x] = maße.alpha * W[id.x] * x[id.x] * f32(k) * maße.inner.scales.x;
            }";
        let reflection = Reflection::of(text, "theirs.wgsl").expect("a module");
        let mapping = skeleton(kernel, &reflection);
        for line in [
            "WEIGHT = \"?\"",
            "\nentry = \"gemv_main\"",
            "\nW = \"weights\"  # read; one of weights\n",
            "\nresult = \"y\"  # written; y, or memory of its own",
            "\n[uniforms.\"maße\"]\nn_rows = \"ROWS\"\nalpha = \"?\"\n\"inner.k\" = \"K\"\n",
            "\"inner.scales\" = [\"?\", \"?\", \"?\"]",
            "\n[uniforms]\nrows = \"ROWS\"",
            "\nTILE = \"?\"",
        ] {
            assert!(mapping.contains(line), "{line}: {mapping}");
        }
        for line in ["\nx = ", "\nK = ", "_pad0"] {
            assert!(!mapping.contains(line), "{line}: {mapping}");
        }
        toml::from_str::<toml::Table>(&mapping).expect("a mapping");
    }
}
