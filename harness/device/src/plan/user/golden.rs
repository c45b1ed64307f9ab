//! A golden file: inputs of an operation and what should come of them, which somebody computed
//! elsewhere. It is to an operation of the user's own what the reference is to ours.
//!
//! The file is safetensors. `CASE.BINDING` is what an invocation finds, `CASE.BINDING.expected`
//! what it should leave, `CASE.BINDING.magnitude` the scale of its rounding errors; the parameters
//! of a case stand in the metadata under its name, as `N=64,CAP=30`. Values are decoded when they
//! are asked for; that they can be is known once the file is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lathe_kernels::{Elem, FloatFormat, Role, Shape};
use lathe_model::safetensors::{Listed, index, metadata};
use lathe_record::files;
use lathe_reference::Expected;
use safetensors::Dtype;

use super::{Faults, refused};
use crate::plan::{FNV_START, PlanError, fnv};

/// How a binding's elements are stored, in the file and on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Real numbers, 16-bit ones two to a word.
    Floats(FloatFormat),
    /// Integers, which are compared exactly.
    Integers(Integer),
}

/// An integer type; bytes are four to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are WGSL's and C's own names")]
pub enum Integer {
    U32,
    I32,
    U8,
    I8,
}

impl Integer {
    /// Bytes of one.
    pub fn bytes(self) -> usize {
        match self {
            Integer::U32 | Integer::I32 => 4,
            Integer::U8 | Integer::I8 => 1,
        }
    }

    /// All that some bytes hold.
    pub fn decode(self, bytes: &[u8]) -> Vec<i64> {
        let words = || bytes.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
        match self {
            Integer::U32 => words().map(|b| u32::from_le_bytes(b).into()).collect(),
            Integer::I32 => words().map(|b| i32::from_le_bytes(b).into()).collect(),
            Integer::U8 => bytes.iter().map(|b| i64::from(*b)).collect(),
            Integer::I8 => bytes.iter().map(|b| i64::from(i8::from_le_bytes([*b]))).collect(),
        }
    }
}

impl Stored {
    /// Types by name, and what the file calls them.
    const ALL: [(&'static str, Dtype, Self); 7] = [
        ("f32", Dtype::F32, Self::Floats(FloatFormat::F32)),
        ("f16", Dtype::F16, Self::Floats(FloatFormat::F16)),
        ("bf16", Dtype::BF16, Self::Floats(FloatFormat::Bf16)),
        ("u32", Dtype::U32, Self::Integers(Integer::U32)),
        ("i32", Dtype::I32, Self::Integers(Integer::I32)),
        ("u8", Dtype::U8, Self::Integers(Integer::U8)),
        ("i8", Dtype::I8, Self::Integers(Integer::I8)),
    ];

    /// The type of a name.
    pub(super) fn of(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(known, ..)| *known == name);
        found.map(|(.., stored)| *stored).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|(known, ..)| *known).collect();
            format!("no type `{name}`; there are {}", known.join(", "))
        })
    }

    /// Its name, and the file's.
    fn names(self) -> (&'static str, Dtype) {
        let own = Self::ALL.iter().find(|(.., stored)| *stored == self);
        own.map(|(name, dtype, _)| (*name, *dtype)).expect("all are listed")
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::Floats(format) => format.bytes(),
            Self::Integers(integer) => integer.bytes(),
        }
    }

    /// As an operation declares it: bytes are words of four.
    pub(super) fn elem(self) -> Elem {
        match self {
            Self::Floats(format) => Elem::Floats(format),
            Self::Integers(_) => Elem::U32,
        }
    }

    /// Elements of the declared kind that so many take.
    pub(super) fn declared_len(self, len: usize) -> usize {
        match self {
            Self::Floats(_) => len,
            Self::Integers(integer) => (len * integer.bytes()).div_ceil(4),
        }
    }
}

/// A binding as the section of the operation declares it.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) stored: Stored,
}

/// A golden file that has been read and found whole.
#[derive(Debug)]
pub struct Golden {
    path: PathBuf,
    hash: String,
    bytes: Vec<u8>,
    params: Vec<String>,
    bindings: Vec<Declared>,
    /// By name.
    cases: Vec<Case>,
}

/// One case of it.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: String,
    /// The values of the parameters, in the order of the section.
    pub(super) values: Vec<f64>,
    /// Of each binding, in their order.
    tensors: Vec<Tensors>,
}

/// What a case has of a binding.
#[derive(Debug, Default)]
struct Tensors {
    found: Option<Listed>,
    expected: Option<Listed>,
    magnitude: Option<Listed>,
}

/// Elements of a tensor.
fn len_of(tensor: &Listed) -> usize {
    tensor.range.len() * 8 / tensor.dtype.bitsize().max(1)
}

