//! Statements and control flow.

use naga::{
    AtomicFunction, Barrier, Block, Expression, GatherMode, Handle, Statement, SwitchValue,
};

use super::{Frame, Lower, Place, Value};
use crate::Error;
use crate::code::{Access, Atomic, Memory, Op, Reg};

impl<'a> Lower<'a> {
    /// Lowers a block. Where no lane is left within it, the machine goes on at its end.
    pub(super) fn block(&mut self, frame: &mut Frame<'a>, block: &Block) -> Result<(), Error> {
        let before = self.top;
        self.open_block(frame, block)?;
        self.top = before;
        Ok(())
    }

    /// Lowers a block without giving registers back: `continuing` uses those of a loop's body.
    fn open_block(&mut self, frame: &mut Frame<'a>, block: &Block) -> Result<(), Error> {
        let mut ends = Vec::new();
        for (statement, span) in block.span_iter() {
            self.span = *span;
            self.statement(frame, statement)?;
            let last = self.here().saturating_sub(1);
            if let Some(op) = self.program.code.last_mut()
                && skip(op).is_some()
            {
                ends.push(last);
            }
        }
        let end = self.here();
        for at in ends {
            if let Some(skip) = skip(&mut self.program.code[at as usize]) {
                *skip = end;
            }
        }
        Ok(())
    }

