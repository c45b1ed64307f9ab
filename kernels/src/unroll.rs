//! Loops over arrays as straight code, for engines that check every index.
//!
//! Browsers clamp each index that is no number. A loop's index is one only once the loop is
//! unrolled, and with the clamps in it drivers unroll less: arrays that were registers lie in
//! memory. Here functions are specialised for arguments that are numbers, what follows from them is
//! computed, and loops of a known number of turns that index a function's arrays are written out.

use std::collections::{HashMap, HashSet};

use naga::{
    AddressSpace, Arena, BinaryOperator as B, Block, Expression, Function, Handle, Literal,
    LocalVariable, MathFunction as M, Module, Range, Span, Statement, TypeInner, UnaryOperator,
};

/// Most turns of a loop that is written out.
const MOST_TURNS: u32 = 64;

/// Most statements that unrolling adds to a function.
const ROOM: usize = 12_000;

/// Specialises functions for arguments that are numbers, and computes what follows from numbers.
pub(crate) fn specialise(module: &mut Module) {
    let mut entries = std::mem::take(&mut module.entry_points);
    let mut own = Specialise { module, functions: Arena::new(), made: HashMap::new() };
    for entry in &mut entries {
        own.body(&mut entry.function);
    }
    let functions = own.functions;
    module.functions = functions;
    module.entry_points = entries;
}

struct Specialise<'a> {
    module: &'a Module,
    functions: Arena<Function>,
    /// New functions by the old one and the arguments that are numbers.
    made: HashMap<(Handle<Function>, Vec<Option<u32>>), Handle<Function>>,
}

/// Values of a function's expressions.
type Known = HashMap<Handle<Expression>, Literal>;

