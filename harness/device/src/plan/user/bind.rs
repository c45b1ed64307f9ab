//! What the buffers of a user's file are: bindings of ours, in layouts of its own where it says so,
//! content of uniforms, scratch memory.

use std::collections::BTreeMap;

use lathe_kernels::reflect::{Buffer, Field, Scalar};
use lathe_kernels::{Elem, KernelBinding, Matrix, Packing, Plane, Problem, Role, Shape, State};

use super::expression::{Names, Wrong};
use super::mapping::{BoundTo, Content, Laid, Number, Numbers, StageMapping};
use super::{Faults, Staged, TIGHT, UserKernel, value_of};
use crate::plan::layout::{Arrangement, KvOrder, PartLayout, WeightPart};

/// What a plan is made for.
pub(super) struct At<'a> {
    pub(super) shape: &'a Shape,
    pub(super) parameters: &'a Names,
    /// How rows lie that say nothing else.
    pub(super) packing: Packing,
}

/// What a plan's stages are bound to.
#[derive(Default)]
pub(super) struct Bound {
    /// Of each stage, the plan's name of each variable that has another.
    pub(super) bindings: Vec<BTreeMap<String, String>>,
    /// Content of uniform buffers, by the plan's names.
    pub(super) uniforms: Vec<(String, Vec<u8>)>,
    /// Bytes of scratch memory, by the plan's names.
    pub(super) scratch: Vec<(String, u64)>,
    /// Weights in layouts of their own.
    pub(super) parts: Vec<WeightPart>,
    /// Caches in an order of their own.
    pub(super) kv_orders: BTreeMap<&'static str, KvOrder>,
}

/// The plan's name of scratch memory of a file's own: no binding's and no uniform's.
fn scratch_name(name: &str) -> String {
    format!("scratch.{name}")
}

/// Adds something under a name and says which: the same variable may be another in another stage.
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

