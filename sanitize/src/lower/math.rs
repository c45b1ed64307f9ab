//! Operators and builtin functions.

use std::rc::Rc;

use naga::{
    BinaryOperator as B, Bytes, Expression, Handle, MathFunction, Scalar, ScalarKind, TypeInner,
};

use super::{Frame, Lower};
use crate::Error;
use crate::code::{Op, Reg, What};
use crate::machine::is_known;
use crate::types::Kind;

impl<'a> Lower<'a> {
    /// An operation for each component; a scalar stands for as many as the others have.
    pub(super) fn each(&mut self, what: What, kind: Kind, of: &[&[Reg]]) -> Vec<Reg> {
        let count = of.iter().map(|columns| columns.len()).max().unwrap_or_default();
        let of_component = |this: &mut Self, i: usize| {
            let mut all = [of[0][i.min(of[0].len() - 1)]; 4];
            for (to, columns) in all.iter_mut().zip(of) {
                *to = columns[i.min(columns.len() - 1)];
            }
            this.scalar(what, kind, all)
        };
        (0..count).map(|i| of_component(self, i)).collect()
    }

    fn scalar(&mut self, what: What, kind: Kind, of: [Reg; 4]) -> Reg {
        let to = self.take(1);
        self.push(Op::Do { what, kind, to, of });
        to
    }

    fn binary(&mut self, op: B, kind: Kind, a: Reg, b: Reg) -> Reg {
        self.scalar(What::Binary(op), kind, [a, b, a, a])
    }

    /// Sum of the products of pairs.
    fn dot(&mut self, kind: Kind, pairs: &[(Reg, Reg)]) -> Reg {
        let product = |this: &mut Self, (a, b)| this.binary(B::Multiply, kind, a, b);
        let first = product(self, pairs[0]);
        pairs[1..].iter().fold(first, |sum, pair| {
            let product = product(self, *pair);
            self.binary(B::Add, kind, sum, product)
        })
    }

