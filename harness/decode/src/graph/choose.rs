//! Second pass: a variant for every listed operation of a step and of chunks. Third: weights packed
//! as those variants read them, and the recording.

use std::collections::BTreeSet;
use std::path::Path;

use lathe_kernels::{Capabilities, Grid, Packing};

use super::Selected;
use super::step::{Listed, Node, Steps};
use lathe_device::error::{Error, Result};
use lathe_device::plan::Plan;
use lathe_device::plan::persistent;
use lathe_device::plan::recording::{Chunk, Recording, Tensor, TensorId, TensorInit};
use lathe_device::plan::select::{Hints, SelectError, Selection, select};
use lathe_device::plan::tuned::Tuned;

/// The choice of variants: its inputs, and what was chosen.
pub(super) struct Chooser<'a> {
    pub(super) caps: &'a Capabilities,
    pub(super) hints: &'a Hints,
    pub(super) tuned: Option<&'a Tuned>,
    /// Workgroups of a layer that is a run.
    pub(super) persistent: Option<Grid>,
    /// The model's name in errors.
    pub(super) path: &'a Path,
    /// Tensors of all alternatives; matrices are packed as the chosen variants read them.
    pub(super) tensors: Vec<Tensor>,
    /// Selections, one an operation and shape, in the order they were made.
    pub(super) selected: Vec<Selected>,
}

/// A listed operation with its variant.
type Chosen = (Listed, Plan);

/// An operation without a variant yet, with the decision on its fusion.
type Undecided = (Listed, Option<String>);

impl Chooser<'_> {
    /// The recording of a step and its chunks.
    pub(super) fn record(&mut self, steps: Steps) -> Result<Recording> {
        let Steps { nodes, tail, chunks, streams, .. } = steps;
        let resolved = self.resolve(nodes);
        let tail = resolved[..tail].iter().map(Vec::len).sum();
        let mut ops: Vec<Undecided> = resolved.into_iter().flatten().collect();
        follow_stream(&mut ops, streams);
        let ops = self.choose(ops, self.persistent)?;
        let mut in_chunks = Vec::new();
        for (tokens, nodes) in chunks {
            // A chunk reads matrices as the step packs them.
            let ops = self.resolve(nodes).into_iter().flatten().collect();
            in_chunks.push((tokens, self.choose(ops, None)?));
        }
        let mut recording = recorded(std::mem::take(&mut self.tensors), ops, tail, in_chunks);
        if let Some(grid) = self.persistent {
            persistent::add(&mut recording, grid, self.caps)?;
        }
        Ok(recording)
    }

    /// A variant for each operation: first for those whose parameters are known, which say how
    /// their matrices are packed, then for those that read a matrix as it is.
    fn choose(&mut self, ops: Vec<Undecided>, persistent: Option<Grid>) -> Result<Vec<Chosen>> {
        let mut selections = Vec::with_capacity(ops.len());
        for undecided in &ops {
            let fixed = !undecided.0.is_as_packed();
            selections.push(fixed.then(|| self.select(undecided)).transpose()?);
        }
        if let Some(grid) = persistent {
            self.as_stages(&ops, &mut selections, grid);
        }
        for ((op, _), selection) in ops.iter().zip(&selections) {
            let Some(selection) = selection else { continue };
            if let Some(packing) = self.packing(op) {
                *packing = selection.plan.packing;
            }
            self.add(op, selection);
        }
        let mut chosen = Vec::with_capacity(ops.len());
        for (mut undecided, selection) in ops.into_iter().zip(selections) {
            let selection = match selection {
                Some(selection) => selection,
                None => {
                    if let Some(packing) = self.packing(&undecided.0) {
                        undecided.0.pack(*packing);
                    }
                    let selection = self.select(&undecided)?;
                    self.add(&undecided.0, &selection);
                    selection
                }
            };
            chosen.push((undecided.0, selection.plan));
        }
        Ok(chosen)
    }

    /// Packing of the matrix that an operation reads, if it reads one.
    fn packing(&mut self, op: &Listed) -> Option<&mut Packing> {
        let is_matrix = |t: &TensorId| matches!(self.tensors[t.0].content, TensorInit::Weights(..));
        let matrix = op.bindings.iter().map(|(_, tensor)| *tensor).find(is_matrix)?;
        match &mut self.tensors[matrix.0].content {
            TensorInit::Weights(_, packing) => Some(packing),
            _ => None,
        }
    }

    /// Adds a selection, unless one of the same operation and shape is there.
    fn add(&mut self, op: &Listed, selection: &Selection) {
        let (plan, name) = (&selection.plan, selection.plan.kernel.name);
        let shape = op.shape.show(plan.kernel.params);
        let same = |s: &Selected| s.op == op.label.op && s.kernel == name && s.shape == shape;
        if self.selected.iter().any(same) {
            return;
        }
        let (variant, why) = (plan.variant.clone(), selection.why.clone());
        tracing::info!(op = op.label.op, kernel = name, variant, shape, why, "selected");
        self.selected.push(Selected {
            op: op.label.op.into(),
            kernel: name.into(),
            variant,
            shape,
            why,
            source: plan.fingerprint(),
            constants: plan.code.constants.clone(),
            tuned: plan.is_tuned,
        });
    }
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

