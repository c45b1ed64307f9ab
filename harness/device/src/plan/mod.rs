//! Work of a device as plain data: a variant specialised for a shape ([`Plan`]), the choice of that
//! variant ([`select`]), and operations over tensors ([`recording`]). The GPU executor turns it
//! into pipelines and buffers.

pub mod backend_text;
pub mod layout;
pub mod limits;
pub mod memory;
pub mod recording;
pub mod run;
pub mod select;
pub mod shapes;
mod subject;
pub mod target;
pub mod tuned;
pub mod user;
pub mod weights;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use lathe_kernels::{
    Capabilities, Constants, Kernel, KernelVariant, Packing, Problem, ReflectError, Reflection,
    Shape, Tolerance,
};
use layout::{KvOrder, WeightPart};

use crate::error::Error;

pub use subject::Subject;

/// One variant, specialised for one shape on one adapter.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// Variant name, or the file of a user's own WGSL.
    pub variant: String,
    /// WGSL handed to the device.
    pub text: Cow<'static, str>,
    /// True if the text is a built-in variant's: the sweeps have proven its indexing, so it may run
    /// without wgpu's checks. Any other text, a file's or a registered one, does so only if the
    /// user vouches for it.
    pub built_in: bool,
    /// Properties that naga finds in it.
    pub reflection: Arc<Reflection>,
    /// Values of all overrides.
    pub constants: Constants,
    /// Dispatches, in order.
    pub stages: Vec<PlannedStage>,
    /// Layout of quantised weight rows that it reads.
    pub packing: Packing,
    /// The built-in variant that the stages, or at least the tolerance, come from.
    pub declared: &'static KernelVariant,
    /// True for a stored choice of `lathe tune`.
    pub is_tuned: bool,
    /// Properties that only a user's file has; see [`Plan::foreign`].
    foreign: Option<Arc<Foreign>>,
}

/// Properties of a plan that only a user's file has, most of them from its mapping.
#[derive(Clone, Debug, Default)]
pub struct Foreign {
    /// The kernel's name of each WGSL variable that is named differently.
    pub bindings: BTreeMap<String, String>,
    /// Content of uniform buffers, by name.
    pub uniforms: Vec<(String, Vec<u8>)>,
    /// Bytes of the file's own scratch memory, by name.
    pub scratch: Vec<(String, u64)>,
    /// Variables that hold weights in a layout of their own.
    pub parts: Vec<WeightPart>,
    /// Caches in another order, by the kernel's name.
    pub kv_orders: BTreeMap<&'static str, KvOrder>,
    /// Tolerance, where it differs from that of `declared`.
    pub tolerated: Option<Tolerated>,
}

/// Foreign properties of a variant: none.
static NOT_FOREIGN: Foreign = Foreign {
    bindings: BTreeMap::new(),
    uniforms: Vec::new(),
    scratch: Vec::new(),
    parts: Vec::new(),
    kv_orders: BTreeMap::new(),
    tolerated: None,
};

/// A tolerance that a user's mapping asks for.
#[derive(Clone, Copy, Debug)]
pub enum Tolerated {
    /// The tolerance of a built-in variant.
    Of(&'static KernelVariant),
    /// Bounds of its own; the operation's where one is left out.
    Own {
        /// See [`Tolerance::k`].
        k: Option<f64>,
        /// See [`Tolerance::nmse`].
        nmse: Option<f64>,
    },
}

/// One dispatch of a plan.
#[derive(Clone)]
pub struct PlannedStage {
    /// WGSL entry point.
    pub entry: String,
    /// Workgroups in x, y and z.
    pub groups: [u32; 3],
    /// Its code, where it differs from the plan's text with the plan's constants and bindings: see
    /// [`Plan::code`].
    pub code: Option<Arc<StageCode>>,
}

/// Shows the fields that distinguish stages; fingerprints contain them.
impl fmt::Debug for PlannedStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PlannedStage");
        shown.field("entry", &self.entry).field("groups", &self.groups);
        if let Some(code) = &self.code {
            let text = format!("{:016x}", fnv(FNV_START, code.text.bytes()));
            let StageCode { constants, bindings, .. } = &**code;
            shown.field("text", &text).field("constants", constants).field("bindings", bindings);
        }
        shown.finish()
    }
}

