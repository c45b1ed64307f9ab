//! Layers that are one run: which phase has which place, and which tensors share a buffer.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use lathe_kernels::phases::{self, Grid, Joined, Phase, Place, Stacked};
use lathe_kernels::{Capabilities, ReflectError};

use super::Stack;
use crate::plan::PlannedStage;
use crate::plan::recording::{Content, Op, Recording, TensorId};

/// Ways that a place may have: each is code beside the others'.
const MOST_WAYS: usize = 3;

/// A buffer of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Buffer {
    Tensor(TensorId),
    Stack(Stack),
}

/// What one way of a place does, in some layers.
struct Way {
    layers: Vec<usize>,
    /// The operation of its first layer.
    op: usize,
    stage: usize,
    /// The buffer of each variable, and the layer whose tensor is the first of a stack.
    buffers: BTreeMap<String, (usize, usize)>,
}

/// Places of some layers, and the buffers that they share.
pub(super) struct Layers {
    places: Vec<Vec<Way>>,
    layers: usize,
    pub(super) buffers: Vec<Buffer>,
}

impl Layers {
    /// Of the operations of layers, or why those are not one run.
    pub(super) fn new(
        recording: &Recording,
        layers: &[Range<usize>],
        caps: &Capabilities,
    ) -> Result<Self, String> {
        let stages = |ops: &Range<usize>| -> Vec<(usize, usize)> {
            let stages = |op: usize| (0..recording.ops[op].plan.stages.len()).map(move |i| (op, i));
            ops.clone().flat_map(stages).collect()
        };
        let each: Vec<_> = layers.iter().map(stages).collect();
        let count = each[0].len();
        if let Some(layer) = each.iter().position(|stages| stages.len() != count) {
            let label = recording.ops[layers[layer].start].label;
            return Err(format!(
                "{label} begins a layer of {} dispatches, not of {count}",
                each[layer].len()
            ));
        }
        let mut whole = Self { places: Vec::new(), layers: layers.len(), buffers: Vec::new() };
        for place in 0..count {
            let own: Vec<_> = each.iter().map(|stages| stages[place]).collect();
            whole.place(recording, &own, caps)?;
        }
        whole.check_apart(recording)?;
        Ok(whole)
    }

    /// Adds a place: an operation and its stage in each layer.
    fn place(
        &mut self,
        recording: &Recording,
        own: &[(usize, usize)],
        caps: &Capabilities,
    ) -> Result<(), String> {
        let ops = &recording.ops;
        let tensor = |layer: usize, name: &str| {
            let op = &ops[own[layer].0];
            let mut declared = op.plan.reflection.buffers.iter();
            let is_bound = declared.any(|buffer| buffer.name == name);
            is_bound.then(|| op.tensor(op.plan.binding(name)))
        };
        let declared = own.iter().flat_map(|(op, _)| &ops[*op].plan.reflection.buffers);
        let names: BTreeSet<&str> = declared.map(|buffer| buffer.name.as_str()).collect();
        let layers = self.layers;
        let all = |name: &str| -> Vec<(usize, TensorId)> {
            (0..layers).filter_map(|layer| Some((layer, tensor(layer, name)?))).collect()
        };
        // A tensor of each layer, or several that layers share or take turns with: then there is a
        // way of each.
        let is_own = |name: &&str| {
            let all = all(name);
            let distinct: HashSet<_> = all.iter().map(|(_, tensor)| *tensor).collect();
            let is_given = |(_, tensor): &(usize, TensorId)| {
                let content = &recording.tensors[tensor.0].content;
                matches!(content, Content::Weights(..) | Content::Values(_) | Content::Kv { .. })
            };
            all.len() > 1 && distinct.len() == all.len() && all.iter().all(is_given)
        };
        let (own_of_each, parting): (Vec<&str>, Vec<&str>) =
            names.iter().partition::<Vec<&str>, _>(|name| is_own(name));
        let mut ways: Vec<Way> = Vec::new();
        for (layer, &(op, stage)) in own.iter().enumerate() {
            let same = |way: &&mut Way| {
                let (a, b) = (&ops[way.op], &ops[op]);
                let first = way.layers[0];
                is_same((a, &a.plan.stages[way.stage]), (b, &b.plan.stages[stage]))
                    && parting.iter().all(|name| tensor(first, name) == tensor(layer, name))
            };
            match ways.iter_mut().find(same) {
                Some(way) => way.layers.push(layer),
                None => {
                    ways.push(Way { layers: vec![layer], op, stage, buffers: BTreeMap::new() });
                }
            }
        }
        let label = ops[own[0].0].label.op;
        if ways.len() > MOST_WAYS {
            return Err(format!("{label} has {} ways, at most {MOST_WAYS}", ways.len()));
        }
        for name in names {
            // One tensor of all layers that go a way, for each way.
            let of_way = |way: &Way| -> Option<TensorId> {
                let first = tensor(way.layers[0], name)?;
                let same = |layer: &usize| tensor(*layer, name) == Some(first);
                way.layers.iter().all(same).then_some(first)
            };
            let has = |way: &Way| tensor(way.layers[0], name).is_some();
            let all = all(name);
            let stack = own_of_each.contains(&name).then(|| stack(recording, &all, caps));
            let is_one = ways.iter().filter(|way| has(way)).all(|way| of_way(way).is_some());
            match stack {
                Some(Ok(stack)) => {
                    let number = self.number(Buffer::Stack(stack));
                    for way in ways.iter_mut().filter(|way| has(way)) {
                        way.buffers.insert(name.to_owned(), (number, all[0].0));
                    }
                }
                Some(Err(reason)) if !is_one => return Err(format!("{label}, {name}: {reason}")),
                _ => {
                    for way in &mut ways {
                        let Some(tensor) = of_way(way) else { continue };
                        let number = self.number(Buffer::Tensor(tensor));
                        way.buffers.insert(name.to_owned(), (number, 0));
                    }
                }
            }
        }
        self.places.push(ways);
        Ok(())
    }

