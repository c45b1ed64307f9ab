//! Layers that become one persistent kernel: the slot of each stage, and the tensors that share a
//! buffer.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use lathe_kernels::persistent::{self, Code, FusedStage, Joined, Slot, Stacked};
use lathe_kernels::{Capabilities, Grid, ReflectError};

use crate::plan::recording::{Op, Recording, Stack, TensorId, TensorInit};

/// Maximum number of alternatives of a slot: the code of each is part of the kernel.
const MAX_ALTERNATIVES: usize = 3;

/// A WGSL variable of this operation or, when the previous operation's last stage is fused into
/// this one, of that operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Variable<'a> {
    is_before: bool,
    name: &'a str,
}

/// An alternative of a slot: the same stage in some of the layers.
struct Alternative<'a> {
    layers: Vec<usize>,
    /// The stage in its first layer.
    stage: Stage<'a>,
    /// The buffer of each variable, and the layer whose tensor is the first of a stack.
    buffers: BTreeMap<Variable<'a>, (usize, usize)>,
}

/// Slots of some layers, and the buffers that they share.
pub(super) struct Layers<'a> {
    recording: &'a Recording,
    slots: Vec<Vec<Alternative<'a>>>,
    layers: usize,
    /// The operation and the index of its dispatch, by layer and slot.
    stages: Vec<Vec<(usize, usize)>>,
    pub(super) buffers: Vec<Stack>,
}