/// What an invocation finds in a binding.
#[derive(Clone, Debug)]
pub enum Found {
    /// Real numbers.
    Floats(Vec<f32>),
    /// Words, in which smaller integers are packed; the last is filled with zeros.
    Words(Vec<u32>),
}

/// What an invocation should leave in a binding.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// Real numbers with the scales of their rounding errors: the values themselves without their
    /// sign, where the file has none.
    Floats(Expected),
    /// Integers.
    Integers {
        /// Their type.
        integer: Integer,
        /// How many.
        len: usize,
        /// They, packed in words.
        words: Vec<u32>,
    },
}

/// What a tensor is to its binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Found,
    Expected,
    Magnitude,
}

/// Case, binding and part of a tensor's name.
fn parts(name: &str) -> Option<(&str, &str, Part)> {
    let (rest, part) = match name.rsplit_once('.')? {
        (rest, "expected") => (rest, Part::Expected),
        (rest, "magnitude") => (rest, Part::Magnitude),
        _ => (name, Part::Found),
    };
    let (case, binding) = rest.rsplit_once('.')?;
    (!case.is_empty()).then_some((case, binding, part))
}

/// Last part of a tensor's name that says what it is, and so no name of a binding.
pub(super) const PARTS: [&str; 2] = ["expected", "magnitude"];

/// Most cases of a file: each is held against all others, and run.
const MOST_CASES: usize = 1000;

impl Golden {
    /// Reads a file for an operation of these parameters and bindings.
    ///
    /// # Errors
    /// What is wrong in it, a line each: the first fault of the file as such; else what names no
    /// tensor or parameters of the operation; else what of a case is missing or no use.
    pub(super) fn read(
        path: &Path,
        params: &[String],
        bindings: Vec<Declared>,
    ) -> Result<Self, PlanError> {
        let bytes = files::read(path, files::DATA).map_err(|e| refused(path, e))?;
        let listed = index(&bytes).map_err(|e| refused(path, e))?;
        let metadata = metadata(&bytes).map_err(|e| refused(path, e))?;
        let hash = format!("{:016x}", fnv(FNV_START, bytes.iter().copied()));
        let (mut cases, mut faults) = (BTreeMap::new(), Faults::default());
        for tensor in listed {
            if let Err(why) = place(&tensor, &bindings, &mut cases) {
                faults.add(format!("tensor `{}`: {why}", tensor.name));
            }
        }
        if cases.len() > MOST_CASES {
            let why = format!("{} cases, at most {MOST_CASES} are read", cases.len());
            return Err(refused(path, why));
        }
        for (name, text) in &metadata {
            // Other keys, such as who wrote the file, have another form.
            if text.contains('=') && !cases.contains_key(name) {
                faults.add(format!("metadata `{name}`: the file has no tensor of this case"));
            }
        }
        let mut read = Vec::new();
        for (name, tensors) in cases {
            match values(&name, params, metadata.get(&name)) {
                Ok(values) => read.push(Case { name, values, tensors }),
                Err(why) => faults.add(why),
            }
        }
        // What of a case lies elsewhere would be missed below.
        faults.end(path)?;
        let (own, params) = (path.to_owned(), params.to_vec());
        let golden = Self { path: own, hash, bytes, params, bindings, cases: read };
        for case in &golden.cases {
            for (binding, tensors) in golden.bindings.iter().zip(&case.tensors) {
                if let Err(why) = golden.whole(case, binding, tensors) {
                    faults.add(why);
                }
            }
        }
        if golden.cases.is_empty() {
            faults.add("it has no case: tensors are named CASE.BINDING".into());
        }
        faults.end(path)?;
        golden.alike(&mut faults);
        faults.end(path)?;
        Ok(golden)
    }

    /// Whether a case has all of a binding, with values that something can be held against.
    fn whole(&self, case: &Case, binding: &Declared, tensors: &Tensors) -> Result<(), String> {
        let (case, name, stored) = (&case.name, &binding.name, binding.stored);
        let tensor =
            |suffix: &str, why: &str| Err(format!("tensor `{case}.{name}{suffix}`: {why}"));
        let lacks = "the file does not have it";
        if binding.role != Role::Output && tensors.found.is_none() {
            return tensor("", lacks);
        }
        if binding.role == Role::Input {
            return Ok(());
        }
        let Some(expected) = &tensors.expected else { return tensor(".expected", lacks) };
        let others = [("", &tensors.found), (".magnitude", &tensors.magnitude)];
        for (suffix, other) in others {
            let len = len_of(expected);
            let other = other.as_ref().map_or(len, len_of);
            if other != len {
                return tensor(suffix, &format!("{other} elements, and {len} are expected"));
            }
        }
        if matches!(stored, Stored::Integers(_)) {
            return Ok(());
        }
        if let Some(why) = self.first(expected, |value| !value.is_finite()) {
            return tensor(".expected", &format!("{why}: nothing can be held against that"));
        }
        let scale = tensors.magnitude.as_ref();
        let bad = |value: f64| !value.is_finite() || value < 0.0;
        match scale.and_then(|scale| self.first(scale, bad)) {
            None => Ok(()),
            Some(why) => tensor(".magnitude", &format!("{why}: a scale is finite and not below 0")),
        }
    }

