//! A user's own WGSL file that replaces a built-in variant.
//!
//! A file with the kernel's entry points and binding names runs as it is. A file written for
//! another engine gets a TOML file of the same name that maps the differences:
//!
//! ```toml
//! [[stage]]
//! entry = "gemv_main"
//! workgroups = ["(ROWS + 3) / 4", "1", "1"]   # over parameters and overrides, rounds down
//!
//! [bindings]                # their name = ours
//! W = "weights"
//! input = "x"
//! result = "y"
//!
//! [uniforms.params]         # their uniform variable: field = value or parameter
//! n_rows = "ROWS"
//! n_cols = "K"
//! alpha = 1.0
//! strides = ["K", 1]        # of a vector all its numbers
//!
//! [overrides]
//! TILE = 64
//! HAS_BIAS = false
//! ```
//!
//! `packing = "file"` before all sections asks for rows of weights without padding.
//!
//! `enable subgroups;` and `requires subgroup_id;` (which browsers want and naga refuses) are
//! accepted.

mod bind;
mod expression;
mod mapping;
mod takes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bind::Bound;
use expression::{Names, Wrong, evaluate};
use lathe_kernels::dialect::for_naga;
use lathe_kernels::reflect::Default;
use lathe_kernels::{
    Capabilities, Constants, Kernel, KernelVariant, ParamKind, ReflectError, Reflection, Shape,
    State,
};
use lathe_record::files;
use mapping::{Mapping, Number, Numbers, Sections, ToleranceMapping};
use takes::Takes;

use crate::plan::{Code, Plan, PlanError, Tolerated, fits_grid};

pub use bind::is_padding;

/// A user's file with its mapping, read, linked and parsed.
#[derive(Debug)]
pub(super) struct UserKernel {
    /// Path as named by the user: the WGSL or its mapping.
    pub(super) path: PathBuf,
    kernel: &'static Kernel,
    variant: &'static KernelVariant,
    /// The WGSL, then the files that stages name.
    modules: Vec<Module>,
    stages: Vec<Stage>,
    /// Bytes of scratch memory, by its name.
    scratch: BTreeMap<String, Number>,
    /// True if rows of weights are stored one after the other, without padding.
    tight: bool,
    takes: Takes,
    pub(super) tolerated: Option<Tolerated>,
    /// Faults at every shape. They are reported with the others when the file is planned.
    faults: Faults,
}

/// Name of the packing without padding between rows.
const TIGHT: &str = "file";

/// The reason why a mapping cannot name the state in a whole step.
const OF_STEPS: &str = "changes from step to step, and a recorded step is the same for all: a \
    kernel that reads it from a uniform goes through `check`, `bench`, `ab` and `tune`, and into whole \
    steps if it reads the binding `state`";

/// One WGSL file.
#[derive(Debug)]
struct Module {
    path: PathBuf,
    /// The text with its imports, without numbers.
    code: Code,
}

/// A dispatch.
#[derive(Debug)]
struct Stage {
    entry: String,
    /// Index of its file.
    module: usize,
    /// Workgroups; none if the variant has the same stage, whose grid is then used.
    workgroups: Option<Numbers>,
    /// Sections of the whole file, overridden by the stage's own.
    sections: Sections,
}

fn refused(path: &Path, reason: impl std::fmt::Display) -> PlanError {
    ReflectError::User { path: path.display().to_string(), reason: reason.to_string() }.into()
}

/// Faults of a file, to be reported all at once.
#[derive(Clone, Debug, Default)]
struct Faults {
    /// Each with true if it is one of the current shape alone.
    all: Vec<(bool, String)>,
    /// Beginning of faults to come: the file they are in, where there are several.
    within: String,
}

impl Faults {
    /// Adds a fault at every shape.
    fn add(&mut self, fault: impl AsRef<str>) {
        self.push(false, fault.as_ref());
    }

    /// Adds a fault at this shape.
    fn add_here(&mut self, fault: impl AsRef<str>) {
        self.push(true, fault.as_ref());
    }

