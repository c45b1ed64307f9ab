//! Lowering of an entry point to one list of instructions.
//!
//! Calls are inlined, so that every variable and every pointer's origin is known here. Composing
//! and taking apart of values costs nothing: a value is a list of registers.

mod expression;
mod math;
mod statement;

use std::collections::HashMap;
use std::rc::Rc;

use naga::valid::{FunctionInfo, GlobalUse, ModuleInfo};
use naga::{AddressSpace, BuiltIn, Expression, Handle, Module, Span, StorageAccess};

use crate::Error;
use crate::code::{Access, FRAME, Memory, Op, Reg, What};
use crate::types::{Kind, Length, Ty, Types, Unit};

/// An entry point that can be run.
#[derive(Debug, Default)]
pub struct Program {
    pub(crate) code: Vec<Op>,
    /// Byte of the source that each instruction comes from, and its function's call.
    pub(crate) places: Vec<(u32, u32)>,
    /// Calls: byte of the source, and the call that leads there. The entry point is the first.
    pub(crate) calls: Vec<(u32, u32)>,
    pub(crate) accesses: Vec<Access>,
    /// Variables that are accessed.
    pub(crate) variables: Vec<Variable>,
    /// Bits of the first registers.
    pub(crate) constants: Vec<u32>,
    /// Registers from [`FRAME`] on.
    pub(crate) registers: u32,
    pub(crate) buffers: Vec<BufferUse>,
    /// Cells of workgroup memory.
    pub(crate) cells: u32,
    pub(crate) size: [u32; 3],
    pub(crate) inputs: Vec<(BuiltIn, Reg)>,
    /// Columns of private variables without an initial value: first and number.
    pub(crate) undefined: Vec<(Reg, u32)>,
    /// Atomics on buffers may order workgroups.
    pub(crate) is_synchronised: bool,
    /// There are atomics: what they return depends on the order of invocations.
    pub(crate) has_atomics: bool,
    /// Subgroups run together.
    pub(crate) has_subgroups: bool,
}

/// A variable in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    /// First byte, cell or column.
    pub(crate) at: u32,
    /// Distance between the elements of an array; 0 of other types.
    pub(crate) stride: u32,
}

/// A buffer that an entry point uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferUse {
    /// Name of the variable.
    pub name: String,
    /// `@group`.
    pub group: u32,
    /// `@binding`.
    pub binding: u32,
    /// The entry point writes it.
    pub writable: bool,
    /// Declared `@coherent`: what an acquire reads needs no fence of its own.
    pub coherent: bool,
    /// Has 16-bit elements, each of which is a memory location.
    pub halves: bool,
    /// Least number of bytes of a binding.
    pub least_bytes: u32,
}

/// A value while lowering.
#[derive(Clone, Debug)]
enum Value {
    Columns(Rc<[Reg]>),
    Place(Place),
}

/// A pointer.
#[derive(Clone, Debug)]
struct Place {
    memory: Memory,
    name: u32,
    ty: Ty,
    at: u32,
    offset: Option<Reg>,
    index: Option<(Reg, Length)>,
}

impl Place {
    fn unit(&self) -> Unit {
        match self.memory {
            Memory::Buffer(_) => Unit::Byte,
            Memory::Workgroup | Memory::Columns | Memory::Private => Unit::Cell,
        }
    }
}

/// A function while it is lowered.
struct Frame<'a> {
    function: &'a naga::Function,
    info: &'a FunctionInfo,
    values: Vec<Option<Value>>,
    locals: Vec<Place>,
    arguments: Vec<Value>,
    /// First register of the returned value.
    result: Reg,
    /// Number of its frame on the machine's stack.
    call: u32,
    /// Frames that `break` and `continue` refer to, innermost last.
    breaks: Vec<u32>,
    loops: Vec<u32>,
}

