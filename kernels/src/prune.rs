//! Removes branches that a shape decides: once overrides have values, a switch over the format of
//! weights has one case. Drivers inline every call before they look for dead code, so branches
//! never taken cost them as much as live ones.

use naga::{
    Block, Expression, Function, Handle, Literal, Module, Statement, SwitchCase, SwitchValue,
};

/// Replaces each branch whose condition is a number by the part taken, and drops code after the end
/// of a block.
pub(crate) fn prune(module: &mut Module) {
    let globals = &module.global_expressions;
    let constants: Vec<_> =
        module.constants.iter().map(|(_, c)| literal(&globals[c.init])).collect();
    let functions = module.functions.iter_mut().map(|(_, function)| function);
    let entries = module.entry_points.iter_mut().map(|entry| &mut entry.function);
    for function in functions.chain(entries) {
        let Function { expressions, body, named_expressions, .. } = function;
        let known = |at: Handle<Expression>| match expressions[at] {
            Expression::Constant(constant) => constants[constant.index()],
            ref other => literal(other),
        };
        let mut forget = |value: Handle<Expression>| drop(named_expressions.swap_remove(&value));
        let mut prune = Prune { known: &known, forget: &mut forget };
        *body = prune.block(std::mem::take(body)).0;
    }
}

fn literal(expression: &Expression) -> Option<Literal> {
    match *expression {
        Expression::Literal(literal) => Some(literal),
        _ => None,
    }
}

struct Prune<'a> {
    known: &'a dyn Fn(Handle<Expression>) -> Option<Literal>,
    /// Takes the name of a value that nothing computes any more: a name would keep it alive.
    forget: &'a mut dyn FnMut(Handle<Expression>),
}

impl Prune<'_> {
    /// Returns the part of a block that can run, and true if nothing runs after it.
    fn block(&mut self, block: Block) -> (Block, bool) {
        let (mut out, mut ended) = (Block::new(), false);
        for (statement, span) in block.span_into_iter() {
            if ended {
                self.forget_statement(&statement);
                continue;
            }
            match self.statement(statement) {
                (Statement::Block(mut inner), ends) => {
                    out.append(&mut inner);
                    ended = ends;
                }
                (statement, ends) => {
                    out.push(statement, span);
                    ended = ends;
                }
            }
        }
        (out, ended)
    }

    fn statement(&mut self, statement: Statement) -> (Statement, bool) {
        match statement {
            Statement::If { condition, accept, reject } => {
                if let Some(Literal::Bool(is_true)) = (self.known)(condition) {
                    let (taken, dead) = if is_true { (accept, reject) } else { (reject, accept) };
                    self.forget(&dead);
                    let (block, ends) = self.block(taken);
                    return (Statement::Block(block), ends);
                }
                let ((accept, a), (reject, b)) = (self.block(accept), self.block(reject));
                (Statement::If { condition, accept, reject }, a && b)
            }
            Statement::Switch { selector, cases } => {
                let taken = (self.known)(selector).and_then(|value| taken(&cases, value));
                let Some(taken) = taken else {
                    let each =
                        |case: SwitchCase| SwitchCase { body: self.block(case.body).0, ..case };
                    let cases = cases.into_iter().map(each).collect();
                    return (Statement::Switch { selector, cases }, false);
                };
                let mut body = Block::new();
                let mut falls = true;
                for (at, mut case) in cases.into_iter().enumerate() {
                    match at >= taken && falls {
                        true => body.append(&mut case.body),
                        false => self.forget(&case.body),
                    }
                    falls &= at < taken || case.fall_through;
                }
                let (body, ends) = self.block(body);
                if !breaks(&body) {
                    return (Statement::Block(body), ends);
                }
                let case = SwitchCase { value: SwitchValue::Default, body, fall_through: false };
                (Statement::Switch { selector, cases: vec![case] }, false)
            }
            Statement::Block(block) => {
                let (block, ends) = self.block(block);
                (Statement::Block(block), ends)
            }
            Statement::Loop { body, continuing, break_if } => {
                let (body, continuing) = (self.block(body).0, self.block(continuing).0);
                (Statement::Loop { body, continuing, break_if }, false)
            }
            Statement::Break | Statement::Continue | Statement::Return { .. } | Statement::Kill => {
                (statement, true)
            }
            other => (other, false),
        }
    }

    fn forget(&mut self, block: &Block) {
        block.iter().for_each(|statement| self.forget_statement(statement));
    }

    /// Takes the names of values that a statement would have computed.
    fn forget_statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Emit(range) => range.clone().for_each(&mut self.forget),
            Statement::Block(block) => self.forget(block),
            Statement::If { accept, reject, .. } => {
                self.forget(accept);
                self.forget(reject);
            }
            Statement::Switch { cases, .. } => {
                cases.iter().for_each(|case| self.forget(&case.body));
            }
            Statement::Loop { body, continuing, .. } => {
                self.forget(body);
                self.forget(continuing);
            }
            Statement::Call { result, .. } | Statement::Atomic { result, .. } => {
                result.map(&mut self.forget);
            }
            Statement::WorkGroupUniformLoad { result, .. }
            | Statement::SubgroupBallot { result, .. }
            | Statement::SubgroupGather { result, .. }
            | Statement::SubgroupCollectiveOperation { result, .. } => (self.forget)(*result),
            _ => {}
        }
    }
}

/// Returns the case that a switch takes with a value.
fn taken(cases: &[SwitchCase], value: Literal) -> Option<usize> {
    let wanted = match value {
        Literal::U32(v) => SwitchValue::U32(v),
        Literal::I32(v) => SwitchValue::I32(v),
        _ => return None,
    };
    let at = |value| cases.iter().position(|case| case.value == value);
    at(wanted).or_else(|| at(SwitchValue::Default))
}

/// Returns true if a block leaves the switch that it is a case of.
fn breaks(block: &Block) -> bool {
    block.iter().any(|statement| match statement {
        Statement::Break => true,
        Statement::Block(block) => breaks(block),
        Statement::If { accept, reject, .. } => breaks(accept) || breaks(reject),
        _ => false,
    })
}
