//! `lathe show`: the text that a device compiles of a variant. Needs no device.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use lathe_harness::decode::{DecodeOptions, Model};
use lathe_harness::error::{Error, Result};
use lathe_harness::plan::backend_text::{self, Language};
use lathe_harness::plan::persistent::Persistent;
use lathe_harness::plan::recording::PersistentKernel;
use lathe_harness::plan::target::Target;
use lathe_harness::plan::{Subject, shapes};
use lathe_kernels::{Capabilities, Constants, Kernel, KernelVariant, Problem, persistent};

use crate::global::Global;
use crate::{args, out};

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// KERNEL/VARIANT; or `persistent`, for the operations of layers as one dispatch
    target: String,
    /// With `persistent`, the model whose layer it is
    #[arg(short, long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// With `persistent`, a layer that it has
    #[arg(long, value_name = "N", default_value_t = 0)]
    layer: usize,
    /// With `persistent`, positions of the KV cache
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = args::count)]
    context: usize,
    /// With `persistent`, its workgroups
    #[arg(long, value_name = "GRID", default_value = "128x256")]
    persistent: Persistent,
    /// Apply the overrides of a shape, such as K=1152,N=6912, and show each stage by itself
    #[arg(long)]
    shape: Option<String>,
    /// Language; all but WGSL have the overrides of a shape applied, by default of the first
    /// benchmark shape that the variant takes
    #[arg(long = "as", value_name = "LANGUAGE", default_value = "wgsl", value_parser = language())]
    language: Language,
}

/// Values of `--as`, each with its help.
const LANGUAGES: [(&str, &str, Language); 4] = [
    ("spirv", "SPIR-V 1.3, of Vulkan", Language::Spirv),
    ("msl", "Metal's shading language 2.4", Language::Msl),
    ("hlsl", "Direct3D's, shader model 6.2", Language::Hlsl),
    ("wgsl", "WGSL; with --shape as browsers take it", Language::Wgsl),
];

fn language() -> impl TypedValueParser<Value = Language> {
    let values = LANGUAGES.map(|(name, help, _)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).map(|name| {
        let named = LANGUAGES.iter().find(|(known, ..)| *known == name);
        named.expect("clap takes no other name").2
    })
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    if opts.target == "persistent" {
        let text = persistent_of_layer(opts)?;
        match global.json {
            true => out::json(&serde_json::json!({
                "layer": opts.layer, "language": opts.language.name(), "text": text,
            })),
            false => out::text(&text),
        }
        return Ok(());
    }
    let Target { kernel, subjects } = Target::one(&opts.target)?;
    let [Subject { variant, .. }] = subjects.as_slice() else {
        return Err(Error::Usage(format!(
            "{} has {} variants: name one, as {}/{}",
            kernel.name,
            subjects.len(),
            kernel.name,
            subjects[0].variant.name
        )));
    };
    let linked = opts.language == Language::Wgsl && opts.shape.is_none();
    let shown = if linked {
        let source = lathe_kernels::source(kernel.name, variant.name);
        let text = source.map(|s| s.text.to_owned()).ok_or_else(|| no_file(kernel, variant))?;
        vec![(None, text)]
    } else {
        stages(kernel, variant, opts)?
    };
    if global.json {
        let texts =
            shown.iter().map(|(stage, text)| serde_json::json!({ "stage": stage, "text": text }));
        out::json(&serde_json::json!({
            "kernel": kernel.name, "variant": variant.name, "language": opts.language.name(),
            "texts": texts.collect::<Vec<_>>(),
        }));
        return Ok(());
    }
    let comment = if opts.language == Language::Spirv { ";" } else { "//" };
    for (stage, text) in &shown {
        if shown.len() > 1 {
            outln!("{comment} {}", stage.unwrap_or_default());
        }
        out::text(text);
    }
    Ok(())
}

/// The text of the persistent kernel with this layer, on an adapter with generous capabilities.
fn persistent_of_layer(opts: &Opts) -> Result<String> {
    let model = opts.model.as_ref();
    let model =
        model.ok_or_else(|| Error::Usage("`show persistent` shows a layer of a --model".into()))?;
    let Persistent::Of(grid) = opts.persistent else {
        return Err(Error::Usage(
            "`show persistent` takes --persistent WORKGROUPSxINVOCATIONS".into(),
        ));
    };
    let model = Model::open(model)?;
    let options =
        DecodeOptions { persistent: Persistent::Of(grid), ..DecodeOptions::of_step(opts.context) };
    // More than a phase alone needs: a run has the buffers of all its operations.
    let caps = Capabilities {
        storage_buffers: 64,
        workgroup_memory: 48 << 10,
        ..backend_text::generous()
    };
    let Model { file, config, .. } = &model;
    let graph = model.graph_for(&caps, &options)?;
    let recording = &graph.recording;
    let of_layer = |kernel: &&PersistentKernel| {
        recording.ops[kernel.ops.clone()].iter().any(|op| op.label.layer == Some(opts.layer))
    };
    let kernel = recording.persistent.iter().find(of_layer).ok_or_else(|| {
        let (layers, path) = (config.n_layers, file.path.display());
        Error::Usage(format!("layer {} of {layers} in {path} is no run on this grid", opts.layer))
    })?;
    if opts.language == Language::Wgsl {
        return Ok(kernel.code.text.to_string());
    }
    let (module, info) = kernel.code.reflection.resolved(persistent::ENTRY, &Constants::new())?;
    let written = opts.language.write(&module, &info, persistent::ENTRY);
    written.map_err(|e| Error::CheckFailed(format!("layer {}: {e}", opts.layer)))
}

fn no_file(kernel: &Kernel, variant: &KernelVariant) -> Error {
    Error::CheckFailed(format!("{}/{}: no WGSL file", kernel.name, variant.name))
}

/// Every stage that is asked for, with the shape's overrides applied.
fn stages(
    kernel: &'static Kernel,
    variant: &'static KernelVariant,
    opts: &Opts,
) -> Result<Vec<(Option<&'static str>, String)>> {
    let caps = backend_text::generous();
    let shape = match &opts.shape {
        Some(text) => shapes::one(kernel, Some(text))?.shape,
        // Not every variant takes the first of all.
        None => {
            let takes = |problem: &Problem| variant.unsupported(&problem.shape, &caps).is_none();
            let taken = kernel.bench().into_iter().chain(kernel.cases()).find(takes);
            taken.unwrap_or_else(|| kernel.default_problem()).shape
        }
    };
    if let Some(reason) = variant.unsupported(&shape, &caps) {
        return Err(Error::Usage(format!("{}/{}: {reason}", kernel.name, variant.name)));
    }
    let reflection = lathe_kernels::reflection(kernel.name, variant.name)
        .ok_or_else(|| no_file(kernel, variant))?;
    if let Some(limitation) = opts.language.limitation(&reflection) {
        return Err(Error::Usage(format!("{}/{}: {limitation}", kernel.name, variant.name)));
    }
    let tuned = variant.constants(&shape, &caps);
    let constants: Constants = reflection.constants(shape.iter().chain(tuned))?;
    let mut shown = Vec::new();
    for entry in variant.stages.iter().map(|stage| stage.entry) {
        let (module, info) = reflection.resolved(entry, &constants)?;
        let written = opts.language.write(&module, &info, entry).map_err(|e| {
            Error::CheckFailed(format!("{}/{} {entry}: {e}", kernel.name, variant.name))
        })?;
        shown.push((Some(entry), written));
    }
    Ok(shown)
}