    /// The number of a buffer.
    fn number(&mut self, buffer: Buffer) -> usize {
        self.buffers.iter().position(|own| *own == buffer).unwrap_or_else(|| {
            self.buffers.push(buffer);
            self.buffers.len() - 1
        })
    }

    /// Whether no tensor is in two buffers.
    fn check_apart(&self, recording: &Recording) -> Result<(), String> {
        let mut seen = HashSet::new();
        let all = self.buffers.iter().flat_map(|buffer| match buffer {
            Buffer::Tensor(tensor) => std::slice::from_ref(tensor),
            Buffer::Stack(stack) => &stack.tensors,
        });
        match all.into_iter().find(|tensor| !seen.insert(**tensor)) {
            Some(tensor) => {
                let name = &recording.tensors[tensor.0].name;
                Err(format!("{name} would have to lie in two buffers"))
            }
            None => Ok(()),
        }
    }

    /// The text of them.
    pub(super) fn join(&self, recording: &Recording, grid: Grid) -> Result<Joined, ReflectError> {
        let phase = |way: &'_ Way| -> Phase<'_> {
            let op = &recording.ops[way.op];
            let stage = &op.plan.stages[way.stage];
            let (mut buffers, mut stacked) = (BTreeMap::new(), BTreeMap::new());
            for buffer in &op.plan.reflection.buffers {
                let (name, (number, first)) =
                    (buffer.name.as_str(), way.buffers[buffer.name.as_str()]);
                buffers.insert(name, number);
                if let Buffer::Stack(stack) = &self.buffers[number] {
                    stacked.insert(name, Stacked { first, stride: stack.stride });
                }
            }
            let weights = op.bindings.iter().find(|(name, _)| *name == "weights");
            let bytes = |tensor: TensorId| recording.tensors[tensor.0].content.device_bytes();
            Phase {
                label: format!("{}, {}/{}", op.label.op, op.plan.kernel.name, op.plan.variant),
                text: &op.plan.text,
                reflection: &op.plan.reflection,
                constants: &op.plan.constants,
                entry: &stage.entry,
                groups: stage.groups[0],
                buffers,
                early: op.plan.declared.early,
                renews: op.plan.declared.renews,
                weight_bytes: weights.map_or(0, |(_, tensor)| bytes(*tensor)),
                stacked,
            }
        };
        let place = |ways: &Vec<Way>| Place {
            ways: ways.iter().map(|way| (way.layers.clone(), phase(way))).collect(),
        };
        let places: Vec<_> = self.places.iter().map(place).collect();
        phases::join(&places, self.layers, grid)
    }
}

/// Whether two stages do the same over their tensors.
fn is_same((a, stage): (&Op, &PlannedStage), (b, other): (&Op, &PlannedStage)) -> bool {
    a.label.op == b.label.op
        && a.plan.kernel.name == b.plan.kernel.name
        && a.plan.variant == b.plan.variant
        && a.plan.constants == b.plan.constants
        && (&stage.entry, stage.groups) == (&other.entry, other.groups)
        && a.plan.text == b.plan.text
}

/// A tensor of each layer in one buffer, or why there is none.
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
        return Err(format!("{} lies in another run's", recording.tensors[tensor.0].name));
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