    /// The first element that is `bad`, and where it is.
    fn first(&self, tensor: &Listed, bad: impl Fn(f64) -> bool) -> Option<String> {
        let values = self.reals(tensor);
        let at = values.iter().position(|value| bad(*value))?;
        let offset = tensor.range.start + at * tensor.dtype.bitsize() / 8;
        Some(format!("element {at}, at byte {offset} of the file, is {}", values[at]))
    }

    /// Cases of equal parameters are draws of one shape: their sizes are the same.
    fn alike(&self, faults: &mut Faults) {
        for (i, case) in self.cases.iter().enumerate() {
            let Some(first) = self.cases[..i].iter().find(|c| c.values == case.values) else {
                continue;
            };
            for (at, binding) in self.bindings.iter().enumerate() {
                let (own, other) = (self.elements(case, at), self.elements(first, at));
                if own != other {
                    let (case, first, binding) = (&case.name, &first.name, &binding.name);
                    faults.add(format!(
                        "tensor `{case}.{binding}`: {own} elements, and `{first}.{binding}` of the \
                         same parameters has {other}"
                    ));
                }
            }
        }
    }

    /// Elements of a binding in a case.
    pub(super) fn elements(&self, case: &Case, binding: usize) -> usize {
        let tensors = &case.tensors[binding];
        tensors.found.as_ref().or(tensors.expected.as_ref()).map_or(0, len_of)
    }

    pub(super) fn all(&self) -> &[Case] {
        &self.cases
    }

    pub(super) fn bindings(&self) -> &[Declared] {
        &self.bindings
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hash of its bytes (FNV-1a).
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// All its cases.
    pub fn cases(&self) -> usize {
        self.cases.len()
    }

    /// Cases of a shape: draws of its inputs.
    pub fn draws(&self, shape: &Shape) -> usize {
        self.of(shape).count()
    }

    /// The name of a draw.
    pub fn name(&self, shape: &Shape, draw: usize) -> &str {
        self.of(shape).nth(draw).map_or("", |case| &case.name)
    }

    fn of(&self, shape: &Shape) -> impl Iterator<Item = &Case> {
        let is = move |case: &&Case| {
            let mut values = self.params.iter().zip(&case.values);
            values.all(|(name, value)| shape.get(name) == Some(*value))
        };
        self.cases.iter().filter(is)
    }

    /// What an invocation of a draw finds in a binding. Beyond the cases of the shape these are
    /// decoys: the same cases with real inputs turned by some elements, of which nobody knows what
    /// comes. Integers stay, for they may be places in something.
    pub fn found(&self, shape: &Shape, draw: usize, binding: &str) -> Option<Found> {
        let draws = self.draws(shape);
        let case = self.of(shape).nth(draw % draws.max(1))?;
        let at = self.bindings.iter().position(|b| b.name == binding)?;
        let tensor = case.tensors[at].found.as_ref()?;
        let bytes = &self.bytes[tensor.range.clone()];
        Some(match self.bindings[at].stored {
            Stored::Floats(format) => {
                let mut values = format.decode(bytes, len_of(tensor));
                let len = values.len().max(1);
                values.rotate_right(draw / draws % len);
                Found::Floats(values)
            }
            Stored::Integers(_) => Found::Words(words(bytes)),
        })
    }

    /// What an invocation of a draw should leave in a binding; nothing of what it only reads, and
    /// of decoys.
    pub fn wanted(&self, shape: &Shape, draw: usize, binding: &str) -> Option<Wanted> {
        let case = self.of(shape).nth(draw)?;
        let at = self.bindings.iter().position(|b| b.name == binding)?;
        let Tensors { expected, magnitude, .. } = &case.tensors[at];
        let expected = expected.as_ref()?;
        Some(match self.bindings[at].stored {
            Stored::Floats(_) => {
                let values = self.reals(expected);
                let own = || values.iter().map(|v| v.abs()).collect();
                let magnitudes = magnitude.as_ref().map_or_else(own, |tensor| self.reals(tensor));
                Wanted::Floats(Expected::new(values, magnitudes))
            }
            Stored::Integers(integer) => {
                let words = words(&self.bytes[expected.range.clone()]);
                Wanted::Integers { integer, len: len_of(expected), words }
            }
        })
    }

    /// What the device holds of a binding at a shape: its type and its elements.
    pub fn stored(&self, shape: &Shape, binding: &str) -> Option<(Stored, usize)> {
        let at = self.bindings.iter().position(|b| b.name == binding)?;
        Some((self.bindings[at].stored, self.elements(self.of(shape).next()?, at)))
    }

    /// Real numbers of any type, widened.
    fn reals(&self, tensor: &Listed) -> Vec<f64> {
        let bytes = &self.bytes[tensor.range.clone()];
        let format = match tensor.dtype {
            Dtype::F64 => return bytemuck::pod_collect_to_vec(bytes),
            Dtype::F16 => FloatFormat::F16,
            Dtype::BF16 => FloatFormat::Bf16,
            _ => FloatFormat::F32,
        };
        format.decode(bytes, len_of(tensor)).into_iter().map(f64::from).collect()
    }
}

/// Bytes as words.
fn words(bytes: &[u8]) -> Vec<u32> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytemuck::pod_collect_to_vec(&bytes)
}

