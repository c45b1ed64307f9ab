//! A user's own WGSL file in the place of a built-in variant.
//!
//! A file with the kernel's entry points and binding names runs as it is. One written for another
//! engine gets a TOML file of the same name beside it that maps what differs:
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
//! `packing = "planes"` before all sections asks for quantised rows in that layout.
//!
//! `enable subgroups;` (which Tint requires and naga refuses) is accepted.

mod bind;
mod expression;
mod golden;
mod mapping;
mod operation;
mod takes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bind::{At, Bound};
use expression::{Names, Wrong, evaluate};
use lathe_kernels::reflect::Default;
use lathe_kernels::{
    Capabilities, Constants, Elem, Kernel, KernelVariant, Packing, ParamKind, Problem,
    ReflectError, Reflection, Shape, State,
};
use lathe_record::files;
use mapping::{Mapping, Number, Setting, StageMapping, ToleranceMapping};
use takes::Takes;

use crate::plan::{Plan, PlanError, PlannedStage, StageCode, Tolerated, fits_grid};

pub use bind::is_padding;
pub use golden::{Found, Golden, Integer, Stored, Wanted};
pub use operation::Operation;

/// A user's file with its mapping.
#[derive(Debug)]
pub struct UserKernel {
    /// As it was named: the WGSL, or its mapping.
    path: PathBuf,
    /// The WGSL, then the files that stages name.
    modules: Vec<Module>,
    kernel: &'static Kernel,
    mapping: Mapping,
    takes: Takes,
    tolerated: Option<Tolerated>,
    /// What of the mapping could not be read.
    unread: Vec<String>,
    /// Of an operation of the user's own.
    golden: Option<Arc<Golden>>,
}

/// The packing of rows that lie one after the other, without padding.
const TIGHT: &str = "file";

/// Why a mapping cannot name the state in a whole step.
const OF_STEPS: &str = "changes from step to step, and a recorded step is the same for all: a kernel \
    that reads it from a uniform goes through `check`, `bench`, `ab` and `tune`, and into whole \
    steps if it reads the binding `state`";

/// One WGSL file.
#[derive(Debug)]
struct Module {
    path: PathBuf,
    /// With what it imports.
    text: Arc<str>,
    reflection: Arc<Reflection>,
}

impl Module {
    fn read(path: PathBuf) -> Result<Self, PlanError> {
        let (text, reflection) = reflected(&path)?;
        Ok(Self { path, text: text.into(), reflection: Arc::new(reflection) })
    }

    /// Its entry points in a few words.
    fn entries(&self) -> String {
        let names: Vec<_> =
            self.reflection.entries.iter().map(|e| format!("`{}`", e.name)).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }
}

/// A dispatch on its way to a plan.
struct Staged<'a> {
    entry: String,
    groups: [usize; 3],
    module: &'a Module,
    constants: Constants,
    /// What the mapping says of it, if it has it from there.
    own: Option<&'a StageMapping>,
}

fn refused(path: &Path, reason: impl std::fmt::Display) -> PlanError {
    ReflectError::User { path: path.display().to_string(), reason: reason.to_string() }.into()
}

/// What is wrong with a file: all of it at once.
#[derive(Debug, Default)]
struct Faults {
    /// At every shape.
    always: Vec<String>,
    /// At the shape at hand.
    here: Vec<String>,
}

impl Faults {
    fn add(&mut self, fault: String) {
        if !self.always.contains(&fault) {
            self.always.push(fault);
        }
    }

    fn add_here(&mut self, fault: String) {
        if !self.here.contains(&fault) {
            self.here.push(fault);
        }
    }

    /// Those of an expression, or of what is made of some, as `what`.
    fn value<T>(&mut self, what: &str, value: Result<T, Wrong>) -> Option<T> {
        match value {
            Ok(value) => return Some(value),
            Err(Wrong::Text(why)) => self.add(format!("{what}: {why}")),
            Err(Wrong::Value(why)) => self.add_here(format!("{what}: {why}")),
        }
        None
    }

