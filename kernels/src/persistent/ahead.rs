//! Check of a stage's accesses before its grid barrier, read from naga's IR of a joined text.
//!
//! A workgroup that has arrived and not yet waited runs together with others that may still be in
//! the previous stage, or already past the barrier in its own. Until it has waited it may load only
//! what neither of them writes, and write nothing that they read. Every invocation waits, once.
//!
//! A branch counts with both its sides, unless its condition is a constant. Neither a loop's number
//! of iterations matters, nor the element of a buffer that is touched.

use std::collections::{HashMap, HashSet};

use naga::valid::GlobalUse;
use naga::{
    AddressSpace, Block, Expression, Function, GlobalVariable, Handle, Literal, Module, Statement,
};

use super::{ENTRY, Joined, JoinedStage};
use crate::reflect::{Reflection, any_statement};

/// Checks that each stage of a joined text keeps the rule.
///
/// # Errors
/// One does not: which, in which function, and what it does.
pub(super) fn check(joined: &Joined, reflection: &Reflection) -> Result<(), String> {
    let module = &reflection.module;
    let function = |name: &str| {
        let found = module.functions.iter().find(|(_, f)| f.name.as_deref() == Some(name));
        found.map(|(handle, _)| handle)
    };
    let entry = module.entry_points.iter().find(|point| point.name == ENTRY);
    let (Some(arrives), Some(awaits), Some(entry)) =
        (function("grid_arrive"), function("grid_await"), entry)
    else {
        return Err("a run without its own functions".into());
    };
    let number = |(handle, var): (Handle<GlobalVariable>, &GlobalVariable)| {
        let name = var.name.as_deref()?;
        let (_, buffer) = joined.buffers.iter().find(|(variable, _)| variable == name)?;
        Some((handle, *buffer))
    };
    let numbers: HashMap<_, _> = module.global_variables.iter().filter_map(number).collect();
    let handles: Vec<_> = joined.stages.iter().map(|stage| function(&stage.function)).collect();
    let writes = |stage: &Option<Handle<Function>>| -> HashSet<usize> {
        let Some(function) = *stage else { return HashSet::new() };
        let uses = &reflection.info[function];
        let written =
            |(global, _): &(&Handle<GlobalVariable>, _)| uses[**global].contains(GlobalUse::WRITE);
        numbers.iter().filter(written).map(|(_, buffer)| *buffer).collect()
    };
    // naga has functions before their callers.
    let mut waiting = HashSet::from([awaits]);
    for (handle, function) in module.functions.iter() {
        let waits = |statement: &Statement| match statement {
            Statement::Call { function, .. } => waiting.contains(function),
            _ => false,
        };
        if any_statement(&function.body, &waits) {
            waiting.insert(handle);
        }
    }
    let mut walk = Walk {
        module,
        stages: &joined.stages,
        is_loop: joined.is_loop,
        writes: handles.iter().map(writes).collect(),
        functions: handles.into_iter().zip(0..).filter_map(|(f, i)| Some((f?, i))).collect(),
        numbers,
        arrives,
        awaits,
        waiting,
        at: 0,
        in_round: false,
    };
    let main = Body { function: &entry.function, waits: false, is_main: true };
    // Nobody waits ahead of the first stage of all: the dispatch before has ended.
    let waited = walk.block(main, &entry.function.body, true, true)?;
    walk.ends(waited)
}

/// A function whose statements are checked.
#[derive(Clone, Copy)]
struct Body<'a> {
    function: &'a Function,
    /// True if it waits, itself or in a function that it calls.
    waits: bool,
    /// True for the joined entry point, whose branches are the same for a whole workgroup.
    is_main: bool,
}

struct Walk<'a> {
    module: &'a Module,
    stages: &'a [JoinedStage],
    /// True if its stages follow each other in a circle.
    is_loop: bool,
    /// Buffers that each stage writes, by number.
    writes: Vec<HashSet<usize>>,
    /// The number of the stage of each entry point.
    functions: HashMap<Handle<Function>, usize>,
    /// The buffer behind each variable.
    numbers: HashMap<Handle<GlobalVariable>, usize>,
    arrives: Handle<Function>,
    awaits: Handle<Function>,
    /// Functions that wait, themselves or through others.
    waiting: HashSet<Handle<Function>>,
    /// The stage that statements belong to.
    at: usize,
    /// True within the loop over layers.
    in_round: bool,
}