impl<'a> Layers<'a> {
    /// The slots of the operations of `layers`, or the reason why these are not one persistent
    /// kernel.
    pub(super) fn new(
        recording: &'a Recording,
        layers: &[Range<usize>],
        caps: &Capabilities,
    ) -> Result<Self, String> {
        let stages = |ops: &Range<usize>| -> Vec<Stage<'a>> {
            ops.clone().flat_map(|op| Stage::all(recording, op, ops)).collect()
        };
        let each: Vec<_> = layers.iter().map(stages).collect();
        let count = each[0].len();
        if let Some(layer) = each.iter().position(|stages| stages.len() != count) {
            let label = recording.ops[layers[layer].start].label;
            return Err(format!(
                "{label} begins a layer of {} stages, not of {count}",
                each[layer].len()
            ));
        }
        let (layers, slots) = (layers.len(), Vec::new());
        let numbers = |stages: &Vec<Stage<'a>>| stages.iter().map(|s| (s.op, s.stage)).collect();
        let stages = each.iter().map(numbers).collect();
        let mut whole = Self { recording, slots, layers, stages, buffers: Vec::new() };
        for slot in 0..count {
            let own: Vec<_> = each.iter().map(|stages| stages[slot].clone()).collect();
            whole.slot(&own, caps)?;
        }
        whole.check_apart(recording)?;
        Ok(whole)
    }

    /// Adds a slot: an operation and its stage in each layer.
    fn slot(&mut self, own: &[Stage<'a>], caps: &Capabilities) -> Result<(), String> {
        let recording = self.recording;
        let tensor = |layer: usize, variable: Variable<'_>| own[layer].tensor(recording, variable);
        let names: BTreeSet<Variable<'a>> =
            own.iter().flat_map(|stage| stage.variables(recording)).collect();
        let layers = self.layers;
        let all = |name: Variable<'_>| -> Vec<(usize, TensorId)> {
            (0..layers).filter_map(|layer| Some((layer, tensor(layer, name)?))).collect()
        };
        // A tensor of each layer, or several that layers share or take turns with: then there is a
        // way of each.
        let is_own = |name: &Variable<'_>| {
            let all = all(*name);
            let distinct: HashSet<_> = all.iter().map(|(_, tensor)| *tensor).collect();
            let is_given = |(_, tensor): &(usize, TensorId)| {
                let content = &recording.tensors[tensor.0].content;
                matches!(
                    content,
                    TensorInit::Weights(..) | TensorInit::Values(_) | TensorInit::Kv { .. }
                )
            };
            all.len() > 1 && distinct.len() == all.len() && all.iter().all(is_given)
        };
        let (own_of_each, parting) =
            names.iter().partition::<Vec<&Variable<'a>>, _>(|name| is_own(name));
        let mut alternatives: Vec<Alternative<'a>> = Vec::new();
        for (layer, stage) in own.iter().enumerate() {
            let same = |alternative: &&mut Alternative<'_>| {
                let first = alternative.layers[0];
                alternative.stage.is_same(stage, recording)
                    && parting.iter().all(|name| tensor(first, **name) == tensor(layer, **name))
            };
            match alternatives.iter_mut().find(same) {
                Some(alternative) => alternative.layers.push(layer),
                None => {
                    let (layers, buffers) = (vec![layer], BTreeMap::new());
                    alternatives.push(Alternative { layers, stage: stage.clone(), buffers });
                }
            }
        }
        let label = recording.ops[own[0].op].label.op;
        if alternatives.len() > MAX_ALTERNATIVES {
            return Err(format!(
                "{label} has {} alternatives, at most {MAX_ALTERNATIVES}",
                alternatives.len()
            ));
        }
        for &name in &names {
            // One tensor of all layers that go a way, for each way.
            let of_alternative = |alternative: &Alternative<'_>| -> Option<TensorId> {
                let first = tensor(alternative.layers[0], name)?;
                let same = |layer: &usize| tensor(*layer, name) == Some(first);
                alternative.layers.iter().all(same).then_some(first)
            };
            let has = |alternative: &Alternative<'_>| tensor(alternative.layers[0], name).is_some();
            let all = all(name);
            let stack = own_of_each.contains(&&name).then(|| stack(recording, &all, caps));
            let is_one = alternatives
                .iter()
                .filter(|alternative| has(alternative))
                .all(|alternative| of_alternative(alternative).is_some());
            match stack {
                Some(Ok(stack)) => {
                    let number = self.number(stack);
                    for alternative in
                        alternatives.iter_mut().filter(|alternative| has(alternative))
                    {
                        alternative.buffers.insert(name, (number, all[0].0));
                    }
                }
                Some(Err(reason)) if !is_one => {
                    return Err(format!("{label}, {}: {reason}", name.name));
                }
                _ => {
                    for alternative in &mut alternatives {
                        let Some(tensor) = of_alternative(alternative) else { continue };
                        let number = self.number(Stack::one(tensor));
                        alternative.buffers.insert(name, (number, 0));
                    }
                }
            }
        }
        self.slots.push(alternatives);
        Ok(())
    }

    /// The number of a buffer.
    fn number(&mut self, buffer: Stack) -> usize {
        self.buffers.iter().position(|own| *own == buffer).unwrap_or_else(|| {
            self.buffers.push(buffer);
            self.buffers.len() - 1
        })
    }

    /// Fails if a tensor is in two buffers.
    fn check_apart(&self, recording: &Recording) -> Result<(), String> {
        let mut seen = HashSet::new();
        let mut all = self.buffers.iter().flat_map(|buffer| &buffer.tensors);
        match all.find(|tensor| !seen.insert(**tensor)) {
            Some(tensor) => {
                let name = &recording.tensors[tensor.0].name;
                Err(format!("{name} would have to lie in two buffers"))
            }
            None => Ok(()),
        }
    }

    /// Removes a place; the others then compute something else. Returns the operation and dispatch
    /// that it was in each layer.
    pub(super) fn leave_out(&mut self, slot: usize) -> Vec<(usize, usize)> {
        self.slots.remove(slot);
        self.stages.iter_mut().map(|stages| stages.remove(slot)).collect()
    }

    /// The operation and the index of its dispatch for each place of the first layer.
    pub(super) fn first_layer(&self) -> &[(usize, usize)] {
        &self.stages[0]
    }

    /// The joined text.
    pub(super) fn join(&self, grid: Grid) -> Result<Joined, ReflectError> {
        let slot = |alternatives: &Vec<Alternative<'a>>| Slot {
            alternatives: alternatives
                .iter()
                .map(|alternative| (alternative.layers.clone(), self.stage(alternative)))
                .collect(),
        };
        let slots: Vec<_> = self.slots.iter().map(slot).collect();
        persistent::join(&slots, self.layers, grid)
    }

    fn stage(&self, alternative: &Alternative<'a>) -> FusedStage<'a> {
        let recording = self.recording;
        let op = &recording.ops[alternative.stage.op];
        let stage = &op.plan.stages[alternative.stage.stage];
        let own = alternative.buffers.keys().filter(|variable| !variable.is_before);
        let given = own.filter_map(|&variable| {
            let tensor = alternative.stage.tensor(recording, variable)?;
            let content = &recording.tensors[tensor.0].content;
            let is_given = matches!(content, TensorInit::Weights(..) | TensorInit::Values(_));
            is_given.then(|| (variable.name, content.device_bytes()))
        });
        let made = alternative.stage.made.map(|made| {
            let before = &recording.ops[alternative.stage.op - 1];
            (made.variable, self.code(alternative, before, true, made.function))
        });
        FusedStage {
            code: self.code(alternative, op, false, &stage.entry),
            groups: stage.groups[0],
            pins_loads: op.plan.declared.pins_loads,
            refreshes: op.plan.declared.refreshes,
            given: given.collect(),
            made: made.into_iter().collect(),
        }
    }

    /// A function of an operation: of a way's own operation, or of the one before.
    fn code(
        &self,
        alternative: &Alternative<'a>,
        op: &'a Op,
        is_before: bool,
        function: &'a str,
    ) -> Code<'a> {
        let (mut buffers, mut stacked) = (BTreeMap::new(), BTreeMap::new());
        let of = alternative.buffers.iter().filter(|(variable, _)| variable.is_before == is_before);
        for (variable, &(number, first)) in of {
            buffers.insert(variable.name, number);
            let stack = &self.buffers[number];
            if stack.is_shared() {
                stacked.insert(variable.name, Stacked { first, stride: stack.stride });
            }
        }
        Code {
            label: format!("{}, {}/{}", op.label.op, op.plan.kernel.name, op.plan.variant),
            text: &op.plan.code.text,
            reflection: &op.plan.code.reflection,
            constants: &op.plan.code.constants,
            function,
            buffers,
            stacked,
        }
    }
}

