//! Expressions: pointers, taking apart, operators and conversions.

use std::rc::Rc;

use naga::{CooperativeData, CooperativeSize, Expression, Handle, RelationalFunction, TypeInner};

use super::{Frame, Lower, Place, Value};
use crate::Error;
use crate::code::{Atomic, Matrix, Memory, MulAdd, Op, Reg, What};
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
                vec![self.constant(0); self.types.components(&Ty::Handle(ty))? as usize]
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
                let to = self.take(1);
                self.push(Op::ArrayLength { to, buffer, at: place.at, stride });
                vec![to]
            }
            Expression::Unary { op, expr } => {
                let (kind, of) = (self.kind(frame, expr)?, self.columns(frame, expr)?);
                self.each(What::Unary(op), kind, &[&of])
            }
            Expression::Binary { op, left, right } => {
                return self.operator(frame, op, left, right).map(Value::Columns);
            }
            Expression::Select { condition, accept, reject } => {
                let condition = self.columns(frame, condition)?;
                let (accept, reject) = (self.columns(frame, accept)?, self.columns(frame, reject)?);
                self.each(What::Select, Kind::U32, &[&condition, &accept, &reject])
            }
            Expression::Relational { fun, argument } => {
                let (kind, of) = (self.kind(frame, argument)?, self.columns(frame, argument)?);
                let what = What::Relational(fun);
                match fun {
                    RelationalFunction::IsNan | RelationalFunction::IsInf => {
                        self.each(what, kind, &[&of])
                    }
                    RelationalFunction::All | RelationalFunction::Any => {
                        let mut all = vec![of[0]];
                        for other in &of[1..] {
                            all = self.each(what, Kind::U32, &[&all, &[*other]]);
                        }
                        all
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
                let to = self.take(count);
                self.push(Op::MatrixLoad(matrix, to));
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
                let to = self.take(m * n);
                self.push(Op::MatrixMulAdd(Box::new(MulAdd { m, n, k, a, b, c, to, kind })));
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
                let (to, offset) = (self.take(1), place.offset);
                self.push(Op::Index { to, offset, index, stride, length, array });
                let index = Some((index, length));
                Ok(Value::Place(Place { ty, offset: Some(to), index, ..place }))
            }
            Value::Columns(of) => {
                let ty = self.types.of(&frame.info[base].ty);
                let (element, stride, _) = self.types.element(&ty, Unit::Cell, None)?;
                let count = self.types.components(&element)?;
                let first = self.take(count);
                for c in 0..count {
                    let of = of.iter().copied().skip(c as usize).step_by(stride.max(1) as usize);
                    let of = of.collect();
                    self.push(Op::Gather { to: first + c, index, of });
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
                    let index = self.constant(index);
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
        let to = self.take(count);
        if place.memory == Memory::Columns && place.offset.is_none() {
            for i in 0..count {
                self.copy(to + i, place.at + i);
            }
        } else {
            let access = self.access(place)?;
            let leaf = self.program.accesses[access as usize].leaves.first().copied();
            match leaf {
                Some(leaf) if leaf.is_atomic => {
                    self.synchronises(place);
                    let (what, kind, value) = (Atomic::Load, leaf.kind, to);
                    self.push(Op::Atomic { access, what, kind, value, to });
                }
                _ => {
                    self.push(Op::Load { access, to });
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
        self.push(Op::MatrixStore(matrix, from));
        Ok(())
    }
}
