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
//! `enable subgroups;` (which Tint requires and naga refuses) is accepted.

mod bind;
mod expression;
mod mapping;
mod takes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bind::Bound;
use expression::{Names, Wrong, evaluate};
use lathe_kernels::reflect::Default;
use lathe_kernels::{
    Capabilities, Constants, Kernel, KernelVariant, ParamKind, Problem, ReflectError, Reflection,
    Shape, State,
};
use lathe_record::files;
use mapping::{BoundTo, Content, Mapping, Number, Numbers, ToleranceMapping};
use takes::Takes;

use crate::plan::{Foreign, Plan, PlanError, PlannedStage, StageCode, Tolerated, fits_grid};

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
    /// Sections of the mapping for the whole file.
    all: Sections,
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
    /// The text with its imports.
    text: Arc<str>,
    reflection: Arc<Reflection>,
}

/// Meanings of the variables of a text.
#[derive(Clone, Debug, Default)]
struct Sections {
    bindings: BTreeMap<String, BoundTo>,
    uniforms: BTreeMap<String, Content>,
    overrides: BTreeMap<String, Number>,
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
    /// True if it runs the mapping's own file with the mapping's own sections.
    is_plain: bool,
}

/// A stage at one shape.
struct Staged<'a> {
    stage: &'a Stage,
    constants: Constants,
    groups: [usize; 3],
    bindings: BTreeMap<String, String>,
}

fn refused(path: &Path, reason: impl std::fmt::Display) -> PlanError {
    ReflectError::User { path: path.display().to_string(), reason: reason.to_string() }.into()
}

/// Faults of a file, to be reported all at once; true marks those of the current shape alone.
#[derive(Clone, Debug, Default)]
struct Faults(Vec<(bool, String)>);

impl Faults {
    /// Adds a fault at every shape.
    fn add(&mut self, fault: String) {
        self.push((false, fault));
    }

    /// Adds a fault at this shape.
    fn add_here(&mut self, fault: String) {
        self.push((true, fault));
    }

    fn push(&mut self, fault: (bool, String)) {
        if !self.0.contains(&fault) {
            self.0.push(fault);
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
        let is_here = self.0.iter().all(|(is_here, _)| *is_here);
        let faults = self.0.iter().filter(|(here, _)| *here == is_here);
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
    // The directive, which naga refuses, goes; its line stays.
    let lines = text.lines().map(|line| if line.trim() == "enable subgroups;" { "" } else { line });
    Plan::reflect(&lines.collect::<Vec<_>>().join("\n"), &path.display().to_string())
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
        Ok(Self { path, text: text.into(), reflection: Arc::new(reflection) })
    }

    /// Its entry points in a few words.
    fn entries(&self) -> String {
        let entries = self.reflection.entries.iter();
        let names: Vec<_> = entries.map(|e| format!("`{}`", e.name)).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }
}

impl Sections {
    /// These sections, overridden by others.
    fn and(&self, over: &Self) -> Self {
        let mut all = self.clone();
        all.bindings.extend(over.bindings.clone());
        all.uniforms.extend(over.uniforms.clone());
        all.overrides.extend(over.overrides.clone());
        all
    }

    fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.uniforms.is_empty() && self.overrides.is_empty()
    }

    /// Reports names that none of these texts has.
    fn check(&self, modules: &[&Module], prefix: &str, faults: &mut Faults) {
        let any = |has: &dyn Fn(&Reflection) -> bool| modules.iter().any(|m| has(&m.reflection));
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
        let Mapping { stage: stages, bindings, uniforms, overrides, scratch, .. } = mapping;
        let mut file = Self {
            path: path.to_owned(),
            kernel,
            variant,
            modules: vec![Module::read(main)?],
            all: Sections { bindings, uniforms, overrides },
            stages: Vec::new(),
            scratch,
            tight,
            takes,
            tolerated,
            faults,
        };
        let is_mapped = !stages.is_empty();
        for stage in stages {
            file.add_stage(stage)?;
        }
        let modules: Vec<_> = file.modules.iter().collect();
        file.all.check(&modules, "", &mut file.faults);
        if !is_mapped {
            file.take_place();
        }
        Ok(file)
    }

    /// Adds a stage of the mapping, with its file.
    fn add_stage(&mut self, stage: mapping::StageMapping) -> Result<(), PlanError> {
        let mapping::StageMapping { file, entry, workgroups, bindings, uniforms, overrides } =
            stage;
        let mut module = 0;
        if let Some(file) = &file {
            let path = self.path.with_file_name(file);
            module = match self.modules.iter().position(|module| module.path == path) {
                Some(known) => known,
                None => {
                    self.modules.push(Module::read(path)?);
                    self.modules.len() - 1
                }
            };
        }
        let own = Sections { bindings, uniforms, overrides };
        let text = &self.modules[module];
        if text.reflection.entry(&entry).is_none() {
            let (path, known) = (text.path.display(), text.entries());
            self.faults.add(format!("{path}: no entry point `{entry}`; there are {known}"));
            return Ok(());
        }
        let count = workgroups.list().len();
        if !(1..=3).contains(&count) {
            self.faults.add(format!("[[stage]] {entry}: {count} workgroups, not one to three"));
        }
        let prefix = format!("{}: [[stage]] {entry}: ", text.path.display());
        own.check(&[text], &prefix, &mut self.faults);
        self.stages.push(Stage {
            entry,
            module,
            workgroups: Some(workgroups),
            is_plain: file.is_none() && own.is_empty(),
            sections: self.all.and(&own),
        });
        Ok(())
    }

