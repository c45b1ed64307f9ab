//! Targets of a user's buffers: our bindings, in other layouts where the mapping asks for them,
//! content of uniforms, and scratch memory.

use std::collections::{BTreeMap, BTreeSet};

use lathe_kernels::reflect::{Buffer, Field, Scalar};
use lathe_kernels::{Elem, KernelBinding, Matrix, Packing, Plane, Problem, Role, Shape, State};

use super::expression::{Names, Wrong};
use super::mapping::{BoundTo, Content, Laid, Number, Numbers};
use super::{Faults, Stage, UserKernel, value_of};
use crate::plan::layout::{Arrangement, KvOrder, PartLayout, WeightPart};
use crate::plan::{Code, Foreign};

/// Targets of the buffers of a plan.
pub(super) struct Bound<'a> {
    file: &'a UserKernel,
    problem: Problem,
    parameters: &'a Names,
    /// Packing of rows whose variable does not ask for another.
    pub(super) packing: Packing,
    /// Buffers and layouts that the kernel itself does not have.
    pub(super) foreign: Foreign,
}

/// The plan's name of a file's own scratch memory: different from every binding and uniform.
fn scratch_name(name: &str) -> String {
    format!("scratch.{name}")
}

/// Adds something and returns its name, made unique: a variable may mean something else in another
/// stage.
fn named<T: PartialEq>(
    all: &mut Vec<T>,
    mut one: T,
    name: impl Fn(&mut T) -> &mut String,
) -> String {
    loop {
        let called = name(&mut one).clone();
        match all.iter_mut().position(|known| *name(known) == called) {
            Some(at) if all[at] == one => return called,
            Some(_) => name(&mut one).push('\''),
            None => {
                all.push(one);
                return called;
            }
        }
    }
}

impl<'a> Bound<'a> {
    /// A plan without any bound buffer; scratch memory has its sizes, in whole words.
    pub(super) fn new(
        file: &'a UserKernel,
        shape: &Shape,
        parameters: &'a Names,
        faults: &mut Faults,
    ) -> Self {
        /// Larger than any binding. Sizes that are no number of bytes are far larger.
        const MOST: f64 = (1u64 << 48) as f64;
        let mut foreign = Foreign { tolerated: file.tolerated, ..Foreign::default() };
        for (name, bytes) in &file.scratch {
            if file.kernel.binding(name).is_some() {
                let kernel = file.kernel.name;
                faults.add(format!("[scratch] {kernel} has a binding `{name}`: take another name"));
            }
            let what = format!("[scratch] {name}");
            match faults.value(&what, value_of(bytes, parameters)) {
                Some(bytes) if bytes.fract() == 0.0 && (1.0..=MOST).contains(&bytes) => {
                    let bytes = (bytes as u64).next_multiple_of(4);
                    foreign.scratch.push((scratch_name(name), bytes));
                }
                Some(bytes) => faults.add_here(format!("{what}: {bytes} bytes")),
                None => {}
            }
        }
        Self {
            file,
            problem: Problem { shape: shape.clone(), state: State::default() },
            parameters,
            packing: file.kernel.packing(file.variant.packing, shape),
            foreign,
        }
    }

    /// Binds the buffers of a stage. Returns the plan's name of each variable.
    pub(super) fn bind(
        &mut self,
        stage: &Stage,
        names: &Names,
        faults: &mut Faults,
    ) -> BTreeMap<String, String> {
        let reflection = &self.file.modules[stage.module].code.reflection;
        let mut bindings = BTreeMap::new();
        let Some(entry) = reflection.entry(&stage.entry) else { return bindings };
        for &index in &entry.buffers {
            let buffer = &reflection.buffers[index];
            let name = &buffer.name;
            let given = stage.sections.uniforms.get(name);
            if let Some(fields) = &buffer.uniform {
                let called = self.uniform((buffer, fields), given, names, faults);
                let other = called.filter(|called| called != name);
                bindings.extend(other.map(|called| (name.clone(), called)));
                continue;
            }
            if given.is_some() {
                faults.add(format!("[uniforms.{name}] names a storage buffer"));
            }
            let Some((called, of)) = self.target(stage, name, faults) else { continue };
            let input = of.filter(|of| of.role == Role::Input);
            if let Some(input) = input.filter(|_| entry.writes.contains(&index)) {
                faults.add(format!("writes `{name}`, which is the input {}", input.name));
            }
            bindings.insert(name.clone(), called);
        }
        // Memory that is declared `read_write` can be bound once in a dispatch.
        let writable =
            |name: &String| reflection.buffers.iter().any(|b| b.name == *name && b.writable);
        let mut seen: BTreeMap<&String, &String> = BTreeMap::new();
        for (name, ours) in &bindings {
            let Some(other) = seen.insert(ours, name) else { continue };
            if writable(name) || writable(other) {
                faults.add(format!(
                    "`{other}` and `{name}` are both {ours}: memory that is declared `read_write` \
                     can be bound once"
                ));
            }
        }
        bindings
    }