/// A variable whose elements are computed by the reading stage, which replaces the last stage of
/// the previous operation, and that operation's function which computes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Made<'a> {
    variable: &'a str,
    function: &'a str,
}

/// A stage of an operation, to become a stage.
#[derive(Clone, Debug)]
struct Stage<'a> {
    op: usize,
    stage: usize,
    made: Option<Made<'a>>,
}

impl<'a> Stage<'a> {
    /// The stages of an operation that become stages, given the range of its layer.
    fn all(
        recording: &'a Recording,
        op: usize,
        layer: &Range<usize>,
    ) -> impl Iterator<Item = Self> + use<'a> {
        let made = op.checked_sub(1).filter(|before| layer.contains(before));
        let made = made.and_then(|before| fused_producer(recording, before));
        let is_fused = layer.contains(&(op + 1)) && fused_producer(recording, op).is_some();
        let stages = recording.ops[op].plan.stages.len() - usize::from(is_fused);
        (0..stages).map(move |stage| Self { op, stage, made })
    }

    /// Its variables.
    fn variables(&self, recording: &'a Recording) -> Vec<Variable<'a>> {
        let own = &recording.ops[self.op].plan.code.reflection.buffers;
        let own = own.iter().map(|buffer| buffer.name.as_str());
        let own = own.filter(|name| self.made.is_none_or(|made| made.variable != *name));
        let mut all: Vec<_> = own.map(|name| Variable { is_before: false, name }).collect();
        if let Some(made) = self.made {
            let before = &recording.ops[self.op - 1].plan;
            let touched =
                before.code.reflection.function(made.function).map(|(_, touched)| touched);
            let names = touched.into_iter().flatten().map(|buffer| buffer.name.as_str());
            all.extend(names.map(|name| Variable { is_before: true, name }));
        }
        all
    }

    /// The tensor of a variable, if the stage has that variable.
    fn tensor(&self, recording: &'a Recording, variable: Variable<'_>) -> Option<TensorId> {
        if !self.variables(recording).contains(&variable) {
            return None;
        }
        let op = &recording.ops[self.op - usize::from(variable.is_before)];
        Some(op.tensor(variable.name))
    }

    /// Returns true if it does the same as another stage, each over its own tensors.
    fn is_same(&self, other: &Self, recording: &Recording) -> bool {
        let stage = |of: &Self| {
            let stage = &recording.ops[of.op].plan.stages[of.stage];
            (stage.entry.clone(), stage.groups)
        };
        let same = |before: usize| {
            let op = |of: &Self| &recording.ops[of.op - before];
            let (a, b) = (op(self), op(other));
            a.label.op == b.label.op
                && a.plan.kernel.name == b.plan.kernel.name
                && a.plan.variant == b.plan.variant
                && a.plan.code.constants == b.plan.code.constants
                && a.plan.code.text == b.plan.code.text
        };
        self.made == other.made
            && stage(self) == stage(other)
            && same(0)
            && (self.made.is_none() || same(1))
    }
}