struct Lower<'a> {
    module: &'a Module,
    info: &'a ModuleInfo,
    types: Types<'a>,
    program: Program,
    constants: HashMap<u32, Reg>,
    globals: HashMap<Handle<naga::GlobalVariable>, Place>,
    /// Next free register.
    top: Reg,
    /// Frames on the machine's stack.
    depth: u32,
    span: Span,
    /// Number of the call whose function is lowered.
    call: u32,
    /// Name of a limit that was exceeded: instructions and registers are then dropped.
    excess: Option<String>,
}

/// Instructions of a program: an inlined kernel has a few thousand.
const MOST_CODE: usize = 4_000_000;
/// Scalars of workgroup memory: more than any adapter has.
const MOST_CELLS: u32 = 1 << 20;
/// Columns of a workgroup's registers.
const MOST_REGISTERS: u32 = 1 << 16;

impl Program {
    /// Lowers an entry point of a validated module whose overrides have values.
    ///
    /// # Errors
    /// [`Error::Unsupported`] names what the interpreter does not know.
    pub fn of(module: &Module, info: &ModuleInfo, entry: &str) -> Result<Self, Error> {
        let at = module.entry_points.iter().position(|e| e.name == entry);
        let at = at.ok_or_else(|| Error::Unsupported(format!("no entry point `{entry}`")))?;
        let point = &module.entry_points[at];
        let mut lower = Lower {
            module,
            info,
            types: Types(module),
            program: Self { size: point.workgroup_size, calls: vec![(0, 0)], ..Self::default() },
            constants: HashMap::new(),
            globals: HashMap::new(),
            top: FRAME,
            depth: 0,
            span: Span::UNDEFINED,
            call: 0,
            excess: None,
        };
        lower.globals(info.get_entry_point(at))?;
        let mut arguments = Vec::new();
        for argument in &point.function.arguments {
            arguments.push(lower.input(argument)?);
        }
        let function_info = info.get_entry_point(at);
        lower.function(&point.function, function_info, arguments, FRAME)?;
        lower.push(Op::End);
        lower.bounded()?;
        Ok(lower.program)
    }

    /// Buffers that the entry point uses.
    pub fn buffers(&self) -> &[BufferUse] {
        &self.buffers
    }

    /// Returns true if results may depend on the order of invocations without a race.
    pub fn has_atomics(&self) -> bool {
        self.has_atomics
    }

    /// Invocations of a workgroup.
    pub fn lanes(&self) -> u32 {
        self.size.iter().product()
    }
}

impl<'a> Lower<'a> {
    /// Appends an instruction and returns its place.
    fn push(&mut self, op: Op) -> u32 {
        let (at, place) = (self.here(), (self.at(), self.call));
        let program = &mut self.program;
        match op {
            _ if at as usize >= MOST_CODE => {
                self.excess.get_or_insert(format!("more than {MOST_CODE} instructions"));
                return 0;
            }
            Op::Atomic { .. } => program.has_atomics = true,
            Op::Fold { .. }
            | Op::Ballot { .. }
            | Op::Move { .. }
            | Op::MatrixLoad(..)
            | Op::MatrixStore(..)
            | Op::MatrixMulAdd(_)
            | Op::Barrier { subgroup: true, .. } => program.has_subgroups = true,
            _ => {}
        }
        program.code.push(op);
        program.places.push(place);
        at
    }

    /// Byte of the source that is lowered.
    fn at(&self) -> u32 {
        self.span.to_range().map_or(0, |range| range.start as u32)
    }

    /// Place of the next instruction.
    fn here(&self) -> u32 {
        self.program.code.len() as u32
    }

    /// Registers that are free until the block ends.
    fn take(&mut self, count: u32) -> Reg {
        let first = self.top;
        let used = (first - FRAME).saturating_add(count);
        if used > MOST_REGISTERS {
            self.excess.get_or_insert(format!("more than {MOST_REGISTERS} scalars at once"));
            return FRAME;
        }
        self.top += count;
        self.program.registers = self.program.registers.max(used);
        first
    }

    /// The register of a constant.
    fn constant(&mut self, bits: u32) -> Reg {
        let next = self.constants.len() as Reg;
        if next >= FRAME {
            self.excess.get_or_insert(format!("more than {FRAME} different constants"));
            return 0;
        }
        let constants = &mut self.program.constants;
        *self.constants.entry(bits).or_insert_with(|| {
            constants.push(bits);
            next
        })
    }

