//! Instructions that a shader is lowered to. A register is a column of one scalar per lane.

use naga::{
    AtomicFunction, BinaryOperator, CollectiveOperation, GatherMode, MathFunction,
    RelationalFunction, SubgroupOperation, UnaryOperator,
};

use crate::types::{Kind, Leaf, Length};

/// A column.
pub(crate) type Reg = u32;

/// First register that is not a constant.
pub(crate) const FRAME: Reg = 1 << 15;

/// Operations of scalars, which give a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Copy,
    /// Condition, if true, if false.
    Select,
    Unary(UnaryOperator),
    Binary(BinaryOperator),
    Relational(RelationalFunction),
    /// To another type; reported out of range.
    Convert(Kind),
    Math(MathFunction),
    /// The exponent of `frexp`.
    Exponent,
    /// A component of the unpacked word.
    Unpack(MathFunction, u32),
}

/// Atomic operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomic {
    Load,
    Store,
    /// With the register of what a compare-exchange expects; its `exchanged` follows its result.
    Change(AtomicFunction, Reg),
}

/// Memory outside of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    /// A buffer by its number among the program's.
    Buffer(u32),
    /// Cells of the workgroup.
    Workgroup,
    /// Columns of a variable of one invocation.
    Columns,
    /// Private memory that has no initial value.
    Private,
}

/// A place in memory.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) memory: Memory,
    /// Name of the variable, among the program's.
    pub(crate) name: u32,
    /// Offset that is known.
    pub(crate) at: u32,
    /// Column of offsets to add.
    pub(crate) offset: Option<Reg>,
    pub(crate) leaves: Box<[Leaf]>,
    /// The last index of the path and its bound, for messages.
    pub(crate) index: Option<(Reg, Length)>,
}

/// One instruction.
#[derive(Clone, Debug)]
#[rustfmt::skip]
pub(crate) enum Op {
    /// Function of arguments of this type. An f16 result is rounded; reported where it overflows.
    Do { what: What, kind: Kind, to: Reg, of: [Reg; 4] },
    /// Element of a value by a column of indices: `of[index × stride]`.
    Gather { to: Reg, index: Reg, of: Box<[Reg]> },
    /// Writes the active lanes of a variable's column.
    Set(Reg, Reg),
    /// `to = offset + index × stride`, or [`OUTSIDE`] where `index` is not below `length`. A
    /// runtime-sized array has its buffer and first byte.
    Index { to: Reg, offset: Option<Reg>, index: Reg, stride: u32, length: Length, array: Option<(u32, u32)> },
    ArrayLength { to: Reg, buffer: u32, at: u32, stride: u32 },
    Load { access: u32, to: Reg },
    Store { access: u32, from: Box<[Reg]> },
    Atomic { access: u32, what: Atomic, kind: Kind, value: Reg, to: Reg },
    Barrier { workgroup: bool, storage: bool, subgroup: bool },
    /// Every lane sees the first active one's offset.
    Uniform { access: u32 },
    Fold { what: SubgroupOperation, span: CollectiveOperation, kind: Kind, to: Reg, from: Reg },
    Ballot { to: Reg, from: Option<Reg> },
    /// `by`: the lane or the distance, if there is one.
    Move { mode: GatherMode, by: Reg, to: Reg, from: Reg },
    MatrixLoad(Matrix, Reg),
    MatrixStore(Matrix, Box<[Reg]>),
    MatrixMulAdd(Box<MulAdd>),
    // Control: places are indices of instructions.
    /// Pushes a frame; the lanes whose condition is false wait for `Else`.
    If { condition: Reg, otherwise: u32 },
    Else { end: u32 },
    /// Goes on at `skip` if no lane is left.
    EndIf { skip: u32 },
    Loop,
    /// Active lanes leave the frame that is `depth` above.
    Break { depth: u32 },
    Continue { depth: u32 },
    /// Lanes that continued come back; if none is there the loop ends at `exit`.
    Continuing { exit: u32 },
    BreakIf { condition: Reg },
    /// To the first instruction of the loop, or out of it.
    Again { start: u32 },
    /// The lanes that left the loop go on.
    EndLoop { skip: u32 },
    Switch,
    Case { selector: Reg, values: Box<[u32]>, is_default: bool, next: u32 },
    EndCase { falls: bool },
    EndSwitch { skip: u32 },
    Call,
    Return { depth: u32 },
    EndCall { skip: u32 },
    End,
}

/// A cooperative matrix in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub(crate) access: u32,
    /// Distance of rows or columns, in `unit` scalars.
    pub(crate) stride: Reg,
    pub(crate) unit: u32,
    pub(crate) row_major: bool,
    pub(crate) columns: u32,
    pub(crate) rows: u32,
}

/// `to = a × b + c`
#[derive(Clone, Debug)]
pub(crate) struct MulAdd {
    pub(crate) m: u32,
    pub(crate) n: u32,
    pub(crate) k: u32,
    pub(crate) a: Box<[Reg]>,
    pub(crate) b: Box<[Reg]>,
    pub(crate) c: Box<[Reg]>,
    pub(crate) to: Reg,
    pub(crate) kind: Kind,
}

/// Offset of an element that its array does not have.
pub(crate) const OUTSIDE: u32 = u32::MAX;