impl Chooser<'_> {
    /// The operations of each node: the fused one, or those it replaces, with the decision.
    fn resolve(&self, nodes: Vec<Node>) -> Vec<Vec<Undecided>> {
        let alone = nodes.iter().filter(|node| node.apart.is_empty());
        let alone: BTreeSet<&str> = alone.map(|node| node.op.kernel).collect();
        let against = |node: &Node| match node.apart.is_empty() {
            true => None,
            false => self.against(&node.op, &node.apart, &alone),
        };
        let reasons: Vec<_> = nodes.iter().map(against).collect();
        let resolved = nodes.into_iter().zip(reasons).map(|(node, reason)| match reason {
            None => vec![(node.op, None)],
            Some(reason) => {
                let why = format!("not fused as {}: {reason}", node.op.kernel);
                node.apart.into_iter().map(|op| (op, Some(why.clone()))).collect()
            }
        });
        resolved.collect()
    }

    /// Reason why a fused operation is not taken, if it is not: a hint for any alternative decides;
    /// else it is taken where it pays. `alone` has the kernels of operations that replace no others.
    fn against(&self, fused: &Listed, apart: &[Listed], alone: &BTreeSet<&str>) -> Option<String> {
        let hinted = |op: &&Listed| self.hints.contains_key(op.kernel);
        let (kernel, shape) = (lathe_kernels::kernel(fused.kernel)?, &fused.shape);
        let selected = || select(kernel, shape, self.caps, self.hints, self.tuned);
        if hinted(&fused) {
            // Or the hint is for those others, and cannot hold for this one.
            let is_for_others = alone.contains(fused.kernel);
            let error = selected().err().filter(|_| is_for_others);
            let error = error.filter(|e| matches!(e, SelectError::HintUnavailable(_)));
            return error.map(|e| e.to_string());
        }
        if let Some(op) = apart.iter().find(hinted) {
            return Some(format!("{} is hinted", op.kernel));
        }
        let fusion = kernel.fuses.as_ref()?;
        let declared = match self.persistent {
            Some(_) => (fusion.against_stage)(shape),
            None => (fusion.against)(shape),
        };
        declared.or_else(|| match selected() {
            Ok(selection) => {
                let pays = (fusion.pays_with)(shape, selection.plan.declared.name);
                (!pays).then(|| format!("it does not pay with {}", selection.plan.variant))
            }
            Err(e) => Some(e.to_string()),
        })
    }

    fn select(&self, (op, fusion): &Undecided) -> Result<Selection> {
        let kernel = lathe_kernels::kernel(op.kernel).expect("listed by its declaration");
        let selection = select(kernel, &op.shape, self.caps, self.hints, self.tuned);
        let mut selection = selection.map_err(|e| match e {
            SelectError::File(e) => Error::Reflect(e),
            SelectError::HintUnavailable(reason) | SelectError::Nothing(reason) => {
                let what = format!("{} of {}", op.label.op, self.path.display());
                Error::Unavailable { what, adapter: "this adapter".into(), reason }
            }
        })?;
        // A hint needs no further reason.
        if let Some(fusion) = fusion.as_ref().filter(|_| !self.hints.contains_key(op.kernel)) {
            selection.why = format!("{}; {fusion}", selection.why);
        }
        Ok(selection)
    }

    /// Turns the selections of a layer into stages of a persistent kernel if all of them can be: a
    /// part of a layer alone was never measured to be faster.
    fn as_stages(&self, ops: &[Undecided], selections: &mut [Option<Selection>], grid: Grid) {
        let mut first = 0;
        for layer in ops.chunk_by(|(a, _), (b, _)| a.label.layer == b.label.layer) {
            let own = first..first + layer.len();
            first = own.end;
            if layer[0].0.label.layer.is_none() {
                continue;
            }
            let stages = layer
                .iter()
                .zip(&selections[own.clone()])
                .map(|((op, _), selection)| self.as_stage(op, selection.as_ref()?, grid));
            let Some(stages) = stages.collect::<Option<Vec<_>>>() else { continue };
            for (selection, stage) in selections[own].iter_mut().flatten().zip(stages) {
                *selection = stage;
            }
        }
    }

    /// The selection as a stage of a persistent kernel on a grid: the selected variant, or the most
    /// preferred one that is a stage and reads the same packing. A hinted variant is kept.
    fn as_stage(&self, op: &Listed, selection: &Selection, grid: Grid) -> Option<Selection> {
        // A text that is not built in runs as it is.
        if !selection.plan.built_in {
            return None;
        }
        let (kernel, shape) = (selection.plan.kernel, &op.shape);
        let is_hinted = self.hints.contains_key(op.kernel);
        let preferred = kernel.prefer(shape).iter().filter_map(|name| kernel.variant(name));
        let others = preferred.chain(kernel.variants).filter(|_| !is_hinted);
        let mut candidates = std::iter::once(selection.plan.declared).chain(others);
        let plan = candidates.find_map(|variant| {
            let constants = variant.as_stage(shape, self.caps, grid)?;
            let constants = constants.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
            let plan = Plan::tuned(kernel, variant, shape, self.caps, &constants).ok()?;
            (plan.packing == selection.plan.packing).then_some(plan)
        })?;
        let why = format!("{}; a stage of its layer's run", selection.why);
        Some(Selection { plan, why })
    }
}

