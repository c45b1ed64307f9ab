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

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lathe_kernels::reflect::{Default, Field, Scalar};
use lathe_kernels::{
    Capabilities, Constants, Kernel, KernelVariant, Packing, ReflectError, Reflection, Role, Shape,
};
use serde::Deserialize;

use crate::files;
use crate::plan::{Plan, PlanError, PlannedStage, fits_grid};

/// A user's file with its mapping.
#[derive(Debug)]
pub struct UserKernel {
    path: PathBuf,
    /// With its modules.
    text: String,
    reflection: Arc<Reflection>,
    kernel: &'static Kernel,
    mapping: Option<Mapping>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mapping {
    packing: Option<String>,
    #[serde(default)]
    stage: Vec<StageMapping>,
    #[serde(default)]
    bindings: BTreeMap<String, String>,
    #[serde(default)]
    uniforms: BTreeMap<String, BTreeMap<String, Number>>,
    #[serde(default)]
    overrides: BTreeMap<String, Number>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StageMapping {
    entry: String,
    workgroups: Vec<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Number {
    Literal(f64),
    Expression(String),
}

fn refused(path: &Path, reason: impl std::fmt::Display) -> PlanError {
    ReflectError::User { path: path.display().to_string(), reason: reason.to_string() }.into()
}

/// Whether an argument names a WGSL file and not a variant.
pub fn is_file(text: &str) -> bool {
    Path::new(text).extension().is_some_and(|e| e == "wgsl")
}

impl UserKernel {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads `path` and the TOML file beside it, if there is one.
    pub fn read(path: &Path, kernel: &'static Kernel) -> Result<Self, PlanError> {
        let text = files::read_text(path, files::TEXT).map_err(|e| refused(path, e))?;
        let beside = path.with_extension("toml");
        let mapping = match files::read_text(&beside, files::TEXT) {
            Ok(text) => Some(toml::from_str(&text).map_err(|e| refused(&beside, e))?),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(refused(&beside, e)),
        };
        // The directive goes, its line stays.
        let text = text
            .lines()
            .map(|line| if line.trim() == "enable subgroups;" { "" } else { line })
            .collect::<Vec<_>>()
            .join("\n");
        let (text, reflection) = Plan::reflect(&text, &path.display().to_string())?;
        Ok(Self { path: path.to_owned(), text, reflection: Arc::new(reflection), kernel, mapping })
    }

    /// Specialises the file for a shape, with the stages of `variant` where no mapping gives any.
    pub fn plan(
        &self,
        variant: &'static KernelVariant,
        shape: &Shape,
        caps: &Capabilities,
    ) -> Result<Plan, PlanError> {
        let shown = self.path.display().to_string();
        let no_mapping = Mapping::default();
        let mapping = self.mapping.as_ref().unwrap_or(&no_mapping);
        let reflection = &self.reflection;
        let parameters: BTreeMap<String, f64> =
            shape.iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let value = |number: &Number, names: &BTreeMap<String, f64>| match number {
            Number::Literal(value) => Ok(*value),
            Number::Expression(text) => expression::evaluate(text, names)
                .or_else(|error| {
                    let before = self.kernel.values_before(shape);
                    let mut all: BTreeMap<_, _> = before.map(|(n, v)| (n.to_owned(), v)).collect();
                    all.extend(names.clone());
                    expression::evaluate(text, &all).map_err(|_| error)
                })
                .map_err(|e| refused(&self.path, format!("`{text}`: {e}"))),
        };

        let mut given: BTreeMap<String, f64> =
            self.kernel.values_before(shape).map(|(n, v)| (n.to_owned(), v)).collect();
        given.extend(parameters.clone());
        for (name, constant) in variant.constants(shape, caps) {
            given.insert(name.to_owned(), constant);
        }
        for (name, number) in &mapping.overrides {
            if !reflection.has_override(name) {
                return Err(refused(&self.path, format!("has no override `{name}`")));
            }
            given.insert(name.clone(), value(number, &parameters)?);
        }
        let constants = reflection.constants(given.iter().map(|(n, v)| (n.as_str(), *v)))?;
        let mut names = parameters.clone();
        names.extend(constants.iter().map(|(n, v)| (n.clone(), *v)));

        let stages = if mapping.stage.is_empty() {
            // It has the variant's grid, and with that what the variant takes.
            if let Some(reason) = variant.unsupported(shape, caps) {
                return Err(PlanError::Unavailable(reason));
            }
            variant
                .stages
                .iter()
                .map(|stage| {
                    if reflection.entry(stage.entry).is_none() {
                        return Err(refused(
                            &self.path,
                            format!(
                                "has no entry point `{}`; map yours in a [[stage]]",
                                stage.entry
                            ),
                        ));
                    }
                    self.counts_on(variant, shape, caps, &constants)?;
                    Ok((stage.entry.to_owned(), [stage.grid(shape, &constants), 1, 1]))
                })
                .collect::<Result<Vec<_>, _>>()?
        } else {
            let mut stages = Vec::new();
            for stage in &mapping.stage {
                let mut groups = [1; 3];
                if stage.workgroups.is_empty() || stage.workgroups.len() > 3 {
                    return Err(refused(&self.path, "workgroups needs one to three numbers"));
                }
                for (slot, number) in groups.iter_mut().zip(&stage.workgroups) {
                    let count = value(number, &names)?.floor();
                    if !(1.0..=f64::from(u32::MAX)).contains(&count) {
                        return Err(refused(&self.path, format!("{count} workgroups")));
                    }
                    *slot = count as usize;
                }
                stages.push((stage.entry.clone(), groups));
            }
            stages
        };

        let mut bindings = BTreeMap::new();
        let mut uniforms = Vec::new();
        for buffer in &reflection.buffers {
            if let Some(fields) = &buffer.uniform {
                let given = mapping.uniforms.get(&buffer.name).ok_or_else(|| {
                    refused(
                        &self.path,
                        format!("uniform `{0}` needs a section [uniforms.{0}]", buffer.name),
                    )
                })?;
                uniforms
                    .push((buffer.name.clone(), self.pack(fields, given, |n| value(n, &names))?));
                continue;
            }
            let ours = mapping.bindings.get(&buffer.name).unwrap_or(&buffer.name);
            if self.kernel.binding(ours).is_none() {
                let known: Vec<_> = self.kernel.bindings.iter().map(|b| b.name).collect();
                return Err(refused(
                    &self.path,
                    format!(
                        "buffer `{}` is no binding of {}; map it in [bindings] to one of {}",
                        buffer.name,
                        self.kernel.name,
                        known.join(", ")
                    ),
                ));
            }
            let role = self.kernel.binding(ours).map(|b| b.role);
            if buffer.writable && role == Some(Role::Input) {
                return Err(refused(
                    &self.path,
                    format!("`{}` is an input and must be declared `read`", buffer.name),
                ));
            }
            let twice = bindings.iter().find(|(_, known)| *known == ours).map(|(name, _)| name);
            if let Some(other) = twice {
                let is_written = |name: &String| {
                    reflection.buffers.iter().any(|b| b.name == *name && b.writable)
                };
                if buffer.writable || is_written(other) {
                    let name = &buffer.name;
                    let reason = format!(
                        "`{other}` and `{name}` are both {ours}: memory that is written can be \
                         bound once"
                    );
                    return Err(refused(&self.path, reason));
                }
            }
            bindings.insert(buffer.name.clone(), ours.clone());
        }
        let variables = || reflection.buffers.iter().map(|b| &b.name);
        let mapped = mapping.bindings.keys().chain(mapping.uniforms.keys());
        if let Some(name) = mapped.into_iter().find(|n| !variables().any(|v| v == *n)) {
            return Err(refused(&self.path, format!("the mapping names `{name}`, which it lacks")));
        }
        for b in self.kernel.bindings.iter().filter(|b| b.role == Role::Output) {
            if !bindings.values().any(|ours| ours == b.name) {
                return Err(refused(
                    &self.path,
                    format!("nothing is bound to output `{}`", b.name),
                ));
            }
        }
        let packing = match &mapping.packing {
            None => self.kernel.packing(variant.packing, shape),
            Some(name) => self.packing(name, shape)?,
        };
        let mut plan = Plan {
            kernel: self.kernel,
            variant: shown,
            trusted: false,
            text: self.text.clone().into(),
            reflection: Arc::clone(reflection),
            constants,
            stages: Vec::new(),
            packing,
            declared: variant,
            bindings,
            uniforms,
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

    /// The layout a mapping asks for, where quantised rows leave a choice.
    fn packing(&self, name: &str, shape: &Shape) -> Result<Packing, PlanError> {
        let asked = Packing::ALL.iter().find(|p| p.name() == name).ok_or_else(|| {
            let known: Vec<_> = Packing::ALL.iter().map(|p| p.name()).collect();
            let known = known.join(", ");
            refused(&self.path, format!("no packing `{name}`; there are {known}"))
        })?;
        Ok(self.kernel.packing(*asked, shape))
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

    fn pack(
        &self,
        fields: &[Field],
        given: &BTreeMap<String, Number>,
        value: impl Fn(&Number) -> Result<f64, PlanError>,
    ) -> Result<Vec<u8>, PlanError> {
        if let Some(name) = given.keys().find(|n| !fields.iter().any(|f| f.name == **n)) {
            return Err(refused(&self.path, format!("the uniform has no field `{name}`")));
        }
        let mut bytes = Vec::new();
        for field in fields {
            let number = given.get(&field.name).ok_or_else(|| {
                refused(&self.path, format!("uniform field `{}` has no value", field.name))
            })?;
            let number = value(number)?;
            let fits = match field.scalar {
                Scalar::U32 => number.fract() == 0.0 && (0.0..=4_294_967_295.0).contains(&number),
                Scalar::I32 => {
                    number.fract() == 0.0 && (-2_147_483_648.0..=2_147_483_647.0).contains(&number)
                }
                Scalar::F32 => (number as f32).is_finite(),
            };
            if !fits {
                return Err(refused(
                    &self.path,
                    format!("uniform field `{}` cannot hold {number}", field.name),
                ));
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
        Ok(bytes)
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