/// Separate code of one stage of a user's mapping.
#[derive(Debug)]
pub struct StageCode {
    /// WGSL.
    pub text: Arc<str>,
    /// Properties that naga finds in it.
    pub reflection: Arc<Reflection>,
    /// Values of all overrides.
    pub constants: Constants,
    /// See [`Foreign::bindings`].
    pub bindings: BTreeMap<String, String>,
}

/// Code of a stage: see [`Plan::code`].
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// WGSL.
    pub text: &'a str,
    /// Properties that naga finds in it.
    pub reflection: &'a Reflection,
    /// Values of all overrides.
    pub constants: &'a Constants,
    bindings: &'a BTreeMap<String, String>,
}

impl<'a> Code<'a> {
    /// Target of a WGSL variable: the kernel's name of it, or a name of the plan's own.
    pub fn binding(self, variable: &'a str) -> &'a str {
        self.bindings.get(variable).map_or(variable, String::as_str)
    }
}

/// The reason why a plan cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The adapter or the shape rules the variant out.
    #[error("{0}")]
    Unavailable(String),
    /// A user's mapping evaluates to something impossible at this shape, such as zero workgroups.
    #[error("{0}")]
    Shape(String),
    /// The WGSL does not fit the kernel.
    #[error(transparent)]
    Reflect(#[from] ReflectError),
}

impl PlanError {
    /// The error for a command that named the file or variant.
    pub fn into_usage(self) -> Error {
        match self {
            PlanError::Reflect(e) => e.into(),
            PlanError::Unavailable(reason) | PlanError::Shape(reason) => Error::Usage(reason),
        }
    }
}

impl Plan {
    /// Specialises a built-in or registered variant.
    pub fn of(
        kernel: &'static Kernel,
        variant: &'static KernelVariant,
        shape: &Shape,
        caps: &Capabilities,
    ) -> Result<Self, PlanError> {
        Self::tuned(kernel, variant, shape, caps, &Constants::new())
    }

    /// Specialises such a variant with some overrides set.
    pub fn tuned(
        kernel: &'static Kernel,
        variant: &'static KernelVariant,
        shape: &Shape,
        caps: &Capabilities,
        constants: &Constants,
    ) -> Result<Self, PlanError> {
        let pair = lathe_kernels::source(kernel.name, variant.name)
            .zip(lathe_kernels::reflection(kernel.name, variant.name));
        let Some((source, reflection)) = pair else {
            return Err(PlanError::Unavailable(format!(
                "{}/{} is not registered",
                kernel.name, variant.name
            )));
        };
        let text = Cow::Borrowed(source.text);
        let plan = Self::build(kernel, variant, shape, caps, text, reflection, constants)?;
        Ok(Self { built_in: source.is_built_in(), ..plan })
    }

    /// Specialises another WGSL text with a variant's own entry points and bindings. Its
    /// `// import:` lines name the same modules as a built-in file's.
    pub fn with_text(
        kernel: &'static Kernel,
        variant: &'static KernelVariant,
        shape: &Shape,
        caps: &Capabilities,
        text: &str,
        path: &str,
    ) -> Result<Self, PlanError> {
        let (text, reflection) = Self::reflect(text, path)?;
        Self::build(
            kernel,
            variant,
            shape,
            caps,
            Cow::Owned(text),
            Arc::new(reflection),
            &Constants::new(),
        )
    }

    /// A WGSL text linked with its modules, and naga's reflection of it.
    pub fn reflect(text: &str, path: &str) -> Result<(String, Reflection), PlanError> {
        let text = lathe_kernels::link(text, path)?;
        let reflection = Reflection::of(&text, path)?;
        Ok((text, reflection))
    }

