//! Expressions: pointers, taking apart, operators and conversions.

use std::rc::Rc;

use naga::{
    BinaryOperator, CooperativeData, CooperativeSize, Expression, Handle, RelationalFunction,
    ScalarKind, TypeInner, UnaryOperator,
};

use super::math::pick;
use super::{Frame, Lower, Place, Value};
use crate::Error;
use crate::code::{Bin, Matrix, Memory, MulAdd, Op, Reg, Rmw, Tri, Un};
use crate::types::{Kind, Length, Ty, Unit};

impl<'a> Lower<'a> {
    /// The value of an expression, which was emitted or needs no computing.
    pub(super) fn value(
        &mut self,
        frame: &mut Frame<'a>,
        at: Handle<Expression>,
    ) -> Result<Value, Error> {
        if let Some(value) = &frame.values[at.index()] {
            return Ok(value.clone());
        }
        let value = self.expression(frame, at)?;
        frame.values[at.index()] = Some(value.clone());
        Ok(value)
    }

    /// Columns of an expression that is no pointer.
    pub(super) fn columns(
        &mut self,
        frame: &mut Frame<'a>,
        at: Handle<Expression>,
    ) -> Result<Rc<[Reg]>, Error> {
        match self.value(frame, at)? {
            Value::Columns(columns) => Ok(columns),
            Value::Place(place) => {
                Err(Error::Unsupported(format!("a pointer as a value: {:?}", place.ty)))
            }
        }
    }

    pub(super) fn place(
        &mut self,
        frame: &mut Frame<'a>,
        at: Handle<Expression>,
    ) -> Result<Place, Error> {
        match self.value(frame, at)? {
            Value::Place(place) => Ok(place),
            Value::Columns(_) => Err(Error::Unsupported("a value as a pointer".into())),
        }
    }