    /// An operator. Matrices have products of their own.
    pub(super) fn operator(
        &mut self,
        frame: &mut Frame<'a>,
        op: B,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Result<Rc<[Reg]>, Error> {
        let kind = self.kind(frame, left)?;
        let (a, b) = (self.columns(frame, left)?, self.columns(frame, right)?);
        let inner = |of: Handle<Expression>| frame.info[of].ty.inner_with(&self.module.types);
        let matrix = |inner: &TypeInner| match *inner {
            TypeInner::Matrix { columns, rows, .. } => Some((columns as usize, rows as usize)),
            _ => None,
        };
        let (l, r) = (matrix(inner(left)), matrix(inner(right)));
        let is_product = |inner: &TypeInner| matches!(inner, TypeInner::CooperativeMatrix { .. });
        if op == B::Multiply && is_product(inner(left)) && is_product(inner(right)) {
            return Err(Error::Unsupported("a product without a sum".into()));
        }
        if op != B::Multiply || l.or(r).is_none() || a.len().min(b.len()) == 1 {
            return Ok(self.each(What::Binary(op), kind, &[&a, &b]).into());
        }
        // A vector is a matrix of one column, or of one row on the left.
        let (inner, rows) = l.unwrap_or((a.len(), 1));
        let mut all = Vec::new();
        for c in 0..r.map_or(1, |(columns, _)| columns) {
            for row in 0..rows {
                let pair = |k| (a[k * rows + row], b[c * inner + k]);
                let pairs: Vec<_> = (0..inner).map(pair).collect();
                all.push(self.dot(wide(kind), &pairs));
            }
        }
        Ok(self.rounded(kind, all))
    }

    /// Rounds f16 results that were computed in f32.
    pub(super) fn rounded(&mut self, kind: Kind, columns: Vec<Reg>) -> Rc<[Reg]> {
        match kind {
            Kind::F16 => self.each(What::Convert(kind), Kind::F32, &[&columns]).into(),
            _ => columns.into(),
        }
    }

    pub(super) fn math(
        &mut self,
        frame: &mut Frame<'a>,
        function: MathFunction,
        arguments: &[Handle<Expression>],
    ) -> Result<Rc<[Reg]>, Error> {
        use MathFunction as F;
        let kind = self.kind(frame, arguments[0])?;
        let mut args = Vec::with_capacity(arguments.len());
        for argument in arguments {
            args.push(self.columns(frame, *argument)?);
        }
        let what = What::Math(function);
        if is_known(function) {
            let of: Vec<&[Reg]> = args.iter().map(|a| &**a).collect();
            return Ok(self.each(what, kind, &of).into());
        }
        let first = &args[0];
        let zip = |a: &[Reg], b: &[Reg]| a.iter().copied().zip(b.to_vec()).collect::<Vec<_>>();
        // Sums of f16 are those of f32, rounded at the end.
        let sums = wide(kind);
        let all = match function {
            F::Dot => vec![self.dot(sums, &zip(first, &args[1]))],
            F::Length | F::Distance | F::Normalize => {
                let v = match function {
                    F::Distance => self.each(What::Binary(B::Subtract), sums, &[first, &args[1]]),
                    _ => first.to_vec(),
                };
                let square = self.dot(sums, &zip(&v, &v));
                let length = self.each(What::Math(F::Sqrt), sums, &[&[square]]);
                match function {
                    F::Normalize => self.each(What::Binary(B::Divide), sums, &[&v, &length]),
                    _ => length,
                }
            }
            F::Cross => {
                let (a, b, mut all) = (first, &args[1], Vec::new());
                for (i, j) in [(1, 2), (2, 0), (0, 1)] {
                    let p = self.binary(B::Multiply, sums, a[i], b[j]);
                    let q = self.binary(B::Multiply, sums, a[j], b[i]);
                    all.push(self.binary(B::Subtract, sums, p, q));
                }
                all
            }
            F::Reflect => {
                let d = self.dot(sums, &zip(&args[1], first));
                let d = self.binary(B::Add, sums, d, d);
                let along = self.each(What::Binary(B::Multiply), sums, &[&args[1], &[d]]);
                self.each(What::Binary(B::Subtract), sums, &[first, &along])
            }
            F::Transpose => {
                let TypeInner::Matrix { columns, rows, .. } =
                    *frame.info[arguments[0]].ty.inner_with(&self.module.types)
                else {
                    return Err(Error::Unsupported("transpose of no matrix".into()));
                };
                let (columns, rows) = (columns as usize, rows as usize);
                return Ok((0..rows * columns)
                    .map(|i| first[i % columns * rows + i / columns])
                    .collect());
            }
            F::Modf | F::Frexp => {
                let second =
                    if function == F::Modf { What::Math(F::Trunc) } else { What::Exponent };
                let mut all = self.each(what, kind, &[first]);
                // The exponent is an integer.
                all.extend(self.each(second, sums, &[first]));
                return Ok(all.into());
            }
            F::Pack4x8snorm
            | F::Pack4x8unorm
            | F::Pack4xI8
            | F::Pack4xU8
            | F::Pack4xI8Clamp
            | F::Pack4xU8Clamp => {
                vec![self.scalar(what, Kind::U32, [first[0], first[1], first[2], first[3]])]
            }
            F::Pack2x16snorm | F::Pack2x16unorm | F::Pack2x16float => {
                vec![self.scalar(what, Kind::U32, [first[0], first[1], first[0], first[0]])]
            }
            F::Unpack4x8snorm
            | F::Unpack4x8unorm
            | F::Unpack4xI8
            | F::Unpack4xU8
            | F::Unpack2x16snorm
            | F::Unpack2x16unorm
            | F::Unpack2x16float => {
                let halves = matches!(
                    function,
                    F::Unpack2x16snorm | F::Unpack2x16unorm | F::Unpack2x16float
                );
                let each = 0..if halves { 2 } else { 4 };
                let unpack = |n| self.scalar(What::Unpack(function, n), Kind::U32, [first[0]; 4]);
                return Ok(each.map(unpack).collect());
            }
            other => return Err(Error::Unsupported(format!("the builtin {other:?}"))),
        };
        Ok(self.rounded(kind, all))
    }

    pub(super) fn cast(
        &mut self,
        frame: &mut Frame<'a>,
        expr: Handle<Expression>,
        to: ScalarKind,
        convert: Option<Bytes>,
    ) -> Result<Rc<[Reg]>, Error> {
        let from = self.kind(frame, expr)?;
        let of = self.columns(frame, expr)?;
        match convert {
            Some(width) => {
                let kind = Kind::of(Scalar { kind: to, width })?;
                Ok(self.each(What::Convert(kind), from, &[&of]).into())
            }
            None if matches!(from, Kind::Bool | Kind::F16) && to != ScalarKind::Float
                || from == Kind::Bool =>
            {
                Err(Error::Unsupported(format!("a bitcast of {from:?} to {to:?}")))
            }
            None => Ok(of),
        }
    }
}

/// The type that sums of a type are computed in.
fn wide(kind: Kind) -> Kind {
    if kind == Kind::F16 { Kind::F32 } else { kind }
}
