//! All operations of the program: the built-in ones, and those that other crates register.
//!
//! Registration is for the start of `main`. The first look at the registry closes it, so that
//! whatever lists, selects or tunes sees the same kernels from the first to the last call.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use crate::adapter::Capabilities;
use crate::descriptor::{Declaration, Kernel, KernelVariant, Role, Variant};
use crate::param::{Params, Problem, State};
use crate::reflect::{ReflectError, Reflection};
use crate::{SOURCES, Source};

/// The WGSL of a variant to register. Its `// import:` lines name built-in modules.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// The variant.
    pub variant: &'static str,
    /// The file in messages, such as `scale.wgsl`.
    pub file: &'static str,
    /// Its text.
    pub wgsl: &'static str,
}

/// Reason why an operation or a variant is not registered. Then nothing of it is.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The declaration contradicts itself, its name is taken, or the registry has been read.
    #[error("{0}")]
    Refused(String),
    /// The text does not link, naga refuses it, or it does not fit the declaration.
    #[error(transparent)]
    Reflect(#[from] ReflectError),
}

impl RegisterError {
    fn of(kernel: &str, reason: impl fmt::Display) -> Self {
        Self::Refused(format!("kernel {kernel}: {reason}"))
    }

    fn exists(what: impl fmt::Display) -> Self {
        Self::Refused(format!("{what} exists already; give yours another name"))
    }
}

struct Registry {
    kernels: Vec<Kernel>,
    sources: Vec<Source>,
    /// Reflection of each source, made on first use.
    reflections: Vec<OnceLock<Arc<Reflection>>>,
}

/// Registered operations, until the first look.
static OPEN: LazyLock<Mutex<Option<Registry>>> =
    LazyLock::new(|| Mutex::new(Some(Registry::built_in())));

/// The registry after the first look, which closes it.
static CLOSED: LazyLock<Registry> = LazyLock::new(|| {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    // It is there: nobody else takes it.
    open.take().unwrap_or_else(Registry::built_in)
});

impl Registry {
    fn built_in() -> Self {
        Self {
            kernels: crate::built_in(),
            sources: SOURCES.to_vec(),
            reflections: SOURCES.iter().map(|_| OnceLock::new()).collect(),
        }
    }

    fn add(&mut self, found: Vec<(Source, Reflection)>) {
        for (source, reflection) in found {
            self.sources.push(source);
            self.reflections.push(OnceLock::from(Arc::new(reflection)));
        }
    }
}

/// Changes the registry unless it was read already. `change` calls nothing of a declaration, which
/// could read it.
fn change(
    kernel: &'static str,
    change: impl FnOnce(&mut Registry) -> Result<(), RegisterError>,
) -> Result<(), RegisterError> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let late = || {
        RegisterError::Refused(format!(
            "kernel {kernel} comes too late: kernels were looked up before; register at the start \
             of main"
        ))
    };
    open.as_mut().ok_or_else(late).and_then(change)
}

/// Every operation, the built-in ones by name, then the registered ones.
pub fn kernels() -> &'static [Kernel] {
    &CLOSED.kernels
}

/// The operation of a name.
pub fn kernel(name: &str) -> Option<&'static Kernel> {
    kernels().iter().find(|k| k.name == name)
}

/// Every linked source, the built-in ones by kernel and variant, then the registered ones.
pub fn sources() -> &'static [Source] {
    &CLOSED.sources
}

/// The linked source of one variant, if there is one.
pub fn source(kernel: &str, variant: &str) -> Option<&'static Source> {
    sources().iter().find(|s| s.kernel == kernel && s.variant == variant)
}

/// Naga's reflection of a variant, parsed once. `None` when there is no such source.
pub fn reflection(kernel: &str, variant: &str) -> Option<Arc<Reflection>> {
    let Registry { sources, reflections, .. } = &*CLOSED;
    let index = sources.iter().position(|s| s.kernel == kernel && s.variant == variant)?;
    let source = &sources[index];
    Some(Arc::clone(reflections[index].get_or_init(|| {
        let reflection = Reflection::of(source.text, source.file);
        Arc::new(reflection.expect("built-in sources are validated when built"))
    })))
}

