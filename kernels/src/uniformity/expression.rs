//! Uniformity of values.

use naga::{
    AddressSpace, Binding, BuiltIn, Expression, FunctionArgument, Handle, SampleLevel, Span,
    StorageAccess, TypeInner,
};

use super::statement::Frame;
use super::{Analysis, Mark, Scope};

/// The variable that a pointer leads to.
#[derive(Clone, Copy)]
pub(super) enum Root {
    /// Slot of a local variable, or of what an argument points to.
    Slot(usize),
    /// A variable of the module, or behind an argument that points to one.
    Module(AddressSpace),
}

/// A pointer, followed to its variable.
pub(super) struct Place {
    pub(super) root: Root,
    /// Uniformity of the indices on the way, and of an argument that is a pointer.
    pub(super) index: Mark,
    /// It points to a part of the variable.
    pub(super) is_part: bool,
}

impl Analysis<'_> {
    /// Uniformity of an argument of an entry point. A struct is as uniform as its worst member.
    pub(super) fn builtin(&mut self, argument: &FunctionArgument) -> Mark {
        let name = argument.name.clone().unwrap_or_default();
        let mut mark = self.builtin_of(&name, argument.binding.as_ref());
        if let TypeInner::Struct { members, .. } = &self.module.types[argument.ty].inner {
            for member in members {
                let name = format!("{name}.{}", member.name.as_deref().unwrap_or_default());
                mark = mark.or_else(|| self.builtin_of(&name, member.binding.as_ref()));
            }
        }
        mark
    }

    fn builtin_of(&mut self, name: &str, binding: Option<&Binding>) -> Mark {
        let Some(Binding::BuiltIn(builtin)) = binding else { return None };
        let of = match builtin {
            BuiltIn::WorkGroupId
            | BuiltIn::NumWorkGroups
            | BuiltIn::WorkGroupSize
            | BuiltIn::SubgroupSize
            | BuiltIn::NumSubgroups => return None,
            BuiltIn::SubgroupId if self.scope == Scope::Subgroup => return None,
            BuiltIn::SubgroupId => "subgroup_id",
            BuiltIn::SubgroupInvocationId => "subgroup_invocation_id",
            BuiltIn::LocalInvocationId => "local_invocation_id",
            BuiltIn::LocalInvocationIndex => "local_invocation_index",
            BuiltIn::GlobalInvocationId => "global_invocation_id",
            _ => "a built-in value",
        };
        let group = self.scope.name();
        self.reason(Span::UNDEFINED, format!("`{name}` is {of}, which differs in a {group}"), None)
    }

    /// Uniformity of an expression at the moment of its evaluation.
    pub(super) fn evaluate(&mut self, frame: &Frame<'_>, of: Handle<Expression>) -> Mark {
        if let Expression::Load { pointer } = frame.function.expressions[of] {
            return self.load(frame, of, pointer);
        }
        let mut mark = None;
        operands(&frame.function.expressions[of], |operand| {
            mark = mark.or(frame.mark(operand));
        });
        mark
    }

    fn load(
        &mut self,
        frame: &Frame<'_>,
        of: Handle<Expression>,
        pointer: Handle<Expression>,
    ) -> Mark {
        let place = self.place(frame, pointer);
        match place.root {
            Root::Slot(slot) => frame.slots[slot].or(place.index),
            Root::Module(space) => {
                let is_constant = match space {
                    AddressSpace::Storage { access } => !access.contains(StorageAccess::STORE),
                    space => matches!(space, AddressSpace::Uniform | AddressSpace::Immediate),
                };
                if is_constant {
                    return place.index;
                }
                let name = self.name_of(frame, pointer);
                let why = match space {
                    AddressSpace::WorkGroup => "is workgroup memory, which may change in between",
                    AddressSpace::Private => "is private to an invocation",
                    _ => "is a buffer that invocations may write",
                };
                self.reason(frame.span(of), format!("`{name}` {why}"), None)
            }
        }
    }

    /// Follows a pointer.
    pub(super) fn place(&self, frame: &Frame<'_>, pointer: Handle<Expression>) -> Place {
        match frame.function.expressions[pointer] {
            Expression::Access { base, index } => {
                let place = self.place(frame, base);
                let index = place.index.or(frame.mark(index));
                Place { index, is_part: true, ..place }
            }
            Expression::AccessIndex { base, .. } => {
                Place { is_part: true, ..self.place(frame, base) }
            }
            Expression::LocalVariable(variable) => {
                Place { root: Root::Slot(variable.index()), index: None, is_part: false }
            }
            Expression::GlobalVariable(variable) => {
                let space = self.module.global_variables[variable].space;
                Place { root: Root::Module(space), index: None, is_part: false }
            }
            Expression::FunctionArgument(i) => {
                let ty = frame.function.arguments[i as usize].ty;
                let root = match self.module.types[ty].inner.pointer_space() {
                    Some(AddressSpace::Function) | None => Root::Slot(frame.behind(i as usize)),
                    Some(space) => Root::Module(space),
                };
                Place { root, index: frame.mark(pointer), is_part: false }
            }
            // naga has no other pointers; a value behind an unknown one may be any.
            _ => Place { root: Root::Module(AddressSpace::Private), index: None, is_part: true },
        }
    }

    /// Name of the variable that a pointer leads to.
    fn name_of(&self, frame: &Frame<'_>, pointer: Handle<Expression>) -> String {
        let name = match frame.function.expressions[pointer] {
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                return self.name_of(frame, base);
            }
            Expression::GlobalVariable(variable) => &self.module.global_variables[variable].name,
            Expression::FunctionArgument(i) => &frame.function.arguments[i as usize].name,
            Expression::LocalVariable(variable) => &frame.function.local_variables[variable].name,
            _ => &None,
        };
        name.clone().unwrap_or_default()
    }
}

