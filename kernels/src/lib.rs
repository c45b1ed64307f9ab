//! GPU kernels: the WGSL sources of every kernel and variant, and a descriptor for each kernel
//! (parameters, bindings, requirements, grid, cost, cases, tolerance).
//!
//! This crate knows naga, never wgpu: nothing here needs a device. `kernels/build` has
//! validated every source before this crate exists.

use std::cell::RefCell;
use std::collections::BTreeSet;

pub mod adapter;
pub mod codes;
pub mod descriptor;
pub mod dialect;
pub mod layout;
pub mod param;
pub mod persistent;
pub mod reflect;
pub mod registry;
pub mod shared;
pub mod uniformity;

#[allow(dead_code, reason = "the build script includes it and uses the rest")]
mod link;
mod prune;
#[allow(dead_code, reason = "the build script includes it and uses the rest")]
mod tokens;
mod unroll;

/// Everything that a declaration uses.
mod declare {
    pub(crate) use crate::adapter::Capabilities;
    pub(crate) use crate::codes::*;
    pub(crate) use crate::descriptor::*;
    pub(crate) use crate::layout::KvVectors;
    pub(crate) use crate::len;
    pub(crate) use crate::param::*;
    pub(crate) use crate::shared::*;
}

// A module for every folder below `ops/` with a declaration, and `for_each_operation!`.
include!(concat!(env!("OUT_DIR"), "/operations.rs"));

pub use adapter::{Capabilities, CooperativeMatrix, Feature, Mask, MatrixScalar};
pub use codes::*;
pub use descriptor::{
    Binding, Constants, Cost, Declaration, Draw, Elem, FusedProducer, Grid, Kernel, KernelBinding,
    KernelVariant, Matrix, Role, Stage, Tolerance, Variant, spreads,
};
pub use layout::{KvVectors, Plane, RopeSpec};
pub use param::{Param, ParamKind, Params, Problem, Shape, ShapeError, State};
pub use reflect::{ReflectError, Reflection};
pub use registry::{
    RegisterError, Text, kernel, kernels, reflection, register, register_variants, source, sources,
};

/// One linked WGSL source: the variant's file followed by the modules it needs.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Kernel name; of a built-in one the folder that holds the file.
    pub kernel: &'static str,
    /// Variant name; of a built-in one the file's stem.
    pub variant: &'static str,
    /// Path of the file inside the crate, or as it was registered.
    pub file: &'static str,
    /// The WGSL handed to naga and to the device.
    pub text: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/sources.rs"));

macro_rules! erased {
    ($($name:ident)*) => {
        vec![$($name::OPERATION.erase().unwrap_or_else(|e| panic!("{}: {e}", stringify!($name)))),*]
    };
}

fn built_in() -> Vec<Kernel> {
    for_each_operation!(erased)
}

impl Source {
    /// It is this crate's own and not a registered one.
    pub fn is_built_in(&self) -> bool {
        SOURCES.iter().any(|s| std::ptr::eq(s.text, self.text))
    }
}

/// Links a WGSL text with the built-in modules that its `// import:` lines name, as the build
/// script does for built-in variants. `path` only names it in errors.
pub fn link(text: &str, path: &str) -> Result<String, ReflectError> {
    let unknown = RefCell::new(None);
    let find = |name: &str| {
        let known = MODULES.iter().find(|(known, _, _)| *known == name);
        unknown.replace(known.is_none().then(|| name.to_owned()));
        known.map(|(name, path, text)| link::Module::new(name, path, text))
    };
    link::link(path, path, text, &find).map(|linked| linked.text).map_err(|error| {
        ReflectError::Link(match &*unknown.borrow() {
            Some(name) => format!("{error}; there are {}", modules_near(name)),
            None => error,
        })
    })
}

/// The modules of the folder that `name` is in, or else all folders.
fn modules_near(name: &str) -> String {
    fn folder(name: &str) -> &str {
        name.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
    let names = || MODULES.iter().map(|(name, _, _)| *name);
    let mut near: Vec<_> =
        names().filter(|known| folder(known) == folder(name)).map(str::to_owned).collect();
    if near.is_empty() || folder(name).is_empty() {
        let folders: BTreeSet<_> = names().map(folder).filter(|f| !f.is_empty()).collect();
        near.extend(folders.into_iter().map(|folder| format!("{folder}/…")));
    }
    near.join(", ")
}

/// The file and the line in it of a line of a linked text, both from 1. `file` is the file that the
/// text begins with.
pub fn place<'a>(text: &'a str, file: &'a str, line: usize) -> (&'a str, usize) {
    let before = text.lines().take(line.saturating_sub(1)).collect::<Vec<_>>();
    let heading = |line: &&'a str| {
        let path = line.strip_prefix("// ")?;
        MODULES.iter().any(|(_, known, _)| *known == path).then_some(path)
    };
    let found = before.iter().enumerate().rev().find_map(|(i, line)| Some((i, heading(line)?)));
    found.map_or((file, line), |(i, path)| (path, line - i - 1))
}