    /// Computes an expression.
    pub(super) fn expression(
        &mut self,
        frame: &mut Frame<'a>,
        at: Handle<Expression>,
    ) -> Result<Value, Error> {
        let columns: Vec<Reg> = match frame.function.expressions[at] {
            Expression::Literal(literal) => vec![self.literal(literal)?],
            Expression::Constant(c) => self.global_expression(self.module.constants[c].init)?,
            Expression::ZeroValue(ty) => {
                vec![self.constant(0)?; self.types.components(&Ty::Handle(ty))? as usize]
            }
            Expression::Compose { ref components, .. } => {
                let mut all = Vec::new();
                for component in components {
                    all.extend_from_slice(&self.columns(frame, *component)?);
                }
                all
            }
            Expression::Splat { size, value } => {
                vec![self.columns(frame, value)?[0]; size as usize]
            }
            Expression::Swizzle { size, vector, pattern } => {
                let of = self.columns(frame, vector)?;
                pattern[..size as usize].iter().map(|c| of[*c as usize]).collect()
            }
            Expression::FunctionArgument(i) => return Ok(frame.arguments[i as usize].clone()),
            Expression::GlobalVariable(v) => {
                let place = self.globals.get(&v).cloned();
                return place.map(Value::Place).ok_or_else(|| {
                    Error::Unsupported("a variable that the analysis calls unused".into())
                });
            }
            Expression::LocalVariable(v) => {
                return Ok(Value::Place(frame.locals[v.index()].clone()));
            }
            Expression::Access { base, index } => {
                let index = self.columns(frame, index)?[0];
                return self.element(frame, base, index);
            }
            Expression::AccessIndex { base, index } => {
                return self.element_known(frame, base, index);
            }
            Expression::Load { pointer } => {
                let place = self.place(frame, pointer)?;
                return self.load(&place);
            }
            Expression::ArrayLength(pointer) => {
                let place = self.place(frame, pointer)?;
                let (Memory::Buffer(buffer), (_, stride, _)) =
                    (place.memory, self.types.element(&place.ty, Unit::Byte, None)?)
                else {
                    return Err(Error::Unsupported("the length of no buffer's array".into()));
                };
                let to = self.take(1)?;
                self.push(Op::ArrayLength { to, buffer, at: place.at, stride })?;
                vec![to]
            }
            Expression::Unary { op, expr } => {
                let kind = self.kind(frame, expr)?;
                let un = match op {
                    UnaryOperator::Negate if kind.is_float() => Un::NegF,
                    UnaryOperator::Negate => Un::NegI,
                    UnaryOperator::LogicalNot => Un::NotBool,
                    UnaryOperator::BitwiseNot => Un::NotBits,
                };
                let of = self.columns(frame, expr)?;
                of.iter().map(|a| self.un(un, *a)).collect::<Result<_, _>>()?
            }
            Expression::Binary { op, left, right } => {
                return self.binary(frame, op, left, right).map(Value::Columns);
            }
            Expression::Select { condition, accept, reject } => {
                let condition = self.columns(frame, condition)?;
                let (accept, reject) = (self.columns(frame, accept)?, self.columns(frame, reject)?);
                let each = accept.iter().zip(reject.iter()).enumerate().map(|(i, (a, b))| {
                    let to = self.take(1)?;
                    let condition = condition[i.min(condition.len() - 1)];
                    self.push(Op::Tri(Tri::Select, to, condition, *a, *b))?;
                    Ok(to)
                });
                each.collect::<Result<_, Error>>()?
            }
            Expression::Relational { fun, argument } => {
                let of = self.columns(frame, argument)?;
                let (un, fold) = match fun {
                    RelationalFunction::All => (None, Bin::And),
                    RelationalFunction::Any => (None, Bin::Or),
                    RelationalFunction::IsNan => (Some(Un::IsNan), Bin::And),
                    RelationalFunction::IsInf => (Some(Un::IsInf), Bin::And),
                };
                match un {
                    Some(un) => of.iter().map(|a| self.un(un, *a)).collect::<Result<_, _>>()?,
                    None => {
                        let mut all = of[0];
                        for other in &of[1..] {
                            all = self.bin(fold, all, *other)?;
                        }
                        vec![all]
                    }
                }
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let arguments: Vec<_> =
                    [Some(arg), arg1, arg2, arg3].into_iter().flatten().collect();
                return self.math(frame, fun, &arguments).map(Value::Columns);
            }
            Expression::As { expr, kind, convert } => {
                return self.cast(frame, expr, kind, convert).map(Value::Columns);
            }
            Expression::CooperativeLoad { columns, rows, ref data, .. } => {
                let matrix = self.matrix(frame, (columns, rows), data)?;
                let count = matrix.columns * matrix.rows;
                let to = self.take(count)?;
                self.push(Op::MatrixLoad(matrix, to))?;
                (to..to + count).collect()
            }
            Expression::CooperativeMultiplyAdd { a, b, c } => {
                let shape = |this: &Self, of: Handle<Expression>| match *frame.info[of]
                    .ty
                    .inner_with(&this.module.types)
                {
                    TypeInner::CooperativeMatrix { columns, rows, .. } => {
                        Ok((columns as u32, rows as u32))
                    }
                    ref other => Err(Error::Unsupported(format!("a product of {other:?}"))),
                };
                let ((k, m), (n, _)) = (shape(self, a)?, shape(self, b)?);
                let kind = self.kind(frame, c)?;
                let mut all = |this: &mut Self, of| {
                    this.columns(frame, of).map(|columns| columns.to_vec().into())
                };
                let (a, b, c) = (all(self, a)?, all(self, b)?, all(self, c)?);
                let to = self.take(m * n)?;
                self.push(Op::MatrixMulAdd(Box::new(MulAdd { m, n, k, a, b, c, to, kind })))?;
                (to..to + m * n).collect()
            }
            ref other => return Err(Error::Unsupported(format!("the expression {other:?}"))),
        };
        Ok(Value::Columns(columns.into()))
    }

    /// The element that a column of indices selects.
    fn element(
        &mut self,
        frame: &mut Frame<'a>,
        base: Handle<Expression>,
        index: Reg,
    ) -> Result<Value, Error> {
        match self.value(frame, base)? {
            Value::Place(place) => {
                let (ty, stride, length) = self.types.element(&place.ty, place.unit(), None)?;
                let array = match (place.memory, length) {
                    (Memory::Buffer(buffer), Length::Runtime) => Some((buffer, place.at)),
                    _ => None,
                };
                let (to, offset) = (self.take(1)?, place.offset);
                self.push(Op::Index { to, offset, index, stride, length, array })?;
                let index = Some((index, length));
                Ok(Value::Place(Place { ty, offset: Some(to), index, ..place }))
            }
            Value::Columns(of) => {
                let ty = self.types.of(&frame.info[base].ty);
                let (element, stride, _) = self.types.element(&ty, Unit::Cell, None)?;
                let count = self.types.components(&element)?;
                let first = self.take(count)?;
                for c in 0..count {
                    let of = of.iter().copied().skip(c as usize).step_by(stride.max(1) as usize);
                    let of = of.collect();
                    self.push(Op::Gather { to: first + c, index, of })?;
                }
                Ok(Value::Columns((first..first + count).collect()))
            }
        }
    }