    /// Adopts the stages of the variant.
    fn take_place(&mut self) {
        let main = &self.modules[0];
        for stage in self.variant.stages {
            if main.reflection.entry(stage.entry).is_none() {
                let (entry, own) = (stage.entry, main.entries());
                self.faults.add(format!(
                    "has no entry point `{entry}`; it has {own}: map yours in a [[stage]]"
                ));
                continue;
            }
            self.stages.push(Stage {
                entry: stage.entry.to_owned(),
                module: 0,
                workgroups: None,
                sections: self.all.clone(),
                is_plain: true,
            });
        }
    }

    /// Returns true if its mapping restricts the shapes.
    pub(super) fn is_choosy(&self) -> bool {
        !self.takes.is_empty()
    }

    /// See [`Subject::fitted`](crate::plan::Subject::fitted).
    pub(super) fn fitted(&self, mut problem: Problem, pick: &mut dyn FnMut(u32) -> u32) -> Problem {
        self.takes.fit(&mut problem, pick);
        problem
    }

    /// See [`Subject::within`](crate::plan::Subject::within).
    pub(super) fn within(
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
        let (main, variant) = (&self.modules[0], self.variant);
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
        // Overrides get these by their names.
        let given = shape.iter().chain(variant.constants(shape, caps));
        let given: BTreeMap<String, f64> = given.map(|(n, v)| (n.to_owned(), v)).collect();
        let constants = self.constants(main, &self.all, &given, &parameters, &mut faults)?;
        if is_in_place {
            self.counts_on(shape, caps, &constants)?;
        }
        let mut bound = Bound::new(self, shape, variant, &parameters, &mut faults);
        let mut staged = Vec::new();
        for stage in &self.stages {
            let (module, sections) = (&self.modules[stage.module], &stage.sections);
            let constants = self.constants(module, sections, &given, &parameters, &mut faults)?;
            let names = parameters.with(&constants);
            let groups = self.groups(stage, shape, &constants, &names, &mut faults);
            let bindings = bound.bind(stage, &names, &mut faults);
            staged.push(Staged { stage, constants, groups, bindings });
        }
        bound.check(&staged, &mut faults);
        faults.end(&self.path)?;
        if let Some((name, bytes)) =
            bound.scratch.iter().find(|(_, bytes)| *bytes > caps.binding_bytes)
        {
            let most = caps.binding_bytes;
            return Err(PlanError::Unavailable(format!(
                "{name} needs {bytes} bytes, the largest binding is {most}"
            )));
        }
        let plain = staged.iter().filter(|staged| staged.stage.is_plain);
        let foreign = Foreign {
            bindings: plain.flat_map(|staged| staged.bindings.clone()).collect(),
            uniforms: bound.uniforms,
            scratch: bound.scratch,
            parts: bound.parts,
            kv_orders: bound.kv_orders,
            tolerated: self.tolerated,
        };
        let mut plan = Plan {
            kernel: self.kernel,
            variant: self.path.display().to_string(),
            built_in: false,
            text: main.text.to_string().into(),
            reflection: Arc::clone(&main.reflection),
            constants,
            stages: Vec::new(),
            packing: bound.packing,
            declared: variant,
            is_tuned: false,
            foreign: Some(Arc::new(foreign)),
        };
        for Staged { stage, constants, groups, bindings } in staged {
            if groups[0] == 0 {
                continue;
            }
            let module = &self.modules[stage.module];
            let (text, reflection) = (Arc::clone(&module.text), Arc::clone(&module.reflection));
            let own = StageCode { text, reflection, constants, bindings };
            let code = (!stage.is_plain).then(|| Arc::new(own));
            let stage = PlannedStage { entry: stage.entry.clone(), groups: [0; 3], code };
            // Array lengths and the like, which follow from constants.
            plan.check_stage(&stage, caps).map_err(|e| match e {
                PlanError::Reflect(ReflectError::Constants(why)) => refused(&module.path, why),
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

    /// A fault of a file, with the file's name if there are several.
    fn fault_of(&self, module: &Module, fault: String) -> String {
        match self.modules.len() {
            1 => fault,
            _ => format!("{}: {fault}", module.path.display()),
        }
    }

    /// Values of a file's overrides: those given, overridden by those of sections.
    fn constants(
        &self,
        module: &Module,
        sections: &Sections,
        given: &BTreeMap<String, f64>,
        names: &Names,
        faults: &mut Faults,
    ) -> Result<Constants, PlanError> {
        let (mut given, reflection) = (given.clone(), &module.reflection);
        for (name, number) in &sections.overrides {
            if reflection.has_override(name) {
                let what = self.fault_of(module, format!("override {name}"));
                let value = faults.value(&what, value_of(number, names));
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

    /// Workgroups of a stage.
    fn groups(
        &self,
        stage: &Stage,
        shape: &Shape,
        constants: &Constants,
        names: &Names,
        faults: &mut Faults,
    ) -> [usize; 3] {
        let mut groups = [1; 3];
        let Some(numbers) = &stage.workgroups else {
            let own = self.variant.stages.iter().find(|own| own.entry == stage.entry);
            groups[0] = own.map_or(1, |own| (own.grid)(shape, constants));
            return groups;
        };
        for (slot, number) in groups.iter_mut().zip(numbers.list()) {
            let what = format!("workgroups of {}", stage.entry);
            let Some(count) = faults.value(&what, value_of(number, names)) else { continue };
            match count.floor() {
                count if (1.0..=f64::from(u32::MAX)).contains(&count) => *slot = count as usize,
                count => faults.add_here(format!("{count} {what}")),
            }
        }
        groups
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
    use crate::plan::Subject;

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