impl Specialise<'_> {
    fn function(&mut self, of: Handle<Function>, given: Vec<Option<u32>>) -> Handle<Function> {
        let key = (of, given);
        if let Some(made) = self.made.get(&key) {
            return *made;
        }
        let mut function = self.module.functions[of].clone();
        let given = &key.1;
        let place = |at: u32| given[..at as usize].iter().filter(|v| v.is_none()).count() as u32;
        let mut named = Vec::new();
        for (handle, expression) in function.expressions.iter_mut() {
            if let Expression::FunctionArgument(at) = *expression {
                *expression = match given[at as usize] {
                    Some(value) => {
                        named.push(handle);
                        Expression::Literal(Literal::U32(value))
                    }
                    None => Expression::FunctionArgument(place(at)),
                };
            }
        }
        for handle in named {
            function.named_expressions.swap_remove(&handle);
        }
        let mut given = key.1.iter();
        function.arguments.retain(|_| given.next().is_some_and(Option::is_none));
        self.body(&mut function);
        let made = self.functions.append(function, Span::UNDEFINED);
        self.made.insert(key, made);
        made
    }

    /// Computes what is known in a function, and has it call specialised ones.
    fn body(&mut self, function: &mut Function) {
        let mut calls = HashMap::new();
        each_call(&function.body, &mut |of, arguments, result| {
            calls.insert(result, (of, arguments.to_vec()));
        });
        let (mut known, mut replaced) = (Known::new(), HashSet::new());
        for (handle, expression) in function.expressions.iter() {
            let value = match expression {
                Expression::CallResult(_) => calls.get(&handle).and_then(|(of, arguments)| {
                    let values = arguments.iter().map(|a| known.get(a).copied());
                    self.call(*of, &values.collect::<Option<Vec<_>>>()?)
                }),
                other => self.value(other, &known),
            };
            let Some(value) = value else { continue };
            known.insert(handle, value);
            if !matches!(expression, Expression::Literal(_) | Expression::Constant(_)) {
                replaced.insert(handle);
            }
        }
        for handle in &replaced {
            function.expressions[*handle] = Expression::Literal(known[handle]);
            function.named_expressions.swap_remove(handle);
        }
        let body = std::mem::take(&mut function.body);
        function.body = self.block(body, function, &known, &replaced);
    }

    fn block(
        &mut self,
        block: Block,
        function: &mut Function,
        known: &Known,
        replaced: &HashSet<Handle<Expression>>,
    ) -> Block {
        let mut out = Block::new();
        for (statement, span) in block.span_into_iter() {
            let mut inner = |block| self.block(block, function, known, replaced);
            let statement = match statement {
                Statement::Emit(range) => {
                    let mut run: Option<(Handle<Expression>, Handle<Expression>)> = None;
                    let mut put = |run: Option<(_, _)>| {
                        if let Some((first, last)) = run {
                            out.push(Statement::Emit(Range::new_from_bounds(first, last)), span);
                        }
                    };
                    for handle in range {
                        if replaced.contains(&handle) {
                            put(run.take());
                        } else {
                            run = Some((run.map_or(handle, |(first, _)| first), handle));
                        }
                    }
                    put(run);
                    continue;
                }
                Statement::Call { result: Some(result), .. } if replaced.contains(&result) => {
                    continue;
                }
                Statement::Call { function: of, mut arguments, result } => {
                    let callee = &self.module.functions[of];
                    let is_pointer = |argument: &naga::FunctionArgument| {
                        matches!(self.module.types[argument.ty].inner, TypeInner::Pointer { .. })
                    };
                    // Copies are for the sake of arrays that come by a pointer.
                    let worth = callee.arguments.iter().any(is_pointer);
                    let number = |at: &Handle<Expression>| match known.get(at) {
                        Some(Literal::U32(value)) if worth => Some(*value),
                        _ => None,
                    };
                    let given: Vec<_> = arguments.iter().map(number).collect();
                    let mut kept = given.iter();
                    arguments.retain(|_| kept.next().is_some_and(Option::is_none));
                    let of = self.function(of, given);
                    if let Some(result) = result {
                        function.expressions[result] = Expression::CallResult(of);
                    }
                    Statement::Call { function: of, arguments, result }
                }
                Statement::Block(block) => Statement::Block(inner(block)),
                Statement::If { condition, accept, reject } => {
                    Statement::If { condition, accept: inner(accept), reject: inner(reject) }
                }
                Statement::Switch { selector, mut cases } => {
                    for case in &mut cases {
                        case.body = inner(std::mem::take(&mut case.body));
                    }
                    Statement::Switch { selector, cases }
                }
                Statement::Loop { body, continuing, break_if } => {
                    let (body, continuing) = (inner(body), inner(continuing));
                    Statement::Loop { body, continuing, break_if }
                }
                other => other,
            };
            out.push(statement, span);
        }
        out
    }

    /// Value of an expression whose operands are known.
    fn value(&self, expression: &Expression, known: &Known) -> Option<Literal> {
        use Literal::{Bool, U32};
        let of = |at: Handle<Expression>| known.get(&at).copied();
        let number = |at: Handle<Expression>| match of(at) {
            Some(U32(value)) => Some(value),
            _ => None,
        };
        match *expression {
            Expression::Literal(value @ (U32(_) | Bool(_))) => Some(value),
            Expression::Constant(constant) => {
                match self.module.global_expressions[self.module.constants[constant].init] {
                    Expression::Literal(value @ (U32(_) | Bool(_))) => Some(value),
                    _ => None,
                }
            }
            Expression::Binary { op, left, right } => match (of(left)?, of(right)?) {
                (U32(a), U32(b)) => binary(op, a, b),
                (Bool(a), Bool(b)) => match op {
                    B::LogicalAnd | B::And => Some(Bool(a & b)),
                    B::LogicalOr | B::InclusiveOr => Some(Bool(a | b)),
                    B::Equal => Some(Bool(a == b)),
                    B::NotEqual => Some(Bool(a != b)),
                    _ => None,
                },
                _ => None,
            },
            Expression::Unary { op: UnaryOperator::LogicalNot, expr } => match of(expr)? {
                Bool(value) => Some(Bool(!value)),
                _ => None,
            },
            Expression::Select { condition, accept, reject } => match of(condition)? {
                Bool(is) => of(if is { accept } else { reject }),
                _ => None,
            },
            Expression::Math { fun, arg, arg1, .. } => {
                let (a, b) = (number(arg)?, arg1.and_then(number));
                match (fun, b) {
                    (M::Min, Some(b)) => Some(U32(a.min(b))),
                    (M::Max, Some(b)) => Some(U32(a.max(b))),
                    (M::CountTrailingZeros, _) => Some(U32(a.trailing_zeros())),
                    (M::CountLeadingZeros, _) => Some(U32(a.leading_zeros())),
                    (M::CountOneBits, _) => Some(U32(a.count_ones())),
                    (M::ReverseBits, _) => Some(U32(a.reverse_bits())),
                    (M::FirstLeadingBit, _) => Some(U32(31u32.wrapping_sub(a.leading_zeros()))),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Value of a call, unless it depends on memory.
    fn call(&self, of: Handle<Function>, arguments: &[Literal]) -> Option<Literal> {
        let function = &self.module.functions[of];
        let (mut known, mut variables) = (Known::new(), HashMap::new());
        for (handle, expression) in function.expressions.iter() {
            let value = match *expression {
                Expression::FunctionArgument(at) => arguments.get(at as usize).copied(),
                Expression::Literal(_) | Expression::Constant(_) => self.value(expression, &known),
                _ => None,
            };
            value.map(|value| known.insert(handle, value));
        }
        for (variable, declared) in function.local_variables.iter() {
            let value = declared.init.and_then(|init| known.get(&init));
            value.map(|value| variables.insert(variable, *value));
        }
        self.run(function, &function.body, &mut known, &mut variables)?
    }

    /// Runs a block: none if it does what is not known here, and a value if it returns one.
    fn run(
        &self,
        function: &Function,
        block: &Block,
        known: &mut Known,
        variables: &mut HashMap<Handle<LocalVariable>, Literal>,
    ) -> Option<Option<Literal>> {
        for statement in block.iter() {
            match statement {
                Statement::Emit(range) => {
                    for handle in range.clone() {
                        let expression = &function.expressions[handle];
                        let value = match *expression {
                            Expression::Load { pointer } => match function.expressions[pointer] {
                                Expression::LocalVariable(variable) => {
                                    variables.get(&variable).copied()
                                }
                                _ => None,
                            },
                            _ => self.value(expression, known),
                        };
                        value.map(|value| known.insert(handle, value));
                    }
                }
                Statement::Store { pointer, value } => match function.expressions[*pointer] {
                    Expression::LocalVariable(variable) => {
                        variables.insert(variable, *known.get(value)?);
                    }
                    _ => return None,
                },
                Statement::Call { function: of, arguments, result } => {
                    let values = arguments.iter().map(|a| known.get(a).copied());
                    let value = self.call(*of, &values.collect::<Option<Vec<_>>>()?)?;
                    result.map(|result| known.insert(result, value));
                }
                Statement::Block(block) => {
                    let returned = self.run(function, block, known, variables)?;
                    if returned.is_some() {
                        return Some(returned);
                    }
                }
                Statement::If { condition, accept, reject } => {
                    let Some(Literal::Bool(is)) = known.get(condition) else { return None };
                    let taken = if *is { accept } else { reject };
                    let returned = self.run(function, taken, known, variables)?;
                    if returned.is_some() {
                        return Some(returned);
                    }
                }
                Statement::Return { value } => return Some(Some(*known.get(&(*value)?)?)),
                _ => return None,
            }
        }
        Some(None)
    }
}

fn binary(op: B, a: u32, b: u32) -> Option<Literal> {
    use Literal::{Bool, U32};
    Some(match op {
        B::Add => U32(a.checked_add(b)?),
        B::Subtract => U32(a.checked_sub(b)?),
        B::Multiply => U32(a.checked_mul(b)?),
        B::Divide => U32(a.checked_div(b)?),
        B::Modulo => U32(a.checked_rem(b)?),
        B::And => U32(a & b),
        B::InclusiveOr => U32(a | b),
        B::ExclusiveOr => U32(a ^ b),
        B::ShiftLeft => U32(a.checked_shl(b)?),
        B::ShiftRight => U32(a.checked_shr(b)?),
        B::Equal => Bool(a == b),
        B::NotEqual => Bool(a != b),
        B::Less => Bool(a < b),
        B::LessEqual => Bool(a <= b),
        B::Greater => Bool(a > b),
        B::GreaterEqual => Bool(a >= b),
        _ => return None,
    })
}

/// Visits calls that have a result.
fn each_call(
    block: &Block,
    see: &mut dyn FnMut(Handle<Function>, &[Handle<Expression>], Handle<Expression>),
) {
    each_statement(block, &mut |statement| {
        if let Statement::Call { function, arguments, result: Some(result) } = statement {
            see(*function, arguments, *result);
        }
    });
}

/// Visits all statements, outer ones before inner ones.
fn each_statement(block: &Block, see: &mut dyn FnMut(&Statement)) {
    for statement in block.iter() {
        see(statement);
        match statement {
            Statement::Block(block) => each_statement(block, see),
            Statement::If { accept, reject, .. } => {
                each_statement(accept, see);
                each_statement(reject, see);
            }
            Statement::Switch { cases, .. } => {
                cases.iter().for_each(|case| each_statement(&case.body, see));
            }
            Statement::Loop { body, continuing, .. } => {
                each_statement(body, see);
                each_statement(continuing, see);
            }
            _ => {}
        }
    }
}

/// Writes out the loops of a known number of turns that index a function's own arrays.
pub(crate) fn unroll(module: &mut Module) {
    let Module { types, constants, global_expressions, functions, entry_points, .. } = module;
    let number = |expression: &Expression| match *expression {
        Expression::Literal(Literal::U32(value)) => Some(value),
        Expression::Constant(constant) => match global_expressions[constants[constant].init] {
            Expression::Literal(Literal::U32(value)) => Some(value),
            _ => None,
        },
        _ => None,
    };
    let functions = functions.iter_mut().map(|(_, function)| function);
    for function in functions.chain(entry_points.iter_mut().map(|entry| &mut entry.function)) {
        let by_pointer = function.arguments.iter().map(|argument| {
            let inner = &types[argument.ty].inner;
            matches!(inner, TypeInner::Pointer { space: AddressSpace::Function, .. })
        });
        let by_pointer = by_pointer.collect();
        let mut stores = HashMap::new();
        each_statement(&function.body, &mut |statement| {
            let written = match statement {
                Statement::Store { pointer, .. } => std::slice::from_ref(pointer),
                // Whoever has a pointer may store.
                Statement::Call { arguments, .. } => arguments.as_slice(),
                _ => &[],
            };
            for pointer in written {
                if let Expression::LocalVariable(variable) = function.expressions[*pointer] {
                    *stores.entry(variable).or_insert(0usize) += 1;
                }
            }
        });
        let body = std::mem::take(&mut function.body);
        let mut unroll = Unroll { function, number: &number, by_pointer, stores, room: ROOM };
        let body = unroll.block(body, false);
        function.body = body;
    }
}

struct Unroll<'a> {
    function: &'a mut Function,
    number: &'a dyn Fn(&Expression) -> Option<u32>,
    /// Arguments that point to an array or value of a caller.
    by_pointer: Vec<bool>,
    /// Places that may store to a variable.
    stores: HashMap<Handle<LocalVariable>, usize>,
    /// Statements that may still be added.
    room: usize,
}

/// Loop over a variable from a start by steps below a bound.
struct Counted {
    variable: Handle<LocalVariable>,
    bound: u32,
    step: u32,
    /// Statements of its condition.
    condition: usize,
}

impl Unroll<'_> {
    fn block(&mut self, block: Block, in_loop: bool) -> Block {
        let mut out = Block::new();
        for (statement, span) in block.span_into_iter() {
            let statement = match statement {
                Statement::Block(block) => Statement::Block(self.block(block, in_loop)),
                Statement::If { condition, accept, reject } => {
                    let (accept, reject) =
                        (self.block(accept, in_loop), self.block(reject, in_loop));
                    Statement::If { condition, accept, reject }
                }
                Statement::Switch { selector, mut cases } => {
                    for case in &mut cases {
                        case.body = self.block(std::mem::take(&mut case.body), in_loop);
                    }
                    Statement::Switch { selector, cases }
                }
                Statement::Loop { body, continuing, break_if } => {
                    let body = self.block(body, true);
                    let counted = match break_if {
                        None => self.counted(&body, &continuing),
                        Some(_) => None,
                    };
                    let start = counted.as_ref().and_then(|c| self.start(c, &out, in_loop));
                    let turns = counted.zip(start).and_then(|(c, start)| {
                        self.turns(&c, start, &body).map(|turns| (c, turns))
                    });
                    if let Some((counted, turns)) = turns
                        && self.write_out(&counted, &turns, &body, &mut out)
                    {
                        continue;
                    }
                    Statement::Loop { body, continuing, break_if }
                }
                other => other,
            };
            out.push(statement, span);
        }
        out
    }

    fn variable(&self, pointer: Handle<Expression>) -> Option<Handle<LocalVariable>> {
        match self.function.expressions[pointer] {
            Expression::LocalVariable(variable) => Some(variable),
            _ => None,
        }
    }

    fn loaded(&self, value: Handle<Expression>) -> Option<Handle<LocalVariable>> {
        match self.function.expressions[value] {
            Expression::Load { pointer } => self.variable(pointer),
            _ => None,
        }
    }

    fn number(&self, value: Handle<Expression>) -> Option<u32> {
        (self.number)(&self.function.expressions[value])
    }

    fn counted(&self, body: &Block, continuing: &Block) -> Option<Counted> {
        let is_emit = |statement: &&Statement| matches!(statement, Statement::Emit(_));
        let mut last = continuing.iter().filter(|statement| !is_emit(statement));
        let (Some(Statement::Store { pointer, value }), None) = (last.next(), last.next()) else {
            return None;
        };
        let variable = self.variable(*pointer)?;
        let Expression::Binary { op: B::Add, left, right } = self.function.expressions[*value]
        else {
            return None;
        };
        let step = self.number(right).filter(|_| self.loaded(left) == Some(variable))?;
        let condition = body.iter().position(|statement| !is_emit(&statement))?;
        let Statement::If { condition: holds, accept, reject } = &body[condition] else {
            return None;
        };
        let [Statement::Break] = **reject else { return None };
        let Expression::Binary { op, left, right } = self.function.expressions[*holds] else {
            return None;
        };
        let bound = self.number(right)?;
        let bound = match op {
            B::Less => bound,
            B::LessEqual => bound.checked_add(1)?,
            _ => return None,
        };
        let counts = accept.is_empty() && self.loaded(left) == Some(variable) && step > 0;
        counts.then_some(Counted { variable, bound, step, condition: condition + 1 })
    }

    /// Value of a loop's variable before its first turn.
    fn start(&self, counted: &Counted, before: &Block, in_loop: bool) -> Option<u32> {
        let stored = before.iter().rev().find(|s| !matches!(s, Statement::Emit(_)));
        if let Some(Statement::Store { pointer, value }) = stored
            && self.variable(*pointer) == Some(counted.variable)
        {
            return self.number(*value);
        }
        let is_first = !in_loop && self.stores.get(&counted.variable) == Some(&1);
        let init = self.function.local_variables[counted.variable].init?;
        self.number(init).filter(|_| is_first)
    }

    /// Values of its variable in each turn, if the loop is to be written out.
    fn turns(&mut self, counted: &Counted, start: u32, body: &Block) -> Option<Vec<u32>> {
        let turns = (start..counted.bound).step_by(counted.step as usize);
        let turns: Vec<u32> = turns.take(MOST_TURNS as usize + 1).collect();
        let (mut count, mut indexes, mut changes) = (0, false, false);
        each_statement(body, &mut |statement| {
            count += 1;
            match statement {
                Statement::Emit(range) => indexes |= range.clone().any(|e| self.is_indexed(e)),
                Statement::Store { pointer, .. } => {
                    changes |= self.variable(*pointer) == Some(counted.variable);
                }
                Statement::Call { arguments, .. } => {
                    let mut pointers = arguments.iter().filter_map(|a| self.variable(*a));
                    changes |= pointers.any(|variable| variable == counted.variable);
                }
                _ => {}
            }
        });
        let rest = &body[counted.condition..];
        let added = count * turns.len().saturating_sub(1);
        let fits = turns.len() <= MOST_TURNS as usize && added <= self.room;
        if !fits || !indexes || changes || leaves(rest, false) {
            return None;
        }
        self.room -= added;
        Some(turns)
    }

    /// True of an element of a function's array at an index that is no number.
    fn is_indexed(&self, at: Handle<Expression>) -> bool {
        let Expression::Access { base, index } = self.function.expressions[at] else {
            return false;
        };
        let mut root = base;
        let own = loop {
            match self.function.expressions[root] {
                Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                    root = base;
                }
                Expression::LocalVariable(_) => break true,
                Expression::FunctionArgument(at) => break self.by_pointer[at as usize],
                _ => break false,
            }
        };
        own && self.number(index).is_none()
    }

    /// Appends the turns of a loop to `out`, each with expressions of its own. Returns false if
    /// the body has something that cannot be copied.
    fn write_out(
        &mut self,
        counted: &Counted,
        turns: &[u32],
        body: &Block,
        out: &mut Block,
    ) -> bool {
        let pointer = Expression::LocalVariable(counted.variable);
        let pointer = self.function.expressions.append(pointer, Span::UNDEFINED);
        let store = |value: u32, expressions: &mut Arena<Expression>| {
            let value = Expression::Literal(Literal::U32(value));
            Statement::Store { pointer, value: expressions.append(value, Span::UNDEFINED) }
        };
        let mut written = Block::new();
        // Loads of the condition may be used later on; its branch is decided.
        let kept = || body.iter().enumerate().filter(|(at, _)| at + 1 != counted.condition);
        let kept: Vec<&Statement> = kept().map(|(_, statement)| statement).collect();
        for turn in turns {
            let mut block = Block::new();
            block.push(store(*turn, &mut self.function.expressions), Span::UNDEFINED);
            let mut copy = Copy { function: self.function, own: HashMap::new() };
            for statement in &kept {
                let Some(statement) = copy.statement(statement) else { return false };
                block.push(statement, Span::UNDEFINED);
            }
            written.push(Statement::Block(block), Span::UNDEFINED);
        }
        if let Some(last) = turns.last() {
            let end = last.saturating_add(counted.step);
            written.push(store(end, &mut self.function.expressions), Span::UNDEFINED);
        }
        out.append(&mut written);
        // A name would keep the results of calls that are made no more.
        let names = &mut self.function.named_expressions;
        each_statement(body, &mut |statement| match statement {
            Statement::Emit(range) => range.clone().for_each(|e| drop(names.swap_remove(&e))),
            Statement::Call { result: Some(result), .. }
            | Statement::SubgroupCollectiveOperation { result, .. }
            | Statement::SubgroupGather { result, .. } => drop(names.swap_remove(result)),
            _ => {}
        });
        true
    }
}

