//! Builtin functions.

use std::rc::Rc;

use naga::{Expression, Handle, MathFunction};

use super::{Frame, Lower};
use crate::Error;
use crate::code::{Bin, Op, Reg, Tri, Un};
use crate::types::Kind;

impl<'a> Lower<'a> {
    pub(super) fn tri(&mut self, op: Tri, a: Reg, b: Reg, c: Reg) -> Result<Reg, Error> {
        let to = self.take(1)?;
        self.push(Op::Tri(op, to, a, b, c))?;
        Ok(to)
    }

    fn dot(&mut self, kind: Kind, a: &[Reg], b: &[Reg]) -> Result<Reg, Error> {
        let (mul, add) =
            if kind.is_float() { (Bin::MulF, Bin::AddF) } else { (Bin::MulI, Bin::AddI) };
        let mut sum = self.bin(mul, a[0], b[0])?;
        for (a, b) in a.iter().zip(b).skip(1) {
            let product = self.bin(mul, *a, *b)?;
            sum = self.bin(add, sum, product)?;
        }
        Ok(sum)
    }

    fn scaled(&mut self, v: &[Reg], by: Reg) -> Result<Vec<Reg>, Error> {
        v.iter().map(|a| self.bin(Bin::MulF, *a, by)).collect()
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
        if let Some(un) = unary(function, kind) {
            let all: Vec<Reg> =
                args[0].iter().map(|a| self.un(un, *a)).collect::<Result<_, _>>()?;
            return self.rounded(if un == Un::ToHalf { Kind::F32 } else { kind }, all);
        }
        let width = args.iter().map(|a| a.len()).max().unwrap_or(1);
        let at = |args: &[Rc<[Reg]>], n: usize, i: usize| args[n][i.min(args[n].len() - 1)];
        let bin = match function {
            F::Min => Some(pick(kind, Bin::MinF, Bin::MinI, Bin::MinU)),
            F::Max => Some(pick(kind, Bin::MaxF, Bin::MaxI, Bin::MaxU)),
            F::Atan2 => Some(Bin::Atan2),
            F::Pow => Some(Bin::Pow),
            F::Step => Some(Bin::Step),
            F::Ldexp => Some(Bin::Ldexp),
            F::Dot4I8Packed => Some(Bin::Dot4I8),
            F::Dot4U8Packed => Some(Bin::Dot4U8),
            _ => None,
        };
        if let Some(bin) = bin {
            let each = (0..width).map(|i| self.bin(bin, at(&args, 0, i), at(&args, 1, i)));
            let all = each.collect::<Result<Vec<_>, _>>()?;
            return self.rounded(kind, all);
        }
        let tri = match function {
            F::Clamp => Some(pick(kind, Tri::ClampF, Tri::ClampI, Tri::ClampU)),
            F::Fma => Some(Tri::Fma),
            F::Mix => Some(Tri::Mix),
            F::SmoothStep => Some(Tri::SmoothStep),
            F::ExtractBits => Some(pick(kind, Tri::ExtractU, Tri::ExtractI, Tri::ExtractU)),
            _ => None,
        };
        if let Some(tri) = tri {
            let each = (0..width)
                .map(|i| self.tri(tri, at(&args, 0, i), at(&args, 1, i), at(&args, 2, i)));
            let all = each.collect::<Result<Vec<_>, _>>()?;
            return self.rounded(kind, all);
        }
        let all = match function {
            F::Radians | F::Degrees => {
                let factor = if function == F::Radians {
                    std::f32::consts::PI / 180.0
                } else {
                    180.0 / std::f32::consts::PI
                };
                let factor = self.float(factor)?;
                self.scaled(&args[0], factor)?
            }
            F::Dot => vec![self.dot(kind, &args[0], &args[1])?],
            F::Length | F::Distance | F::Normalize => {
                let mut v = args[0].to_vec();
                if function == F::Distance {
                    for (i, a) in v.iter_mut().enumerate() {
                        *a = self.bin(Bin::SubF, *a, args[1][i])?;
                    }
                }
                let square = self.dot(kind, &v, &v)?;
                let length = self.un(Un::Sqrt, square)?;
                match function {
                    F::Normalize => v
                        .iter()
                        .map(|a| self.bin(Bin::DivF, *a, length))
                        .collect::<Result<_, _>>()?,
                    _ => vec![length],
                }
            }
            F::Cross => {
                let (a, b) = (&args[0], &args[1]);
                let mut all = Vec::new();
                for (i, j) in [(1, 2), (2, 0), (0, 1)] {
                    let (p, q) =
                        (self.bin(Bin::MulF, a[i], b[j])?, self.bin(Bin::MulF, a[j], b[i])?);
                    all.push(self.bin(Bin::SubF, p, q)?);
                }
                all
            }
            F::Reflect => {
                let d = self.dot(kind, &args[1], &args[0])?;
                let d = self.bin(Bin::AddF, d, d)?;
                let along = self.scaled(&args[1], d)?;
                let each = along.iter().enumerate();
                each.map(|(i, b)| self.bin(Bin::SubF, args[0][i], *b)).collect::<Result<_, _>>()?
            }
            F::Transpose => {
                let naga::TypeInner::Matrix { columns, rows, .. } =
                    *frame.info[arguments[0]].ty.inner_with(&self.module.types)
                else {
                    return Err(Error::Unsupported("transpose of no matrix".into()));
                };
                let (columns, rows) = (columns as usize, rows as usize);
                (0..rows * columns).map(|i| args[0][i % columns * rows + i / columns]).collect()
            }
            F::Modf => {
                let whole: Vec<Reg> =
                    args[0].iter().map(|a| self.un(Un::Trunc, *a)).collect::<Result<_, _>>()?;
                let mut all = Vec::new();
                for (a, whole) in args[0].iter().zip(&whole) {
                    all.push(self.bin(Bin::SubF, *a, *whole)?);
                }
                all.extend(whole);
                all
            }
            F::Frexp => {
                let mut all = Vec::new();
                for un in [Un::FrexpFraction, Un::FrexpExponent] {
                    for a in &*args[0] {
                        all.push(self.un(un, *a)?);
                    }
                }
                return Ok(all.into());
            }
            F::InsertBits => {
                // value, inserted, offset, count
                let mut all = Vec::new();
                for i in 0..args[0].len() {
                    let (ones, offset, count) = (self.constant(u32::MAX)?, args[2][0], args[3][0]);
                    let mask = self.tri(Tri::ExtractU, ones, offset, count)?;
                    // A shift by 32 inserts nothing: the count is 0.
                    let (zero, most) = (self.constant(0)?, self.constant(31)?);
                    let by = self.bin(Bin::MinU, offset, most)?;
                    let moved = self.bin(Bin::Shl, args[1][i], by)?;
                    let mask = self.bin(Bin::Shl, mask, by)?;
                    let empty = self.bin(Bin::EqI, count, zero)?;
                    let mask = self.tri(Tri::Select, empty, zero, mask)?;
                    let kept = self.un(Un::NotBits, mask)?;
                    let kept = self.bin(Bin::And, args[0][i], kept)?;
                    let moved = self.bin(Bin::And, moved, mask)?;
                    all.push(self.bin(Bin::Or, kept, moved)?);
                }
                return Ok(all.into());
            }
            F::Pack4xI8 | F::Pack4xU8 => return self.packed(&args[0], Un::ByteU(0), 8),
            F::Pack4xI8Clamp => return self.packed(&args[0], Un::ClampI8, 8),
            F::Pack4xU8Clamp => return self.packed(&args[0], Un::ClampU8, 8),
            F::Pack4x8snorm => return self.packed(&args[0], Un::PackSnorm8, 8),
            F::Pack4x8unorm => return self.packed(&args[0], Un::PackUnorm8, 8),
            F::Pack2x16snorm => return self.packed(&args[0], Un::PackSnorm16, 16),
            F::Pack2x16unorm => return self.packed(&args[0], Un::PackUnorm16, 16),
            F::Pack2x16float => return self.packed(&args[0], Un::HalfBits, 16),
            F::Unpack4xI8 => return self.each(&args[0], &[0, 1, 2, 3].map(Un::ByteI), None),
            F::Unpack4xU8 => return self.each(&args[0], &[0, 1, 2, 3].map(Un::ByteU), None),
            F::Unpack2x16float => return self.each(&args[0], &[Un::LowHalf, Un::HighHalf], None),
            F::Unpack4x8snorm => {
                return self.each(&args[0], &[0, 1, 2, 3].map(Un::ByteI), Some(Un::UnpackSnorm8));
            }
            F::Unpack4x8unorm => {
                return self.each(&args[0], &[0, 1, 2, 3].map(Un::ByteU), Some(Un::UnpackUnorm8));
            }
            F::Unpack2x16snorm | F::Unpack2x16unorm => {
                let un = match function {
                    F::Unpack2x16snorm => Un::UnpackSnorm16,
                    _ => Un::UnpackUnorm16,
                };
                let sixteen = self.constant(16)?;
                let high = self.bin(Bin::ShrU, args[0][0], sixteen)?;
                return Ok([self.un(un, args[0][0])?, self.un(un, high)?].into());
            }
            other => return Err(Error::Unsupported(format!("the builtin {other:?}"))),
        };
        self.rounded(kind, all)
    }