/// Calls a function for each operand of an expression. Results of statements have none.
fn operands(of: &Expression, mut each: impl FnMut(Handle<Expression>)) {
    use Expression as E;
    match of {
        E::Compose { components, .. } => components.iter().copied().for_each(each),
        E::Access { base, index } => [*base, *index].into_iter().for_each(each),
        E::AccessIndex { base: one, .. }
        | E::Splat { value: one, .. }
        | E::Swizzle { vector: one, .. }
        | E::Unary { expr: one, .. }
        | E::Relational { argument: one, .. }
        | E::As { expr: one, .. }
        | E::Derivative { expr: one, .. } => each(*one),
        E::Binary { left, right, .. } => [*left, *right].into_iter().for_each(each),
        E::Select { condition, accept, reject } => {
            [*condition, *accept, *reject].into_iter().for_each(each);
        }
        E::Math { arg, arg1, arg2, arg3, .. } => {
            each(*arg);
            [arg1, arg2, arg3].into_iter().flatten().copied().for_each(each);
        }
        E::ImageSample { coordinate, array_index, level, depth_ref, .. } => {
            each(*coordinate);
            array_index.iter().chain(depth_ref).copied().for_each(&mut each);
            match level {
                SampleLevel::Exact(h) | SampleLevel::Bias(h) => each(*h),
                SampleLevel::Gradient { x, y } => [*x, *y].into_iter().for_each(each),
                SampleLevel::Auto | SampleLevel::Zero => {}
            }
        }
        E::ImageLoad { coordinate, array_index, sample, level, .. } => {
            each(*coordinate);
            [array_index, sample, level].into_iter().flatten().copied().for_each(each);
        }
        E::CooperativeLoad { data, .. } => [data.pointer, data.stride].into_iter().for_each(each),
        E::CooperativeMultiplyAdd { a, b, c } => [*a, *b, *c].into_iter().for_each(each),
        // An array is as long for all.
        E::ArrayLength(_)
        | E::ImageQuery { .. }
        | E::Literal(_)
        | E::Constant(_)
        | E::Override(_)
        | E::ZeroValue(_)
        | E::FunctionArgument(_)
        | E::GlobalVariable(_)
        | E::LocalVariable(_)
        | E::Load { .. }
        | E::CallResult(_)
        | E::AtomicResult { .. }
        | E::WorkGroupUniformLoadResult { .. }
        | E::RayQueryVertexPositions { .. }
        | E::RayQueryProceedResult
        | E::RayQueryGetIntersection { .. }
        | E::SubgroupBallotResult
        | E::SubgroupOperationResult { .. } => {}
    }
}