    fn push(&mut self, is_here: bool, fault: &str) {
        let fault = (is_here, format!("{}{fault}", self.within));
        if !self.all.contains(&fault) {
            self.all.push(fault);
        }
    }

    /// The value of an expression or of a combination of them; a fault is attributed to `what`.
    fn value<T>(&mut self, what: &str, value: Result<T, Wrong>) -> Option<T> {
        match value {
            Ok(value) => return Some(value),
            Err(Wrong::Text(why)) => self.add(format!("{what}: {why}")),
            Err(Wrong::Value(why)) => self.add_here(format!("{what}: {why}")),
        }
        None
    }

    /// Fails with all faults, if there are any; those of the shape alone are left out where there
    /// are others.
    fn end(&self, path: &Path) -> Result<(), PlanError> {
        let is_here = self.all.iter().all(|(is_here, _)| *is_here);
        let faults = self.all.iter().filter(|(here, _)| *here == is_here);
        let why = match faults.map(|(_, fault)| fault.as_str()).collect::<Vec<_>>().as_slice() {
            [] => return Ok(()),
            [one] => (*one).to_owned(),
            several => format!("{} faults\n  {}", several.len(), several.join("\n  ")),
        };
        Err(match is_here {
            true => PlanError::Shape(format!("{}: {why}", path.display())),
            false => refused(path, why),
        })
    }
}

/// Returns true if an argument names a WGSL file, or a mapping of one, and not a variant.
pub fn is_file(text: &str) -> bool {
    Path::new(text).extension().is_some_and(|e| e == "wgsl" || e == "toml")
}

/// Returns true if a line is a preprocessor directive, which WGSL does not have.
fn is_preprocessors(line: &str) -> bool {
    let word = line.trim_start().strip_prefix('#').map(str::trim_start).unwrap_or_default();
    let word = word.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    matches!(word, "if" | "ifdef" | "ifndef" | "elif" | "else" | "endif" | "define" | "include")
}

/// The text of a file linked with its modules, and naga's reflection of it.
pub fn reflected(path: &Path) -> Result<(String, Reflection), PlanError> {
    let text = files::read_text(path, files::TEXT).map_err(|e| refused(path, e))?;
    if let Some((i, line)) = text.lines().enumerate().find(|(_, line)| is_preprocessors(line)) {
        return Err(refused(
            path,
            format!(
                "line {}: `{}` is for a preprocessor, which WGSL has none of: give the text that \
                 the engine makes of it (`python3 mappings/instantiate.py text FILE NAME=VALUE…` \
                 does that for ggml's)",
                i + 1,
                line.trim()
            ),
        ));
    }
    Plan::reflect(&for_naga(&text), &path.display().to_string())
}

/// The files that make up a user's file: itself, its mapping, and the files that the mapping names.
/// Missing files are included, since they may be created later.
pub fn files_of(path: &Path) -> Vec<PathBuf> {
    let mut files = vec![path.to_owned(), path.with_extension("toml")];
    // What is wrong in it is said by whoever runs it.
    let mapping = read_mapping(path).ok().flatten().unwrap_or_default();
    let stages = mapping.stage.iter().filter_map(|stage| stage.file.as_ref());
    files.extend(stages.chain(&mapping.file).map(|file| path.with_file_name(file)));
    files.push(path.with_extension("wgsl"));
    files
}

