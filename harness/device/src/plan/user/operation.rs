//! An operation that Lathe does not have: the section `[operation]` of a mapping, and the golden
//! file that says what comes of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lathe_kernels::descriptor::{Untyped, UntypedBinding, UntypedParam, UntypedShape};
use lathe_kernels::{Cost, Kernel, ParamKind, Role, State, Tolerance};

use super::expression::{Names, Wrong};
use super::golden::{Case, Declared, Golden, PARTS, Stored};
use super::mapping::{Element, Number, OperationMapping, OwnTolerance};
use super::{Faults, read_mapping, refused, value_of};
use crate::plan::PlanError;

/// An operation of the user's own.
#[derive(Clone, Debug)]
pub struct Operation {
    /// As everything sees it that works on any operation: at the shapes of its golden file.
    pub kernel: &'static Kernel,
    /// What comes of it.
    pub golden: Arc<Golden>,
    /// The mapping that declares it.
    path: PathBuf,
    declared: Arc<OperationMapping>,
}

impl Operation {
    /// Reads the operation that a mapping declares, with its golden file.
    ///
    /// # Errors
    /// There is no such section, what is wrong in it, or in the golden file.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        let Some(declared) = read_mapping(path)?.and_then(|mapping| mapping.operation) else {
            return Err(refused(
                path,
                "has no section [operation]: `lathe check KERNEL --wgsl FILE`, as `bench`, runs it \
                 in a kernel's place; `lathe validate FILE.wgsl` takes any WGSL",
            ));
        };
        let mut faults = Faults::default();
        let bindings = bindings(&declared, &mut faults);
        let name = name(&declared, &mut faults);
        check_params(&declared.params, &mut faults);
        let tolerance = tolerance(&declared, &bindings, &mut faults);
        faults.end(path)?;
        let file = path.with_file_name(&declared.golden);
        let golden = Golden::read(&file, &declared.params, bindings)?;
        let shapes = shapes(&declared, &golden, &mut faults);
        faults.end(path)?;
        let params = declared.params.iter().enumerate().map(|(at, name)| UntypedParam {
            name: name.clone(),
            kind: kind(golden.all().iter().map(|case| case.values[at])),
        });
        let bindings = golden.bindings().iter().map(|b| UntypedBinding {
            name: b.name.clone(),
            role: b.role,
            elem: b.stored.elem(),
        });
        let kernel = Untyped {
            name,
            variant: path.display().to_string(),
            params: params.collect(),
            bindings: bindings.collect(),
            shapes,
            tolerance,
        }
        .leak();
        let (path, declared) = (path.to_owned(), Arc::new(declared));
        Ok(Self { kernel, golden: Arc::new(golden), path, declared })
    }

    /// The mapping that declares it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error where the section of another mapping does not declare the same operation.
    pub(super) fn same(&self, path: &Path, other: &OperationMapping) -> Result<(), PlanError> {
        let first = self.path.display();
        let golden = |path: &Path, mapping: &OperationMapping| {
            let file = path.with_file_name(&mapping.golden);
            file.canonicalize().unwrap_or(file)
        };
        if golden(path, other) != golden(&self.path, &self.declared) {
            let file = self.golden.path().display();
            return Err(refused(
                path,
                format!("[operation] its golden file is another than {file} of {first}"),
            ));
        }
        // The same file may have another name from there.
        let expected =
            OperationMapping { golden: other.golden.clone(), ..(*self.declared).clone() };
        match *other == expected {
            true => Ok(()),
            false => Err(refused(
                path,
                format!("[operation] is not that of {first}; leave it out to take that one"),
            )),
        }
    }
}

/// A name that WGSL and expressions can hold.
fn is_identifier(name: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(part)
}

/// The name of the operation.
fn name(declared: &OperationMapping, faults: &mut Faults) -> String {
    let stem = declared.golden.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = declared.name.clone().or(stem).unwrap_or_default();
    let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() || !name.chars().all(part) {
        faults.add(format!(
            "[operation] name `{name}`: lower-case letters, digits and _; give it as `name`"
        ));
    }
    if name == "decode" || lathe_kernels::kernel(&name).is_some() {
        faults.add(format!(
            "[operation] name `{name}`: Lathe has this one; `lathe check {name} --wgsl FILE` holds \
             a file against it, or give yours another `name`"
        ));
    }
    name
}

fn bindings(declared: &OperationMapping, faults: &mut Faults) -> Vec<Declared> {
    let sections = [
        (Role::Input, &declared.inputs),
        (Role::Output, &declared.outputs),
        (Role::InOut, &declared.in_out),
    ];
    let mut all: Vec<Declared> = Vec::new();
    for (role, section) in sections {
        for (name, element) in section {
            if !is_identifier(name) || PARTS.contains(&name.as_str()) {
                faults.add(format!("[operation] binding `{name}`: take another name"));
            }
            if all.iter().any(|known| known.name == *name) {
                faults.add(format!(
                    "[operation] two bindings `{name}`: one that is read and written stands in \
                     `in_out` alone"
                ));
            }
            match Stored::of(element.parts().0) {
                Ok(stored) => all.push(Declared { name: name.clone(), role, stored }),
                Err(why) => faults.add(format!("[operation] {name}: {why}")),
            }
        }
    }
    if declared.outputs.is_empty() && declared.in_out.is_empty() {
        faults.add("[operation] has neither `outputs` nor `in_out`".into());
    }
    all
}