    fn element_known(
        &mut self,
        frame: &mut Frame<'a>,
        base: Handle<Expression>,
        index: u32,
    ) -> Result<Value, Error> {
        match self.value(frame, base)? {
            Value::Place(place) => {
                let inner = self.types.inner(&place.ty);
                let is_struct = matches!(inner, TypeInner::Struct { .. });
                let (ty, by, length) = self.types.element(&place.ty, place.unit(), Some(index))?;
                if length == Length::Runtime {
                    let index = self.constant(index)?;
                    return self.element(frame, base, index);
                }
                let at = place.at + if is_struct { by } else { by * index };
                Ok(Value::Place(Place { ty, at, ..place }))
            }
            Value::Columns(of) => {
                let ty = self.types.of(&frame.info[base].ty);
                let is_struct = matches!(self.types.inner(&ty), TypeInner::Struct { .. });
                let (element, by, _) = self.types.element(&ty, Unit::Cell, Some(index))?;
                let at = if is_struct { by } else { by * index } as usize;
                let count = self.types.components(&element)? as usize;
                Ok(Value::Columns(of[at..at + count].into()))
            }
        }
    }

    pub(super) fn load(&mut self, place: &Place) -> Result<Value, Error> {
        let count = self.types.components(&place.ty)?;
        let to = self.take(count)?;
        if place.memory == Memory::Columns && place.offset.is_none() {
            for i in 0..count {
                self.push(Op::Un(Un::Copy, to + i, place.at + i))?;
            }
        } else {
            let access = self.access(place)?;
            let leaf = self.program.accesses[access as usize].leaves.first().copied();
            match leaf {
                Some(leaf) if leaf.is_atomic => {
                    self.synchronises(place);
                    let (what, kind, value) = (Rmw::Load, leaf.kind, to);
                    self.push(Op::Atomic { access, what, kind, value, to })?;
                }
                _ => {
                    self.push(Op::Load { access, to })?;
                }
            }
        }
        Ok(Value::Columns((to..to + count).collect()))
    }

    /// A cooperative matrix in memory. Its stride counts what the pointer points to, which may be a
    /// vector.
    fn matrix(
        &mut self,
        frame: &mut Frame<'a>,
        (columns, rows): (CooperativeSize, CooperativeSize),
        data: &CooperativeData,
    ) -> Result<Matrix, Error> {
        let mut place = self.place(frame, data.pointer)?;
        let stride = self.columns(frame, data.stride)?[0];
        let (unit, scalar) = match *self.types.inner(&place.ty) {
            TypeInner::Scalar(scalar) => (1, scalar),
            TypeInner::Vector { size, scalar } => (size as u32, scalar),
            ref other => return Err(Error::Unsupported(format!("a matrix in {other:?}"))),
        };
        place.ty = Ty::Inner(TypeInner::Scalar(scalar));
        let (access, row_major) = (self.access(&place)?, data.row_major);
        let (columns, rows) = (columns as u32, rows as u32);
        Ok(Matrix { access, stride, unit, row_major, columns, rows })
    }

    pub(super) fn matrix_store(
        &mut self,
        frame: &mut Frame<'a>,
        target: Handle<Expression>,
        data: &CooperativeData,
    ) -> Result<(), Error> {
        let TypeInner::CooperativeMatrix { columns, rows, .. } =
            *frame.info[target].ty.inner_with(&self.module.types)
        else {
            return Err(Error::Unsupported("a cooperative store of no matrix".into()));
        };
        let from = self.columns(frame, target)?.to_vec().into();
        let matrix = self.matrix(frame, (columns, rows), data)?;
        self.push(Op::MatrixStore(matrix, from))?;
        Ok(())
    }

    /// Rounds f16 results, which registers hold as f32.
    pub(super) fn rounded(&mut self, kind: Kind, columns: Vec<Reg>) -> Result<Rc<[Reg]>, Error> {
        match kind {
            Kind::F16 => columns.into_iter().map(|c| self.un(Un::RoundHalf, c)).collect(),
            _ => Ok(columns.into()),
        }
    }