    /// An error of all faults, if there are any.
    fn end(&self, path: &Path) -> Result<(), PlanError> {
        let joined = |faults: &[String]| match faults {
            [one] => one.clone(),
            several => {
                let lines: String = several.iter().map(|fault| format!("\n  {fault}")).collect();
                format!("{} faults{lines}", several.len())
            }
        };
        match (self.always.as_slice(), self.here.as_slice()) {
            ([], []) => Ok(()),
            ([], here) => Err(PlanError::Shape(format!("{}: {}", path.display(), joined(here)))),
            (always, _) => Err(refused(path, joined(always))),
        }
    }
}

/// Whether an argument names a WGSL file, or a mapping of one, and not a variant.
pub fn is_file(text: &str) -> bool {
    Path::new(text).extension().is_some_and(|e| e == "wgsl" || e == "toml")
}

/// Whether a file is a mapping, which names the WGSL.
fn is_mapping(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "toml")
}

/// Whether a line is one of a preprocessor, which no WGSL has.
fn is_preprocessors(line: &str) -> bool {
    let word = line.trim_start().strip_prefix('#').map(str::trim_start).unwrap_or_default();
    let word = word.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    matches!(word, "if" | "ifdef" | "ifndef" | "elif" | "else" | "endif" | "define" | "include")
}

/// The text of a file with its modules, and what naga says of it.
pub fn reflected(path: &Path) -> Result<(String, Reflection), PlanError> {
    let text = files::read_text(path, files::TEXT).map_err(|e| refused(path, e))?;
    if let Some((i, line)) = text.lines().enumerate().find(|(_, line)| is_preprocessors(line)) {
        return Err(refused(
            path,
            format!(
                "line {}: `{}` is for a preprocessor, which WGSL has none of: give the text that the engine \
                 makes of it (`python3 mappings/instantiate.py text FILE NAME=VALUE…` does that for ggml's)",
                i + 1,
                line.trim()
            ),
        ));
    }
    // The directive, which naga refuses, goes; its line stays.
    let lines = text.lines().map(|line| if line.trim() == "enable subgroups;" { "" } else { line });
    Plan::reflect(&lines.collect::<Vec<_>>().join("\n"), &path.display().to_string())
}

/// The files that a user's file is made of: it, its mapping, and what that one names. Those that
/// are not there are among them, for they may come.
pub fn files_of(path: &Path) -> Vec<PathBuf> {
    let beside = path.with_extension("toml");
    let mut files = vec![path.to_owned(), beside.clone()];
    // What is wrong in it is said by whoever runs it.
    let mapping = read_mapping(path).ok().flatten().unwrap_or_default();
    let stages = mapping.stage.iter().filter_map(|stage| stage.file.as_ref());
    let golden = mapping.operation.as_ref().map(|operation| &operation.golden);
    files.extend(stages.chain(golden).map(|file| beside.with_file_name(file)));
    files.push(match &mapping.file {
        Some(file) => beside.with_file_name(file),
        None => path.with_extension("wgsl"),
    });
    files.dedup();
    files
}