/// The variable of the next operation that can compute this operation's output by itself instead of
/// reading it. None if it cannot, if that does not pay in every layer, or if another operation
/// reads the output.
pub(super) fn fused_producer(recording: &Recording, op: usize) -> Option<Made<'_>> {
    let producer = &recording.ops[op];
    let fused_producer = producer.plan.declared.fused_producer.as_ref()?;
    let (function, _) = producer.plan.code.reflection.function(fused_producer.function)?;
    let output = producer.tensor(fused_producer.output);
    let makes = |op: &Op| {
        let is_same = std::ptr::eq(op.plan.declared, producer.plan.declared);
        is_same && op.tensor(fused_producer.output) == output
    };
    let binds = |op: &Op| op.bindings.iter().any(|(_, tensor)| *tensor == output);
    let follows = |i: usize, op: &Op| {
        let before = i.checked_sub(1).map(|i| &recording.ops[i]);
        before.is_some_and(|before| makes(before) && before.label.layer == op.label.layer)
    };
    // Where one layer keeps its second stage all do: as many stages each, or they are not one kernel.
    let pays = |op: &Op| (fused_producer.pays)(&op.shape, &op.plan.code.constants);
    let mut users = recording.ops.iter().enumerate().filter(|(_, op)| binds(op));
    if !users.all(|(i, op)| (makes(op) && pays(op)) || follows(i, op)) {
        return None;
    }
    let reader = recording.ops.get(op + 1)?;
    let reflection = &reader.plan.code.reflection;
    let reads = |name: &str| reader.tensor(name) == output;
    let mut read = reflection.buffers.iter().filter(|buffer| reads(&buffer.name));
    let (variable, others) = (read.next()?, read.next());
    let made = function
        .result
        .as_ref()
        .map(|result| &producer.plan.code.reflection.module.types[result.ty].inner);
    let fits = others.is_none()
        && !variable.writable
        && reflection.element(&variable.name).map(|of| of.0) == made;
    fits.then_some(Made { variable: &variable.name, function: fused_producer.function })
}

/// A buffer with one tensor per layer, or the reason why there is none.
fn stack(
    recording: &Recording,
    all: &[(usize, TensorId)],
    caps: &Capabilities,
) -> Result<Stack, String> {
    let bytes =
        |(_, tensor): &(usize, TensorId)| recording.tensors[tensor.0].content.device_bytes();
    let (first, last) = (all[0], all[all.len() - 1]);
    if last.0 - first.0 + 1 != all.len() {
        return Err("some layers between have none".into());
    }
    let taken = |tensor| recording.stacks.iter().any(|stack| stack.tensors.contains(tensor));
    if let Some((_, tensor)) = all.iter().find(|(_, tensor)| taken(tensor)) {
        return Err(format!(
            "{} lies in another persistent kernel's",
            recording.tensors[tensor.0].name
        ));
    }
    if all.iter().any(|tensor| bytes(tensor) != bytes(&first)) {
        return Err("layers have tensors of different sizes".into());
    }
    let stack = Stack::new(all.iter().map(|(_, tensor)| *tensor).collect(), bytes(&first));
    match stack.bytes() > caps.binding_bytes {
        true => Err(format!(
            "{} bytes in one buffer, the adapter binds {}",
            stack.bytes(),
            caps.binding_bytes
        )),
        false => Ok(stack),
    }
}