/// The mapping at `path`, or the one of the same name; none if there is none.
fn read_mapping(path: &Path) -> Result<Option<Mapping>, PlanError> {
    let beside = path.with_extension("toml");
    match files::read_text(&beside, files::TEXT) {
        Ok(text) => toml::from_str(&text).map(Some).map_err(|e| refused(&beside, e)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && beside != path => Ok(None),
        Err(e) => Err(refused(&beside, e)),
    }
}

/// The value of a number in a mapping.
fn value_of(number: &Number, names: &Names) -> Result<f64, Wrong> {
    match number {
        Number::Truth(holds) => Ok(f64::from(u8::from(*holds))),
        Number::Literal(value) => Ok(*value),
        Number::Expression(text) => evaluate(text, names).map_err(|wrong| match wrong {
            Wrong::Text(why) => Wrong::Text(format!("`{text}`: {why}")),
            Wrong::Value(why) => Wrong::Value(format!("`{text}`: {why}")),
        }),
    }
}

impl Module {
    fn read(path: PathBuf) -> Result<Self, PlanError> {
        let (text, reflection) = reflected(&path)?;
        let file = Some(path.display().to_string());
        Ok(Self { path, code: Code { file, ..Code::new(text, Arc::new(reflection)) } })
    }

    /// Its entry points in a few words.
    fn entries(&self) -> String {
        let entries = self.code.reflection.entries.iter();
        let names: Vec<_> = entries.map(|e| format!("`{}`", e.name)).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }
}

impl Sections {
    /// These sections, overridden by others.
    fn and(&self, over: Self) -> Self {
        let mut all = self.clone();
        all.bindings.extend(over.bindings);
        all.uniforms.extend(over.uniforms);
        all.overrides.extend(over.overrides);
        all
    }

    /// Reports names that none of these texts has.
    fn check(&self, modules: &[Module], prefix: &str, faults: &mut Faults) {
        let any =
            |has: &dyn Fn(&Reflection) -> bool| modules.iter().any(|m| has(&m.code.reflection));
        for name in self.overrides.keys().filter(|name| !any(&|r| r.has_override(name))) {
            faults.add(format!("{prefix}has no override `{name}`"));
        }
        let buffer = |name: &String| any(&|r| r.buffers.iter().any(|b| b.name == *name));
        for name in self.bindings.keys().chain(self.uniforms.keys()).filter(|name| !buffer(name)) {
            faults.add(format!("{prefix}the mapping names `{name}`, which it lacks"));
        }
    }
}

impl UserKernel {
    /// Reads `path` and the TOML file of the same name, if there is one; or, if `path` is a TOML
    /// file, it and the WGSL that it names. It replaces `variant`.
    pub(super) fn read(
        path: &Path,
        kernel: &'static Kernel,
        variant: &'static KernelVariant,
    ) -> Result<Self, PlanError> {
        let beside = path.with_extension("toml");
        let mapping = read_mapping(path)?.unwrap_or_default();
        let main = match &mapping.file {
            Some(file) if beside == path => beside.with_file_name(file),
            None if beside == path => path.with_extension("wgsl"),
            None => path.to_owned(),
            Some(file) => {
                let file = file.display();
                let why = format!("`file` names {file}: name the mapping itself, not a WGSL file");
                return Err(refused(&beside, why));
            }
        };
        let mut faults = Faults::default();
        let tolerated = mapping.tolerance.as_ref().and_then(|t| tolerated(t, kernel, &mut faults));
        let takes = Takes::read(&mapping.takes, kernel, &mut faults);
        let tight = mapping.packing.as_deref() == Some(TIGHT);
        if let Some(name) = mapping.packing.as_ref().filter(|_| !tight) {
            faults.add(format!(
                "no packing `{name}`; there is {TIGHT}, and that of the variant in whose place the \
                 file stands"
            ));
        }
        let all = mapping.sections;
        let modules = vec![Module::read(main)?];
        let (path, scratch, stages) = (path.to_owned(), mapping.scratch, Vec::new());
        let mut file = Self {
            path,
            kernel,
            variant,
            modules,
            stages,
            scratch,
            tight,
            takes,
            tolerated,
            faults,
        };
        if mapping.stage.is_empty() {
            file.take_place(&all);
        }
        for stage in mapping.stage {
            file.add_stage(stage, &all)?;
        }
        all.check(&file.modules, "", &mut file.faults);
        Ok(file)
    }

    /// Adds a stage of the mapping, with its file.
    fn add_stage(&mut self, stage: mapping::StageMapping, all: &Sections) -> Result<(), PlanError> {
        let mut module = 0;
        if let Some(file) = &stage.file {
            let path = self.path.with_file_name(file);
            let known = self.modules.iter().position(|module| module.path == path);
            module = known.unwrap_or(self.modules.len());
            if known.is_none() {
                self.modules.push(Module::read(path)?);
            }
        }
        let (text, faults) = (&self.modules[module], &mut self.faults);
        let (path, own, entry) = (text.path.display(), stage.sections, stage.entry);
        if text.code.reflection.entry(&entry).is_none() {
            let known = text.entries();
            faults.add(format!("{path}: no entry point `{entry}`; there are {known}"));
            return Ok(());
        }
        let count = stage.workgroups.list().len();
        if !(1..=3).contains(&count) {
            faults.add(format!("[[stage]] {entry}: {count} workgroups, not one to three"));
        }
        let prefix = format!("{path}: [[stage]] {entry}: ");
        own.check(std::slice::from_ref(text), &prefix, faults);
        let workgroups = Some(stage.workgroups);
        self.stages.push(Stage { entry, module, workgroups, sections: all.and(own) });
        Ok(())
    }

    /// Adopts the stages of the variant.
    fn take_place(&mut self, all: &Sections) {
        let main = &self.modules[0];
        for entry in self.variant.stages.iter().map(|stage| stage.entry) {
            if main.code.reflection.entry(entry).is_none() {
                let own = main.entries();
                self.faults.add(format!(
                    "has no entry point `{entry}`; it has {own}: map yours in a [[stage]]"
                ));
                continue;
            }
            let (entry, sections) = (entry.to_owned(), all.clone());
            self.stages.push(Stage { entry, module: 0, workgroups: None, sections });
        }
    }

    /// Names for expressions: parameters and the state that the kernel reads; not listed in errors
    /// are the alternatives of choices and the adapter's limits. Without a state its names have no
    /// value.
    fn names(&self, shape: &Shape, state: Option<State>, caps: &Capabilities) -> Names {
        let mut names = Names::default();
        for (name, value) in shape.iter() {
            names.add(name, value);
        }
        for param in self.kernel.state {
            match state {
                None => names.withhold(param.name, OF_STEPS),
                Some(state) => {
                    let is_len = param.name == State::N_KV;
                    let value = if is_len { state.n_kv } else { state.prompt_len };
                    names.add(param.name, value as f64);
                }
            }
        }
        let mut codes: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for param in self.kernel.params {
            let ParamKind::Choice { set, .. } = param.kind else { continue };
            for (name, code) in set.all() {
                names.add_quietly(&format!("{}.{name}", param.name), f64::from(code));
                codes.entry(name).or_default().insert(code);
            }
        }
        // Alone where it means one thing.
        for (name, codes) in codes {
            if let (Some(code), 1) = (codes.first(), codes.len()) {
                names.add_quietly(name, f64::from(*code));
            }
        }
        let (low, high) = caps.subgroup.unwrap_or_default();
        names.add_quietly("adapter.subgroup_min", f64::from(low));
        names.add_quietly("adapter.subgroup_max", f64::from(high));
        names.add_quietly("adapter.invocations", f64::from(caps.invocations));
        names
    }

    /// Specialises the file for a shape. If its mapping names the state, the plan is for that state
    /// alone; a missing state is then an error.
    pub(super) fn plan(
        &self,
        shape: &Shape,
        state: Option<State>,
        caps: &Capabilities,
    ) -> Result<Plan, PlanError> {
        let variant = self.variant;
        let parameters = self.names(shape, state, caps);
        if let Some(reason) =
            self.takes.refuses(shape, &parameters).map_err(|why| refused(&self.path, why))?
        {
            return Err(PlanError::Unavailable(reason));
        }
        let is_in_place = self.stages.iter().any(|stage| stage.workgroups.is_none());
        if let Some(reason) = variant.unsupported(shape, caps).filter(|_| is_in_place) {
            return Err(PlanError::Unavailable(reason));
        }
        let mut faults = self.faults.clone();
        let mut bound = Bound::new(self, shape, &parameters, &mut faults);
        let mut staged = Vec::new();
        for stage in &self.stages {
            let module = &self.modules[stage.module];
            if self.modules.len() > 1 {
                faults.within = format!("{}: ", module.path.display());
            }
            let constants = self.constants(stage, shape, caps, &parameters, &mut faults)?;
            let names = parameters.with(&constants);
            let bindings = bound.bind(stage, &names, &mut faults);
            faults.within.clear();
            let groups = match &stage.workgroups {
                Some(numbers) => groups(&stage.entry, numbers, &names, &mut faults),
                None => {
                    self.counts_on(shape, caps, &constants)?;
                    let own = variant.stages.iter().find(|own| own.entry == stage.entry);
                    [own.map_or(1, |own| (own.grid)(shape, &constants)), 1, 1]
                }
            };
            staged.push((groups, Arc::new(Code { constants, bindings, ..module.code.clone() })));
        }
        bound.check(staged.iter().map(|(_, code)| &**code), &mut faults);
        faults.end(&self.path)?;
        let Some((_, code)) = staged.first() else { return Err(refused(&self.path, "no stages")) };
        let too_large = |(_, bytes): &&(String, u64)| *bytes > caps.binding_bytes;
        if let Some((name, bytes)) = bound.foreign.scratch.iter().find(too_large) {
            let most = caps.binding_bytes;
            return Err(PlanError::Unavailable(format!(
                "{name} needs {bytes} bytes, the largest binding is {most}"
            )));
        }
        let mut plan = Plan {
            kernel: self.kernel,
            variant: self.path.display().to_string(),
            built_in: false,
            code: Arc::clone(code),
            stages: Vec::new(),
            packing: bound.packing,
            declared: variant,
            is_tuned: false,
            foreign: bound.foreign,
        };
        for (stage, (groups, code)) in self.stages.iter().zip(&staged) {
            // Array lengths and the like follow from constants.
            plan.dispatch(&stage.entry, code, *groups, caps).map_err(|e| match e {
                PlanError::Reflect(ReflectError::Constants(why)) => {
                    refused(&self.modules[stage.module].path, why)
                }
                other => other,
            })?;
        }
        Ok(plan)
    }

    /// Values of a stage's overrides: parameters and constants of the variant by their names,
    /// overridden by its sections.
    fn constants(
        &self,
        stage: &Stage,
        shape: &Shape,
        caps: &Capabilities,
        names: &Names,
        faults: &mut Faults,
    ) -> Result<Constants, PlanError> {
        let reflection = &self.modules[stage.module].code.reflection;
        let mut given: BTreeMap<&str, f64> = shape.iter().collect();
        given.extend(self.variant.constants(shape, caps));
        for (name, number) in &stage.sections.overrides {
            if reflection.has_override(name) {
                let value = faults.value(&format!("override {name}"), value_of(number, names));
                given.insert(name, value.unwrap_or(1.0));
            }
        }
        for (name, default) in &reflection.overrides {
            if *default == Default::Required && !given.contains_key(name.as_str()) {
                faults.add(format!("override `{name}` has no value; give it in [overrides]"));
                given.insert(name, 1.0);
            }
        }
        Ok(reflection.constants(given)?)
    }

    /// Fails if the file lacks an override that the grid of a built-in variant uses, or sets it to
    /// an unusable value.
    fn counts_on(
        &self,
        shape: &Shape,
        caps: &Capabilities,
        constants: &Constants,
    ) -> Result<(), PlanError> {
        let (kernel, variant) = (self.kernel, self.variant);
        let Some(own) = lathe_kernels::reflection(kernel.name, variant.name) else {
            let place = format!("{}/{} is not registered", kernel.name, variant.name);
            return Err(PlanError::Unavailable(place));
        };
        let its = own.constants(shape.iter().chain(variant.constants(shape, caps)))?;
        for (name, default) in &own.overrides {
            // The grid takes parameters from the shape.
            if !matches!(default, Default::Literal(_)) || kernel.param(name).is_some() {
                continue;
            }
            let why = match constants.get(name) {
                Some(v) if fits_grid(*v, its.get(name).copied()) => continue,
                Some(v) => format!("override {name} = {v}"),
                None => format!(
                    "lacks the override `{name}` of {}/{}, whose grid it would use; give \
                     workgroups in a [[stage]] of {}",
                    kernel.name,
                    variant.name,
                    self.path.with_extension("toml").display()
                ),
            };
            return Err(refused(&self.path, why));
        }
        Ok(())
    }
}

/// Workgroups that a mapping gives a stage.
fn groups(entry: &str, numbers: &Numbers, names: &Names, faults: &mut Faults) -> [usize; 3] {
    let mut groups = [1; 3];
    let what = format!("workgroups of {entry}");
    for (slot, number) in groups.iter_mut().zip(numbers.list()) {
        let Some(count) = faults.value(&what, value_of(number, names)) else { continue };
        match count.floor() {
            count if (1.0..=f64::from(u32::MAX)).contains(&count) => *slot = count as usize,
            count => faults.add_here(format!("{count} {what}")),
        }
    }
    groups
}

/// A tolerance of a mapping.
fn tolerated(
    tolerance: &ToleranceMapping,
    kernel: &'static Kernel,
    faults: &mut Faults,
) -> Option<Tolerated> {
    match tolerance {
        ToleranceMapping::Variant(name) => {
            let variant = kernel.variant(name);
            if variant.is_none() {
                let known: Vec<_> = kernel.variants.iter().map(|v| v.name).collect();
                let known = known.join(", ");
                faults.add(format!("tolerance: no variant `{name}`; there are {known}"));
            }
            variant.map(Tolerated::Of)
        }
        ToleranceMapping::Own(own) => {
            for (name, bound) in [("k", own.k), ("nmse", own.nmse)] {
                if let Some(bound) = bound.filter(|b| !(b.is_finite() && *b >= 0.0)) {
                    faults.add(format!("tolerance: {name} = {bound}"));
                }
            }
            Some(Tolerated::Own { k: own.k, nmse: own.nmse })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{PlannedStage, Subject};

    /// A copy of a variant that replaces it runs the same: constants, grids, bindings and refusals.
    #[test]
    fn a_copy_stands_in_its_variant_s_place() {
        let folder = tempfile::tempdir().expect("a folder for copies");
        let caps = Capabilities {
            subgroup: Some((32, 32)),
            f16: true,
            workgroup_memory: 48 << 10,
            invocations: 1024,
            binding_bytes: 2 << 30,
            ..Capabilities::minimal()
        };
        let mut compared = 0;
        for kernel in lathe_kernels::kernels() {
            for variant in kernel.variants {
                let source = lathe_kernels::source(kernel.name, variant.name).expect("its source");
                let path = folder.path().join(format!("{}-{}.wgsl", kernel.name, variant.name));
                std::fs::write(&path, source.text).expect("a copy");
                let file = Subject::compile(&path, kernel, variant).expect("the copy");
                for problem in kernel.bench().into_iter().chain(kernel.cases()) {
                    let shape = &problem.shape;
                    let own = Plan::of(kernel, variant, shape, &caps);
                    let copy = file.plan_of_step(shape, &caps);
                    match (own, copy) {
                        (Ok(own), Ok(copy)) => {
                            assert_eq!(own.stages.len(), copy.stages.len(), "{}", path.display());
                            for (own, copy) in own.stages.iter().zip(&copy.stages) {
                                let parts = |stage: &PlannedStage| {
                                    let PlannedStage { entry, groups, code } = stage.clone();
                                    (entry, groups, code.constants.clone())
                                };
                                assert_eq!(parts(own), parts(copy), "{} {shape}", path.display());
                            }
                            assert_eq!(own.packing, copy.packing, "{} {shape}", path.display());
                            compared += 1;
                        }
                        (Err(PlanError::Unavailable(own)), Err(PlanError::Unavailable(copy))) => {
                            assert_eq!(own, copy, "{} {shape}", path.display());
                        }
                        (own, copy) => {
                            let of = |plan: Result<Plan, _>| plan.map(|_| "a plan");
                            panic!("{} {shape}: {:?}, {:?}", path.display(), of(own), of(copy))
                        }
                    }
                }
            }
        }
        assert!(compared > 500, "{compared}");
    }
}
