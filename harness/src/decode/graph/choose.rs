//! Second pass: a variant for every listed operation. Third: weights packed as those variants read
//! them, and the recording.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lathe_kernels::{Capabilities, Packing, Shape};

use super::Selected;
use super::step::{Listed, ListedShape, Node, Step};
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::plan::recording::{Content, Recording, TensorId};
use crate::plan::select::{Hints, SelectError, Selection, select};
use crate::plan::tuned::Tuned;

/// What decides.
pub(super) struct Chooser<'a> {
    pub(super) caps: &'a Capabilities,
    pub(super) hints: &'a Hints,
    pub(super) tuned: Option<&'a Tuned>,
    /// The model's name in errors.
    pub(super) path: &'a Path,
}

/// A listed operation with its variant.
struct Chosen {
    op: Listed,
    shape: Shape,
    plan: Plan,
}

impl Chooser<'_> {
    /// The recording of a step, its selections, and where its tensors went.
    pub(super) fn record(
        &self,
        step: &mut Step,
    ) -> Result<(Recording, Vec<Selected>, Vec<Option<TensorId>>)> {
        let mut selected = Selections::default();
        let ops = std::mem::take(&mut step.nodes).into_iter().map(|node| self.resolve(node));
        let ops: Vec<(Listed, Option<String>)> = ops.flatten().collect();
        // Those that read a matrix as it is come after those that say how it is packed.
        let mut packings = BTreeMap::new();
        let mut chosen: Vec<Option<(Shape, Plan)>> = Vec::new();
        for (op, fusion) in &ops {
            let ListedShape::Fixed(shape) = &op.shape else {
                chosen.push(None);
                continue;
            };
            let selection = self.select(op, shape, fusion.as_deref())?;
            if let Some(matrix) = matrix(op, step) {
                let packing = selection.plan.packing;
                let other = packings.insert(matrix, packing).filter(|other| *other != packing);
                assert!(other.is_none(), "{}: two operations pack its matrix", op.label);
            }
            selected.add(op, shape, &selection);
            chosen.push(Some((shape.clone(), selection.plan)));
        }
        for ((op, fusion), chosen) in ops.iter().zip(&mut chosen) {
            let ListedShape::AsPacked(shape) = &op.shape else { continue };
            let packing = matrix(op, step).and_then(|m| packings.get(&m).copied());
            let shape = shape(packing.unwrap_or(Packing::Blocks));
            let selection = self.select(op, &shape, fusion.as_deref())?;
            selected.add(op, &shape, &selection);
            *chosen = Some((shape, selection.plan));
        }
        for (matrix, packing) in packings {
            if let Content::Weights(_, as_packed) = &mut step.tensors[matrix.0].content {
                *as_packed = packing;
            }
        }
        let chosen = ops.into_iter().zip(chosen).filter_map(|((op, _), chosen)| {
            let (shape, plan) = chosen?;
            Some(Chosen { op, shape, plan })
        });
        let chosen = chosen.collect();
        let (recording, moved) = recorded(step, chosen);
        Ok((recording, selected.0, moved))
    }
}

impl Chooser<'_> {
    /// The operations of a node: the fused one, or those it stands for, with what was decided.
    /// A hint for any of them decides; else the fused one is taken where it pays and has more than
    /// its first rung.
    fn resolve(&self, node: Node) -> Vec<(Listed, Option<String>)> {
        let (fused, apart) = match node {
            Node::Op(op) => return vec![(op, None)],
            Node::Fused(fused, apart) => (fused, apart),
        };
        let hinted = |op: &Listed| self.hints.contains_key(op.kernel);
        if hinted(&fused) {
            return vec![(fused, None)];
        }
        let reason = match apart.iter().find(|op| hinted(op)) {
            Some(op) => Some(format!("{} is hinted", op.kernel)),
            None => self.against(&fused),
        };
        match reason {
            None => vec![(fused, None)],
            Some(reason) => {
                let why = format!("apart from {}: {reason}", fused.kernel);
                apart.into_iter().map(|op| (op, Some(why.clone()))).collect()
            }
        }
    }

    /// Why a fused operation is not taken, if it is not.
    fn against(&self, fused: &Listed) -> Option<String> {
        let ListedShape::Fixed(shape) = &fused.shape else { return None };
        let kernel = lathe_kernels::kernel(fused.kernel)?;
        let declared = kernel.fuses.as_ref().and_then(|fusion| fusion.against(shape));
        declared.or_else(|| match select(kernel, shape, self.caps, self.hints, self.tuned) {
            Ok(selection) if selection.plan.variant == "naive" => {
                Some("only its naive variant runs here".into())
            }
            Ok(_) => None,
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

/// The matrix an operation reads, if it reads one.
fn matrix(op: &Listed, step: &Step) -> Option<TensorId> {
    let mut tensors = op.bindings.iter().map(|(_, tensor)| *tensor);
    tensors.find(|t| matches!(step.tensors[t.0].content, Content::Weights(..)))
}

/// The recording of chosen operations over the tensors they bind, and where each tensor went:
/// those of a way that was not chosen take no memory.
fn recorded(step: &mut Step, chosen: Vec<Chosen>) -> (Recording, Vec<Option<TensorId>>) {
    let kept = [step.state, step.tokens, step.logits];
    let cached = step.caches.iter().flat_map(|cache| [cache.k, cache.v]);
    let bound = chosen.iter().flat_map(|c| c.op.bindings.iter().map(|(_, tensor)| *tensor));
    let used: BTreeSet<TensorId> = kept.into_iter().chain(cached).chain(bound).collect();
    let mut recording = Recording::default();
    let tensors = std::mem::take(&mut step.tensors).into_iter().enumerate();
    let moved: Vec<Option<TensorId>> = tensors
        .map(|(i, tensor)| {
            let is_used = used.contains(&TensorId(i));
            is_used.then(|| recording.tensor(tensor.name, tensor.content))
        })
        .collect();
    for Chosen { op, shape, plan } in chosen {
        let bindings = op.bindings.iter().filter_map(|(name, t)| Some((*name, moved[t.0]?)));
        let bindings: Vec<_> = bindings.collect();
        recording.op(op.label, plan, shape, &bindings);
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
            constants: selection.plan.constants.clone(),
        });
    }
}
