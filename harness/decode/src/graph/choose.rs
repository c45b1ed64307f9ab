//! Second pass: a variant for every listed operation of a step and of chunks. Third: weights packed
//! as those variants read them, and the recording.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lathe_kernels::phases::Grid;
use lathe_kernels::{Capabilities, Packing, Shape};

use super::Selected;
use super::step::{Listed, ListedShape, Node, Steps};
use lathe_device::error::{Error, Result};
use lathe_device::plan::Plan;
use lathe_device::plan::recording::{Chunk, Recording, TensorId, TensorInit};
use lathe_device::plan::run;
use lathe_device::plan::select::{Hints, SelectError, Selection, select};
use lathe_device::plan::tuned::Tuned;

/// Inputs of the choice of variants.
pub(super) struct Chooser<'a> {
    pub(super) caps: &'a Capabilities,
    pub(super) hints: &'a Hints,
    pub(super) tuned: Option<&'a Tuned>,
    /// Workgroups of a layer that is a run.
    pub(super) runs: Option<Grid>,
    /// The model's name in errors.
    pub(super) path: &'a Path,
}

/// A listed operation with its variant.
struct Chosen {
    op: Listed,
    shape: Shape,
    plan: Plan,
}

/// An operation without a variant yet, with the decision on its fusion.
type Undecided = (Listed, Option<String>);

impl Chooser<'_> {
    /// The recording of a step and its chunks, its selections, and where its tensors went.
    pub(super) fn record(
        &self,
        steps: &mut Steps,
    ) -> Result<(Recording, Vec<Selected>, Vec<Option<TensorId>>)> {
        let mut selected = Selections::default();
        let nodes = std::mem::take(&mut steps.nodes);
        let in_steps = alone(&nodes);
        let resolved: Vec<_> =
            nodes.into_iter().map(|node| self.resolve(node, &in_steps)).collect();
        let mut resolved = resolved.into_iter();
        let mut ops: Vec<Undecided> = resolved.by_ref().take(steps.tail).flatten().collect();
        let tail = ops.len();
        ops.extend(resolved.flatten());
        follow_stream(&mut ops, steps.streams);
        let mut packings = Packings::new();
        let ops = self.choose(ops, self.runs, steps, &mut packings, &mut selected)?;
        let mut chunks = Vec::new();
        for (tokens, nodes) in std::mem::take(&mut steps.chunks) {
            let in_chunk = alone(&nodes);
            let ops = nodes.into_iter().flat_map(|node| self.resolve(node, &in_chunk)).collect();
            // A chunk reads matrices as the step packs them.
            let ops = self.choose(ops, None, steps, &mut packings, &mut selected)?;
            chunks.push((tokens, ops));
        }
        for (matrix, packing) in packings {
            if let TensorInit::Weights(_, as_packed) = &mut steps.tensors[matrix.0].content {
                *as_packed = packing;
            }
        }
        let (mut recording, moved) = recorded(steps, ops, tail, chunks);
        if let Some(grid) = self.runs {
            run::add_runs(&mut recording, grid, self.caps)?;
        }
        Ok((recording, selected.0, moved))
    }

    /// A variant for each operation: first for those whose parameters are known, which say how
    /// their matrices are packed, then for those that read a matrix as it is.
    fn choose(
        &self,
        ops: Vec<Undecided>,
        runs: Option<Grid>,
        steps: &Steps,
        packings: &mut Packings,
        selected: &mut Selections,
    ) -> Result<Vec<Chosen>> {
        let mut fixed = Vec::with_capacity(ops.len());
        for (op, fusion) in &ops {
            fixed.push(match &op.shape {
                ListedShape::Fixed(shape) => {
                    Some((shape.clone(), self.select(op, shape, fusion.as_deref())?))
                }
                ListedShape::AsPacked(_) => None,
            });
        }
        if let Some(grid) = runs {
            self.as_phases(&ops, &mut fixed, grid);
        }
        for ((op, _), fixed) in ops.iter().zip(&fixed) {
            let Some((shape, selection)) = fixed else { continue };
            if let Some(matrix) = matrix(op, steps) {
                let packing = selection.plan.packing;
                let other = packings.insert(matrix, packing).filter(|other| *other != packing);
                assert!(other.is_none(), "{}: two operations pack its matrix", op.label);
            }
            selected.add(op, shape, selection);
        }
        let mut chosen = Vec::with_capacity(ops.len());
        for ((op, fusion), fixed) in ops.into_iter().zip(fixed) {
            let (shape, selection) = match fixed {
                Some(fixed) => fixed,
                None => {
                    let packing = matrix(&op, steps).and_then(|m| packings.get(&m).copied());
                    let shape = op.shape.with(packing.unwrap_or(Packing::Blocks));
                    let selection = self.select(&op, &shape, fusion.as_deref())?;
                    selected.add(&op, &shape, &selection);
                    (shape, selection)
                }
            };
            chosen.push(Chosen { op, shape, plan: selection.plan });
        }
        Ok(chosen)
    }
}

