//! `lathe validate`: every variant, or a file of the user's, through naga and each back end's
//! writer, the analysis of uniformity and the lints of what single engines lack, or against the
//! limits of adapters that are not here; and compilers of back ends. Needs no device.

mod asked;
mod file;
mod print;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lathe_harness::error::{Error, Result, meant};
use lathe_harness::plan::Plan;
use lathe_harness::plan::backend_text::{self, Language, Limitation};
use lathe_harness::plan::limits::{Profile, profiles};
use lathe_harness::plan::target::Target;
use lathe_harness::plan::user::is_file;
use lathe_kernels::dialect::{self, Lint};
use lathe_kernels::{Constants, Kernel, KernelVariant, Problem, Reflection};
use serde::Serialize;
use serde_json::json;

use self::asked::{Asked, Page, Told};
use self::file::{Found, not_uniform, of_file};
use crate::global::Global;

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// KERNEL or KERNEL/VARIANT, or any WGSL file; all kernels without
    target: Option<String>,
    /// Value of an override of the file that has no default, or another one. May be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Say which of these adapters they fit, none of which need be here: minimal (what every WebGPU
    /// adapter offers), adreno, uhd620, apple, or all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    limits: Vec<String>,
    /// Ask Chrome's compiler through Node: by the npm package webgpu (LATHE_WEBGPU names its folder,
    /// else it is looked for in node_modules), or by headless Chromium (also CHROMIUM)
    #[arg(
        long,
        value_name = "node|chromium",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "node",
        help_heading = "Compilers",
        conflicts_with = "limits"
    )]
    browser: Option<Engine>,
    /// Ask DXC, Direct3D's compiler, about the HLSL
    #[arg(long, value_name = "LIBRARY", help_heading = "Compilers", conflicts_with = "limits")]
    dxc: Option<PathBuf>,
    /// Ask spirv-val about the SPIR-V
    #[arg(long, help_heading = "Compilers", conflicts_with = "limits")]
    spirv_val: bool,
}

/// Program that has Chrome's compiler.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Engine {
    Node,
    Chromium,
}

/// Name in [`Opts::limits`] that stands for all profiles.
const ALL: &str = "all";

/// A variant at all shapes of its kernel, with the overrides of each applied; or an entry point of
/// a file.
#[derive(Serialize)]
struct Row {
    name: String,
    shapes: usize,
    /// Largest of its entry points, at the shape that needs most.
    storage_buffers: usize,
    workgroup_memory: u32,
    invocations: u32,
    /// Optional features that the text needs.
    needs: Vec<&'static str>,
    /// Back ends that took it; none where it was held to limits alone.
    back_ends: Vec<&'static str>,
    /// Back ends that cannot express it.
    unsupported: Vec<Limitation>,
    /// Answers of compilers.
    compilers: Vec<Told>,
    errors: Vec<String>,
    /// Fit on each profile.
    fits: Vec<Fit>,
}

