//! `lathe export-web`: checks, benchmarks and models as data, with the page that runs them. Needs no
//! device.

use std::path::{Path, PathBuf};

use clap::Args;
use lathe_harness::error::{Error, Result, meant};
use lathe_harness::plan::target::Target;
use lathe_harness::plan::user::is_file;
use lathe_harness::web::{Exported, Kind, ModelRequest, Request, export, kinds};
use lathe_kernels::KvFormat;

use crate::global::Global;
use crate::model::SamplingOpts;
use crate::{args, table};

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// KERNEL, KERNEL/VARIANT, KERNEL/VARIANT=FILE.wgsl for a file in a variant's place, `all`
    /// for every kernel, or a checkpoint; all kernels without
    targets: Vec<String>,
    /// Folder for the page, the plan and its data; it is made
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// One HTML file instead, lathe.html, that opens from disk
    #[arg(long)]
    single: bool,
    /// Kinds of devices to make plans for: subgroups-32, subgroups, large, minimal. The page takes
    /// the first that its adapter can run [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Shapes of the one kernel that is named, instead of its fixed cases
    #[arg(long)]
    shape: Option<String>,
    /// Random shapes a kernel, besides its fixed cases
    #[arg(long, default_value_t = 0)]
    cases: usize,
    /// Seed of the shapes and inputs, and of a model's draws
    #[arg(long, default_value_t = 42)]
    seed: u32,
    /// Leave cases out whose inputs and expected values have more bytes; with --single 512KiB
    /// unless given, and every variant keeps smaller ones
    #[arg(long, value_name = "BYTES", value_parser = args::size)]
    case_bytes: Option<u64>,
    /// Only the smallest case of each variant, or so many, for a page that is done soon
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = args::count
    )]
    smallest: Option<usize>,
    /// Also the kernels' benchmarks that move at most so many bytes, such as 16MiB: their inputs
    /// and expected outputs are part of the export
    #[arg(long, value_name = "BYTES", value_parser = args::size)]
    bench: Option<u64>,
    /// Prompt for the checkpoints. May be repeated
    #[arg(long, value_name = "TEXT", help_heading = "Models")]
    prompt: Vec<String>,
    /// Prompt as token ids, such as 2,5,7. May be repeated
    #[arg(long, value_name = "IDS", help_heading = "Models")]
    prompt_tokens: Vec<String>,
    /// Tokens to generate after each prompt
    #[arg(short = 'n', long = "tokens", default_value_t = 64, value_name = "N", value_parser = args::count, help_heading = "Models")]
    generate: usize,
    /// Positions of the KV cache
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = args::count, help_heading = "Models")]
    context: usize,
    /// Storage of the KV cache
    #[arg(long, default_value = "f16", value_parser = args::kv_format(), help_heading = "Models")]
    kv: KvFormat,
    /// Add the tokens that the CPU reference generates, which the page compares its own with
    #[arg(long, help_heading = "Models")]
    verify: bool,
    /// Expected logits of the first prompt, f32, a row per token, as `decode --logits-out` writes
    /// them; those after the prompt are for the tokens of --verify. May be repeated, for the next
    /// prompts
    #[arg(long, value_name = "FILE", help_heading = "Models")]
    logits: Vec<PathBuf>,
    /// Largest NMSE of those logits [default: what the storage of the model and its cache costs]
    #[arg(long, value_name = "NMSE", requires = "logits", help_heading = "Models")]
    logits_limit: Option<f64>,
    #[command(flatten)]
    sampling: SamplingOpts,
}

/// Most bytes of a case in a single page.
const SINGLE_CASE: u64 = 512 << 10;