/// Kernels of operations that replace no others.
fn alone(nodes: &[Node]) -> BTreeSet<&'static str> {
    let kernels = nodes.iter().filter_map(|node| match node {
        Node::Op(op) => Some(op.kernel),
        Node::Fused(..) => None,
    });
    kernels.collect()
}

/// Binds the operations after one that writes the residual stream anew to the new buffer. Two
/// tensors take turns: the choice of alternatives decides which one has the stream.
fn follow_stream(ops: &mut [Undecided], [first, second]: [TensorId; 2]) {
    let mut is_moved = false;
    for (op, _) in ops {
        // It is listed as if each began with the stream in the first.
        let moves = op.bindings.iter().any(|(_, tensor)| *tensor == second);
        for (_, tensor) in op.bindings.iter_mut().filter(|_| is_moved) {
            *tensor = match *tensor {
                id if id == first => second,
                id if id == second => first,
                id => id,
            };
        }
        is_moved ^= moves;
    }
}

/// Packing of each matrix, as the step's operations read it.
type Packings = BTreeMap<TensorId, Packing>;

impl Chooser<'_> {
    /// The operations of a node: the fused one, or those it replaces, with the decision. A hint for
    /// any of them decides; else the fused one is taken where it pays. `alone` has the kernels of
    /// operations that replace no others.
    fn resolve(&self, node: Node, alone: &BTreeSet<&str>) -> Vec<(Listed, Option<String>)> {
        let (fused, apart) = match node {
            Node::Op(op) => return vec![(op, None)],
            Node::Fused(fused, apart) => (fused, apart),
        };
        let hinted = |op: &Listed| self.hints.contains_key(op.kernel);
        let reason = match apart.iter().find(|op| hinted(op)) {
            _ if hinted(&fused) => self.against_hint(&fused, alone),
            Some(op) => Some(format!("{} is hinted", op.kernel)),
            None => self.against(&fused),
        };
        match reason {
            None => vec![(fused, None)],
            Some(reason) => {
                let why = format!("not fused as {}: {reason}", fused.kernel);
                apart.into_iter().map(|op| (op, Some(why.clone()))).collect()
            }
        }
    }

    /// Reason why a fused operation is not taken though it is hinted: the hint is for other
    /// operations of its kernel, which replace nothing, and cannot hold for this one.
    fn against_hint(&self, fused: &Listed, alone: &BTreeSet<&str>) -> Option<String> {
        if !alone.contains(fused.kernel) {
            return None;
        }
        let ListedShape::Fixed(shape) = &fused.shape else { return None };
        let kernel = lathe_kernels::kernel(fused.kernel)?;
        match select(kernel, shape, self.caps, self.hints, self.tuned) {
            Err(e @ SelectError::HintUnavailable { .. }) => Some(e.to_string()),
            _ => None,
        }
    }

    /// Reason why a fused operation is not taken, if it is not.
    fn against(&self, fused: &Listed) -> Option<String> {
        let ListedShape::Fixed(shape) = &fused.shape else { return None };
        let kernel = lathe_kernels::kernel(fused.kernel)?;
        let fusion = kernel.fuses.as_ref()?;
        let declared = match self.runs {
            Some(_) => (fusion.against_phase)(shape),
            None => (fusion.against)(shape),
        };
        declared.or_else(|| match select(kernel, shape, self.caps, self.hints, self.tuned) {
            Ok(selection) => {
                let pays = (fusion.pays_with)(shape, selection.plan.declared.name);
                (!pays).then(|| format!("it does not pay with {}", selection.plan.variant))
            }
            Err(e) => Some(e.to_string()),
        })
    }

    fn select(&self, op: &Listed, shape: &Shape, fusion: Option<&str>) -> Result<Selection> {
        let kernel = lathe_kernels::kernel(op.kernel).expect("listed by its declaration");
        let selection = select(kernel, shape, self.caps, self.hints, self.tuned);
        let mut selection = selection.map_err(|e| match e {
            SelectError::UnknownVariant { .. } => {
                Error::Usage(format!("{}: {}: {e}", self.path.display(), op.label.op))
            }
            SelectError::File(e) => Error::Reflect(e),
            SelectError::HintUnavailable { .. } | SelectError::Nothing { .. } => {
                Error::Unavailable {
                    what: format!("{} of {}", op.label.op, self.path.display()),
                    adapter: "this adapter".into(),
                    reason: e.to_string(),
                }
            }
        })?;
        // A hint needs no further reason.
        if let Some(fusion) = fusion.filter(|_| !self.hints.contains_key(op.kernel)) {
            selection.why = format!("{}; {fusion}", selection.why);
        }
        Ok(selection)
    }
}