/// Shapes of a row that an adapter can run.
#[derive(Serialize)]
struct Fit {
    profile: &'static str,
    /// Shapes that run; of a file it is one.
    shapes: usize,
    of: usize,
    /// Reasons why the other shapes do not run, each once.
    reasons: Vec<String>,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let file = opts.target.as_deref().filter(|target| is_file(target));
    if !opts.set.is_empty() && file.is_none() {
        return Err(Error::Usage("--set goes with a WGSL file".into()));
    }
    let profiles = profiles_of(&opts.limits)?;
    let asked = Asked::open(opts)?;
    let mut pages = Vec::new();
    let (mut rows, found) = match file {
        Some(file) => of_file(file, &opts.set, &profiles, &asked, &mut pages)?,
        None => {
            let mut rows = Vec::new();
            for Target { kernel, subjects } in Target::parse(opts.target.as_deref())? {
                for subject in subjects {
                    let at = rows.len();
                    let (row, own) = of_variant(kernel, subject.variant, &profiles, &asked);
                    rows.push(row);
                    pages.extend(own.into_iter().map(|page| Page { rows: at..at + 1, ..page }));
                }
            }
            (rows, Found::default())
        }
    };
    asked.browser(&pages, &mut rows)?;
    let failed = found.failed(&rows);
    let profile = |profile: &Profile| {
        let caps = &profile.caps;
        json!({
            "name": profile.name, "what": profile.what, "sources": profile.sources,
            "storage_buffers": caps.storage_buffers, "workgroup_memory": caps.workgroup_memory,
            "invocations": caps.invocations, "subgroup_size": caps.subgroup, "f16": caps.f16,
        })
    };
    let about: Vec<_> = profiles.iter().map(profile).collect();
    let passed = rows.len() - failed;
    let lint = |lint: &Lint| json!({ "line": lint.line, "engine": lint.engine, "what": lint.what });
    let lints: Vec<_> = found.lints.iter().map(lint).collect();
    let report = json!({
        "file": file, "passed": passed, "failed": failed, "profiles": about, "rows": rows,
        "violations": found.violations, "lints": lints,
    });
    global.print(&report, || print::print(&profiles, &rows, &found, file));
    if let (Some(file), count @ 1..) = (file, found.violations.len()) {
        let why = format!("{file}: calls that are not in uniform control flow: {count}");
        return Err(Error::CheckFailed(why));
    }
    let misfits = rows.iter().filter(|row| row.fits.iter().any(|fit| fit.shapes == 0)).count();
    let (what, failed) = match (file, failed, misfits) {
        // Of the built-in ones every kernel has a variant that fits; a file is alone.
        (None, 0, _) | (Some(_), 0, 0) => return Ok(()),
        (None, n, _) => ("variants that do not validate".to_owned(), n),
        (Some(file), 0, n) => (format!("{file}: entry points that do not fit all of these"), n),
        (Some(file), n, _) => (format!("{file}: entry points that do not validate"), n),
    };
    Err(Error::CheckFailed(format!("{what}: {failed}")))
}

/// The profiles of these names.
fn profiles_of(names: &[String]) -> Result<Vec<Profile>> {
    let all = profiles();
    if names.iter().any(|name| name == ALL) {
        return Ok(all);
    }
    let known: Vec<_> = all.iter().map(|profile| profile.name).chain([ALL]).collect();
    let one = |name: &String| {
        let found = all.iter().find(|profile| profile.name == name);
        let why = || Error::Usage(format!("no limits `{name}`; {}", meant(name, &known)));
        found.cloned().ok_or_else(why)
    };
    names.iter().map(one).collect()
}

impl Row {
    fn new(name: String, reflection: &Reflection) -> Self {
        let features = [
            (reflection.needs_subgroup, "subgroups"),
            (reflection.needs_f16, "shader-f16"),
            (!reflection.needs_cooperative_matrix.is_empty(), "cooperative matrices"),
        ];
        Self {
            name,
            shapes: 0,
            storage_buffers: 0,
            workgroup_memory: 0,
            invocations: 0,
            needs: features.into_iter().filter(|(needed, _)| *needed).map(|(_, n)| n).collect(),
            back_ends: Vec::new(),
            unsupported: Vec::new(),
            compilers: Vec::new(),
            errors: Vec::new(),
            fits: Vec::new(),
        }
    }

    /// Names the back ends, of which those that can express the text are to take it.
    fn written(mut self, reflection: &Reflection) -> Self {
        for language in Language::ALL {
            match language.limitation(reflection) {
                Some(limitation) => self.unsupported.push(limitation),
                None => self.back_ends.push(language.name()),
            }
        }
        self
    }

    /// Counts what an entry point takes, and writes it for every back end. Returns all errors.
    fn entry(
        &mut self,
        reflection: &Reflection,
        entry: &str,
        constants: &Constants,
        asked: Option<&Asked>,
    ) -> Vec<String> {
        let taken = match reflection.workgroup(entry, constants) {
            Ok(taken) => taken,
            Err(e) => return vec![e.to_string()],
        };
        let is_storage = |i: &&usize| reflection.buffers[**i].uniform.is_none();
        let buffers = reflection.entry(entry).map_or(&[][..], |entry| &entry.buffers);
        self.storage_buffers = self.storage_buffers.max(buffers.iter().filter(is_storage).count());
        self.workgroup_memory = self.workgroup_memory.max(taken.0);
        self.invocations = self.invocations.max(taken.1);
        if self.back_ends.is_empty() {
            return Vec::new();
        }
        let (module, info) = match reflection.resolved(entry, constants) {
            Ok(resolved) => resolved,
            Err(e) => return vec![e.to_string()],
        };
        let mut errors = Vec::new();
        for language in Language::ALL {
            if language.limitation(reflection).is_some() {
                continue;
            }
            let wrong = match language.write(&module, &info, entry) {
                // What naga writes must be WGSL again.
                Ok(text) if language == Language::Wgsl => {
                    match naga::front::wgsl::parse_str(&dialect::for_naga(&text)) {
                        Ok(_) => continue,
                        Err(e) => format!("does not parse back: {e}"),
                    }
                }
                Ok(_) => continue,
                Err(e) => e,
            };
            self.back_ends.retain(|name| *name != language.name());
            errors.push(format!("{} ({entry}): {wrong}", language.name()));
        }
        if let Some(asked) = asked {
            asked.about(reflection, &module, &info, entry, self);
        }
        errors
    }
}