    /// Reports outputs and scratch memory that no stage uses.
    pub(super) fn check<'c>(&mut self, codes: impl Iterator<Item = &'c Code>, faults: &mut Faults) {
        self.foreign.kv_orders.retain(|_, order| *order != KvOrder::Heads);
        let used: BTreeSet<&str> =
            codes.flat_map(|code| code.bindings.values()).map(String::as_str).collect();
        // Without stages nothing is used, and that is the fault.
        if self.file.stages.is_empty() {
            return;
        }
        let kernel = self.file.kernel;
        let is_used = |name: &str| used.contains(name);
        let of_role = |role: Role| kernel.bindings.iter().filter(move |b| b.role == role);
        for b in of_role(Role::Output).filter(|b| !is_used(b.name)) {
            faults.add(format!("nothing is bound to output `{}`", b.name));
        }
        // With some parameters one of several stays as it is; all of them never do.
        if of_role(Role::Output).count() == 0 && !of_role(Role::InOut).any(|b| is_used(b.name)) {
            for b in of_role(Role::InOut) {
                faults.add(format!(
                    "nothing is bound to `{}`, which {} changes",
                    b.name, kernel.name
                ));
            }
        }
        for name in self.file.scratch.keys().filter(|name| !is_used(&scratch_name(name))) {
            faults.add(format!("[scratch] no stage uses `{name}`"));
        }
    }

    /// The plan's name for a storage variable, and our binding if it is one.
    fn target(
        &mut self,
        stage: &Stage,
        name: &str,
        faults: &mut Faults,
    ) -> Option<(String, Option<&'static KernelBinding>)> {
        let file = self.file;
        let mapped = stage.sections.bindings.get(name);
        let ours = mapped.map_or(name, BoundTo::of);
        let laid = mapped.and_then(BoundTo::laid);
        let mut add = |fault: String| {
            faults.add(fault);
            None
        };
        if file.scratch.contains_key(ours) {
            if laid.is_some() {
                return add(format!("buffer `{name}`: scratch memory `{ours}` has no layout"));
            }
            return Some((scratch_name(ours), None));
        }
        let Some(of) = file.kernel.binding(ours) else {
            let known: Vec<_> = file.kernel.bindings.iter().map(|b| b.name).collect();
            let (kernel, known) = (file.kernel.name, known.join(", "));
            return add(match mapped {
                Some(_) => format!(
                    "buffer `{name}` is mapped to `{ours}`, which is no binding of {kernel}; it \
                     has {known}"
                ),
                None => format!(
                    "buffer `{name}` is no binding of {kernel}; map it in [bindings] to one of \
                     {known}"
                ),
            });
        };
        let plain = || Some((ours.to_owned(), Some(of)));
        let none = Laid::default();
        match of.elem(&self.problem) {
            Elem::Weights(matrix) => {
                // Beside parts the whole is one more: the device has no other.
                if laid.is_none() && !file.tight && !file.lays_out(ours) {
                    return plain();
                }
                let len = of.len(&self.problem) / matrix.k;
                let (rows, k) = matrix.order.streams(len, matrix.k);
                let layout = self.part(laid.unwrap_or(&none), (Matrix { k, ..matrix }, rows));
                let layout = faults.value(&format!("[bindings] {name}"), layout)?;
                let part = WeightPart { name: format!("{}.{name}", of.name), of: of.name, layout };
                let called = named(&mut self.foreign.parts, part, |part| &mut part.name);
                Some((called, Some(of)))
            }
            Elem::Kv(_) => {
                let order = match self.kv_order(laid.unwrap_or(&none), of.len(&self.problem)) {
                    Ok(order) => order,
                    Err(why) => return add(format!("[bindings] {name}: {why}")),
                };
                if *self.foreign.kv_orders.entry(of.name).or_insert(order) != order {
                    return add(format!("[bindings] {name}: {ours} is bound in two orders"));
                }
                plain()
            }
            _ if laid.is_some() => add(format!(
                "[bindings] {name}: {ours} is neither weights nor a cache: it has one layout"
            )),
            _ => plain(),
        }
    }

    /// Layout of weights in a variable.
    fn part(&self, laid: &Laid, (matrix, all): (Matrix, usize)) -> Result<PartLayout, Wrong> {
        let arrangement = match laid.order.as_deref() {
            Some("columns") => Arrangement::Columns,
            // Fields of padded rows would lie nobody knows how far apart.
            None | Some("rows") if self.file.tight || laid.field.is_some() => Arrangement::Rows,
            None | Some("rows") => Arrangement::Packed(self.packing),
            Some(order) => {
                let why = format!("no order `{order}` of weights; there are rows, columns");
                return Wrong::text(why);
            }
        };
        let find = |name: &String| {
            let fields = matrix.format.fields_apart();
            let found = fields.iter().find(|(own, _)| own == name);
            found.map(|(_, field)| *field).ok_or_else(|| {
                let known: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
                let (format, known) = (matrix.format.name(), known.join(", "));
                // Another format may have it.
                Wrong::Value(match known.as_str() {
                    "" => format!("{format} has no fields; [takes] says which WEIGHT it takes"),
                    known => format!("{format} has no field `{name}`; it has {known}"),
                })
            })
        };
        let field = laid.field.as_ref().map(find).transpose()?;
        let halves = matches!(field, Some(Plane::Bytes { bytes: 2, .. }));
        let widened = match laid.stored.as_deref() {
            None => false,
            Some("f16") if halves => false,
            Some("f32") if halves => true,
            Some(other) => {
                let why = format!("type `{other}`; `d` and `m` are f16, or f32 if asked");
                return Wrong::text(why);
            }
        };
        let row = |number: &Option<Number>, default: usize| match number {
            None => Ok(default),
            Some(number) => match value_of(number, self.parameters)? {
                row if row.fract() == 0.0 && (0.0..=all as f64).contains(&row) => Ok(row as usize),
                row => Err(Wrong::Value(format!("row {row} of {all}"))),
            },
        };
        let (from, to) = (row(&laid.from, 0)?, row(&laid.to, all)?);
        if from >= to {
            return Err(Wrong::Value(format!("no row from {from} to {to}")));
        }
        Ok(PartLayout { rows: from..to, field, arrangement, widened })
    }

    /// Order of a cache in a variable.
    fn kv_order(&self, laid: &Laid, len: usize) -> Result<KvOrder, String> {
        let Laid { of: _, from, to, field, stored, order } = laid;
        if field.is_some() || stored.is_some() || from.is_some() || to.is_some() {
            return Err("a cache has an `order` and nothing else".into());
        }
        let size = |name: &str| self.problem.shape.get(name).map(|size| size as usize);
        match (order.as_deref(), size("KV_HEADS").zip(size("HEAD_DIM"))) {
            (None | Some("heads"), _) => Ok(KvOrder::Heads),
            (Some("tokens"), Some((heads, head_dim))) => {
                let token = size("SEQUENCES").unwrap_or(1) * heads * head_dim;
                Ok(KvOrder::Tokens { heads, slots: len / token.max(1) })
            }
            (Some("tokens"), None) => {
                Err(format!("caches of {} have no order of tokens", self.file.kernel.name))
            }
            (Some(order), _) => {
                Err(format!("no order `{order}` of a cache; there are heads, tokens"))
            }
        }
    }

    /// The plan's name of a uniform variable.
    fn uniform(
        &mut self,
        (buffer, fields): (&Buffer, &[Field]),
        given: Option<&Content>,
        names: &Names,
        faults: &mut Faults,
    ) -> Option<String> {
        let name = &buffer.name;
        let is_whole = matches!(fields, [field] if field.name.is_empty());
        faults.add(match given {
            None if is_whole => format!("uniform `{name}` needs a value: [uniforms] {name} = …"),
            None => format!("uniform `{name}` needs a section [uniforms.{name}]"),
            Some(Content::Whole(_)) if !is_whole => {
                let known: Vec<_> = fields.iter().take(8).map(|f| f.name.as_str()).collect();
                let known = known.join(", ");
                format!("uniform `{name}` has fields: [uniforms.{name}] gives them ({known})")
            }
            Some(Content::Fields(_)) if is_whole => {
                format!("uniform `{name}` is no struct: [uniforms] {name} = …")
            }
            Some(given) => {
                let bytes = pack((buffer, fields), given, names, faults);
                let free = match self.file.kernel.binding(name) {
                    None => name.clone(),
                    Some(_) => format!("uniform.{name}"),
                };
                return Some(named(&mut self.foreign.uniforms, (free, bytes), |(name, _)| name));
            }
        });
        None
    }
}

