//! What runs on the GPU: the WGSL sources of every kernel and variant, and a descriptor for each
//! kernel (parameters, bindings, requirements, grid, cost, cases, tolerance).
//!
//! This crate knows naga, never wgpu: nothing here needs a device. `kernels/build` has
//! validated every source before this crate exists.

use std::cell::Cell;
use std::sync::{Arc, OnceLock};

pub mod adapter;
pub mod codes;
pub mod descriptor;
pub mod layout;
pub mod param;
pub mod reflect;
pub mod shared;

#[allow(dead_code, reason = "the build script includes it and uses the rest")]
mod link;
#[allow(dead_code, reason = "the build script includes it and uses the rest")]
mod tokens;

// A module for every folder below `ops/` with a declaration, and `for_each_operation!`.
include!(concat!(env!("OUT_DIR"), "/operations.rs"));

pub use adapter::{Capabilities, CooperativeMatrix, MatrixScalar};
pub use codes::*;
pub use descriptor::{
    Binding, Case, Constants, Cost, Declaration, Draw, Elem, Kernel, KernelBinding, KernelVariant,
    Matrix, Role, Stage, Tolerance, Variant,
};
pub use layout::{RopeSpec, StateWord};
pub use param::{Param, ParamKind, Params, Problem, Shape, ShapeError, State};
pub use reflect::{ReflectError, Reflection};

/// One linked WGSL source: the variant's file followed by the modules it needs.
#[derive(Debug)]
pub struct Source {
    /// Kernel name, the folder that holds the file.
    pub kernel: &'static str,
    /// Variant name, the file's stem.
    pub variant: &'static str,
    /// Path of the file inside the crate.
    pub file: &'static str,
    /// The WGSL handed to naga and to the device.
    pub text: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/sources.rs"));

macro_rules! erased {
    ($($name:ident)*) => {
        vec![$($name::OPERATION.erase()),*]
    };
}

/// Every built-in operation, by name.
pub fn kernels() -> &'static [Kernel] {
    static KERNELS: OnceLock<Vec<Kernel>> = OnceLock::new();
    KERNELS.get_or_init(|| for_each_operation!(erased))
}

/// Every linked source, sorted by kernel and variant.
pub fn sources() -> &'static [Source] {
    SOURCES
}

/// The linked source of one variant, if its file exists.
pub fn source(kernel: &str, variant: &str) -> Option<&'static Source> {
    SOURCES.iter().find(|s| s.kernel == kernel && s.variant == variant)
}

/// FNV-1a state after a variant's text, and a zero byte, as it was before its file moved to its
/// operation's folder; none where what is compiled has changed since. Choices that were tuned
/// before the move are stored under a hash that begins with it.
pub fn text_state_before(kernel: &str, variant: &str) -> Option<u64> {
    include_str!("text_before.tsv").lines().find_map(|line| {
        let mut fields = line.split('\t');
        let (name, state) = (fields.next()?, fields.nth(1)?);
        let known = name.split_once('/') == Some((kernel, variant));
        known.then(|| u64::from_str_radix(state, 16).ok()).flatten()
    })
}

/// Links a WGSL text with the built-in modules that its `// import:` lines name, as the build
/// script does for built-in variants. `path` only names it in errors.
pub fn link(text: &str, path: &str) -> Result<String, ReflectError> {
    let is_unknown = Cell::new(false);
    let find = |name: &str| {
        let known = MODULES.iter().find(|(known, _, _)| *known == name);
        is_unknown.set(known.is_none());
        known.map(|(name, path, text)| link::Module::new(name, path, text))
    };
    link::link(path, path, text, &find).map(|linked| linked.text).map_err(|error| {
        if !is_unknown.get() {
            return ReflectError::Link(error);
        }
        let known: Vec<_> = MODULES.iter().map(|(name, _, _)| *name).collect();
        ReflectError::Link(format!("{error}; there are {}", known.join(", ")))
    })
}

/// What naga says of a built-in variant; parsed once. `None` when there is no such file.
pub fn reflection(kernel: &str, variant: &str) -> Option<Arc<Reflection>> {
    static CACHE: OnceLock<Vec<OnceLock<Arc<Reflection>>>> = OnceLock::new();
    let cache = CACHE.get_or_init(|| SOURCES.iter().map(|_| OnceLock::new()).collect());
    let index = SOURCES.iter().position(|s| s.kernel == kernel && s.variant == variant)?;
    let source = &SOURCES[index];
    Some(Arc::clone(cache[index].get_or_init(|| {
        let reflection = Reflection::of(source.text, source.file);
        Arc::new(reflection.expect("build.rs has validated every source"))
    })))
}

/// The operation of a name.
pub fn kernel(name: &str) -> Option<&'static Kernel> {
    kernels().iter().find(|k| k.name == name)
}