/// Statements with copies of the expressions that they compute: naga wants each result of a call to
/// be made in one place.
struct Copy<'a> {
    function: &'a mut Function,
    own: HashMap<Handle<Expression>, Handle<Expression>>,
}

impl Copy<'_> {
    fn at(&self, of: Handle<Expression>) -> Handle<Expression> {
        self.own.get(&of).copied().unwrap_or(of)
    }

    fn maybe(&self, of: Option<Handle<Expression>>) -> Option<Handle<Expression>> {
        of.map(|of| self.at(of))
    }

    fn append(&mut self, of: Handle<Expression>, copy: Expression) -> Handle<Expression> {
        let made = self.function.expressions.append(copy, Span::UNDEFINED);
        self.own.insert(of, made);
        made
    }

    fn result(&mut self, of: Handle<Expression>) -> Handle<Expression> {
        let copy = self.function.expressions[of].clone();
        self.append(of, copy)
    }

    /// A copy of an expression that a statement emits.
    fn expression(&self, of: Handle<Expression>) -> Option<Expression> {
        use Expression as E;
        Some(match self.function.expressions[of].clone() {
            E::Access { base, index } => E::Access { base: self.at(base), index: self.at(index) },
            E::AccessIndex { base, index } => E::AccessIndex { base: self.at(base), index },
            E::Splat { size, value } => E::Splat { size, value: self.at(value) },
            E::Swizzle { size, vector, pattern } => {
                E::Swizzle { size, vector: self.at(vector), pattern }
            }
            E::Compose { ty, components } => {
                E::Compose { ty, components: components.iter().map(|c| self.at(*c)).collect() }
            }
            E::Load { pointer } => E::Load { pointer: self.at(pointer) },
            E::Unary { op, expr } => E::Unary { op, expr: self.at(expr) },
            E::Binary { op, left, right } => {
                E::Binary { op, left: self.at(left), right: self.at(right) }
            }
            E::Select { condition, accept, reject } => E::Select {
                condition: self.at(condition),
                accept: self.at(accept),
                reject: self.at(reject),
            },
            E::Relational { fun, argument } => E::Relational { fun, argument: self.at(argument) },
            E::Math { fun, arg, arg1, arg2, arg3 } => E::Math {
                fun,
                arg: self.at(arg),
                arg1: self.maybe(arg1),
                arg2: self.maybe(arg2),
                arg3: self.maybe(arg3),
            },
            E::As { expr, kind, convert } => E::As { expr: self.at(expr), kind, convert },
            E::ArrayLength(of) => E::ArrayLength(self.at(of)),
            _ => return None,
        })
    }

    fn block(&mut self, block: &Block) -> Option<Block> {
        let mut out = Block::new();
        for statement in block.iter() {
            out.push(self.statement(statement)?, Span::UNDEFINED);
        }
        Some(out)
    }

    fn statement(&mut self, of: &Statement) -> Option<Statement> {
        use Statement as S;
        Some(match of {
            S::Emit(range) => {
                let mut made = Vec::new();
                for handle in range.clone() {
                    let copy = self.expression(handle)?;
                    made.push(self.append(handle, copy));
                }
                S::Emit(Range::new_from_bounds(*made.first()?, *made.last()?))
            }
            S::Block(block) => S::Block(self.block(block)?),
            S::If { condition, accept, reject } => S::If {
                condition: self.at(*condition),
                accept: self.block(accept)?,
                reject: self.block(reject)?,
            },
            S::Loop { body, continuing, break_if } => {
                let (body, continuing) = (self.block(body)?, self.block(continuing)?);
                S::Loop { body, continuing, break_if: self.maybe(*break_if) }
            }
            S::Break | S::Continue | S::ControlBarrier(_) | S::MemoryBarrier(_) => of.clone(),
            S::Return { value } => S::Return { value: self.maybe(*value) },
            S::Store { pointer, value } => {
                S::Store { pointer: self.at(*pointer), value: self.at(*value) }
            }
            S::Call { function, arguments, result } => {
                let arguments = arguments.iter().map(|a| self.at(*a)).collect();
                let result = result.map(|result| self.result(result));
                S::Call { function: *function, arguments, result }
            }
            S::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                let argument = self.at(*argument);
                let (op, collective_op) = (*op, *collective_op);
                let result = self.result(*result);
                S::SubgroupCollectiveOperation { op, collective_op, argument, result }
            }
            S::SubgroupGather { mode, argument, result } => {
                use naga::GatherMode as G;
                let argument = self.at(*argument);
                let mode = match *mode {
                    G::BroadcastFirst => G::BroadcastFirst,
                    G::Broadcast(at) => G::Broadcast(self.at(at)),
                    G::Shuffle(at) => G::Shuffle(self.at(at)),
                    G::ShuffleDown(at) => G::ShuffleDown(self.at(at)),
                    G::ShuffleUp(at) => G::ShuffleUp(self.at(at)),
                    G::ShuffleXor(at) => G::ShuffleXor(self.at(at)),
                    G::QuadBroadcast(at) => G::QuadBroadcast(self.at(at)),
                    G::QuadSwap(direction) => G::QuadSwap(direction),
                };
                S::SubgroupGather { mode, argument, result: self.result(*result) }
            }
            _ => return None,
        })
    }
}

