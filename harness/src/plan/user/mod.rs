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
//!
//! [overrides]
//! TILE = 64
//! ```
//!
//! `packing = "planes"` before all sections asks for quantised rows in that layout.
//!
//! `enable subgroups;` (which Tint requires and naga refuses) is accepted.

mod expression;
mod mapping;
mod takes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lathe_kernels::reflect::{Default, Field, Scalar};
use lathe_kernels::{
    Capabilities, Constants, Kernel, KernelVariant, Packing, ParamKind, Problem, ReflectError,
    Reflection, Role, Shape,
};

use crate::files;
use crate::plan::{Plan, PlanError, PlannedStage, Tolerated, fits_grid};
use expression::{Names, Wrong, evaluate};
use mapping::{Mapping, Number, ToleranceMapping};
use takes::Takes;

/// A user's file with its mapping.
#[derive(Debug)]
pub struct UserKernel {
    path: PathBuf,
    /// With its modules.
    text: String,
    reflection: Arc<Reflection>,
    kernel: &'static Kernel,
    mapping: Mapping,
    takes: Takes,
    tolerated: Option<Tolerated>,
}

fn refused(path: &Path, reason: impl std::fmt::Display) -> PlanError {
    ReflectError::User { path: path.display().to_string(), reason: reason.to_string() }.into()
}