/// Adds an operation of another crate with one text a variant. From then on it is listed, planned
/// and reflected as a built-in one is. To check it, it needs a reference: register it with
/// `lathe_harness::register`, which calls this.
///
/// Its texts are not this crate's, so they carry wgpu's run-time checks unless the device is told
/// otherwise.
///
/// # Errors
/// The declaration contradicts itself, a text does not link, does not validate or does not fit it,
/// the name is taken, or the registry has been read.
pub fn register<P: Params>(
    declaration: &'static Declaration<P>,
    texts: &[Text],
) -> Result<(), RegisterError> {
    let kernel = erased(declaration)?;
    check_declaration(&kernel).map_err(|reason| RegisterError::of(kernel.name, reason))?;
    if kernel.fuses.is_some() {
        let why = "`fuses` must be None: decode replaces operations by built-in ones alone";
        return Err(RegisterError::of(kernel.name, why));
    }
    let found = linked(&kernel, kernel.variants, texts)?;
    change(kernel.name, |registry| {
        if registry.kernels.iter().any(|k| k.name == kernel.name) {
            return Err(RegisterError::exists(format_args!("kernel {}", kernel.name)));
        }
        registry.kernels.push(kernel);
        registry.add(found);
        Ok(())
    })
}

/// Adds variants to an operation that is there, such as `lathe_kernels::rope::OPERATION`. They can
/// be checked, timed, tuned, hinted and decoded with; nothing selects them unasked but a tuned
/// choice, since the operation's preferences stay.
///
/// # Errors
/// Errors of [`register`].
pub fn register_variants<P: Params>(
    declaration: &'static Declaration<P>,
    variants: &'static [Variant<P>],
    texts: &[Text],
) -> Result<(), RegisterError> {
    let kernel = erased(declaration)?;
    let added: Vec<KernelVariant> = variants.iter().map(Variant::erase).collect();
    check_variants(&added).map_err(|reason| RegisterError::of(kernel.name, reason))?;
    let found = linked(&kernel, &added, texts)?;
    change(kernel.name, |registry| {
        let same = |k: &&mut Kernel| k.name == kernel.name && k.params_type == kernel.params_type;
        let there = registry.kernels.iter_mut().find(same);
        let there = there.ok_or_else(|| {
            let name = kernel.name;
            let why = format!("no kernel {name} of these parameters to add variants to");
            RegisterError::Refused(why)
        })?;
        if let Some(taken) = added.iter().find(|v| there.variant(v.name).is_some()) {
            return Err(RegisterError::exists(format_args!("{}/{}", kernel.name, taken.name)));
        }
        there.add(added);
        registry.add(found);
        Ok(())
    })
}

fn erased<P: Params>(declaration: &Declaration<P>) -> Result<Kernel, RegisterError> {
    declaration.erase().map_err(|error| RegisterError::of(declaration.name, error))
}

/// A name that `KERNEL/VARIANT` and `KERNEL=VARIANT` can hold.
fn is_name(name: &str) -> bool {
    let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !name.is_empty() && name.chars().all(part)
}

fn first_twice<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = BTreeSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

fn check_declaration(kernel: &Kernel) -> Result<(), String> {
    let is_state = |name| State::default().get(name).is_some();
    let params = || kernel.params.iter();
    // `lathe ab decode` and `lathe bench decode` are whole steps.
    let fault = if !is_name(kernel.name) || kernel.name == "decode" {
        "the name is not lower-case letters, digits and _, or is taken".into()
    } else if let Some(name) = first_twice(kernel.bindings.iter().map(|b| b.name)) {
        format!("two bindings `{name}`")
    } else if let Some(name) = first_twice(params().chain(kernel.state).map(|p| p.name)) {
        format!("two parameters `{name}`")
    } else if let Some(param) = params().find(|p| is_state(p.name)) {
        format!("`{}` is a word of the state, no parameter", param.name)
    } else if let Some(word) = kernel.state.iter().find(|p| !is_state(p.name)) {
        let known = format!("{}, {}", State::N_KV, State::PROMPT_LEN);
        format!("the state has no word `{}`; it has {known}", word.name)
    } else if !kernel.bindings.iter().any(|b| matches!(b.role, Role::Output | Role::InOut)) {
        "no binding is an output".into()
    } else if kernel.variants.is_empty() {
        "it has no variant".into()
    } else if kernel.bench().is_empty() {
        "`bench` names no problem; the first is the default of --shape".into()
    } else {
        check_variants(kernel.variants)?;
        let unknown = |problem: Problem| {
            kernel.prefer(&problem.shape).iter().find(|name| kernel.variant(name).is_none())
        };
        match kernel.bench().into_iter().chain(kernel.cases()).find_map(unknown) {
            Some(name) => format!("`prefer` names `{name}`, which is no variant"),
            None => return Ok(()),
        }
    };
    Err(fault)
}