impl UserKernel {
    /// Returns true if some variable holds this binding in a layout of its own.
    fn lays_out(&self, ours: &str) -> bool {
        let mut all = self.stages.iter().flat_map(|stage| stage.sections.bindings.values());
        all.any(|bound| bound.of() == ours && bound.laid().is_some())
    }
}

/// Content of a uniform buffer.
fn pack(
    (buffer, fields): (&Buffer, &[Field]),
    given: &Content,
    names: &Names,
    faults: &mut Faults,
) -> Vec<u8> {
    let name = &buffer.name;
    if let Content::Fields(given) = given {
        let known = |name: &String| fields.iter().any(|field| field.name == *name);
        for field in given.keys().filter(|name| !known(name)) {
            faults.add(format!("uniform `{name}` has no field `{field}`"));
        }
    }
    let mut bytes = vec![0; buffer.least_bytes.next_multiple_of(16) as usize];
    for field in fields {
        let (what, numbers) = match given {
            Content::Whole(numbers) => (format!("uniform `{name}`"), Some(numbers)),
            Content::Fields(given) => {
                (format!("uniform field `{}`", field.name), given.get(&field.name))
            }
        };
        let Some(numbers) = numbers.map(Numbers::list) else {
            if !is_padding(&field.name) {
                faults.add(format!("{what} has no value"));
            }
            continue;
        };
        if numbers.len() != field.offsets.len() {
            let own = match field.offsets.len() {
                1 => "one number".to_owned(),
                n => format!("{n} numbers"),
            };
            faults.add(format!("{what} has {own}, the mapping gives {}", numbers.len()));
            continue;
        }
        for (number, offset) in numbers.iter().zip(&field.offsets) {
            let Some(number) = faults.value(&what, value_of(number, names)) else { continue };
            match word(number, field.scalar) {
                Some(word) => bytes[*offset as usize..][..4].copy_from_slice(&word),
                None => faults.add_here(format!("{what} cannot hold {number}")),
            }
        }
    }
    bytes
}

/// Returns true if a field exists for the layout alone, such as `_pad` or `pad0`: it is 0 where a
/// mapping does not name it. `pad_left` and `padding` may mean something.
pub fn is_padding(name: &str) -> bool {
    let own = name.rsplit('.').next().unwrap_or(name);
    let number = own.strip_prefix("padding").or_else(|| own.strip_prefix("pad"));
    let is_number = |n: &str| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit());
    own.starts_with('_') || number.is_some_and(|n| is_number(n.trim_start_matches('_')))
}

/// The bytes of a number in a uniform; none if its type cannot hold it.
fn word(number: f64, scalar: Scalar) -> Option<[u8; 4]> {
    let is_whole = number.fract() == 0.0;
    match scalar {
        Scalar::U32 => (is_whole && (0.0..=f64::from(u32::MAX)).contains(&number))
            .then(|| (number as u32).to_le_bytes()),
        Scalar::I32 => (is_whole && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number))
            .then(|| (number as i32).to_le_bytes()),
        Scalar::F32 => (number as f32).is_finite().then(|| (number as f32).to_le_bytes()),
    }
}