/// Content of uniform buffers, by variable.
type Uniforms = Vec<(String, Vec<u8>)>;

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
        self.here.push(fault);
    }

    /// Those of an expression, as `what`.
    fn value(&mut self, what: &str, value: Result<f64, Wrong>) -> Option<f64> {
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

/// Whether an argument names a WGSL file and not a variant.
pub fn is_file(text: &str) -> bool {
    Path::new(text).extension().is_some_and(|e| e == "wgsl")
}

/// The text of a file with its modules, and what naga says of it.
pub fn reflected(path: &Path) -> Result<(String, Reflection), PlanError> {
    let text = files::read_text(path, files::TEXT).map_err(|e| refused(path, e))?;
    // The directive, which naga refuses, goes; its line stays.
    let lines = text.lines().map(|line| if line.trim() == "enable subgroups;" { "" } else { line });
    Plan::reflect(&lines.collect::<Vec<_>>().join("\n"), &path.display().to_string())
}

impl UserKernel {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads `path` and the TOML file beside it, if there is one.
    pub fn read(path: &Path, kernel: &'static Kernel) -> Result<Self, PlanError> {
        let (text, reflection) = reflected(path)?;
        let beside = path.with_extension("toml");
        let mapping: Mapping = match files::read_text(&beside, files::TEXT) {
            Ok(text) => toml::from_str(&text).map_err(|e| refused(&beside, e))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Mapping::default(),
            Err(e) => return Err(refused(&beside, e)),
        };
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
        faults.end(&beside)?;
        let (path, reflection) = (path.to_owned(), Arc::new(reflection));
        Ok(Self { path, text, reflection, kernel, mapping, takes, tolerated })
    }

    /// Whether its mapping says which shapes it takes.
    pub fn is_choosy(&self) -> bool {
        !self.takes.is_empty()
    }

    /// Whether its mapping has a tolerance.
    pub fn has_tolerance(&self) -> bool {
        self.tolerated.is_some()
    }

    /// The nearest problem within what it takes of each parameter; none where a condition fails all
    /// the same. `pick(n)` draws a number below `n`.
    pub fn within(
        &self,
        mut problem: Problem,
        caps: &Capabilities,
        pick: &mut dyn FnMut(u32) -> u32,
    ) -> Option<Problem> {
        self.takes.fit(&mut problem, pick);
        let refusal = self.takes.refuses(&problem.shape, &self.names(&problem.shape, caps));
        // What is wrong with a condition is said when it is planned.
        refusal.map_or(true, |refusal| refusal.is_none()).then_some(problem)
    }

    /// What expressions may name: parameters, and without being listed in errors their names of
    /// before, the alternatives of choices and what the adapter has.
    fn names(&self, shape: &Shape, caps: &Capabilities) -> Names {
        let mut names = Names::default();
        for (name, value) in shape.iter() {
            names.add(name, value);
        }
        for (name, value) in self.kernel.values_before(shape) {
            names.add_quietly(name, value);
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

    /// Specialises the file for a shape, with the stages of `variant` where no mapping gives any.
    pub fn plan(
        &self,
        variant: &'static KernelVariant,
        shape: &Shape,
        caps: &Capabilities,
    ) -> Result<Plan, PlanError> {
        let (mapping, reflection) = (&self.mapping, &self.reflection);
        let parameters = self.names(shape, caps);
        if let Some(reason) =
            self.takes.refuses(shape, &parameters).map_err(|why| refused(&self.path, why))?
        {
            return Err(PlanError::Unavailable(reason));
        }
        let mut faults = Faults::default();
        let constants = self.constants(variant, shape, caps, &parameters, &mut faults)?;
        let mut names = parameters;
        for (name, value) in &constants {
            names.add(name, *value);
        }
        let stages = match mapping.stage.as_slice() {
            [] => self.stages_of(variant, shape, caps, &constants, &mut faults)?,
            _ => self.mapped_stages(&names, &mut faults),
        };
        let (bindings, uniforms) = self.bound(&stages, &names, &mut faults);
        let packing = match &mapping.packing {
            None => self.kernel.packing(variant.packing, shape),
            Some(name) => self.packing(name, shape, &mut faults),
        };
        faults.end(&self.path)?;
        let mut plan = Plan {
            kernel: self.kernel,
            variant: self.path.display().to_string(),
            trusted: false,
            text: self.text.clone().into(),
            reflection: Arc::clone(reflection),
            constants,
            stages: Vec::new(),
            packing,
            declared: variant,
            bindings,
            uniforms,
            tolerated: self.tolerated,
            lenient: false,
        };
        for (entry, groups) in stages {
            if groups[0] == 0 {
                continue;
            }
            // Array lengths and the like, which follow from constants.
            plan.check_stage(&entry, caps).map_err(|e| match e {
                PlanError::Reflect(ReflectError::Constants(reason)) => refused(&self.path, reason),
                other => other,
            })?;
            let limit = caps.grid_dimension as usize;
            let groups = match groups {
                [x, 1, 1] => plan.fold(&entry, x, caps)?,
                [x, y, z] if x.max(y).max(z) <= limit => [x as u32, y as u32, z as u32],
                _ => {
                    let reason = "needs more workgroups than a grid holds";
                    return Err(PlanError::Unavailable(reason.into()));
                }
            };
            plan.stages.push(PlannedStage { entry, groups });
        }
        Ok(plan)
    }

    /// The value of a number in the mapping.
    fn value(&self, number: &Number, names: &Names) -> Result<f64, Wrong> {
        let shown = |text: &str, why: String| format!("`{text}`: {why}");
        match number {
            Number::Literal(value) => Ok(*value),
            Number::Expression(text) => evaluate(text, names).map_err(|wrong| match wrong {
                Wrong::Text(why) => Wrong::Text(shown(text, why)),
                Wrong::Value(why) => Wrong::Value(shown(text, why)),
            }),
        }
    }

    /// Values of its overrides: the shape's, the variant's, and over them the mapping's.
    fn constants(
        &self,
        variant: &'static KernelVariant,
        shape: &Shape,
        caps: &Capabilities,
        names: &Names,
        faults: &mut Faults,
    ) -> Result<Constants, PlanError> {
        let before = self.kernel.values_before(shape);
        let all = before.chain(shape.iter()).chain(variant.constants(shape, caps));
        let mut given: BTreeMap<String, f64> = all.map(|(n, v)| (n.to_owned(), v)).collect();
        for (name, number) in &self.mapping.overrides {
            if !self.reflection.has_override(name) {
                faults.add(format!("has no override `{name}`"));
                continue;
            }
            let value = faults.value(&format!("override {name}"), self.value(number, names));
            given.insert(name.clone(), value.unwrap_or(1.0));
        }
        for (name, default) in &self.reflection.overrides {
            if *default == Default::Required && !given.contains_key(name) {
                faults.add(format!("override `{name}` has no value; give it in [overrides]"));
                given.insert(name.clone(), 1.0);
            }
        }
        Ok(self.reflection.constants(given.iter().map(|(n, v)| (n.as_str(), *v)))?)
    }

    /// The stages of a built-in variant: the file has its grid, and with that what it takes.
    fn stages_of(
        &self,
        variant: &'static KernelVariant,
        shape: &Shape,
        caps: &Capabilities,
        constants: &Constants,
        faults: &mut Faults,
    ) -> Result<Vec<(String, [usize; 3])>, PlanError> {
        if let Some(reason) = variant.unsupported(shape, caps) {
            return Err(PlanError::Unavailable(reason));
        }
        let missing = variant.stages.iter().filter(|s| self.reflection.entry(s.entry).is_none());
        let missing: Vec<_> = missing.map(|stage| stage.entry).collect();
        for entry in &missing {
            let own = self.entries();
            faults.add(format!(
                "has no entry point `{entry}`; it has {own}: map yours in a [[stage]]"
            ));
        }
        if !missing.is_empty() {
            return Ok(Vec::new());
        }
        self.counts_on(variant, shape, caps, constants)?;
        let stages = variant.stages.iter();
        Ok(stages.map(|s| (s.entry.to_owned(), [s.grid(shape, constants), 1, 1])).collect())
    }

    /// Its entry points in a few words.
    fn entries(&self) -> String {
        let names: Vec<_> =
            self.reflection.entries.iter().map(|e| format!("`{}`", e.name)).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }

    /// The stages that the mapping gives.
    fn mapped_stages(&self, names: &Names, faults: &mut Faults) -> Vec<(String, [usize; 3])> {
        let mut stages = Vec::new();
        for stage in &self.mapping.stage {
            if self.reflection.entry(&stage.entry).is_none() {
                let own = self.entries();
                faults.add(format!("[[stage]] no entry point `{}`; there are {own}", stage.entry));
                continue;
            }
            let (mut groups, list) = ([1; 3], stage.workgroups.list());
            if list.is_empty() || list.len() > 3 {
                faults.add(format!("[[stage]] {}: one to three workgroups", stage.entry));
                continue;
            }
            for (slot, number) in groups.iter_mut().zip(list) {
                let what = format!("workgroups of {}", stage.entry);
                let Some(count) = faults.value(&what, self.value(number, names)) else { continue };
                match count.floor() {
                    count if (1.0..=f64::from(u32::MAX)).contains(&count) => *slot = count as usize,
                    count => faults.add_here(format!("{count} {what}")),
                }
            }
            stages.push((stage.entry.clone(), groups));
        }
        stages
    }

    /// What the buffers are that its stages use: our binding of each, and the content of uniforms.
    fn bound(
        &self,
        stages: &[(String, [usize; 3])],
        names: &Names,
        faults: &mut Faults,
    ) -> (BTreeMap<String, String>, Uniforms) {
        let (mapping, reflection) = (&self.mapping, &self.reflection);
        let entries = || stages.iter().filter_map(|(entry, _)| reflection.entry(entry));
        let used: BTreeSet<usize> = entries().flat_map(|e| e.buffers.iter().copied()).collect();
        let written: BTreeSet<usize> = entries().flat_map(|e| e.writes.iter().copied()).collect();
        let known: Vec<_> = self.kernel.bindings.iter().map(|b| b.name).collect();
        let known = known.join(", ");
        let (mut bindings, mut uniforms) = (BTreeMap::new(), Vec::new());
        for &index in &used {
            let buffer = &reflection.buffers[index];
            let name = &buffer.name;
            if buffer.group != 0 {
                faults
                    .add(format!("`{name}` is in @group({}); only group 0 is bound", buffer.group));
                continue;
            }
            if let Some(fields) = &buffer.uniform {
                match mapping.uniforms.get(name) {
                    Some(given) => {
                        let bytes = self.pack((name, fields), given, names, faults);
                        uniforms.push((name.clone(), bytes));
                    }
                    None => {
                        faults.add(format!("uniform `{name}` needs a section [uniforms.{name}]"));
                    }
                }
                continue;
            }
            if mapping.uniforms.contains_key(name) {
                faults.add(format!("[uniforms.{name}] names a storage buffer"));
            }
            let mapped = mapping.bindings.get(name);
            let ours = mapped.unwrap_or(name);
            let Some(binding) = self.kernel.binding(ours) else {
                let kernel = self.kernel.name;
                faults.add(match mapped {
                    Some(_) => format!(
                        "buffer `{name}` is mapped to `{ours}`, which is no binding of {kernel}; it \
                         has {known}"
                    ),
                    None => format!(
                        "buffer `{name}` is no binding of {kernel}; map it in [bindings] to one of \
                         {known}"
                    ),
                });
                continue;
            };
            if written.contains(&index) && binding.role == Role::Input {
                faults.add(format!("writes `{name}`, which is the input {ours}"));
            }
            let twice = bindings.iter().find(|(_, known)| *known == ours).map(|(name, _)| name);
            if let Some(other) = twice {
                let declared = |name: &String| {
                    reflection.buffers.iter().any(|b| b.name == *name && b.writable)
                };
                if buffer.writable || declared(other) {
                    faults.add(format!(
                        "`{other}` and `{name}` are both {ours}: memory that is declared \
                         `read_write` can be bound once"
                    ));
                }
            }
            bindings.insert(name.clone(), ours.clone());
        }
        let lacks = |name: &&String| !reflection.buffers.iter().any(|b| b.name == **name);
        for name in mapping.bindings.keys().chain(mapping.uniforms.keys()).filter(lacks) {
            faults.add(format!("the mapping names `{name}`, which it lacks"));
        }
        // Without stages nothing is used, and that is the fault.
        if !stages.is_empty() {
            for b in self.kernel.bindings.iter().filter(|b| b.role == Role::Output) {
                if !bindings.values().any(|ours| ours == b.name) {
                    faults.add(format!("nothing is bound to output `{}`", b.name));
                }
            }
        }
        (bindings, uniforms)
    }

    /// The layout a mapping asks for, where quantised rows leave a choice.
    fn packing(&self, name: &str, shape: &Shape, faults: &mut Faults) -> Packing {
        let asked = Packing::ALL.iter().find(|p| p.name() == name);
        if asked.is_none() {
            let known: Vec<_> = Packing::ALL.iter().map(|p| p.name()).collect();
            faults.add(format!("no packing `{name}`; there are {}", known.join(", ")));
        }
        self.kernel.packing(asked.copied().unwrap_or(Packing::ALL[0]), shape)
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

    /// Content of a uniform buffer.
    fn pack(
        &self,
        (name, fields): (&str, &[Field]),
        given: &BTreeMap<String, Number>,
        names: &Names,
        faults: &mut Faults,
    ) -> Vec<u8> {
        for field in given.keys().filter(|n| !fields.iter().any(|f| f.name == **n)) {
            faults.add(format!("uniform `{name}` has no field `{field}`"));
        }
        let mut bytes = Vec::new();
        for field in fields {
            let what = format!("uniform field `{}`", field.name);
            let Some(number) = given.get(&field.name) else {
                faults.add(format!("{what} has no value"));
                continue;
            };
            let Some(number) = faults.value(&what, self.value(number, names)) else { continue };
            let fits = match field.scalar {
                Scalar::U32 => number.fract() == 0.0 && (0.0..=4_294_967_295.0).contains(&number),
                Scalar::I32 => {
                    number.fract() == 0.0 && (-2_147_483_648.0..=2_147_483_647.0).contains(&number)
                }
                Scalar::F32 => (number as f32).is_finite(),
            };
            if !fits {
                faults.add_here(format!("{what} cannot hold {number}"));
                continue;
            }
            let word = match field.scalar {
                Scalar::U32 => (number as u32).to_le_bytes(),
                Scalar::I32 => (number as i32).to_le_bytes(),
                Scalar::F32 => (number as f32).to_le_bytes(),
            };
            let end = field.offset as usize + 4;
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[end - 4..end].copy_from_slice(&word);
        }
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        bytes
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
            for variant in &kernel.variants {
                let source = lathe_kernels::source(kernel.name, variant.name).expect("its source");
                let path = folder.path().join(format!("{}-{}.wgsl", kernel.name, variant.name));
                std::fs::write(&path, source.text).expect("a copy");
                let file = UserKernel::read(&path, kernel).expect("the copy");
                for problem in kernel.bench().into_iter().chain(kernel.cases()) {
                    let shape = &problem.shape;
                    let own = Plan::of(kernel, variant, shape, &caps);
                    let copy = file.plan(variant, shape, &caps);
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

    #[test]
    fn a_file_of_before_keeps_its_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("before.wgsl");
        let kernel = lathe_kernels::kernel("gemv").expect("gemv");
        let text = lathe_kernels::source("gemv", "naive").expect("its source").text;
        let text = text.replace("N_VECTORS", "COLS").replace("ACT_FORMAT", "ACTS");
        std::fs::write(&path, &text).expect("a file");
        let mapping = "[overrides]\nROWS = \"ROWS * COLS\"\n";
        std::fs::write(path.with_extension("toml"), mapping).expect("its mapping");
        let file = UserKernel::read(&path, kernel).expect("the file");
        let problem = kernel.parse_over(&kernel.default_problem(), "N_VECTORS=3,ROWS=5");
        let shape = problem.expect("a shape").shape;
        let plan = file.plan(&kernel.variants[0], &shape, &Capabilities::minimal());
        let constants = plan.expect("a plan").constants;
        assert_eq!([constants["COLS"], constants["ROWS"]], [3.0, 15.0]);
    }
}