/// The recording of chosen operations over the listed tensors. Tensors of alternatives that were
/// not chosen are empty.
fn recorded(
    tensors: Vec<Tensor>,
    ops: Vec<Chosen>,
    tail: usize,
    chunks: Vec<(usize, Vec<Chosen>)>,
) -> Recording {
    let all = ops.iter().chain(chunks.iter().flat_map(|(_, ops)| ops));
    let bound = all.flat_map(|(op, _)| op.bindings.iter().map(|(_, tensor)| *tensor));
    let used: BTreeSet<TensorId> = bound.collect();
    let mut recording = Recording { tensors, tail, ..Recording::default() };
    for (i, tensor) in recording.tensors.iter_mut().enumerate() {
        if !used.contains(&TensorId(i)) {
            tensor.content = TensorInit::Words(0);
        }
    }
    let mut bound = |ops: Vec<Chosen>| {
        let bound = ops.into_iter();
        let bound = bound.map(|(op, plan)| recording.bound(op.label, plan, op.shape, &op.bindings));
        bound.collect::<Vec<_>>()
    };
    let ops = bound(ops);
    let chunks = chunks.into_iter().map(|(tokens, ops)| Chunk { tokens, ops: bound(ops) });
    let chunks = chunks.collect();
    Recording { ops, chunks, ..recording }
}