/// Puts a tensor to its case and binding.
fn place(
    tensor: &Listed,
    bindings: &[Declared],
    cases: &mut BTreeMap<String, Vec<Tensors>>,
) -> Result<(), String> {
    let (case, binding, part) = parts(&tensor.name).ok_or("a name is CASE.BINDING")?;
    let at = bindings.iter().position(|b| b.name == binding).ok_or_else(|| {
        let known: Vec<_> = bindings.iter().map(|b| b.name.as_str()).collect();
        format!("the operation has no binding `{binding}`; it has {}", known.join(", "))
    })?;
    let Declared { role, stored, .. } = bindings[at];
    match (role, part) {
        (Role::Input, Part::Expected | Part::Magnitude) => {
            return Err(format!("`{binding}` is an input: nothing is expected of it"));
        }
        (Role::Output, Part::Found) => {
            return Err(format!(
                "`{binding}` is an output: what should come of it is `{case}.{binding}.expected`"
            ));
        }
        _ => {}
    }
    let reals = [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F64];
    let fits = match (stored, part) {
        // What should come out may be known better than it can be stored.
        (Stored::Floats(_), Part::Expected | Part::Magnitude) => reals.contains(&tensor.dtype),
        (Stored::Integers(_), Part::Magnitude) => {
            return Err("integers are compared exactly: they have no magnitude".into());
        }
        _ => tensor.dtype == stored.names().1,
    };
    if !fits {
        let (is, wants) = (tensor.dtype, stored.names().0);
        return Err(format!("its type is {is}, and the operation says {wants}"));
    }
    if len_of(tensor) == 0 {
        return Err("it has no element".into());
    }
    let all = cases
        .entry(case.to_owned())
        .or_insert_with(|| bindings.iter().map(|_| Tensors::default()).collect());
    let slot = match part {
        Part::Found => &mut all[at].found,
        Part::Expected => &mut all[at].expected,
        Part::Magnitude => &mut all[at].magnitude,
    };
    *slot = Some(tensor.clone());
    Ok(())
}

/// The parameters of a case, in the order of the section.
fn values(case: &str, params: &[String], text: Option<&String>) -> Result<Vec<f64>, String> {
    let form: Vec<_> = params.iter().map(|name| format!("{name}=…")).collect();
    let form = form.join(",");
    let Some(text) = text else {
        return match params {
            [] => Ok(Vec::new()),
            _ => Err(format!("metadata `{case}`: lacks the parameters of this case, `{form}`")),
        };
    };
    let wrong = |why: String| format!("metadata `{case}` = `{text}`: {why}");
    let mut found = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let pair = part.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
        let number = pair.and_then(|(name, value)| Some((name, value.parse::<f64>().ok()?)));
        // What a shader can be given: whatever an f32 holds.
        let fits = |value: &f64| value.is_finite() && (*value as f32).is_finite();
        let Some((name, value)) = number.filter(|(_, value)| fits(value)) else {
            return Err(wrong(format!("`{part}` is no NAME=NUMBER")));
        };
        if !params.iter().any(|known| known == name) {
            return Err(wrong(format!("no parameter `{name}`; there are {}", params.join(", "))));
        }
        // As `--shape` reads it: a size as it is, other numbers as an f32 holds them.
        let is_size = value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value);
        let value = if is_size { value } else { f64::from(value as f32) };
        if found.insert(name, value).is_some() {
            return Err(wrong(format!("`{name}` twice")));
        }
    }
    let of = |name: &String| {
        found.get(name.as_str()).copied().ok_or_else(|| wrong(format!("lacks `{name}`")))
    };
    params.iter().map(of).collect()
}