impl<'a> Walk<'a> {
    fn stage(&self) -> &'a JoinedStage {
        &self.stages[self.at]
    }

    /// Returns the name that the stage itself gives to something of its own.
    fn unprefixed<'n>(&self, name: &'n str) -> &'n str {
        name.strip_prefix(&super::prefix(self.at)).unwrap_or(name)
    }

    fn fault(&self, body: Body<'_>, what: &str) -> String {
        let name = self.unprefixed(body.function.name.as_deref().unwrap_or(ENTRY));
        format!("{}: function `{name}` {what}", self.stage().label)
    }

    /// An error where a stage ends that has not waited.
    fn ends(&self, waited: bool) -> Result<(), String> {
        match waited {
            true => Ok(()),
            false => Err(format!(
                "{}: names await_input() and never calls it; every invocation must, once",
                self.stage().label
            )),
        }
    }

    /// Goes through statements in order; `straight` while neither a branch nor a loop is around
    /// them. Returns true if the stage has waited after them.
    fn block(
        &mut self,
        body: Body<'a>,
        block: &'a Block,
        straight: bool,
        mut waited: bool,
    ) -> Result<bool, String> {
        for statement in block {
            if let Statement::Call { function, .. } = statement
                && let Some(stage) = self.functions.get(function)
            {
                self.at = *stage;
            }
            match statement {
                Statement::Emit(range) if !waited => {
                    for expression in range.clone() {
                        match body.function.expressions[expression] {
                            Expression::Load { pointer } => self.touches(body, pointer, false)?,
                            Expression::CooperativeLoad { ref data, .. } => {
                                self.touches(body, data.pointer, false)?;
                            }
                            _ => {}
                        }
                    }
                }
                Statement::Block(inner) => waited = self.block(body, inner, straight, waited)?,
                Statement::If { condition, accept, reject } => {
                    waited = match self.constant(body, *condition) {
                        Some(true) => self.block(body, accept, straight, waited)?,
                        Some(false) => self.block(body, reject, straight, waited)?,
                        None => {
                            let straight = straight && body.is_main;
                            let alternative = self.block(body, accept, straight, waited)?;
                            let other = self.block(body, reject, straight, waited)?;
                            // Only the entry point's branches may wait, and then both do.
                            if alternative != other {
                                return Err(self.fault(body, "waits on one way of a branch alone"));
                            }
                            alternative
                        }
                    };
                }
                Statement::Switch { cases, .. } => {
                    for case in cases {
                        self.block(body, &case.body, false, waited)?;
                    }
                }
                Statement::Loop { body: inner, .. }
                    if body.is_main && self.is_loop && !self.in_round =>
                {
                    self.in_round = true;
                    waited = self.block(body, inner, straight, waited)?;
                }
                Statement::Loop { body: inner, continuing, .. } => {
                    self.block(body, inner, false, waited)?;
                    self.block(body, continuing, false, waited)?;
                }
                Statement::Call { function, .. } if *function == self.arrives => {
                    self.ends(waited)?;
                    waited = false;
                }
                Statement::Call { function, .. } if self.waiting.contains(function) => {
                    if !straight {
                        return Err(self.fault(
                            body,
                            "calls await_input() in a branch or a loop; every invocation must get \
                             there, once",
                        ));
                    }
                    if waited {
                        return Err(self.fault(body, "calls await_input() a second time"));
                    }
                    waited = *function == self.awaits || {
                        let function = &self.module.functions[*function];
                        let callee = Body { function, waits: true, is_main: false };
                        self.block(callee, &function.body, true, false)?
                    };
                }
                // Made by the join: it loads what nobody writes, and keeps nothing.
                Statement::Call { function, .. }
                    if super::prefetch::is_one(
                        self.module.functions[*function].name.as_deref(),
                    ) => {}
                Statement::Call { function, .. } if !waited => {
                    let function = &self.module.functions[*function];
                    if body.is_main {
                        // The whole of a stage.
                        self.ends(false)?;
                    }
                    let callee = Body { function, waits: false, is_main: false };
                    self.block(callee, &function.body, false, false)?;
                }
                Statement::Return { .. } | Statement::Kill if body.waits && !waited => {
                    if straight {
                        self.ends(waited)?;
                    }
                    return Err(self.fault(
                        body,
                        "returns ahead of await_input(); every invocation must get there, once",
                    ));
                }
                Statement::Store { pointer, .. } | Statement::Atomic { pointer, .. } if !waited => {
                    self.touches(body, *pointer, true)?;
                }
                Statement::CooperativeStore { data, .. } if !waited => {
                    self.touches(body, data.pointer, true)?;
                }
                Statement::WorkGroupUniformLoad { pointer, .. } if !waited => {
                    self.touches(body, *pointer, false)?;
                }
                // Barriers and subgroup operations touch no memory; kernels have no images or rays.
                _ => {}
            }
        }
        Ok(waited)
    }

    /// The value of a condition that is a constant.
    fn constant(&self, body: Body<'_>, condition: Handle<Expression>) -> Option<bool> {
        let value = match body.function.expressions[condition] {
            Expression::Constant(constant) => {
                &self.module.global_expressions[self.module.constants[constant].init]
            }
            ref own => own,
        };
        match *value {
            Expression::Literal(Literal::Bool(value)) => Some(value),
            _ => None,
        }
    }

    /// Refuses access through a pointer that the stage may not use yet.
    fn touches(
        &self,
        body: Body<'_>,
        pointer: Handle<Expression>,
        writes: bool,
    ) -> Result<(), String> {
        let does = if writes { "writes" } else { "loads" };
        let global = match root(body.function, pointer) {
            Expression::LocalVariable(_) => return Ok(()),
            Expression::GlobalVariable(global) => global,
            Expression::FunctionArgument(i) => {
                let ty = body.function.arguments[i as usize].ty;
                return match self.module.types[ty].inner.pointer_space() {
                    Some(AddressSpace::Function | AddressSpace::Private) => Ok(()),
                    _ => Err(self.fault(
                        body,
                        &format!("{does} ahead of await_input() what its caller points at"),
                    )),
                };
            }
            _ => return Err(self.fault(body, "loads ahead of await_input() what cannot be told")),
        };
        let var = &self.module.global_variables[global];
        if var.space == AddressSpace::Private {
            return Ok(());
        }
        let variable = var.name.as_deref().unwrap_or_default();
        let own = self.stage().names.iter().find(|(_, joined)| joined == variable);
        let name = own.map_or_else(|| self.unprefixed(variable), |(name, _)| name.as_str());
        let fault = |why: &str| {
            Err(self.fault(body, &format!("{does} `{name}` ahead of await_input(){why}")))
        };
        if var.space == AddressSpace::WorkGroup {
            return fault(": the stage before may still use workgroup memory");
        }
        if writes {
            return fault(": others may still use it");
        }
        let Some(buffer) = self.numbers.get(&global) else { return Ok(()) };
        // Where stages follow each other in a circle, every other place comes before. What this
        // place did in the layer before, the waits of the others part from this.
        let slot = self.stage().slot;
        let before = |other: usize| match self.is_loop {
            true => other != slot,
            false => other < slot,
        };
        let mut others = self.stages.iter().zip(&self.writes).rev();
        let other = others.find(|(stage, w)| before(stage.slot) && w.contains(buffer));
        if let Some((JoinedStage { label: other, .. }, _)) = other {
            return fault(&format!(", and `{other}` of the same kernel writes it: load it behind"));
        }
        let renewed = self.stage().refreshes.contains(&name);
        if self.writes[self.at].contains(buffer) && !renewed {
            return fault(
                ", and the stage writes it, in other workgroups perhaps already: load it behind, \
                 or use nothing of it that may be new and say so (`Variant::refreshes`)",
            );
        }
        Ok(())
    }
}

/// Returns the variable or argument that a pointer begins with.
fn root(function: &Function, mut pointer: Handle<Expression>) -> Expression {
    loop {
        match function.expressions[pointer] {
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                pointer = base;
            }
            ref other => return other.clone(),
        }
    }
}
