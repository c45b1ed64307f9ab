//! Uniformity of control flow.

use std::ops::BitOr;

use naga::{Barrier, Block, CollectiveOperation, Expression, Function, Handle, Span, Statement};

use super::expression::Root;
use super::names::{collective, gather};
use super::{Analysis, Inputs, Mark, Outcome, Scope};

/// A function while it is analysed.
pub(super) struct Frame<'a> {
    pub(super) function: &'a Function,
    /// Marks of local variables, then of what each argument points to, at this point of the text.
    pub(super) slots: Vec<Mark>,
    arguments: Vec<Mark>,
    /// Marks of expressions that were evaluated.
    values: Vec<Mark>,
    /// Slots where control leaves each loop and switch around, joined over all `break`s.
    breaks: Vec<Option<Vec<Mark>>>,
    /// Slots at `continue`, of each loop around.
    continues: Vec<Option<Vec<Mark>>>,
    outcome: Outcome,
}

/// The ways in which control can leave a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ends(u8);

const NEXT: Ends = Ends(1);
const BREAK: Ends = Ends(2);
const CONTINUE: Ends = Ends(4);
const RETURN: Ends = Ends(8);

impl Ends {
    fn has(self, end: Ends) -> bool {
        self.0 & end.0 != 0
    }

    fn without(self, end: Ends) -> Ends {
        Ends(self.0 & !end.0)
    }

    /// Ends of a loop or switch with such a body: `break` leaves it normally.
    fn around(self) -> Ends {
        if self.has(BREAK) { self.without(BREAK) | NEXT } else { self }
    }
}

impl BitOr for Ends {
    type Output = Ends;

    fn bitor(self, other: Ends) -> Ends {
        Ends(self.0 | other.0)
    }
}

impl Frame<'_> {
    /// Uniformity of a value that was computed before, but for the control flow of its use.
    pub(super) fn mark(&self, of: Handle<Expression>) -> Mark {
        match self.function.expressions[of] {
            Expression::FunctionArgument(i) => self.arguments[i as usize],
            _ => self.values[of.index()],
        }
    }

    /// Slot of what an argument points to.
    pub(super) fn behind(&self, argument: usize) -> usize {
        self.function.local_variables.len() + argument
    }

    pub(super) fn span(&self, of: Handle<Expression>) -> Span {
        self.function.expressions.get_span(of)
    }

    pub(super) fn name(&self, slot: usize) -> &str {
        let locals = self.function.local_variables.len();
        let name = match slot.checked_sub(locals) {
            Some(argument) => &self.function.arguments[argument].name,
            None => &self.function.local_variables.iter().nth(slot).expect("a variable").1.name,
        };
        name.as_deref().unwrap_or_default()
    }
}

/// Joins the slots of several paths.
fn join(into: &mut Option<Vec<Mark>>, slots: &[Mark]) {
    match into {
        None => *into = Some(slots.to_vec()),
        Some(into) => {
            into.iter_mut().zip(slots).for_each(|(into, slot)| *into = into.or(*slot));
        }
    }
}

fn are_uniform(slots: &[Mark]) -> impl Iterator<Item = bool> {
    slots.iter().map(Option::is_none)
}