    fn binary(
        &mut self,
        frame: &mut Frame<'a>,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Result<Rc<[Reg]>, Error> {
        let kind = self.kind(frame, left)?;
        let (a, b) = (self.columns(frame, left)?, self.columns(frame, right)?);
        let shape =
            |of: Handle<Expression>| frame.info[of].ty.inner_with(&self.module.types).clone();
        if op == BinaryOperator::Multiply {
            let matrix = |inner: &TypeInner| match *inner {
                TypeInner::Matrix { columns, rows, .. } => Some((columns as usize, rows as usize)),
                _ => None,
            };
            let (left, right) = (shape(left), shape(right));
            let is_scalar = |inner: &TypeInner| matches!(inner, TypeInner::Scalar(_));
            let (l, r) = (matrix(&left), matrix(&right));
            if (l.is_some() || r.is_some()) && !is_scalar(&left) && !is_scalar(&right) {
                // A vector is a matrix of one column, or of one row on the left.
                let (inner, rows) = l.unwrap_or((a.len(), 1));
                let (columns, _) = r.unwrap_or((1, b.len()));
                let mut all = Vec::new();
                for c in 0..columns {
                    for row in 0..rows {
                        let mut sum = None;
                        for k in 0..inner {
                            let product =
                                self.bin(Bin::MulF, a[k * rows + row], b[c * inner + k])?;
                            sum = Some(match sum {
                                Some(sum) => self.bin(Bin::AddF, sum, product)?,
                                None => product,
                            });
                        }
                        all.extend(sum);
                    }
                }
                return self.rounded(kind, all);
            }
            let is_product = |inner| matches!(inner, TypeInner::CooperativeMatrix { .. });
            if is_product(left) && is_product(right) {
                return Err(Error::Unsupported("a product without a sum".into()));
            }
        }
        let (bin, swaps, is_arithmetic) = operator(op, kind)?;
        let mut all = Vec::with_capacity(a.len().max(b.len()));
        for i in 0..a.len().max(b.len()) {
            let (a, b) = (a[i.min(a.len() - 1)], b[i.min(b.len() - 1)]);
            all.push(if swaps { self.bin(bin, b, a)? } else { self.bin(bin, a, b)? });
        }
        self.rounded(if is_arithmetic { kind } else { Kind::Bool }, all)
    }

    fn cast(
        &mut self,
        frame: &mut Frame<'a>,
        expr: Handle<Expression>,
        to: ScalarKind,
        convert: Option<naga::Bytes>,
    ) -> Result<Rc<[Reg]>, Error> {
        let from = self.kind(frame, expr)?;
        let of = self.columns(frame, expr)?;
        let Some(width) = convert else {
            let same = match to {
                ScalarKind::Float => true,
                _ => from != Kind::F16,
            };
            if !same || (from == Kind::Bool) {
                return Err(Error::Unsupported(format!("a bitcast of {from:?} to {to:?}")));
            }
            return Ok(of);
        };
        let kind = Kind::of(naga::Scalar { kind: to, width })?;
        let un = match (from, kind) {
            (Kind::Bool, Kind::F32 | Kind::F16) => Un::BoolToF,
            (Kind::I32, Kind::F32 | Kind::F16) => Un::IntToF,
            (Kind::U32, Kind::F32 | Kind::F16) => Un::UintToF,
            (Kind::F32 | Kind::F16, Kind::Bool) => Un::NonZeroF,
            (Kind::I32 | Kind::U32, Kind::Bool) => Un::NonZeroI,
            (Kind::F32 | Kind::F16, Kind::I32) => Un::FToInt,
            (Kind::F32 | Kind::F16, Kind::U32) => Un::FToUint,
            _ => Un::Copy,
        };
        let mut all = of.to_vec();
        if un != Un::Copy {
            all = of.iter().map(|a| self.un(un, *a)).collect::<Result<_, _>>()?;
        }
        match (from, kind) {
            (Kind::F16 | Kind::Bool, _) => Ok(all.into()),
            _ => self.rounded(kind, all),
        }
    }
}

/// The instruction of an operator: with swapped operands, and with a result of the same type.
fn operator(op: BinaryOperator, kind: Kind) -> Result<(Bin, bool, bool), Error> {
    use BinaryOperator as Op;
    let less = pick(kind, Bin::LtF, Bin::LtI, Bin::LtU);
    let not_more = pick(kind, Bin::LeF, Bin::LeI, Bin::LeU);
    Ok(match op {
        Op::Add => (pick(kind, Bin::AddF, Bin::AddI, Bin::AddI), false, true),
        Op::Subtract => (pick(kind, Bin::SubF, Bin::SubI, Bin::SubI), false, true),
        Op::Multiply => (pick(kind, Bin::MulF, Bin::MulI, Bin::MulI), false, true),
        Op::Divide => (pick(kind, Bin::DivF, Bin::DivI, Bin::DivU), false, true),
        Op::Modulo => (pick(kind, Bin::RemF, Bin::RemI, Bin::RemU), false, true),
        Op::Equal => (pick(kind, Bin::EqF, Bin::EqI, Bin::EqI), false, false),
        Op::NotEqual => (pick(kind, Bin::NeF, Bin::NeI, Bin::NeI), false, false),
        Op::Less => (less, false, false),
        Op::LessEqual => (not_more, false, false),
        Op::Greater => (less, true, false),
        Op::GreaterEqual => (not_more, true, false),
        Op::And | Op::LogicalAnd => (Bin::And, false, false),
        Op::InclusiveOr | Op::LogicalOr => (Bin::Or, false, false),
        Op::ExclusiveOr => (Bin::Xor, false, false),
        Op::ShiftLeft => (Bin::Shl, false, false),
        Op::ShiftRight => (pick(kind, Bin::ShrU, Bin::ShrI, Bin::ShrU), false, false),
    })
}