/// The mapping that `path` is, or that stands beside it; none where there is none.
fn read_mapping(path: &Path) -> Result<Option<Mapping>, PlanError> {
    let beside = path.with_extension("toml");
    match files::read_text(&beside, files::TEXT) {
        Ok(text) => toml::from_str(&text).map(Some).map_err(|e| refused(&beside, e)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !is_mapping(path) => Ok(None),
        Err(e) => Err(refused(&beside, e)),
    }
}

/// The value of a number in a mapping.
fn value_of(number: &Number, names: &Names) -> Result<f64, Wrong> {
    let shown = |text: &str, why: String| format!("`{text}`: {why}");
    match number {
        Number::Literal(value) => Ok(*value),
        Number::Expression(text) => evaluate(text, names).map_err(|wrong| match wrong {
            Wrong::Text(why) => Wrong::Text(shown(text, why)),
            Wrong::Value(why) => Wrong::Value(shown(text, why)),
        }),
    }
}

impl UserKernel {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads `path` and the TOML file beside it, if there is one; or where `path` is a TOML file,
    /// it and the WGSL that it names.
    pub fn read(path: &Path, kernel: &'static Kernel) -> Result<Self, PlanError> {
        Self::read_for(path, kernel, None)
    }

    /// The same of a file in the place of an operation of the user's own.
    pub fn of(path: &Path, operation: &Operation) -> Result<Self, PlanError> {
        Self::read_for(path, operation.kernel, Some(operation))
    }

    fn read_for(
        path: &Path,
        kernel: &'static Kernel,
        operation: Option<&Operation>,
    ) -> Result<Self, PlanError> {
        let beside = path.with_extension("toml");
        let mapping = read_mapping(path)?.unwrap_or_default();
        match (&mapping.operation, operation) {
            (Some(_), None) => {
                let (shown, kernel) = (beside.display(), kernel.name);
                return Err(refused(
                    &beside,
                    format!(
                        "has an [operation] of its own, so it stands in no place of {kernel}: \
                         `lathe check {shown}` checks it"
                    ),
                ));
            }
            (Some(own), Some(operation)) => operation.same(&beside, own)?,
            (None, _) => {}
        }
        if operation.is_some() && mapping.stage.is_empty() {
            let why = "has no [[stage]]: this operation has no variant whose grid it could use";
            return Err(refused(&beside, why));
        }
        let main = match (&mapping.file, is_mapping(path)) {
            (Some(file), true) => beside.with_file_name(file),
            (None, true) => path.with_extension("wgsl"),
            (None, false) => path.to_owned(),
            (Some(file), false) => {
                let file = file.display();
                return Err(refused(
                    &beside,
                    format!("`file` names {file}: name the mapping itself, not a WGSL file"),
                ));
            }
        };
        let mut modules = vec![Module::read(main)?];
        for file in mapping.stage.iter().filter_map(|stage| stage.file.as_ref()) {
            let file = beside.with_file_name(file);
            if !modules.iter().any(|module| module.path == file) {
                modules.push(Module::read(file)?);
            }
        }
        let mut faults = Faults::default();
        let takes = Takes::read(&mapping.takes, kernel).unwrap_or_else(|why| {
            faults.always.extend(why);
            Takes::default()
        });
        let tolerated = match &mapping.tolerance {
            None => None,
            Some(ToleranceMapping::Variant(name)) => {
                let variant = kernel.variant(name);
                if variant.is_none() {
                    let known: Vec<_> = kernel.variants.iter().map(|v| v.name).collect();
                    let known = known.join(", ");
                    faults.add(format!("tolerance: no variant `{name}`; there are {known}"));
                }
                variant.map(Tolerated::Of)
            }
            Some(ToleranceMapping::Own(own)) => {
                let bounds = [("k", own.k), ("nmse", own.nmse)];
                for (name, bound) in bounds {
                    if let Some(bound) = bound.filter(|b| !(b.is_finite() && *b >= 0.0)) {
                        faults.add(format!("tolerance: {name} = {bound}"));
                    }
                }
                Some(Tolerated::Own { k: own.k, nmse: own.nmse })
            }
        };
        // Said with what else is wrong, once it is planned.
        let unread = faults.always;
        let golden = operation.map(|operation| Arc::clone(&operation.golden));
        Ok(Self {
            path: path.to_owned(),
            modules,
            kernel,
            mapping,
            takes,
            tolerated,
            golden,
            unread,
        })
    }

    /// Whether its mapping says which shapes it takes.
    pub fn is_choosy(&self) -> bool {
        !self.takes.is_empty()
    }

    /// Whether a golden file says what comes of it, and no reference.
    pub fn is_golden(&self) -> bool {
        self.golden.is_some()
    }

    /// Whether its mapping has a tolerance.
    pub fn has_tolerance(&self) -> bool {
        self.tolerated.is_some()
    }

    /// A problem with what it takes of each parameter; conditions are not looked at. `pick(n)`
    /// draws a number below `n`.
    pub fn fitted(&self, mut problem: Problem, pick: &mut dyn FnMut(u32) -> u32) -> Problem {
        self.takes.fit(&mut problem, pick);
        problem
    }

    /// The nearest problem within what it takes of each parameter, with the state at the end of
    /// what a condition allows, or anywhere before it; none where a condition fails all the same.
    /// `pick(n)` draws a number below `n`.
    pub fn within(
        &self,
        problem: Problem,
        caps: &Capabilities,
        pick: &mut dyn FnMut(u32) -> u32,
    ) -> Option<Problem> {
        let problem = self.fitted(problem, pick);
        let takes = |problem: &Problem| {
            let names = self.names(&problem.shape, Some(problem.state), caps);
            let refusal = self.takes.refuses(&problem.shape, &names);
            // What is wrong with a condition is said when it is planned.
            refusal.map_or(true, |refusal| refusal.is_none())
        };
        if takes(&problem) {
            return Some(problem);
        }
        self.kernel.state.iter().find_map(|word| {
            let value = problem.get(word)? as u64;
            let with = |value: u64| {
                let mut problem = problem.clone();
                problem.set(word, value as f64);
                problem
            };
            // The largest power of two below it that is taken, and from there the last before it
            // that is.
            let halves = std::iter::successors(Some(value / 2), |v| Some(v / 2));
            let mut low = halves.take_while(|v| *v > 0).find(|v| takes(&with(*v)))?;
            let (first, mut beyond) = (low, value);
            while low + 1 < beyond {
                let middle = low.midpoint(beyond);
                if takes(&with(middle)) { low = middle } else { beyond = middle }
            }
            let drawn = first + u64::from(pick((low - first + 1) as u32));
            let wanted = if pick(2) == 0 { low } else { drawn };
            [wanted, low].map(with).into_iter().find(takes)
        })
    }

    /// What expressions may name: parameters, the state that the kernel reads, and without being
    /// listed in errors the alternatives of choices and what the adapter has. Without a state its names have no value.
    fn names(&self, shape: &Shape, state: Option<State>, caps: &Capabilities) -> Names {
        let mut names = Names::default();
        for (name, value) in shape.iter() {
            names.add(name, value);
        }
        for param in self.kernel.state {
            match state {
                None => names.withhold(param.name, OF_STEPS),
                Some(State { n_kv, prompt_len }) => names.add(
                    param.name,
                    if param.name == State::N_KV { n_kv } else { prompt_len } as f64,
                ),
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
        for (name, value) in [
            ("adapter.subgroup_min", low),
            ("adapter.subgroup_max", high),
            ("adapter.invocations", caps.invocations),
            ("adapter.workgroup_bytes", caps.workgroup_memory),
            ("adapter.f16", u32::from(caps.f16)),
        ] {
            names.add_quietly(name, f64::from(value));
        }
        names
    }

    /// Specialises the file for a problem, with the stages of `variant` where no mapping gives any.
    /// Where its mapping names the state, the plan is for that state alone.
    pub fn plan(
        &self,
        variant: &'static KernelVariant,
        problem: &Problem,
        caps: &Capabilities,
    ) -> Result<Plan, PlanError> {
        self.plan_at(variant, &problem.shape, Some(problem.state), caps)
    }

    /// Specialises it for a step that is recorded once and runs at every position; an error where
    /// its mapping names the state.
    pub fn plan_of_step(
        &self,
        variant: &'static KernelVariant,
        shape: &Shape,
        caps: &Capabilities,
    ) -> Result<Plan, PlanError> {
        self.plan_at(variant, shape, None, caps)
    }

    fn plan_at(
        &self,
        variant: &'static KernelVariant,
        shape: &Shape,
        state: Option<State>,
        caps: &Capabilities,
    ) -> Result<Plan, PlanError> {
        let (mapping, main) = (&self.mapping, &self.modules[0]);
        let parameters = self.names(shape, state, caps);
        if let Some(reason) =
            self.takes.refuses(shape, &parameters).map_err(|why| refused(&self.path, why))?
        {
            return Err(PlanError::Unavailable(reason));
        }
        let mut faults = Faults { always: self.unread.clone(), ..Faults::default() };
        self.check_names(&mut faults);
        let given = self.given(variant, shape, caps);
        let constants = self.constants(main, None, &given, &parameters, &mut faults)?;
        let stages = match mapping.stage.as_slice() {
            [] => self.stages_of(variant, shape, caps, &constants, &mut faults)?,
            _ => self.mapped_stages(&given, &parameters, &mut faults)?,
        };
        let wanted = match mapping.packing.as_deref() {
            // Each variable that holds weights is a part of its own.
            None | Some(TIGHT) => variant.packing,
            Some(name) => self.packing(name, &mut faults),
        };
        let packing = self.kernel.packing(wanted, shape);
        let at = At { shape, parameters: &parameters, packing };
        let Bound { bindings, uniforms, scratch, parts, kv_orders } =
            self.bound(&stages, &at, &mut faults);
        faults.end(&self.path)?;
        if let Some((name, bytes)) = scratch.iter().find(|(_, bytes)| *bytes > caps.binding_bytes) {
            let most = caps.binding_bytes;
            return Err(PlanError::Unavailable(format!(
                "{name} needs {bytes} bytes, the largest binding is {most}"
            )));
        }
        let plain = |stage: &Staged<'_>| stage.own.is_none_or(StageMapping::is_plain);
        let of_all = stages.iter().zip(&bindings).filter(|(stage, _)| plain(stage));
        let mut plan = Plan {
            kernel: self.kernel,
            variant: self.path.display().to_string(),
            built_in: false,
            text: main.text.to_string().into(),
            reflection: Arc::clone(&main.reflection),
            constants,
            stages: Vec::new(),
            packing,
            declared: variant,
            bindings: of_all.flat_map(|(_, bindings)| bindings.clone()).collect(),
            uniforms,
            scratch,
            parts,
            kv_orders,
            tolerated: self.tolerated,
            golden: self.golden.clone(),
        };
        for (stage, bindings) in stages.into_iter().zip(bindings) {
            let groups = stage.groups;
            if groups[0] == 0 {
                continue;
            }
            let own = (!plain(&stage)).then(|| {
                Arc::new(StageCode {
                    text: Arc::clone(&stage.module.text),
                    reflection: Arc::clone(&stage.module.reflection),
                    constants: stage.constants,
                    bindings,
                })
            });
            let path = &stage.module.path;
            let stage = PlannedStage { entry: stage.entry, groups: [0; 3], code: own };
            // Array lengths and the like, which follow from constants.
            plan.check_stage(&stage, caps).map_err(|e| match e {
                PlanError::Reflect(ReflectError::Constants(reason)) => refused(path, reason),
                other => other,
            })?;
            let limit = caps.grid_dimension as usize;
            let groups = match groups {
                [x, 1, 1] => plan.fold(&stage, x, caps)?,
                [x, y, z] if x.max(y).max(z) <= limit => [x as u32, y as u32, z as u32],
                _ => {
                    let reason = "needs more workgroups than a grid holds";
                    return Err(PlanError::Unavailable(reason.into()));
                }
            };
            plan.stages.push(PlannedStage { groups, ..stage });
        }
        Ok(plan)
    }

    /// A fault of a file, which is named where there are several.
    fn fault_of(&self, module: &Module, fault: String) -> String {
        match self.modules.len() {
            1 => fault,
            _ => format!("{}: {fault}", module.path.display()),
        }
    }

    /// What a stage says on its own, with its name.
    fn of_stage(&self, module: &Module, stage: Option<&StageMapping>, what: String) -> String {
        let what = match stage {
            Some(stage) => format!("[[stage]] {}: {what}", stage.entry),
            None => what,
        };
        self.fault_of(module, what)
    }

    /// The file of a stage.
    fn module_of(&self, stage: &StageMapping) -> &Module {
        let named = stage.file.as_ref().and_then(|file| {
            let file = self.path.with_file_name(file);
            self.modules.iter().find(|module| module.path == file)
        });
        named.unwrap_or(&self.modules[0])
    }

    /// Names in the mapping's sections that no file has.
    fn check_names(&self, faults: &mut Faults) {
        let in_any = |has: &dyn Fn(&Reflection) -> bool| {
            self.modules.iter().any(|module| has(&module.reflection))
        };
        let buffer = |r: &Reflection, name: &str| r.buffers.iter().any(|b| b.name == name);
        let Mapping { stage, bindings, uniforms, overrides, .. } = &self.mapping;
        for name in overrides.keys().filter(|name| !in_any(&|r| r.has_override(name))) {
            faults.add(format!("has no override `{name}`"));
        }
        let variables = bindings.keys().chain(uniforms.keys());
        for name in variables.filter(|name| !in_any(&|r| buffer(r, name))) {
            faults.add(format!("the mapping names `{name}`, which it lacks"));
        }
        for stage in stage {
            let module = self.module_of(stage);
            let reflection = &module.reflection;
            for name in stage.overrides.keys().filter(|name| !reflection.has_override(name)) {
                faults.add(self.fault_of(module, format!("has no override `{name}`")));
            }
            let variables = stage.bindings.keys().chain(stage.uniforms.keys());
            for name in variables.filter(|name| !buffer(reflection, name)) {
                let fault = format!("[[stage]] {} names `{name}`, which it lacks", stage.entry);
                faults.add(self.fault_of(module, fault));
            }
        }
    }

    /// Values that overrides get by their names: the shape's and the variant's.
    fn given(
        &self,
        variant: &'static KernelVariant,
        shape: &Shape,
        caps: &Capabilities,
    ) -> BTreeMap<String, f64> {
        let all = shape.iter().chain(variant.constants(shape, caps));
        all.map(|(n, v)| (n.to_owned(), v)).collect()
    }

    /// Values of a file's overrides: those given, and over them the mapping's and a stage's own.
    fn constants(
        &self,
        module: &Module,
        stage: Option<&StageMapping>,
        given: &BTreeMap<String, f64>,
        names: &Names,
        faults: &mut Faults,
    ) -> Result<Constants, PlanError> {
        let (mut given, reflection) = (given.clone(), &module.reflection);
        let of_all = self.mapping.overrides.iter().map(|given| (None, given));
        let own = stage.iter().flat_map(|s| s.overrides.iter().map(|given| (Some(*s), given)));
        for (stage, (name, number)) in of_all.chain(own) {
            if reflection.has_override(name) {
                let what = self.of_stage(module, stage, format!("override {name}"));
                let value = match number {
                    Setting::Truth(holds) => Some(f64::from(u8::from(*holds))),
                    Setting::Number(number) => faults.value(&what, value_of(number, names)),
                };
                given.insert(name.clone(), value.unwrap_or(1.0));
            }
        }
        for (name, default) in &reflection.overrides {
            if *default == Default::Required && !given.contains_key(name) {
                let fault = format!("override `{name}` has no value; give it in [overrides]");
                faults.add(self.fault_of(module, fault));
                given.insert(name.clone(), 1.0);
            }
        }
        Ok(reflection.constants(given.iter().map(|(n, v)| (n.as_str(), *v)))?)
    }

    /// The stages of a built-in variant: the file has its grid, and with that what it takes.
    fn stages_of(
        &self,
        variant: &'static KernelVariant,
        shape: &Shape,
        caps: &Capabilities,
        constants: &Constants,
        faults: &mut Faults,
    ) -> Result<Vec<Staged<'_>>, PlanError> {
        let main = &self.modules[0];
        if let Some(reason) = variant.unsupported(shape, caps) {
            return Err(PlanError::Unavailable(reason));
        }
        let missing = variant.stages.iter().filter(|s| main.reflection.entry(s.entry).is_none());
        let missing: Vec<_> = missing.map(|stage| stage.entry).collect();
        for entry in &missing {
            let own = main.entries();
            faults.add(format!(
                "has no entry point `{entry}`; it has {own}: map yours in a [[stage]]"
            ));
        }
        if !missing.is_empty() {
            return Ok(Vec::new());
        }
        self.counts_on(variant, shape, caps, constants)?;
        let stages = variant.stages.iter().map(|stage| Staged {
            entry: stage.entry.to_owned(),
            groups: [(stage.grid)(shape, constants), 1, 1],
            module: main,
            constants: constants.clone(),
            own: None,
        });
        Ok(stages.collect())
    }

    /// The stages that the mapping gives.
    fn mapped_stages(
        &self,
        given: &BTreeMap<String, f64>,
        parameters: &Names,
        faults: &mut Faults,
    ) -> Result<Vec<Staged<'_>>, PlanError> {
        let mut stages = Vec::new();
        for stage in &self.mapping.stage {
            let (module, entry) = (self.module_of(stage), &stage.entry);
            if module.reflection.entry(entry).is_none() {
                let own = module.entries();
                let fault = format!("[[stage]] no entry point `{entry}`; there are {own}");
                faults.add(self.fault_of(module, fault));
                continue;
            }
            let constants = self.constants(module, Some(stage), given, parameters, faults)?;
            let names = parameters.with(&constants);
            let mut groups = [1; 3];
            let list = stage.workgroups.list().ok().filter(|list| (1..=3).contains(&list.len()));
            let Some(list) = list else {
                faults.add(format!(
                    "[[stage]] {entry}: workgroups are a number, an expression, or a list of one to \
                     three"
                ));
                continue;
            };
            for (slot, number) in groups.iter_mut().zip(list) {
                let what = format!("workgroups of {entry}");
                let Some(count) = faults.value(&what, value_of(number, &names)) else { continue };
                match count.floor() {
                    count if (1.0..=f64::from(u32::MAX)).contains(&count) => *slot = count as usize,
                    count => faults.add_here(format!("{count} {what}")),
                }
            }
            let (entry, own) = (entry.clone(), Some(stage));
            stages.push(Staged { entry, groups, module, constants, own });
        }
        Ok(stages)
    }

    /// Whether the kernel has weights of blocks at some shape.
    fn has_blocks(&self) -> bool {
        let mut known = self.kernel.bench().into_iter().chain(self.kernel.cases());
        known.any(|problem| {
            self.kernel.bindings.iter().any(|b| match b.elem(&problem) {
                Elem::Weights(matrix) => !matrix.format.is_dense(),
                _ => false,
            })
        })
    }

    /// The layout of rows that a mapping asks for.
    fn packing(&self, name: &str, faults: &mut Faults) -> Packing {
        let asked = Packing::ALL.iter().find(|p| p.name() == name);
        if asked.is_none() {
            let known: Vec<_> = Packing::ALL.iter().map(|p| p.name()).collect();
            faults.add(format!("no packing `{name}`; there are {}, {TIGHT}", known.join(", ")));
        } else if !self.has_blocks() {
            let kernel = self.kernel.name;
            faults.add(format!("packing = \"{name}\" is of quantised rows, {kernel} has none"));
        }
        asked.copied().unwrap_or(Packing::ALL[0])
    }

    /// The grid of a built-in variant counts on the tunables of that variant's own source.
    fn counts_on(
        &self,
        variant: &'static KernelVariant,
        shape: &Shape,
        caps: &Capabilities,
        constants: &Constants,
    ) -> Result<(), PlanError> {
        let Some(own) = lathe_kernels::reflection(self.kernel.name, variant.name) else {
            let place = format!("{}/{} is not registered", self.kernel.name, variant.name);
            return Err(PlanError::Unavailable(place));
        };
        let its = own.constants(shape.iter().chain(variant.constants(shape, caps)))?;
        for (name, default) in &own.overrides {
            // The grid takes parameters from the shape.
            if !matches!(default, Default::Literal(_)) || self.kernel.param(name).is_some() {
                continue;
            }
            match constants.get(name) {
                Some(v) if fits_grid(*v, its.get(name).copied()) => {}
                Some(v) => return Err(refused(&self.path, format!("override {name} = {v}"))),
                None => {
                    return Err(refused(
                        &self.path,
                        format!(
                            "lacks the override `{name}` of {}/{}, whose grid it would use; give \
                             workgroups in a [[stage]] of {}",
                            self.kernel.name,
                            variant.name,
                            self.path.with_extension("toml").display()
                        ),
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of a variant in that variant's place runs the same: constants, grids, bindings and
    /// what is refused.
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
                let file = UserKernel::read(&path, kernel).expect("the copy");
                for problem in kernel.bench().into_iter().chain(kernel.cases()) {
                    let shape = &problem.shape;
                    let own = Plan::of(kernel, variant, shape, &caps);
                    let copy = file.plan_of_step(variant, shape, &caps);
                    match (own, copy) {
                        (Ok(own), Ok(copy)) => {
                            assert_eq!(own.constants, copy.constants, "{} {shape}", path.display());
                            let stages = |plan: &Plan| format!("{:?}", plan.stages);
                            assert_eq!(stages(&own), stages(&copy), "{} {shape}", path.display());
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
