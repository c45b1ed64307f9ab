//! Work of a device as plain data: a variant specialised for a shape ([`Plan`]), the choice of that
//! variant ([`select`]), and operations over tensors ([`recording`]). The GPU executor turns it
//! into pipelines and buffers.

pub mod backend_text;
pub mod compilers;
mod for_loops;
pub mod layout;
pub mod limits;
pub mod memory;
pub mod persistent;
pub mod recording;
pub mod select;
pub mod shapes;
mod subject;
pub mod target;
pub mod tuned;
pub mod user;
pub mod weights;
mod wide;

use std::borrow::Cow;
use std::collections::BTreeMap;
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
    /// True if the text is a built-in variant's: the sweeps have proven its indexing, so it may run
    /// without wgpu's checks. Any other text, a file's or a registered one, does so only if the
    /// user vouches for it.
    pub built_in: bool,
    /// Code of its stages, or of the first where a user's mapping gives each its own.
    pub code: Arc<Code>,
    /// Dispatches, in order.
    pub stages: Vec<PlannedStage>,
    /// Layout of quantised weight rows that it reads.
    pub packing: Packing,
    /// The built-in variant that the stages, or at least the tolerance, come from.
    pub declared: &'static KernelVariant,
    /// True for a stored choice of `lathe tune`.
    pub is_tuned: bool,
    /// Properties that only a user's file has; empty for a variant.
    pub foreign: Foreign,
}

/// WGSL and the numbers it is compiled with.
#[derive(Clone, Debug)]
pub struct Code {
    /// File of the text, where it is a user's.
    pub file: Option<String>,
    /// WGSL handed to the device.
    pub text: Cow<'static, str>,
    /// Properties that naga finds in it.
    pub reflection: Arc<Reflection>,
    /// Values of all overrides.
    pub constants: Constants,
    /// Target of each WGSL variable whose own name is not the kernel's.
    pub bindings: BTreeMap<String, String>,
}

impl Code {
    /// Code whose variables have the kernel's names.
    pub fn new(text: impl Into<Cow<'static, str>>, reflection: Arc<Reflection>) -> Self {
        let (constants, bindings) = (Constants::new(), BTreeMap::new());
        Self { file: None, text: text.into(), reflection, constants, bindings }
    }

    /// Target of a WGSL variable: the kernel's name of it, or a name of the plan's own.
    pub fn binding<'a>(&'a self, variable: &'a str) -> &'a str {
        self.bindings.get(variable).map_or(variable, String::as_str)
    }
}

/// One dispatch of a plan.
#[derive(Clone, Debug)]
pub struct PlannedStage {
    /// WGSL entry point.
    pub entry: String,
    /// Workgroups in x, y and z.
    pub groups: [u32; 3],
    /// Its code.
    pub code: Arc<Code>,
}