    fn statement(&mut self, frame: &mut Frame<'a>, statement: &Statement) -> Result<(), Error> {
        match *statement {
            Statement::Emit(ref range) => {
                for handle in range.clone() {
                    self.span = frame.function.expressions.get_span(handle);
                    let value = self.expression(frame, handle)?;
                    frame.values[handle.index()] = Some(value);
                }
            }
            Statement::Block(ref block) => self.block(frame, block)?,
            Statement::If { condition, ref accept, ref reject } => {
                let condition = self.columns(frame, condition)?[0];
                let start = self.push(Op::If { condition, otherwise: 0 });
                self.depth += 1;
                self.block(frame, accept)?;
                let middle = self.push(Op::Else { end: 0 });
                self.block(frame, reject)?;
                self.depth -= 1;
                let end = self.push(Op::EndIf { skip: 0 });
                self.program.code[start as usize] = Op::If { condition, otherwise: middle };
                self.program.code[middle as usize] = Op::Else { end };
            }
            Statement::Switch { selector, ref cases } => self.switch(frame, selector, cases)?,
            Statement::Loop { ref body, ref continuing, break_if } => {
                let before = self.top;
                self.push(Op::Loop);
                let (start, number) = (self.here(), self.depth);
                self.depth += 1;
                frame.breaks.push(number);
                frame.loops.push(number);
                self.open_block(frame, body)?;
                let middle = self.push(Op::Continuing { exit: 0 });
                self.open_block(frame, continuing)?;
                if let Some(condition) = break_if {
                    let condition = self.columns(frame, condition)?[0];
                    self.push(Op::BreakIf { condition });
                }
                self.push(Op::Again { start });
                frame.breaks.pop();
                frame.loops.pop();
                self.depth -= 1;
                let exit = self.push(Op::EndLoop { skip: 0 });
                self.program.code[middle as usize] = Op::Continuing { exit };
                self.top = before;
            }
            Statement::Break => {
                let depth = frame.breaks.last().copied().unwrap_or_default();
                self.push(Op::Break { depth });
            }
            Statement::Continue => {
                let depth = frame.loops.last().copied().unwrap_or_default();
                self.push(Op::Continue { depth });
            }
            Statement::Return { value } => {
                if let Some(value) = value {
                    let columns = self.columns(frame, value)?;
                    for (i, from) in columns.iter().enumerate() {
                        self.push(Op::Set(frame.result + i as Reg, *from));
                    }
                }
                self.push(Op::Return { depth: frame.call });
            }
            Statement::ControlBarrier(kind) => self.barrier(kind),
            // It orders nothing between invocations without a control barrier.
            Statement::MemoryBarrier(_) => {}
            Statement::Store { pointer, value } => self.store(frame, pointer, value)?,
            Statement::Atomic { pointer, fun, value, result } => {
                self.atomic(frame, pointer, fun, value, result)?;
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                let place = self.place(frame, pointer)?;
                self.barrier(Barrier::WORK_GROUP);
                let access = self.access(&place)?;
                self.push(Op::Uniform { access });
                let value = self.load(&place)?;
                frame.values[result.index()] = Some(value);
                self.barrier(Barrier::WORK_GROUP);
            }
            Statement::Call { function, ref arguments, result } => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(self.value(frame, *argument)?);
                }
                let callee = &self.module.functions[function];
                let count = match &callee.result {
                    Some(result) => self.types.components(&crate::types::Ty::Handle(result.ty))?,
                    None => 0,
                };
                let first = self.take(count);
                let (span, call, info) = (self.span, self.call, self.info);
                let at = self.at();
                self.call = self.program.calls.len() as u32;
                self.program.calls.push((at, call));
                self.function(callee, &info[function], values, first)?;
                (self.span, self.call) = (span, call);
                if let Some(result) = result {
                    let value = Value::Columns((first..first + count).collect());
                    frame.values[result.index()] = Some(value);
                }
            }
            Statement::SubgroupBallot { result, predicate } => {
                let from = match predicate {
                    Some(predicate) => Some(self.columns(frame, predicate)?[0]),
                    None => None,
                };
                let to = self.take(4);
                self.push(Op::Ballot { to, from });
                frame.values[result.index()] = Some(Value::Columns((to..to + 4).collect()));
            }
            Statement::SubgroupGather { mode, argument, result } => {
                self.gather(frame, mode, argument, result)?;
            }
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                let kind = self.kind(frame, argument)?;
                let (what, span) = (op, collective_op);
                let each = |to, from| Op::Fold { what, span, kind, to, from };
                let all = self.each_component(frame, argument, each)?;
                let all = self.rounded(kind, all);
                frame.values[result.index()] = Some(Value::Columns(all));
            }
            Statement::CooperativeStore { target, ref data } => {
                self.matrix_store(frame, target, data)?;
            }
            ref other => return Err(Error::Unsupported(format!("the statement {other:?}"))),
        }
        Ok(())
    }

    fn barrier(&mut self, kind: Barrier) {
        self.push(Op::Barrier {
            workgroup: kind.contains(Barrier::WORK_GROUP),
            storage: kind.contains(Barrier::STORAGE),
            subgroup: kind == Barrier::SUB_GROUP,
        });
    }

    fn switch(
        &mut self,
        frame: &mut Frame<'a>,
        selector: Handle<Expression>,
        cases: &[naga::SwitchCase],
    ) -> Result<(), Error> {
        let selector = self.columns(frame, selector)?[0];
        let number = |value: &SwitchValue| match *value {
            SwitchValue::I32(v) => Some(v as u32),
            SwitchValue::U32(v) => Some(v),
            SwitchValue::Default => None,
        };
        let all: Vec<u32> = cases.iter().filter_map(|case| number(&case.value)).collect();
        self.push(Op::Switch);
        frame.breaks.push(self.depth);
        self.depth += 1;
        for case in cases {
            let (is_default, values) = match number(&case.value) {
                Some(value) => (false, vec![value]),
                None => (true, all.clone()),
            };
            let values: Box<[u32]> = values.into();
            let at = self.push(Op::Case { selector, values: values.clone(), is_default, next: 0 });
            self.block(frame, &case.body)?;
            let next = self.push(Op::EndCase { falls: case.fall_through });
            self.program.code[at as usize] = Op::Case { selector, values, is_default, next };
        }
        self.depth -= 1;
        frame.breaks.pop();
        self.push(Op::EndSwitch { skip: 0 });
        Ok(())
    }

    /// Adds a place to the program's accesses.
    pub(super) fn access(&mut self, place: &Place) -> Result<u32, Error> {
        let leaves = self.types.leaves(&place.ty, place.unit())?.into();
        let &Place { memory, name, at, offset, index, .. } = place;
        let accesses = &mut self.program.accesses;
        accesses.push(Access { memory, name, at, offset, leaves, index });
        Ok(accesses.len() as u32 - 1)
    }

    fn store(
        &mut self,
        frame: &mut Frame<'a>,
        pointer: Handle<Expression>,
        value: Handle<Expression>,
    ) -> Result<(), Error> {
        let place = self.place(frame, pointer)?;
        let from = self.columns(frame, value)?;
        if place.memory == Memory::Columns && place.offset.is_none() {
            for (i, from) in from.iter().enumerate() {
                self.push(Op::Set(place.at + i as Reg, *from));
            }
            return Ok(());
        }
        let access = self.access(&place)?;
        let leaf = self.program.accesses[access as usize].leaves[0];
        if leaf.is_atomic {
            let (value, to, kind) = (from[0], self.take(1), leaf.kind);
            self.synchronises(&place);
            self.push(Op::Atomic { access, what: Atomic::Store, kind, value, to });
        } else {
            self.push(Op::Store { access, from: from.to_vec().into() });
        }
        Ok(())
    }

    /// Notes that an atomic operation may order workgroups.
    pub(super) fn synchronises(&mut self, place: &Place) {
        if let Memory::Buffer(_) = place.memory {
            self.program.is_synchronised = true;
        }
    }

    fn atomic(
        &mut self,
        frame: &mut Frame<'a>,
        pointer: Handle<Expression>,
        function: AtomicFunction,
        value: Handle<Expression>,
        result: Option<Handle<Expression>>,
    ) -> Result<(), Error> {
        let place = self.place(frame, pointer)?;
        self.synchronises(&place);
        let access = self.access(&place)?;
        let kind = self.program.accesses[access as usize].leaves[0].kind;
        let value = self.columns(frame, value)?[0];
        let expected = match function {
            AtomicFunction::Exchange { compare: Some(compare) } => Some(compare),
            _ => None,
        };
        let to = self.take(2);
        let expected = match expected {
            Some(compare) => self.columns(frame, compare)?[0],
            None => value,
        };
        let what = Atomic::Change(function, expected);
        self.push(Op::Atomic { access, what, kind, value, to });
        if let Some(result) = result {
            let count =
                if let AtomicFunction::Exchange { compare: Some(_) } = function { 2 } else { 1 };
            frame.values[result.index()] = Some(Value::Columns((to..to + count).collect()));
        }
        Ok(())
    }

    fn gather(
        &mut self,
        frame: &mut Frame<'a>,
        mode: GatherMode,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<(), Error> {
        let by = match mode {
            GatherMode::BroadcastFirst | GatherMode::QuadSwap(_) => None,
            GatherMode::Broadcast(at)
            | GatherMode::Shuffle(at)
            | GatherMode::ShuffleDown(at)
            | GatherMode::ShuffleUp(at)
            | GatherMode::ShuffleXor(at)
            | GatherMode::QuadBroadcast(at) => Some(at),
        };
        let by = match by {
            Some(at) => self.columns(frame, at)?[0],
            None => self.constant(0),
        };
        let all =
            self.each_component(frame, argument, |to, from| Op::Move { mode, by, to, from })?;
        frame.values[result.index()] = Some(Value::Columns(all.into()));
        Ok(())
    }

    fn each_component(
        &mut self,
        frame: &mut Frame<'a>,
        argument: Handle<Expression>,
        op: impl Fn(Reg, Reg) -> Op,
    ) -> Result<Vec<Reg>, Error> {
        let from = self.columns(frame, argument)?;
        let first = self.take(from.len() as u32);
        for (to, from) in (first..).zip(from.iter()) {
            self.push(op(to, *from));
        }
        Ok((first..first + from.len() as u32).collect())
    }
}

/// Target of the end of a statement if no lane is left.
fn skip(op: &mut Op) -> Option<&mut u32> {
    match op {
        Op::EndIf { skip }
        | Op::EndSwitch { skip }
        | Op::EndCall { skip }
        | Op::EndLoop { skip } => Some(skip),
        _ => None,
    }
}