    /// A hash of the source, its constants, grid and bindings: equal when the same code runs the
    /// same way (FNV-1a).
    pub fn fingerprint(&self) -> String {
        let Self { stages, constants, .. } = self;
        let Foreign { bindings, uniforms, scratch, parts, kv_orders, .. } = self.foreign();
        let text = fnv(FNV_START, self.text.bytes().chain([0]));
        let mut rest = format!("{constants:?}{stages:?}{bindings:?}{uniforms:?}");
        if !scratch.is_empty() || self.is_laid_out() {
            rest += &format!("{scratch:?}{parts:?}{kv_orders:?}");
        }
        format!("{:016x}", fnv(text, rest.bytes()))
    }

    fn build(
        kernel: &'static Kernel,
        variant: &'static KernelVariant,
        shape: &Shape,
        caps: &Capabilities,
        text: Cow<'static, str>,
        reflection: Arc<Reflection>,
        set: &Constants,
    ) -> Result<Self, PlanError> {
        if let Some(reason) = variant.unsupported(shape, caps) {
            return Err(PlanError::Unavailable(reason));
        }
        let tuned = variant.constants(shape, caps);
        let mut given: Vec<(&str, f64)> = shape.iter().chain(tuned).collect();
        given.extend(set.iter().map(|(name, value)| (name.as_str(), *value)));
        for (name, value) in set {
            let own = |(known, own): &(&str, f64)| (*known == name).then_some(*own);
            let own = given[..given.len() - set.len()].iter().rev().find_map(own);
            let is_free = kernel.param(name).is_none() && reflection.has_override(name);
            if !is_free || !fits_grid(*value, own) {
                return Err(PlanError::Unavailable(format!("cannot set {name} = {value}")));
            }
        }
        let constants = reflection.constants(given)?;
        let mut plan = Self {
            kernel,
            variant: variant.name.to_owned(),
            built_in: false,
            text,
            reflection,
            constants,
            stages: Vec::with_capacity(variant.stages.len()),
            packing: kernel.packing(variant.packing, shape),
            declared: variant,
            is_tuned: false,
            foreign: None,
        };
        for stage in variant.stages {
            let groups = (stage.grid)(shape, &plan.constants);
            if groups == 0 {
                continue;
            }
            let stage = PlannedStage { entry: stage.entry.to_owned(), groups: [0; 3], code: None };
            plan.check_stage(&stage, caps)?;
            let groups = plan.fold(&stage, groups, caps)?;
            plan.stages.push(PlannedStage { groups, ..stage });
        }
        Ok(plan)
    }

    /// Code of a stage.
    pub fn code<'a>(&'a self, stage: &'a PlannedStage) -> Code<'a> {
        match &stage.code {
            None => Code {
                text: &self.text,
                reflection: &self.reflection,
                constants: &self.constants,
                bindings: &self.foreign().bindings,
            },
            Some(code) => Code {
                text: &code.text,
                reflection: &code.reflection,
                constants: &code.constants,
                bindings: &code.bindings,
            },
        }
    }

    /// Properties that only a user's file has; those of a variant are empty.
    pub fn foreign(&self) -> &Foreign {
        self.foreign.as_deref().unwrap_or(&NOT_FOREIGN)
    }

    /// Returns true if the mapping lays out weights or caches differently from our layout.
    pub fn is_laid_out(&self) -> bool {
        let Foreign { parts, kv_orders, .. } = self.foreign();
        !parts.is_empty() || !kv_orders.is_empty()
    }

    /// Returns true if a stage, or anything in its text, is bound to this name of the kernel's.
    pub fn binds(&self, name: &str) -> bool {
        let own = self.reflection.buffers.iter().map(|b| self.binding(&b.name));
        let stages = self.stages.iter().map(|stage| self.code(stage));
        let of =
            |code: Code<'_>| code.reflection.buffers.iter().any(|b| code.binding(&b.name) == name);
        own.into_iter().any(|bound| bound == name) || stages.into_iter().any(of)
    }