/// The target that stands for every kernel.
const ALL: &str = "all";

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let (models, named): (Vec<&String>, Vec<&String>) =
        opts.targets.iter().partition(|target| is_model(target));
    let is_all = named.iter().any(|name| *name == ALL) || named.is_empty() && models.is_empty();
    let targets = match is_all {
        true => Target::parse(None)?,
        false => named.iter().map(|text| target(text)).collect::<Result<_>>()?,
    };
    if opts.shape.is_some() && targets.len() != 1 {
        return Err(Error::Usage("--shape goes with one kernel".into()));
    }
    let models = models.into_iter().map(|path| model(opts, path)).collect::<Result<Vec<_>>>()?;
    if models.is_empty()
        && !(opts.prompt.is_empty() && opts.prompt_tokens.is_empty() && opts.logits.is_empty())
    {
        return Err(Error::Usage("a prompt and logits go with a checkpoint".into()));
    }
    let request = Request {
        targets: &targets,
        shape: opts.shape.as_deref(),
        random: opts.cases,
        seed: u64::from(opts.seed),
        case_bytes: opts.case_bytes.or(opts.single.then_some(SINGLE_CASE)),
        smallest: opts.smallest,
        bench_bytes: opts.bench,
        models: &models,
        kinds: &asked(&opts.kinds)?,
        single: opts.single,
    };
    let bar = global.progress(0, "exporting", false);
    let exported = export(&request, &opts.output, &|done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    global.print(&exported, || print(&exported, opts.single));
    Ok(())
}

/// True for a path of a checkpoint: a folder, or a file that is neither WGSL nor a mapping.
fn is_model(text: &str) -> bool {
    let path = Path::new(text);
    let named = path.extension().is_some_and(|e| e == "gguf" || e == "safetensors");
    named || (path.exists() && !is_file(text) && lathe_kernels::kernel(text).is_none())
}

fn target(text: &str) -> Result<Target> {
    match text.split_once('=') {
        Some((name, file)) => Target::one(name)?.with_file(Path::new(file)),
        None if is_file(text) => Err(Error::Usage(format!(
            "{text} is a file and no kernel: say in whose place it stands, as KERNEL/VARIANT={text}"
        ))),
        None => Target::one(text),
    }
}

fn model(opts: &Opts, path: &str) -> Result<ModelRequest> {
    if opts.prompt.is_empty() && opts.prompt_tokens.is_empty() {
        return Err(Error::Usage(format!("{path}: give a --prompt or --prompt-tokens")));
    }
    let ids = |text: &String| {
        let ids: std::result::Result<Vec<u32>, _> =
            text.split(',').map(|id| id.trim().parse()).collect();
        ids.map_err(|_| Error::Usage(format!("--prompt-tokens {text}: not token ids")))
    };
    let sampling = opts.sampling.settings(None)?;
    Ok(ModelRequest {
        path: path.into(),
        prompts: opts.prompt.clone(),
        prompt_tokens: opts.prompt_tokens.iter().map(ids).collect::<Result<_>>()?,
        generate: opts.generate.max(1),
        context: opts.context,
        kv: opts.kv,
        sampling,
        seed: opts.seed,
        verify: opts.verify,
        logits: opts.logits.clone(),
        nmse: opts.logits_limit,
    })
}

fn asked(names: &[String]) -> Result<Vec<Kind>> {
    let all = kinds();
    if names.is_empty() {
        return Ok(all);
    }
    let known: Vec<_> = all.iter().map(|kind| kind.name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Error::Usage(format!("no kind `{name}`; {}", meant(name, &known))));
    }
    Ok(all.into_iter().filter(|kind| names.iter().any(|name| name == kind.name)).collect())
}

fn print(exported: &Exported, single: bool) {
    let mut t =
        table::table(&["kind of device", "cases", "n/a", "benches", "models"], &[1, 2, 3, 4]);
    for kind in &exported.kinds {
        let counts = [kind.cases, kind.unavailable, kind.benches, kind.models];
        let counts = counts.iter().map(ToString::to_string);
        t.add_row(std::iter::once(kind.name.to_owned()).chain(counts));
    }
    crate::out::table(t);
    let (texts, mib) = (exported.texts, exported.data_bytes as f64 / f64::from(1 << 20));
    outln!("{texts} shaders, {mib:.1} MiB of data: {}", exported.page.display());
    match single {
        true => outln!("open it in a browser"),
        false => outln!(
            "serve the folder (python3 -m http.server), or `node {}` with npm's webgpu",
            exported.page.with_file_name("node.mjs").display()
        ),
    }
}