/// A variant over those of its kernel's shapes that it can run anywhere: with the constants of a
/// generous adapter through the writers, or the number that run on each profile.
fn of_variant(
    kernel: &'static Kernel,
    variant: &'static KernelVariant,
    profiles: &[Profile],
    asked: &Asked,
) -> (Row, Vec<Page>) {
    let name = format!("{}/{}", kernel.name, variant.name);
    let caps = backend_text::generous();
    let reflection = lathe_kernels::reflection(kernel.name, variant.name);
    let reflection = reflection.expect("the build script has reflected every variant");
    let mut row = Row::new(name, &reflection);
    if profiles.is_empty() {
        row = row.written(&reflection);
        let source = lathe_kernels::source(kernel.name, variant.name);
        let (text, file) = source.map_or(("", ""), |source| (source.text, source.file));
        let calls = not_uniform(&reflection, text, file, true);
        row.errors.extend(calls.iter().map(|call| format!("{}: {}", call.place, call.what)));
    }
    let mut pages = Vec::new();
    let problems = kernel.bench().into_iter().chain(kernel.cases());
    let runs = |problem: &Problem| variant.unsupported(&problem.shape, &caps).is_none();
    let problems: Vec<_> = problems.filter(runs).collect();
    row.shapes = problems.len();
    for (i, problem) in problems.iter().enumerate() {
        let tuned = variant.constants(&problem.shape, &caps);
        // Compilers take seconds: they are asked about one shape.
        let asked = Some(asked).filter(|_| i == 0);
        let errors = match reflection.constants(problem.shape.iter().chain(tuned)) {
            Ok(constants) => {
                if asked.is_some_and(Asked::wants_pages) {
                    pages.extend(pages_of(&row.name, &reflection, variant, &constants));
                }
                let stages = variant.stages.iter();
                stages.flat_map(|s| row.entry(&reflection, s.entry, &constants, asked)).collect()
            }
            Err(e) => vec![e.to_string()],
        };
        row.errors.extend(errors.first().map(|e| format!("{}: {e}", kernel.show(problem))));
    }
    for profile in profiles {
        let mut fit = Fit { profile: profile.name, shapes: 0, of: row.shapes, reasons: Vec::new() };
        for problem in &problems {
            match Plan::of(kernel, variant, &problem.shape, &profile.caps) {
                Ok(_) => fit.shapes += 1,
                Err(e) if fit.reasons.contains(&e.to_string()) => {}
                Err(e) => fit.reasons.push(e.to_string()),
            }
        }
        row.fits.push(fit);
    }
    (row, pages)
}

/// The stages of a variant as browsers read them.
fn pages_of(
    name: &str,
    reflection: &Reflection,
    variant: &KernelVariant,
    constants: &Constants,
) -> Vec<Page> {
    // No browser reads cooperative matrices; a text that does not resolve is an error of its row.
    let readable = reflection.needs_cooperative_matrix.is_empty();
    let stages = variant.stages.iter().filter(|_| readable).filter_map(|stage| {
        let (module, info) = reflection.resolved(stage.entry, constants).ok()?;
        let text = Language::Wgsl.write(&module, &info, stage.entry).ok()?;
        let name = format!("{name} {}", stage.entry);
        Some(Page {
            entries: vec![stage.entry.to_owned()],
            text,
            place: Box::new(move |line| format!("{name}:{line}")),
            rows: 0..0,
        })
    });
    stages.collect()
}
