//! Uniformity analysis of WGSL over naga's IR.
//!
//! A barrier works only if all invocations of a workgroup reach it together, and WGSL refuses a
//! text unless that can be proved: the specification has an analysis that every browser runs
//! (section "Uniformity"). naga runs a weaker one, which accepts a barrier behind
//! `if (local_index < 32u)`.
//!
//! Each value, and control flow itself, is uniform or not. Control flow behind a condition is as
//! uniform as the condition. A value depends on its operands and on the control flow in which it
//! is computed, so a variable assigned behind such a condition is not uniform behind the branch,
//! though control flow is uniform again where both branches end normally. A branch that ends with
//! `return`, `break` or `continue` leaves control flow non-uniform until the function, loop or
//! switch ends that it leaves. Loops are repeated until nothing changes. A call is analysed with
//! the uniformity of its arguments, of what their pointers point to, and of its control flow.
//!
//! The analysis runs once for each [`Scope`]. They differ in what is uniform (`subgroup_id` and the
//! result of `subgroupAdd` are the same in a subgroup, not in a workgroup) and in the calls that
//! require it.

mod call;
mod expression;
mod names;
mod statement;

use std::collections::HashMap;

use naga::{Function, Handle, Module, Span};

/// Invocations among which values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of a workgroup: barriers and `workgroupUniformLoad` require it.
    Workgroup,
    /// All of a subgroup: subgroup operations require it. A text may turn this requirement off,
    /// by `diagnostic(off, subgroup_uniformity);`.
    Subgroup,
}

/// A call that WGSL does not allow where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The requirement, in words.
    pub what: String,
    /// Place of the call.
    pub at: Span,
    /// Scope of the requirement.
    pub scope: Scope,
    /// Chain of reasons, from the call's control flow or argument to the source of non-uniformity.
    pub because: Vec<(Span, String)>,
}

/// Calls of a module that are not in uniform control flow, in the order of the text.
pub fn violations(module: &Module) -> Vec<Violation> {
    let mut all = Vec::new();
    for scope in [Scope::Workgroup, Scope::Subgroup] {
        let mut analysis = Analysis {
            module,
            scope,
            reasons: Vec::new(),
            known: HashMap::new(),
            calls: HashMap::new(),
            found: Vec::new(),
        };
        analysis.module();
        all.extend(analysis.found);
    }
    all.sort_by_key(|violation| violation.at.to_range().map_or(0, |range| range.start));
    all
}

/// `None` is uniform; otherwise the reason why a value is not.
type Mark = Option<Why>;

/// Index of a [`Reason`].
type Why = usize;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Reason {
    at: Span2,
    text: String,
    cause: Mark,
    /// Input of a call, where that is the reason.
    given: Option<(Handle<Function>, Given)>,
}

/// A span that can be a key.
type Span2 = (u32, u32);

/// Input of a function that its caller decides.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Given {
    Argument(usize),
    /// The value behind a pointer.
    Contents(usize),
    Flow,
}

/// Uniformity of what a function was called with; equal calls have equal outcomes.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Inputs<T> {
    arguments: Vec<T>,
    contents: Vec<T>,
    flow: T,
}

/// Uniformity of what a function leaves behind.
#[derive(Clone)]
struct Outcome {
    result: Mark,
    /// Marks of what each argument points to, where that is a caller's variable.
    contents: Vec<Mark>,
}

struct Analysis<'a> {
    module: &'a Module,
    scope: Scope,
    reasons: Vec<Reason>,
    known: HashMap<Reason, Why>,
    calls: HashMap<(Handle<Function>, Inputs<bool>), Outcome>,
    found: Vec<Violation>,
}

impl Analysis<'_> {
    /// Every function by itself, called with uniform values, as some functions have no caller; then
    /// the entry points.
    fn module(&mut self) {
        for (handle, function) in self.module.functions.iter() {
            let uniform = vec![None; function.arguments.len()];
            let inputs = Inputs { arguments: uniform.clone(), contents: uniform, flow: None };
            self.outcome(handle, &inputs);
        }
        for point in &self.module.entry_points {
            let arguments = point.function.arguments.iter();
            let arguments: Vec<_> = arguments.map(|a| self.builtin(a)).collect();
            let contents = vec![None; arguments.len()];
            self.run(&point.function, &Inputs { arguments, contents, flow: None });
        }
    }

    /// The outcome of a call with these inputs.
    fn outcome(&mut self, handle: Handle<Function>, inputs: &Inputs<Mark>) -> Outcome {
        let are = |marks: &[Mark]| marks.iter().map(Option::is_some).collect();
        let key = Inputs {
            arguments: are(&inputs.arguments),
            contents: are(&inputs.contents),
            flow: inputs.flow.is_some(),
        };
        if let Some(outcome) = self.calls.get(&(handle, key.clone())) {
            return outcome.clone();
        }
        let outcome = self.run(&self.module.functions[handle], inputs);
        self.calls.insert((handle, key), outcome.clone());
        outcome
    }

    fn reason(&mut self, at: Span, text: impl Into<String>, cause: Mark) -> Mark {
        self.because(at, text.into(), cause, None)
    }

    fn because(
        &mut self,
        at: Span,
        text: String,
        cause: Mark,
        given: Option<(Handle<Function>, Given)>,
    ) -> Mark {
        let range = at.to_range().unwrap_or_default();
        let reason = Reason { at: (range.start as u32, range.end as u32), text, cause, given };
        let next = self.reasons.len();
        let why = *self.known.entry(reason.clone()).or_insert(next);
        if why == next {
            self.reasons.push(reason);
        }
        Some(why)
    }

    /// The chain of reasons from a mark on.
    fn chain(&self, mut mark: Mark) -> impl Iterator<Item = &Reason> {
        std::iter::from_fn(move || {
            let reason = &self.reasons[mark?];
            mark = reason.cause;
            Some(reason)
        })
    }

    /// The input of a call from which a mark inside the called function comes.
    fn given(&self, mark: Mark, called: Handle<Function>) -> Option<Given> {
        let mut given = self.chain(mark).filter_map(|reason| reason.given);
        given.find(|(function, _)| *function == called).map(|(_, given)| given)
    }

    /// Records a violation unless its place has one already.
    fn require(&mut self, scope: Scope, at: Span, mark: Mark, what: impl FnOnce() -> String) {
        if scope != self.scope || mark.is_none() || self.found.iter().any(|v| v.at == at) {
            return;
        }
        let because = self.chain(mark).map(|r| (Span::new(r.at.0, r.at.1), r.text.clone()));
        let because = because.collect();
        self.found.push(Violation { what: what(), at, scope, because });
    }
}