    fn copy(&mut self, to: Reg, from: Reg) {
        self.push(Op::Do { what: What::Copy, kind: Kind::U32, to, of: [from; 4] });
    }

    /// Refuses a program that is too large.
    fn bounded(&self) -> Result<(), Error> {
        self.excess.clone().map_or(Ok(()), |what| Err(Error::Unsupported(what)))
    }

    /// A place of a variable as a whole.
    fn variable(&mut self, name: &str, memory: Memory, ty: Ty, at: u32) -> Result<Place, Error> {
        let unit = if matches!(memory, Memory::Buffer(_)) { Unit::Byte } else { Unit::Cell };
        let stride = match self.types.inner(&ty) {
            naga::TypeInner::Array { .. } => self.types.element(&ty, unit, None)?.1,
            _ => 0,
        };
        let variable = Variable { name: name.to_owned(), at, stride };
        let variables = &mut self.program.variables;
        let known = variables.iter().position(|known| *known == variable);
        let name = known.unwrap_or_else(|| {
            variables.push(variable);
            variables.len() - 1
        });
        Ok(Place { memory, name: name as u32, ty, at, offset: None, index: None })
    }

    /// Places of the module's variables that the entry point uses.
    fn globals(&mut self, used: &FunctionInfo) -> Result<(), Error> {
        for (handle, variable) in self.module.global_variables.iter() {
            if used[handle].is_empty() {
                continue;
            }
            let name = variable.name.clone().unwrap_or_default();
            let ty = Ty::Handle(variable.ty);
            let (memory, at) = match variable.space {
                AddressSpace::WorkGroup => {
                    let at = self.program.cells;
                    self.program.cells = at.saturating_add(self.types.components(&ty)?);
                    if self.program.cells > MOST_CELLS {
                        let what = format!("more than {MOST_CELLS} scalars of workgroup memory");
                        return Err(Error::Unsupported(what));
                    }
                    (Memory::Workgroup, at)
                }
                AddressSpace::Private => {
                    let count = self.types.components(&ty)?;
                    let at = self.take(count);
                    let init = match variable.init {
                        Some(init) => self.global_expression(init)?,
                        None => {
                            self.program.undefined.push((at, count));
                            Vec::new()
                        }
                    };
                    for (i, from) in init.iter().enumerate() {
                        self.copy(at + i as u32, *from);
                    }
                    (if init.is_empty() { Memory::Private } else { Memory::Columns }, at)
                }
                AddressSpace::Storage { .. } | AddressSpace::Uniform => {
                    let Some(at) = variable.binding else {
                        return Err(Error::Unsupported(format!("`{name}` without a binding")));
                    };
                    let coherent = naga::MemoryDecorations::COHERENT;
                    // Declared so, and done.
                    let writable = matches!(variable.space, AddressSpace::Storage { access }
                        if access.contains(StorageAccess::STORE))
                        && used[handle].contains(GlobalUse::WRITE);
                    self.program.buffers.push(BufferUse {
                        name: name.clone(),
                        group: at.group,
                        binding: at.binding,
                        writable,
                        coherent: variable.memory_decorations.contains(coherent),
                        halves: {
                            let leaves = self.types.leaves(&ty, Unit::Byte)?;
                            leaves.iter().any(|leaf| leaf.kind == Kind::F16)
                        },
                        least_bytes: self.module.types[variable.ty]
                            .inner
                            .size(self.module.to_ctx()),
                    });
                    (Memory::Buffer(self.program.buffers.len() as u32 - 1), 0)
                }
                space => return Err(Error::Unsupported(format!("`{name}` in {space:?}"))),
            };
            let place = self.variable(&name, memory, ty, at)?;
            self.globals.insert(handle, place);
        }
        Ok(())
    }