impl Analysis<'_> {
    /// Analyses a function called with such inputs.
    pub(super) fn run(&mut self, function: &Function, inputs: &Inputs<Mark>) -> Outcome {
        let mut slots = vec![None; function.local_variables.len()];
        slots.extend(&inputs.contents);
        let mut frame = Frame {
            function,
            slots,
            arguments: inputs.arguments.clone(),
            values: vec![None; function.expressions.len()],
            breaks: Vec::new(),
            continues: Vec::new(),
            outcome: Outcome { result: None, contents: vec![None; inputs.contents.len()] },
        };
        let (_, ends) = self.block(&mut frame, &function.body, inputs.flow);
        if ends.has(NEXT) {
            frame.leave();
        }
        frame.outcome
    }

    /// Uniformity of control flow behind a block, and the ways in which control leaves it.
    fn block(&mut self, frame: &mut Frame<'_>, block: &Block, mut flow: Mark) -> (Mark, Ends) {
        let mut ends = NEXT;
        for (statement, span) in block.span_iter() {
            let (after, own) = self.statement(frame, statement, *span, flow);
            flow = after;
            ends = ends.without(NEXT) | own;
            if !own.has(NEXT) {
                break;
            }
        }
        (flow, ends)
    }

    fn statement(
        &mut self,
        frame: &mut Frame<'_>,
        statement: &Statement,
        span: Span,
        flow: Mark,
    ) -> (Mark, Ends) {
        match statement {
            Statement::Block(inner) => return self.block(frame, inner, flow),
            Statement::If { condition, accept, reject } => {
                return self.branch(frame, *condition, &[accept, reject], flow);
            }
            Statement::Switch { selector, cases } => {
                let bodies: Vec<_> =
                    cases.iter().filter(|case| !case.fall_through).map(|case| &case.body).collect();
                frame.breaks.push(None);
                let (after, ends) = self.branch(frame, *selector, &bodies, flow);
                if let Some(left) = frame.breaks.pop().flatten() {
                    let mut slots = ends.has(NEXT).then(|| frame.slots.clone());
                    join(&mut slots, &left);
                    frame.slots = slots.unwrap_or_default();
                }
                let ends = ends.around();
                return (if ends == NEXT { flow } else { after }, ends);
            }
            Statement::Loop { body, continuing, break_if } => {
                return self.repeat(frame, body, continuing, *break_if, flow);
            }
            Statement::Break => {
                let slots = frame.slots.clone();
                frame.breaks.last_mut().into_iter().for_each(|left| join(left, &slots));
                return (flow, BREAK);
            }
            Statement::Continue => {
                let slots = frame.slots.clone();
                frame.continues.last_mut().into_iter().for_each(|left| join(left, &slots));
                return (flow, CONTINUE);
            }
            Statement::Return { value } => {
                let mark = value.and_then(|value| frame.mark(value).or(flow));
                frame.outcome.result = frame.outcome.result.or(mark);
                frame.leave();
                return (flow, RETURN);
            }
            Statement::Emit(range) => {
                for handle in range.clone() {
                    frame.values[handle.index()] = self.evaluate(frame, handle).or(flow);
                }
            }
            Statement::Store { pointer, value } => {
                let mark = frame.mark(*value).or(flow);
                self.store(frame, *pointer, mark, span);
            }
            Statement::Call { function, arguments, result } => {
                let mark = self.call(frame, *function, arguments, span, flow);
                if let Some(result) = result {
                    frame.values[result.index()] = mark;
                }
            }
            Statement::Atomic { result, .. } => {
                if let Some(result) = result {
                    let text = "an atomic operation returns another value to each invocation";
                    frame.values[result.index()] = self.reason(span, text, None);
                }
            }
            Statement::ControlBarrier(barrier) => {
                let (scope, name) = match *barrier {
                    b if b.contains(Barrier::SUB_GROUP) => (Scope::Subgroup, "subgroupBarrier"),
                    b if b.contains(Barrier::WORK_GROUP) => (Scope::Workgroup, "workgroupBarrier"),
                    b if b.contains(Barrier::TEXTURE) => (Scope::Workgroup, "textureBarrier"),
                    _ => (Scope::Workgroup, "storageBarrier"),
                };
                self.require_flow(scope, name, span, flow);
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                let (name, index) = ("workgroupUniformLoad", self.place(frame, *pointer).index);
                self.require_flow(Scope::Workgroup, name, span, flow);
                let what = || format!("`{name}` requires a uniform pointer");
                self.require(Scope::Workgroup, span, index, what);
                frame.values[result.index()] = flow;
            }
            Statement::SubgroupBallot { result, predicate } => {
                let mark = predicate.and_then(|predicate| frame.mark(predicate));
                let mark = self.subgroup("subgroupBallot", span, flow, Some(mark));
                frame.values[result.index()] = mark;
            }
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                let name = collective(*op, *collective_op);
                let is_shared = matches!(collective_op, CollectiveOperation::Reduce);
                let argument = is_shared.then(|| frame.mark(*argument));
                frame.values[result.index()] = self.subgroup(name, span, flow, argument);
            }
            Statement::SubgroupGather { mode, argument, result } => {
                let (name, same_for_all, shift) = gather(*mode);
                let what = || format!("`{name}` requires a uniform second argument");
                if let Some(shift) = shift {
                    self.require(Scope::Subgroup, span, frame.mark(shift), what);
                }
                let argument = same_for_all.then(|| frame.mark(*argument));
                frame.values[result.index()] = self.subgroup(name, span, flow, argument);
            }
            Statement::CooperativeStore { .. } => {
                self.require_flow(Scope::Subgroup, "coopStore", span, flow);
            }
            Statement::Kill
            | Statement::MemoryBarrier(_)
            | Statement::ImageStore { .. }
            | Statement::ImageAtomic { .. }
            | Statement::RayQuery { .. }
            | Statement::RayPipelineFunction(_) => {}
        }
        (flow, NEXT)
    }

    /// Alternatives of which a value takes one.
    fn branch(
        &mut self,
        frame: &mut Frame<'_>,
        on: Handle<Expression>,
        bodies: &[&Block],
        flow: Mark,
    ) -> (Mark, Ends) {
        let behind = self.depends(frame, on, flow);
        let (before, mut slots) = (frame.slots.clone(), None);
        let (mut after, mut ends) = (None, Ends(0));
        for body in bodies {
            frame.slots.clone_from(&before);
            let (end, own) = self.block(frame, body, behind);
            if own.has(NEXT) {
                join(&mut slots, &frame.slots);
            }
            after = after.or(end);
            ends = ends | own;
        }
        frame.slots = slots.unwrap_or(before);
        (if ends == NEXT { flow } else { after }, ends)
    }

    fn repeat(
        &mut self,
        frame: &mut Frame<'_>,
        body: &Block,
        continuing: &Block,
        break_if: Option<Handle<Expression>>,
        flow: Mark,
    ) -> (Mark, Ends) {
        let mut start = flow;
        loop {
            let head = frame.slots.clone();
            frame.breaks.push(None);
            frame.continues.push(None);
            let (mut end, mut ends) = self.block(frame, body, start);
            let mut slots = ends.has(NEXT).then(|| frame.slots.clone());
            if let Some(left) = frame.continues.pop().flatten() {
                join(&mut slots, &left);
            }
            if let Some(slots) = slots {
                frame.slots = slots;
                let own;
                (end, own) = self.block(frame, continuing, end);
                ends = ends | own;
                if let Some(condition) = break_if {
                    end = self.depends(frame, condition, end);
                    let slots = frame.slots.clone();
                    frame.breaks.last_mut().into_iter().for_each(|left| join(left, &slots));
                    ends = ends | BREAK;
                }
                let mut again = Some(frame.slots.clone());
                join(&mut again, &head);
                frame.slots = again.unwrap_or_default();
            } else {
                frame.slots.clone_from(&head);
            }
            let left = frame.breaks.pop().flatten();
            let again = start.or(end);
            let is_settled = are_uniform(&frame.slots).eq(are_uniform(&head))
                && again.is_some() == start.is_some();
            start = again;
            if is_settled {
                frame.slots = left.unwrap_or(head);
                let ends = ends.without(NEXT).without(CONTINUE).around();
                return (if ends == NEXT { flow } else { start }, ends);
            }
        }
    }

    /// Uniformity of control flow behind a condition.
    fn depends(&mut self, frame: &Frame<'_>, on: Handle<Expression>, flow: Mark) -> Mark {
        match frame.mark(on) {
            None => flow,
            // Where control flow was not uniform before, that comes first.
            mark if flow.is_some() && mark == flow => flow,
            mark => self.reason(frame.span(on), "control flow depends on this value", mark),
        }
    }

    fn store(
        &mut self,
        frame: &mut Frame<'_>,
        pointer: Handle<Expression>,
        mark: Mark,
        span: Span,
    ) {
        let place = self.place(frame, pointer);
        let Root::Slot(slot) = place.root else { return };
        let before = if place.is_part { frame.slots[slot] } else { None };
        let new = mark.or(place.index);
        frame.slots[slot] = before.or_else(|| match frame.name(slot) {
            // The value of `&&` or `||`.
            "" => new,
            name => new.and_then(|_| {
                self.reason(span, format!("`{name}` is given a value that may differ"), new)
            }),
        });
    }

    /// Checks the place of a subgroup operation, and returns the uniformity of its result; `shared`
    /// is the operand's where all invocations of the subgroup get one result.
    fn subgroup(&mut self, name: &str, span: Span, flow: Mark, shared: Option<Mark>) -> Mark {
        self.require_flow(Scope::Subgroup, name, span, flow);
        match shared {
            Some(mark) if self.scope == Scope::Subgroup => mark.or(flow),
            _ => {
                let group = self.scope.name();
                self.reason(span, format!("the result of `{name}` differs in a {group}"), None)
            }
        }
    }

    fn require_flow(&mut self, scope: Scope, name: &str, span: Span, flow: Mark) {
        let what = || match scope {
            Scope::Workgroup => format!("`{name}` must be called from uniform control flow"),
            Scope::Subgroup => {
                format!("`{name}` must be called from subgroup uniform control flow")
            }
        };
        self.require(scope, span, flow, what);
    }
}

impl Frame<'_> {
    /// Returns to the caller, with what its variables hold now.
    fn leave(&mut self) {
        let locals = self.function.local_variables.len();
        let now = &self.slots[locals..];
        self.outcome.contents.iter_mut().zip(now).for_each(|(left, slot)| *left = left.or(*slot));
    }
}

impl Scope {
    /// Its invocations, in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Scope::Workgroup => "workgroup",
            Scope::Subgroup => "subgroup",
        }
    }
}