impl Chooser<'_> {
    /// Turns the selections of a layer into phases of a persistent kernel if all of them can be: a
    /// part of a layer alone was never measured to be faster.
    fn as_phases(
        &self,
        ops: &[Undecided],
        selections: &mut [Option<(Shape, Selection)>],
        grid: Grid,
    ) {
        let mut first = 0;
        for layer in ops.chunk_by(|(a, _), (b, _)| a.label.layer == b.label.layer) {
            let own = first..first + layer.len();
            first = own.end;
            if layer[0].0.label.layer.is_none() {
                continue;
            }
            let phases = layer.iter().zip(&selections[own.clone()]).map(|((op, _), selection)| {
                let (shape, selection) = selection.as_ref()?;
                self.as_phase(op, shape, selection, grid)
            });
            let Some(phases) = phases.collect::<Option<Vec<_>>>() else { continue };
            for ((_, selection), phase) in selections[own].iter_mut().flatten().zip(phases) {
                *selection = phase;
            }
        }
    }

    /// The selection as a phase of a persistent kernel on a grid: the selected variant, or the most
    /// preferred one that is a phase and reads the same packing. A hinted variant is kept.
    fn as_phase(
        &self,
        op: &Listed,
        shape: &Shape,
        selection: &Selection,
        grid: Grid,
    ) -> Option<Selection> {
        // A text that is not built in runs as it is.
        if !selection.plan.built_in {
            return None;
        }
        let kernel = selection.plan.kernel;
        let is_hinted = self.hints.contains_key(op.kernel);
        let preferred = kernel.prefer(shape).iter().filter_map(|name| kernel.variant(name));
        let others = preferred.chain(kernel.variants).filter(|_| !is_hinted);
        let mut candidates = std::iter::once(selection.plan.declared).chain(others);
        let plan = candidates.find_map(|variant| {
            let constants = variant.phase(shape, self.caps, grid)?;
            let constants = constants.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
            let plan = Plan::tuned(kernel, variant, shape, self.caps, &constants).ok()?;
            (plan.packing == selection.plan.packing).then_some(plan)
        })?;
        let why = format!("{}; a phase of its layer's run", selection.why);
        Some(Selection { plan, why })
    }
}

/// The matrix an operation reads, if it reads one.
fn matrix(op: &Listed, steps: &Steps) -> Option<TensorId> {
    let mut tensors = op.bindings.iter().map(|(_, tensor)| *tensor);
    tensors.find(|t| matches!(steps.tensors[t.0].content, TensorInit::Weights(..)))
}

/// The recording of chosen operations over the tensors they bind, and the new index of each tensor:
/// tensors of alternatives that were not chosen take no memory.
fn recorded(
    steps: &mut Steps,
    ops: Vec<Chosen>,
    tail: usize,
    chunks: Vec<(usize, Vec<Chosen>)>,
) -> (Recording, Vec<Option<TensorId>>) {
    let kept = [steps.state, steps.tokens, steps.logits];
    let cached = steps.caches.iter().flat_map(|cache| [cache.k, cache.v]);
    let all = ops.iter().chain(chunks.iter().flat_map(|(_, ops)| ops));
    let bound = all.flat_map(|c| c.op.bindings.iter().map(|(_, tensor)| *tensor));
    let used: BTreeSet<TensorId> = kept.into_iter().chain(cached).chain(bound).collect();
    let mut recording = Recording::default();
    let tensors = std::mem::take(&mut steps.tensors).into_iter().enumerate();
    let moved: Vec<Option<TensorId>> = tensors
        .map(|(i, tensor)| {
            let is_used = used.contains(&TensorId(i));
            is_used.then(|| recording.tensor(tensor.name, tensor.content))
        })
        .collect();
    let bindings = |op: &Listed| -> Vec<_> {
        op.bindings.iter().filter_map(|(name, t)| Some((*name, moved[t.0]?))).collect()
    };
    for Chosen { op, shape, plan } in ops {
        recording.op(op.label, plan, shape, &bindings(&op));
    }
    recording.tail = tail;
    for (tokens, ops) in chunks {
        let ops = ops.into_iter().map(|Chosen { op, shape, plan }| {
            recording.bound(op.label, plan, shape, &bindings(&op))
        });
        let ops = ops.collect();
        recording.chunks.push(Chunk { tokens, ops });
    }
    (recording, moved)
}

/// Selections, one an operation and shape, in the order they were made.
#[derive(Default)]
struct Selections(Vec<Selected>);

impl Selections {
    fn add(&mut self, op: &Listed, shape: &Shape, selection: &Selection) {
        let kernel = selection.plan.kernel;
        let shape = shape.show(kernel.params);
        if self.0.iter().any(|s| s.op == op.label.op && s.kernel == kernel.name && s.shape == shape)
        {
            return;
        }
        tracing::info!(
            op = op.label.op,
            kernel = kernel.name,
            variant = selection.plan.variant,
            shape,
            why = selection.why,
            "selected"
        );
        self.0.push(Selected {
            op: op.label.op.into(),
            kernel: kernel.name.into(),
            variant: selection.plan.variant.clone(),
            shape,
            why: selection.why.clone(),
            source: selection.plan.fingerprint(),
            constants: selection.plan.code.constants.clone(),
            tuned: selection.plan.is_tuned,
        });
    }
}