    /// Packs components, each converted to its lowest bits, into a word.
    fn packed(&mut self, of: &[Reg], un: Un, bits: u32) -> Result<Rc<[Reg]>, Error> {
        let mut word = self.un(un, of[0])?;
        for (i, a) in of.iter().enumerate().skip(1) {
            let (part, by) = (self.un(un, *a)?, self.constant(bits * i as u32)?);
            let part = self.bin(Bin::Shl, part, by)?;
            word = self.bin(Bin::Or, word, part)?;
        }
        Ok([word].into())
    }

    /// Components of a word.
    fn each(&mut self, of: &[Reg], uns: &[Un], then: Option<Un>) -> Result<Rc<[Reg]>, Error> {
        let mut all = Vec::new();
        for un in uns {
            let part = self.un(*un, of[0])?;
            all.push(match then {
                Some(then) => self.un(then, part)?,
                None => part,
            });
        }
        Ok(all.into())
    }
}

/// Functions of one argument that are one instruction.
#[rustfmt::skip]
const UNARY: &[(MathFunction, Un)] = {
    use MathFunction as F;
    &[
        (F::Saturate, Un::Saturate), (F::Cos, Un::Cos), (F::Cosh, Un::Cosh), (F::Sin, Un::Sin),
        (F::Sinh, Un::Sinh), (F::Tan, Un::Tan), (F::Tanh, Un::Tanh), (F::Acos, Un::Acos),
        (F::Asin, Un::Asin), (F::Atan, Un::Atan), (F::Asinh, Un::Asinh), (F::Acosh, Un::Acosh),
        (F::Atanh, Un::Atanh), (F::Ceil, Un::Ceil), (F::Floor, Un::Floor), (F::Round, Un::Round),
        (F::Fract, Un::Fract), (F::Trunc, Un::Trunc), (F::Exp, Un::Exp), (F::Exp2, Un::Exp2),
        (F::Log, Un::Log), (F::Log2, Un::Log2), (F::Sqrt, Un::Sqrt),
        (F::InverseSqrt, Un::InverseSqrt), (F::QuantizeToF16, Un::ToHalf),
        (F::CountTrailingZeros, Un::CountTrailing), (F::CountLeadingZeros, Un::CountLeading),
        (F::CountOneBits, Un::CountOnes), (F::ReverseBits, Un::Reverse),
        (F::FirstTrailingBit, Un::FirstTrailing),
    ]
};

/// A function of one argument.
fn unary(function: MathFunction, kind: Kind) -> Option<Un> {
    match function {
        MathFunction::Abs => Some(pick(kind, Un::AbsF, Un::AbsI, Un::Copy)),
        MathFunction::Sign => Some(pick(kind, Un::SignF, Un::SignI, Un::SignI)),
        MathFunction::FirstLeadingBit => {
            Some(pick(kind, Un::FirstLeadingU, Un::FirstLeadingI, Un::FirstLeadingU))
        }
        other => UNARY.iter().find(|(known, _)| *known == other).map(|(_, un)| *un),
    }
}

/// One of three for floats, signed and other integers.
pub(super) fn pick<T>(kind: Kind, float: T, signed: T, unsigned: T) -> T {
    match kind {
        Kind::F32 | Kind::F16 => float,
        Kind::I32 => signed,
        Kind::U32 | Kind::Bool => unsigned,
    }
}