fn check_variants(variants: &[KernelVariant]) -> Result<(), String> {
    if let Some(name) = first_twice(variants.iter().map(|v| v.name)) {
        return Err(format!("two variants `{name}`"));
    }
    for variant in variants {
        let (name, text) = (variant.name, variant.tunables);
        if !is_name(name) {
            return Err(format!("variant `{name}`: a name is lower-case letters, digits and _"));
        } else if variant.stages.is_empty() {
            return Err(format!("variant `{name}` has no stage"));
        } else if variant.tunables().is_none() {
            return Err(format!("variant `{name}`: tunables `{text}`: write NAME=VALUE|VALUE,…"));
        }
    }
    Ok(())
}

/// The texts of variants, linked, validated and compared with the declaration.
fn linked(
    kernel: &Kernel,
    variants: &[KernelVariant],
    texts: &[Text],
) -> Result<Vec<(Source, Reflection)>, RegisterError> {
    let refuse = |reason: String| Err(RegisterError::of(kernel.name, reason));
    if let Some(name) = first_twice(texts.iter().map(|t| t.variant)) {
        return refuse(format!("two texts for variant `{name}`"));
    }
    if let Some(text) = texts.iter().find(|t| !variants.iter().any(|v| v.name == t.variant)) {
        let (file, name) = (text.file, text.variant);
        return refuse(format!("{file} is the text of `{name}`, which is no variant here"));
    }
    let mut found = Vec::new();
    for variant in variants {
        let Some(text) = texts.iter().find(|t| t.variant == variant.name) else {
            return refuse(format!("variant `{}` has no text", variant.name));
        };
        let linked = crate::link(text.wgsl, text.file)?;
        let reflection = Reflection::of(&linked, text.file)?;
        let fits = fits(kernel, variant, &reflection);
        let (kernel, variant, file) = (kernel.name, variant.name, text.file);
        fits.map_err(|reason| ReflectError::User {
            path: file.to_owned(),
            reason: format!("{kernel}/{variant}: {reason}"),
        })?;
        // Registered once and for the whole program, as if it had been compiled in.
        let text = linked.leak();
        found.push((Source { kernel, variant, file, text }, reflection));
    }
    Ok(found)
}

/// Checks a text against its declaration, as this crate's tests check built-in ones.
fn fits(kernel: &Kernel, variant: &KernelVariant, text: &Reflection) -> Result<(), String> {
    for buffer in &text.buffers {
        let name = &buffer.name;
        if buffer.uniform.is_some() {
            return Err(format!("`{name}` is a uniform; parameters are overrides"));
        }
        let Some(binding) = kernel.binding(name) else {
            let known: Vec<_> = kernel.bindings.iter().map(|b| b.name).collect();
            return Err(format!("`{name}` is no binding; there are {}", known.join(", ")));
        };
        if buffer.group != 0 {
            return Err(format!("`{name}` is in group {}, not in 0", buffer.group));
        }
        if buffer.writable != (binding.role != Role::Input) {
            let access = if buffer.writable { "read" } else { "read_write" };
            return Err(format!("`{name}` must be declared var<storage, {access}>"));
        }
    }
    let missing = |b: &&crate::KernelBinding| {
        !b.role.is_own() && !text.buffers.iter().any(|buffer| buffer.name == b.name)
    };
    if let Some(binding) = kernel.bindings.iter().find(missing) {
        return Err(format!("lacks a variable `{}`", binding.name));
    }
    for stage in variant.stages {
        if text.entry(stage.entry).is_none() {
            return Err(format!("has no entry point `{}`", stage.entry));
        }
    }
    for (name, _) in variant.tunables().unwrap_or_default() {
        if !text.has_override(name) {
            return Err(format!("tunes `{name}`, which is no override of it"));
        }
    }
    let caps = Capabilities::minimal();
    for problem in kernel.bench().iter().chain(&kernel.cases()) {
        let shape = &problem.shape;
        if variant.unsupported(shape, &caps).is_none() {
            let given = shape.iter().chain(variant.constants(shape, &caps));
            text.constants(given).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_operations_are_held_to_what_registered_ones_are() {
        for kernel in kernels() {
            check_declaration(kernel).unwrap();
            for variant in kernel.variants {
                let (name, text) = (variant.name, reflection(kernel.name, variant.name).unwrap());
                assert_eq!(fits(kernel, variant, &text), Ok(()), "{}/{name}", kernel.name);
            }
        }
    }
}