fn check_params(params: &[String], faults: &mut Faults) {
    for (at, name) in params.iter().enumerate() {
        // Words of the step state have these names.
        if !is_identifier(name) || [State::N_KV, State::PROMPT_LEN].contains(&name.as_str()) {
            faults.add(format!("[operation] params: `{name}`: take another name"));
        }
        if params[..at].contains(name) {
            faults.add(format!("[operation] params: `{name}` twice"));
        }
    }
}

fn tolerance(declared: &OperationMapping, bindings: &[Declared], faults: &mut Faults) -> Tolerance {
    let is_real = |b: &Declared| b.role != Role::Input && matches!(b.stored, Stored::Floats(_));
    let OwnTolerance { k, nmse } = match declared.tolerance {
        Some(own) => own,
        None => OwnTolerance { k: None, nmse: None },
    };
    for (name, bound) in [("k", k), ("nmse", nmse)] {
        match bound {
            Some(bound) if bound.is_finite() && bound >= 0.0 => {}
            Some(bound) => faults.add(format!("[operation] tolerance: {name} = {bound}")),
            None if bindings.iter().any(is_real) => faults.add(format!(
                "[operation] tolerance lacks `{name}`: it has real outputs, so say how far they may \
                 lie from what is expected, such as {{ k = 16, nmse = 1e-11 }}"
            )),
            None => {}
        }
    }
    let (k, nmse) = (k.unwrap_or(0.0), nmse.unwrap_or(0.0));
    Tolerance { k, rounding: 0.0, nmse, reason: "the section [operation] says so" }
}

/// How a parameter of these values is read and printed.
fn kind(values: impl Iterator<Item = f64>) -> ParamKind {
    let (mut least, mut most, mut whole) = (f64::INFINITY, f64::NEG_INFINITY, true);
    for value in values {
        (least, most) = (least.min(value), most.max(value));
        whole &= value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value);
    }
    match whole {
        true if least >= 1.0 => ParamKind::Dim { tile: 1, max: most as u32 },
        true => ParamKind::Start { max: most as u32 },
        false => {
            let (low, high) = (least as f32, most as f32);
            ParamKind::Float { low, high, least: f32::MIN, most: f32::MAX }
        }
    }
}

/// The shapes of a golden file, each with what its case costs.
fn shapes(declared: &OperationMapping, golden: &Golden, faults: &mut Faults) -> Vec<UntypedShape> {
    let mut shapes: Vec<UntypedShape> = Vec::new();
    for case in golden.all() {
        if shapes.iter().any(|known| known.values == case.values) {
            continue;
        }
        let mut names = Names::default();
        for (name, value) in declared.params.iter().zip(&case.values) {
            names.add(name, *value);
        }
        check_lens(declared, golden, case, &names, faults);
        let (mut lens, mut moved) = (Vec::new(), 0);
        for (at, binding) in golden.bindings().iter().enumerate() {
            let elements = golden.elements(case, at);
            names.add(&format!("{}.len", binding.name), elements as f64);
            let times = if binding.role == Role::InOut { 2 } else { 1 };
            moved += times * elements * binding.stored.bytes();
            lens.push(binding.stored.declared_len(elements));
        }
        let mut cost = |key: &str, number: &Number| {
            let what = format!("[operation] {key} in case `{}`", case.name);
            match value_of(number, &names) {
                Ok(value) if !(value.is_finite() && value >= 0.0) => {
                    faults.add(format!("{what}: {value}"));
                }
                Ok(value) => return value,
                Err(Wrong::Text(why) | Wrong::Value(why)) => faults.add(format!("{what}: {why}")),
            }
            0.0
        };
        let cost =
            Cost { bytes: cost("bytes", &declared.bytes), flops: cost("flops", &declared.flops) };
        if cost.bytes > moved as f64 {
            faults.add(format!(
                "[operation] bytes in case `{}` are {}, and all buffers together have {moved} (one \
                 of `in_out` counts twice): no kernel must move more, and a rate made of it would \
                 be too high",
                case.name, cost.bytes
            ));
        }
        shapes.push(UntypedShape { values: case.values.clone(), lens, cost });
    }
    shapes
}

/// Holds the lengths that the section states against the tensors of a case.
fn check_lens(
    declared: &OperationMapping,
    golden: &Golden,
    case: &Case,
    names: &Names,
    faults: &mut Faults,
) {
    let elements: BTreeMap<&String, &Element> =
        declared.inputs.iter().chain(&declared.outputs).chain(&declared.in_out).collect();
    for (at, binding) in golden.bindings().iter().enumerate() {
        let Some((_, Some(len))) = elements.get(&binding.name).map(|e| e.parts()) else { continue };
        let (name, case_name) = (&binding.name, &case.name);
        let is = golden.elements(case, at);
        match value_of(len, names) {
            Ok(wanted) if wanted == is as f64 => {}
            Ok(wanted) => faults.add(format!(
                "[operation] {name}: `{case_name}.{name}` of {} has {is} elements, and by `len` \
                 and the parameters of the case it should have {wanted}",
                golden.path().display()
            )),
            Err(Wrong::Text(why) | Wrong::Value(why)) => {
                faults.add(format!("[operation] {name}: len in case `{case_name}`: {why}"));
            }
        }
    }
}