    /// All of the user's WGSL that it runs: the text of a file, then those of its stages' files.
    /// None for a built-in kernel.
    pub fn users_text(&self) -> Option<String> {
        if self.built_in {
            return None;
        }
        let mut texts: Vec<&str> = vec![&self.text];
        for stage in &self.stages {
            let text = self.code(stage).text;
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        Some(texts.join("\n"))
    }

    /// Workgroups of a stage, in two dimensions if one is too small and the stage supports it.
    pub(crate) fn fold(
        &self,
        stage: &PlannedStage,
        groups: usize,
        caps: &Capabilities,
    ) -> Result<[u32; 3], PlanError> {
        let unfolds = self.code(stage).reflection.entry(&stage.entry).is_some_and(|e| e.unfolds);
        match fold(groups, caps.grid_dimension) {
            Some([x, y, z]) if y == 1 || unfolds => Ok([x, y, z]),
            _ => Err(PlanError::Unavailable(format!(
                "needs {groups} workgroups, a grid dimension holds {}",
                caps.grid_dimension
            ))),
        }
    }

    /// Tolerance of the result's distance from the reference.
    pub fn tolerance(&self, problem: &Problem) -> Tolerance {
        let declared = self.kernel.tolerance(Some(self.declared), problem);
        match self.foreign().tolerated {
            None => declared,
            Some(Tolerated::Of(variant)) => self.kernel.tolerance(Some(variant), problem),
            Some(Tolerated::Own { k, nmse }) => Tolerance {
                k: k.unwrap_or(declared.k),
                nmse: nmse.unwrap_or(declared.nmse),
                reason: "the mapping of the file says so",
                ..declared
            },
        }
    }

    /// The kernel's name of a WGSL variable.
    pub fn binding<'a>(&'a self, variable: &'a str) -> &'a str {
        self.foreign().bindings.get(variable).map_or(variable, String::as_str)
    }

    /// Fails with the reason if a stage cannot run on an adapter.
    pub(crate) fn check_stage(
        &self,
        stage: &PlannedStage,
        caps: &Capabilities,
    ) -> Result<(), PlanError> {
        let Code { reflection, constants, .. } = self.code(stage);
        // A feature that is not there may keep the text from being compiled at all.
        let mut lacking = limits::features_lacking(reflection, caps);
        if lacking.is_empty() {
            // What its numbers make of a user's text is refused here, with the file's name.
            if !self.built_in {
                reflection.resolved(&stage.entry, constants)?;
            }
            let workgroup = reflection.workgroup(&stage.entry, constants)?;
            lacking = limits::lacking(reflection, &stage.entry, workgroup, caps);
        }
        if !lacking.is_empty() {
            return Err(PlanError::Unavailable(lacking.swap_remove(0)));
        }
        Ok(())
    }
}

/// Returns true if a grid can use an override's value: it may divide by overrides that are not zero
/// in the variant itself.
fn fits_grid(value: f64, own: Option<f64>) -> bool {
    own == Some(value) || (value.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&value))
}

/// State of an FNV-1a hash of nothing.
const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// The state of an FNV-1a hash after more bytes.
fn fnv(state: u64, bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(state, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// Workgroups as x and y, y as small as the adapter's limit allows.
fn fold(groups: usize, limit: u32) -> Option<[u32; 3]> {
    let limit = limit as usize;
    let y = groups.div_ceil(limit).max(1);
    let x = groups.div_ceil(y);
    (y <= limit).then_some([x as u32, y as u32, 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_covers_all_groups_and_keeps_the_limit() {
        assert_eq!(fold(1, 65535), Some([1, 1, 1]));
        assert_eq!(fold(65535, 65535), Some([65535, 1, 1]));
        assert_eq!(fold(65536, 65535), Some([32768, 2, 1]));
        assert_eq!(fold(10, 3), None);
        for n in 1..200 {
            if let Some([x, y, _]) = fold(n, 16) {
                assert!(x <= 16 && y <= 16 && (x * y) as usize >= n);
            }
        }
    }
}