    /// An argument of the entry point.
    fn input(&mut self, argument: &naga::FunctionArgument) -> Result<Value, Error> {
        let mut columns = Vec::new();
        let mut add = |this: &mut Self, binding: &Option<naga::Binding>, ty| {
            let Some(naga::Binding::BuiltIn(builtin)) = binding else {
                return Err(Error::Unsupported("an input that is no builtin".into()));
            };
            let count = this.types.components(&Ty::Handle(ty))?;
            let first = this.take(count);
            this.program.inputs.push((*builtin, first));
            columns.extend(first..first + count);
            Ok(())
        };
        match &self.module.types[argument.ty].inner {
            naga::TypeInner::Struct { members, .. } => {
                for member in members {
                    add(self, &member.binding, member.ty)?;
                }
            }
            _ => add(self, &argument.binding, argument.ty)?,
        }
        Ok(Value::Columns(columns.into()))
    }

    /// Columns of a constant expression.
    fn global_expression(&mut self, at: Handle<Expression>) -> Result<Vec<Reg>, Error> {
        let expressions = &self.module.global_expressions;
        Ok(match expressions[at] {
            Expression::Literal(literal) => vec![self.literal(literal)?],
            Expression::Constant(c) => self.global_expression(self.module.constants[c].init)?,
            Expression::ZeroValue(ty) => {
                let zero = self.constant(0);
                vec![zero; self.types.components(&Ty::Handle(ty))? as usize]
            }
            Expression::Compose { ref components, .. } => {
                let mut all = Vec::new();
                for component in components {
                    all.extend(self.global_expression(*component)?);
                }
                all
            }
            Expression::Splat { size, value } => {
                vec![self.global_expression(value)?[0]; size as usize]
            }
            ref other => return Err(Error::Unsupported(format!("the constant {other:?}"))),
        })
    }

    fn literal(&mut self, literal: naga::Literal) -> Result<Reg, Error> {
        let bits = match literal {
            naga::Literal::F32(v) => v.to_bits(),
            naga::Literal::F16(v) => v.to_f32().to_bits(),
            naga::Literal::U32(v) => v,
            naga::Literal::I32(v) => v as u32,
            naga::Literal::Bool(v) => u32::from(v),
            other => return Err(Error::Unsupported(format!("the literal {other:?}"))),
        };
        Ok(self.constant(bits))
    }

    /// Lowers a function with its arguments; what it returns goes to `result`.
    fn function(
        &mut self,
        function: &'a naga::Function,
        info: &'a FunctionInfo,
        arguments: Vec<Value>,
        result: Reg,
    ) -> Result<(), Error> {
        self.bounded()?;
        let before = self.top;
        let mut frame = Frame {
            function,
            info,
            values: vec![None; function.expressions.len()],
            locals: Vec::new(),
            arguments,
            result,
            call: self.depth,
            breaks: Vec::new(),
            loops: Vec::new(),
        };
        for (_, variable) in function.local_variables.iter() {
            let ty = Ty::Handle(variable.ty);
            let count = self.types.components(&ty)?;
            let at = self.take(count);
            let name = variable.name.as_deref().unwrap_or("a temporary");
            frame.locals.push(self.variable(name, Memory::Columns, ty, at)?);
        }
        for (i, (_, variable)) in function.local_variables.iter().enumerate() {
            let at = frame.locals[i].at;
            let count = self.types.components(&frame.locals[i].ty)?;
            let init = match variable.init {
                Some(init) => self.columns(&mut frame, init)?,
                None => vec![self.constant(0); count as usize].into(),
            };
            for (i, from) in init.iter().enumerate() {
                self.copy(at + i as u32, *from);
            }
        }
        self.push(Op::Call);
        self.depth += 1;
        self.block(&mut frame, &function.body)?;
        self.depth -= 1;
        self.push(Op::EndCall { skip: 0 });
        self.top = before;
        Ok(())
    }

    /// Scalar type of an expression.
    fn kind(&self, frame: &Frame<'a>, of: Handle<Expression>) -> Result<Kind, Error> {
        self.types.kind(&self.types.of(&frame.info[of].ty))
    }
}