impl UserKernel {
    /// What the buffers are that its stages use.
    pub(super) fn bound(&self, stages: &[Staged<'_>], at: &At<'_>, faults: &mut Faults) -> Bound {
        let mut bound = Bound { scratch: self.scratch(at.parameters, faults), ..Bound::default() };
        for stage in stages {
            let bindings = self.bound_of(stage, at, &mut bound, faults);
            bound.bindings.push(bindings);
        }
        bound.kv_orders.retain(|_, order| *order != KvOrder::Heads);
        // Without stages nothing is used, and that is the fault.
        if stages.is_empty() {
            return bound;
        }
        let is_used = |name: &str| {
            bound.bindings.iter().any(|stage| stage.values().any(|bound| bound == name))
        };
        let of_role = |role: Role| self.kernel.bindings.iter().filter(move |b| b.role == role);
        for b in of_role(Role::Output).filter(|b| !is_used(b.name)) {
            faults.add(format!("nothing is bound to output `{}`", b.name));
        }
        // With some parameters one of several stays as it is; all of them never do.
        if of_role(Role::Output).count() == 0 && !of_role(Role::InOut).any(|b| is_used(b.name)) {
            for b in of_role(Role::InOut) {
                let kernel = self.kernel.name;
                faults.add(format!("nothing is bound to `{}`, which {kernel} changes", b.name));
            }
        }
        for name in self.mapping.scratch.keys().filter(|name| !is_used(&scratch_name(name))) {
            faults.add(format!("[scratch] no stage uses `{name}`"));
        }
        bound
    }

    /// Sizes of scratch memory of its own, in whole words.
    fn scratch(&self, parameters: &Names, faults: &mut Faults) -> Vec<(String, u64)> {
        /// More than any binding holds; a size that is no number of bytes is far above.
        const MOST: f64 = (1u64 << 48) as f64;
        let mut scratch = Vec::new();
        for (name, bytes) in &self.mapping.scratch {
            if self.kernel.binding(name).is_some() {
                let kernel = self.kernel.name;
                faults.add(format!("[scratch] {kernel} has a binding `{name}`: take another name"));
            }
            let what = format!("[scratch] {name}");
            let Some(bytes) = faults.value(&what, value_of(bytes, parameters)) else { continue };
            if bytes.fract() != 0.0 || !(1.0..=MOST).contains(&bytes) {
                faults.add_here(format!("{what}: {bytes} bytes"));
                continue;
            }
            scratch.push((scratch_name(name), (bytes as u64).next_multiple_of(4)));
        }
        scratch
    }

    /// What the buffers of one stage are. Its uniforms, and weights and caches that lie in their
    /// own way, are added to those known.
    fn bound_of(
        &self,
        stage: &Staged<'_>,
        at: &At<'_>,
        bound: &mut Bound,
        faults: &mut Faults,
    ) -> BTreeMap<String, String> {
        let (mapping, reflection) = (&self.mapping, &stage.module.reflection);
        let names = at.parameters.with(&stage.constants);
        let Some(entry) = reflection.entry(&stage.entry) else { return BTreeMap::new() };
        let mut bindings = BTreeMap::new();
        for &index in &entry.buffers {
            let buffer = &reflection.buffers[index];
            let name = &buffer.name;
            let mut add = |fault: String| faults.add(self.fault_of(stage.module, fault));
            let own = stage.own.and_then(|own| own.uniforms.get(name));
            let given = own.or_else(|| mapping.uniforms.get(name));
            if let Some(fields) = &buffer.uniform {
                let Some(given) = given else {
                    add(match fields.as_slice() {
                        [field] if field.name.is_empty() => {
                            format!("uniform `{name}` needs a value: [uniforms] {name} = …")
                        }
                        _ => format!("uniform `{name}` needs a section [uniforms.{name}]"),
                    });
                    continue;
                };
                let speaks = own.and(stage.own);
                let bytes = self.pack((stage, speaks), (buffer, fields), given, &names, faults);
                let free = match self.kernel.binding(name) {
                    None => name.clone(),
                    Some(_) => format!("uniform.{name}"),
                };
                let called = named(&mut bound.uniforms, (free, bytes), |(name, _)| name);
                if called != *name {
                    bindings.insert(name.clone(), called);
                }
                continue;
            }
            if given.is_some() {
                add(format!("[uniforms.{name}] names a storage buffer"));
            }
            let Some((called, of)) = self.target(stage, buffer, at, bound, faults) else {
                continue;
            };
            let input = of.filter(|of| of.role == Role::Input);
            if let Some(input) = input.filter(|_| entry.writes.contains(&index)) {
                let fault = format!("writes `{name}`, which is the input {}", input.name);
                faults.add(self.fault_of(stage.module, fault));
            }
            bindings.insert(name.clone(), called);
        }
        self.refuse_twice(stage, &bindings, faults);
        bindings
    }

    /// What a storage variable is mapped to: the plan's name of that, and our binding where it is
    /// one.
    fn target(
        &self,
        stage: &Staged<'_>,
        buffer: &Buffer,
        at: &At<'_>,
        bound: &mut Bound,
        faults: &mut Faults,
    ) -> Option<(String, Option<&'static KernelBinding>)> {
        let (mapping, name) = (&self.mapping, &buffer.name);
        let own = stage.own.and_then(|own| own.bindings.get(name));
        let mapped = own.or_else(|| mapping.bindings.get(name));
        let ours = mapped.map_or(name.as_str(), BoundTo::of);
        let laid = mapped.and_then(BoundTo::laid);
        let mut add = |fault: String| {
            faults.add(self.fault_of(stage.module, fault));
            None
        };
        if mapping.scratch.contains_key(ours) {
            if laid.is_some() {
                return add(format!("buffer `{name}`: scratch memory `{ours}` has no layout"));
            }
            return Some((scratch_name(ours), None));
        }
        let Some(of) = self.kernel.binding(ours) else {
            let known: Vec<_> = self.kernel.bindings.iter().map(|b| b.name).collect();
            let (kernel, known) = (self.kernel.name, known.join(", "));
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
        let problem = Problem { shape: at.shape.clone(), state: State::default() };
        let what = |why: String| format!("[bindings] {name}: {why}");
        match of.elem(&problem) {
            Elem::Weights(matrix) => {
                // Beside parts the whole is one more: the device has no other.
                let tight = mapping.packing.as_deref() == Some(TIGHT);
                if laid.is_none() && !tight && !self.lays_out(ours) {
                    return plain();
                }
                let laid = laid.unwrap_or_default();
                let (rows, k) = matrix.order.streams(of.len(&problem) / matrix.k, matrix.k);
                let matrix = Matrix { k, ..matrix };
                let layout = self.part(&laid, (matrix, rows), at);
                let layout = faults.value(&format!("[bindings] {name}"), layout)?;
                let part = WeightPart { name: format!("{}.{name}", of.name), of: of.name, layout };
                let called = named(&mut bound.parts, part, |part| &mut part.name);
                Some((called, Some(of)))
            }
            Elem::Kv(_) => {
                let laid = laid.unwrap_or_default();
                let order = match self.kv_order(&laid, at.shape, of.len(&problem)) {
                    Ok(order) => order,
                    Err(why) => return add(what(why)),
                };
                let known = *bound.kv_orders.entry(of.name).or_insert(order);
                if known != order {
                    return add(what(format!("{ours} is bound in two orders")));
                }
                plain()
            }
            _ if laid.is_some() => {
                add(what(format!("{ours} is neither weights nor a cache: it has one layout")))
            }
            _ => plain(),
        }
    }

    /// Whether some variable holds a binding in its own way.
    fn lays_out(&self, ours: &str) -> bool {
        let stages = self.mapping.stage.iter().flat_map(|stage| stage.bindings.values());
        let mut all = self.mapping.bindings.values().chain(stages);
        all.any(|bound| bound.of() == ours && bound.laid().is_some())
    }

    /// How a variable holds weights.
    fn part(
        &self,
        laid: &Laid,
        (matrix, all): (Matrix, usize),
        at: &At<'_>,
    ) -> Result<PartLayout, Wrong> {
        let columns = match laid.order.as_deref() {
            None | Some("rows") => false,
            Some("columns") => true,
            Some(order) => {
                let why = format!("no order `{order}` of weights; there are rows, columns");
                return Wrong::text(why);
            }
        };
        let packing = laid.packing.as_deref();
        if let Some(packing) = packing.filter(|packing| *packing != TIGHT) {
            return Wrong::text(format!("no packing `{packing}` of one buffer; there is {TIGHT}"));
        }
        let all_tight = self.mapping.packing.as_deref() == Some(TIGHT);
        let arrangement = match columns {
            true => Arrangement::Columns,
            // Fields of padded rows would lie nobody knows how far apart.
            false if packing.is_some() || all_tight || laid.field.is_some() => Arrangement::Rows,
            false => Arrangement::Packed(at.packing),
        };
        let format = matrix.format;
        let field = match laid.field.as_deref() {
            None => None,
            Some(name) => {
                let fields = format.fields_apart();
                let found = fields.iter().find(|(own, _)| *own == name);
                let (_, field) = found.ok_or_else(|| {
                    let known: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
                    let (format, known) = (format.name(), known.join(", "));
                    // Another format may have it.
                    Wrong::Value(match known.as_str() {
                        "" => format!("{format} has no fields; [takes] says which WEIGHT it takes"),
                        known => format!("{format} has no field `{name}`; it has {known}"),
                    })
                })?;
                Some(*field)
            }
        };
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
            Some(number) => match value_of(number, at.parameters)? {
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

    /// How a file has a cache.
    fn kv_order(&self, laid: &Laid, shape: &Shape, len: usize) -> Result<KvOrder, String> {
        let Laid { of: _, from, to, field, stored, packing, order } = laid;
        let others = [field, stored, packing].iter().any(|other| other.is_some());
        if others || from.is_some() || to.is_some() {
            return Err("a cache has an `order` and nothing else".into());
        }
        match order.as_deref() {
            None | Some("heads") => Ok(KvOrder::Heads),
            Some("tokens") => {
                let size = |name: &str| shape.get(name).map(|size| size as usize);
                match (size("KV_HEADS"), size("HEAD_DIM")) {
                    (Some(heads), Some(head_dim)) => {
                        let token = size("SEQUENCES").unwrap_or(1) * heads * head_dim;
                        Ok(KvOrder::Tokens { heads, slots: len / token.max(1) })
                    }
                    _ => Err(format!("caches of {} have no order of tokens", self.kernel.name)),
                }
            }
            Some(order) => Err(format!("no order `{order}` of a cache; there are heads, tokens")),
        }
    }

    /// Memory that is declared `read_write` can be bound once in a dispatch.
    fn refuse_twice(
        &self,
        stage: &Staged<'_>,
        bindings: &BTreeMap<String, String>,
        faults: &mut Faults,
    ) {
        let buffers = &stage.module.reflection.buffers;
        let writable = |name: &String| buffers.iter().any(|b| b.name == *name && b.writable);
        let mut seen: BTreeMap<&String, &String> = BTreeMap::new();
        for (name, ours) in bindings {
            let Some(other) = seen.insert(ours, name) else { continue };
            if writable(name) || writable(other) {
                faults.add(format!(
                    "`{other}` and `{name}` are both {ours}: memory that is declared `read_write` \
                     can be bound once"
                ));
            }
        }
    }

    /// Content of a uniform buffer; where a stage speaks of it on its own, faults name that.
    fn pack(
        &self,
        (stage, speaks): (&Staged<'_>, Option<&StageMapping>),
        (buffer, fields): (&Buffer, &[Field]),
        given: &Content,
        names: &Names,
        faults: &mut Faults,
    ) -> Vec<u8> {
        let name = &buffer.name;
        let said = |what: String| self.of_stage(stage.module, speaks, what);
        let is_whole = matches!(fields, [field] if field.name.is_empty());
        let of_field = |field: &Field| -> Option<&Numbers> {
            match given {
                Content::Whole(numbers) => Some(numbers).filter(|_| is_whole),
                Content::Fields(given) => given.get(&field.name).filter(|_| !is_whole),
            }
        };
        match given {
            Content::Whole(_) if !is_whole => {
                let known: Vec<_> = fields.iter().take(8).map(|f| f.name.as_str()).collect();
                let known = known.join(", ");
                let fault =
                    format!("uniform `{name}` has fields: [uniforms.{name}] gives them ({known})");
                faults.add(said(fault));
                return Vec::new();
            }
            Content::Fields(_) if is_whole => {
                let fault = format!("uniform `{name}` is no struct: [uniforms] {name} = …");
                faults.add(said(fault));
                return Vec::new();
            }
            Content::Whole(_) => {}
            Content::Fields(given) => {
                let known = |name: &String| fields.iter().any(|field| field.name == *name);
                for field in given.keys().filter(|name| !known(name)) {
                    faults.add(said(format!("uniform `{name}` has no field `{field}`")));
                }
            }
        }
        let mut bytes = vec![0; buffer.least_bytes.next_multiple_of(16) as usize];
        for field in fields {
            let what = said(match is_whole {
                true => format!("uniform `{name}`"),
                false => format!("uniform field `{}`", field.name),
            });
            let Some(numbers) = of_field(field) else {
                if !is_padding(&field.name) {
                    faults.add(format!("{what} has no value"));
                }
                continue;
            };
            let numbers = match numbers.list() {
                Ok(numbers) => numbers,
                Err(value) => {
                    faults.add(format!(
                        "{what}: {value} is no number, no expression and no flat list of them"
                    ));
                    continue;
                }
            };
            if numbers.len() != field.offsets.len() {
                let given = numbers.len();
                let own = match field.offsets.len() {
                    1 => "one number".to_owned(),
                    n => format!("{n} numbers"),
                };
                faults.add(format!("{what} has {own}, the mapping gives {given}"));
                continue;
            }
            for (number, offset) in numbers.iter().zip(&field.offsets) {
                let Some(number) = faults.value(&what, value_of(number, names)) else { continue };
                let Some(word) = word(number, field.scalar) else {
                    faults.add_here(format!("{what} cannot hold {number}"));
                    continue;
                };
                let at = *offset as usize;
                bytes[at..at + 4].copy_from_slice(&word);
            }
        }
        bytes
    }
}

/// Whether a field is there for the layout alone, such as `_pad` or `pad0`: it is 0 where a mapping
/// does not name it. `pad_left` and `padding` may mean something.
pub fn is_padding(name: &str) -> bool {
    let own = name.rsplit('.').next().unwrap_or(name);
    let number = own.strip_prefix("padding").or_else(|| own.strip_prefix("pad"));
    let is_number = |n: &str| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit());
    own.starts_with('_') || number.is_some_and(|n| is_number(n.trim_start_matches('_')))
}

/// A number as a uniform holds it; none where its type cannot.
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