/// Returns true if statements end or skip a turn of the loop around them.
fn leaves(statements: &[Statement], in_switch: bool) -> bool {
    statements.iter().any(|statement| match statement {
        Statement::Break => !in_switch,
        Statement::Continue => true,
        Statement::Block(block) => leaves(block, in_switch),
        Statement::If { accept, reject, .. } => {
            leaves(accept, in_switch) || leaves(reject, in_switch)
        }
        Statement::Switch { cases, .. } => cases.iter().any(|case| leaves(&case.body, true)),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Constants;
    use crate::reflect::Reflection;

    /// Loops, and accesses at indices that are no numbers, of an unrolled text.
    fn left(body: &str) -> (usize, usize) {
        let text = format!(
            "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n\
             fn half(n: u32) -> u32 {{ if (n > 4u) {{ return n / 2u; }} return 1u; }}\n\
             fn load(i: u32) -> u32 {{ return x[i]; }}\n\
             fn fill(kept: ptr<function, array<u32, 8>>, n: u32) {{\n\
                 for (var i = 0u; i < half(n); i++) {{ (*kept)[i] = load(i) + n; }}\n\
             }}\n\
             @compute @workgroup_size(1)\n\
             fn main(@builtin(local_invocation_index) lid: u32) {{ {body} }}"
        );
        let reflection = Reflection::of(&text, "test").unwrap_or_else(|e| panic!("{e}"));
        let unrolled = reflection.unrolled("main", &Constants::new());
        let (module, _) = unrolled.unwrap_or_else(|e| panic!("{e}: {text}"));
        let functions = module.functions.iter().map(|(_, function)| function);
        let functions = functions.chain(module.entry_points.iter().map(|entry| &entry.function));
        let mut loops = 0;
        for function in functions {
            each_statement(&function.body, &mut |statement| {
                loops += usize::from(matches!(statement, Statement::Loop { .. }));
            });
        }
        (loops, module.functions.len())
    }

    #[test]
    fn loops_over_arrays_of_known_turns_are_written_out() {
        let head = "var own: array<u32, 8>; ";
        let sum = "for (var i = 0u; i < 8u; i++) { x[i] = own[i]; }";
        // The callee is copied for each of its numbers.
        let fills = "fill(&own, 8u); fill(&own, 6u); fill(&own, 8u);";
        assert_eq!(left(&format!("{head}{fills}{sum}")), (0, 3));
        let nested = "for (var i = 0u; i < 2u; i++) { for (var j = 0u; j < 4u; j += 2u) { \
                      let v = load(i); own[i * 4u + j] = v; } }";
        assert_eq!(left(&format!("{head}{nested}{sum}")).0, 0);
    }

    #[test]
    fn other_loops_stay() {
        for body in [
            // A number of turns that memory decides, too many, none that is known.
            "for (var i = 0u; i < x[0]; i++) { own[i] = i; }",
            "for (var i = 0u; i < 100u; i++) { own[i % 8u] = i; }",
            "for (var i = lid; i < 8u; i++) { own[i] = i; }",
            // No array of the function's.
            "for (var i = 0u; i < 8u; i++) { x[i] = i; }",
            // The loop ends early, or changes its index.
            "for (var i = 0u; i < 8u; i++) { if (x[i] > 3u) { break; } own[i] = i; }",
            "for (var i = 0u; i < 8u; i++) { if (x[i] > 3u) { continue; } own[i] = i; }",
            "for (var i = 0u; i < 8u; i++) { own[i] = i; i += own[0]; }",
        ] {
            assert_eq!(
                left(&format!("var own: array<u32, 8>; {body} x[9] = own[1];")).0,
                1,
                "{body}"
            );
        }
    }
}