/// Properties of a plan that only a user's file has, most of them from its mapping.
#[derive(Clone, Debug, Default)]
pub struct Foreign {
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
        let code = Code::new(source.text, reflection);
        let plan = Self::build(kernel, variant, shape, caps, code, constants)?;
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
        let code = Code::new(text, Arc::new(reflection));
        Self::build(kernel, variant, shape, caps, code, &Constants::new())
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
        let Code { text, constants, bindings, .. } = &*self.code;
        let Foreign { uniforms, scratch, parts, kv_orders, .. } = &self.foreign;
        let stages = self.stages.iter().map(|PlannedStage { entry, groups, code }| {
            let own = (!Arc::ptr_eq(code, &self.code)).then(|| {
                let text = fnv(FNV_START, code.text.bytes());
                format!(", {text:016x}, {:?}, {:?}", code.constants, code.bindings)
            });
            let own = own.unwrap_or_default();
            format!("PlannedStage {{ entry: {entry:?}, groups: {groups:?}{own} }}")
        });
        let stages = stages.collect::<Vec<_>>().join(", ");
        let mut rest = format!("{constants:?}[{stages}]{bindings:?}{uniforms:?}");
        if !scratch.is_empty() || self.is_laid_out() {
            rest += &format!("{scratch:?}{parts:?}{kv_orders:?}");
        }
        let text = fnv(FNV_START, text.bytes().chain([0]));
        format!("{:016x}", fnv(text, rest.bytes()))
    }

    fn build(
        kernel: &'static Kernel,
        variant: &'static KernelVariant,
        shape: &Shape,
        caps: &Capabilities,
        code: Code,
        set: &Constants,
    ) -> Result<Self, PlanError> {
        // A masked feature comes before what a declaration says of an adapter without it.
        if !caps.mask.is_empty()
            && let Some(reason) = limits::features_lacking(&code.reflection, caps).pop()
        {
            return Err(PlanError::Unavailable(reason));
        }
        if let Some(reason) = variant.unsupported(shape, caps) {
            return Err(PlanError::Unavailable(reason));
        }
        let tuned = variant.constants(shape, caps);
        let mut given: Vec<(&str, f64)> = shape.iter().chain(tuned).collect();
        given.extend(set.iter().map(|(name, value)| (name.as_str(), *value)));
        for (name, value) in set {
            let own = |(known, own): &(&str, f64)| (*known == name).then_some(*own);
            let own = given[..given.len() - set.len()].iter().rev().find_map(own);
            let is_free = kernel.param(name).is_none() && code.reflection.has_override(name);
            if !is_free || !fits_grid(*value, own) {
                return Err(PlanError::Unavailable(format!("cannot set {name} = {value}")));
            }
        }
        let constants = code.reflection.constants(given)?;
        let code = Arc::new(Code { constants, ..code });
        let mut plan = Self {
            kernel,
            variant: variant.name.to_owned(),
            built_in: false,
            code: Arc::clone(&code),
            stages: Vec::with_capacity(variant.stages.len()),
            packing: kernel.packing(variant.packing, shape),
            declared: variant,
            is_tuned: false,
            foreign: Foreign::default(),
        };
        for stage in variant.stages {
            let groups = (stage.grid)(shape, &code.constants);
            plan.dispatch(stage.entry, &code, [groups, 1, 1], caps)?;
        }
        Ok(plan)
    }

    /// Adds a stage unless it has no workgroups. A number of workgroups that is too large for one
    /// dimension takes two if the stage supports it.
    fn dispatch(
        &mut self,
        entry: &str,
        code: &Arc<Code>,
        groups: [usize; 3],
        caps: &Capabilities,
    ) -> Result<(), PlanError> {
        if groups[0] == 0 {
            return Ok(());
        }
        let Code { reflection, constants, .. } = &**code;
        // A feature that is not there may keep the text from being compiled at all.
        let mut lacking = limits::features_lacking(reflection, caps);
        if lacking.is_empty() {
            // What its numbers make of a user's text is refused here, with the file's name.
            reflection.resolved(entry, constants)?;
            let workgroup = reflection.workgroup(entry, constants)?;
            lacking = limits::lacking(reflection, entry, workgroup, caps);
        }
        if !lacking.is_empty() {
            return Err(PlanError::Unavailable(lacking.swap_remove(0)));
        }
        let unfolds = reflection.entry(entry).is_some_and(|e| e.unfolds);
        let limit = caps.grid_dimension;
        let groups = match groups {
            [x, 1, 1] => fold(x, limit).filter(|[_, y, _]| *y == 1 || unfolds),
            all => all.iter().all(|n| *n <= limit as usize).then(|| all.map(|n| n as u32)),
        }
        .ok_or_else(|| {
            let needed = match groups {
                [x, 1, 1] => x.to_string(),
                [x, y, z] => format!("{x}×{y}×{z}"),
            };
            let reason = format!("needs {needed} workgroups, a grid dimension holds {limit}");
            PlanError::Unavailable(reason)
        })?;
        self.stages.push(PlannedStage { entry: entry.to_owned(), groups, code: Arc::clone(code) });
        Ok(())
    }

    /// Returns true if the mapping lays out weights or caches differently from our layout.
    pub fn is_laid_out(&self) -> bool {
        !self.foreign.parts.is_empty() || !self.foreign.kv_orders.is_empty()
    }

    /// Returns true if anything in a stage's text is bound to this name of the kernel's.
    pub fn binds(&self, name: &str) -> bool {
        let binds = |code: &Code| {
            code.reflection.buffers.iter().any(|buffer| code.binding(&buffer.name) == name)
        };
        self.stages.iter().any(|stage| binds(&stage.code))
    }

    /// All of the user's WGSL that it runs: the texts of its stages. None for a built-in kernel.
    pub fn users_text(&self) -> Option<String> {
        let mut texts: Vec<&str> = vec![&self.code.text];
        for stage in &self.stages {
            if !texts.contains(&&*stage.code.text) {
                texts.push(&stage.code.text);
            }
        }
        (!self.built_in).then(|| texts.join("\n"))
    }

    /// Tolerance of the result's distance from the reference.
    pub fn tolerance(&self, problem: &Problem) -> Tolerance {
        let declared = self.kernel.tolerance(Some(self.declared), problem);
        match self.foreign.tolerated {
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
