//! Arithmetic of scalars and of whole columns.

use half::f16;
use naga::{
    AtomicFunction, BinaryOperator, MathFunction, RelationalFunction, SubgroupOperation,
    UnaryOperator,
};

use crate::code::What;
use crate::types::Kind;

fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

fn b(value: f32) -> u32 {
    value.to_bits()
}

fn half(bits: u32) -> u32 {
    b(f16::from_bits(bits as u16).to_f32())
}

/// The f16 nearest to a float, as a float.
pub(super) fn rounded(bits: u32) -> u32 {
    b(f16::from_f32(f(bits)).to_f32())
}

/// `most` steps from zero to one, from `least` on.
fn norm(bits: u32, most: f32, least: f32) -> u32 {
    (0.5 + most * f(bits).clamp(least, 1.0)).floor() as i32 as u32
}

fn first_leading(x: u32) -> u32 {
    if x == 0 { u32::MAX } else { 31 - x.leading_zeros() }
}

fn frexp(x: f32) -> (f32, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    let scaled = if x.is_subnormal() { x * 2f32.powi(32) } else { x };
    let exponent = ((scaled.to_bits() >> 23) & 0xff) as i32 - 126;
    let fraction = f((scaled.to_bits() & 0x807f_ffff) | (126 << 23));
    (fraction, if x.is_subnormal() { exponent - 32 } else { exponent })
}

/// Bits from `offset` on, and their number, within a word.
fn part(offset: u32, count: u32) -> (u32, u32) {
    let offset = offset.min(32);
    (offset, count.min(32 - offset))
}

fn extract(x: u32, (offset, count): (u32, u32), signed: bool) -> u32 {
    if count == 0 {
        return 0;
    }
    let moved = x << (32 - offset - count);
    if signed { (moved as i32 >> (32 - count)) as u32 } else { moved >> (32 - count) }
}

fn insert(x: u32, y: u32, (offset, count): (u32, u32)) -> u32 {
    let mask = extract(u32::MAX, (0, count), false).checked_shl(offset).unwrap_or(0);
    x & !mask | y.checked_shl(offset).unwrap_or(0) & mask
}

fn byte(word: u32, n: u32) -> u32 {
    word >> (8 * n) & 0xff
}

fn signed_byte(word: u32, n: u32) -> i32 {
    i32::from((word >> (8 * n)) as i8)
}

/// A word of components, each in its lowest bits.
fn word<const N: usize>(components: [u32; N], each: impl Fn(u32) -> u32) -> u32 {
    let bits = 32 / N as u32;
    (0..)
        .zip(components)
        .fold(0, |word, (n, x)| word | (each(x) & u32::MAX >> (32 - bits)) << (bits * n))
}

/// Applies an operation to every lane. Division by zero gives what WGSL says: the dividend, and a
/// remainder of zero.
pub(super) fn apply(what: What, kind: Kind, to: &mut [u32], of: [&[u32]; 4]) {
    use {BinaryOperator as B, MathFunction as F, RelationalFunction as R, UnaryOperator as U};
    let [x, y, z, w] = of;
    macro_rules! map {
        (|$a:ident| $e:expr) => {
            to.iter_mut().zip(x).for_each(|(to, &$a)| *to = $e)
        };
        (|$a:ident, $b:ident| $e:expr) => {
            to.iter_mut().zip(x.iter().zip(y)).for_each(|(to, (&$a, &$b))| *to = $e)
        };
        (|$a:ident, $b:ident, $c:ident| $e:expr) => {{
            let all = x.iter().zip(y).zip(z);
            to.iter_mut().zip(all).for_each(|(to, ((&$a, &$b), &$c))| *to = $e)
        }};
        (|$a:ident, $b:ident, $c:ident, $d:ident| $e:expr) => {{
            let all = x.iter().zip(y).zip(z.iter().zip(w));
            to.iter_mut().zip(all).for_each(|(to, ((&$a, &$b), (&$c, &$d)))| *to = $e)
        }};
    }
    macro_rules! float {
        (|$($a:ident),+| $e:expr) => { map!(|$($a),+| { $(let $a = f($a);)+ b($e) }) };
    }
    // A function of f64, so that an f32 result is right to half a unit in nearly all cases.
    macro_rules! wide {
        (|$($a:ident),+| $e:expr) => {
            map!(|$($a),+| { $(let $a = f64::from(f($a));)+ b($e as f32) })
        };
    }
    macro_rules! signed {
        (|$($a:ident),+| $e:expr) => { map!(|$($a),+| { $(let $a = $a as i32;)+ ($e) as u32 }) };
    }
    macro_rules! test {
        (|$($a:ident),+| $e:expr) => {
            match kind {
                Kind::F32 | Kind::F16 => map!(|$($a),+| { $(let $a = f($a);)+ u32::from($e) }),
                Kind::I32 => map!(|$($a),+| { $(let $a = $a as i32;)+ u32::from($e) }),
                Kind::U32 | Kind::Bool => map!(|$($a),+| u32::from($e)),
            }
        };
    }
    let (is_float, is_signed) = (kind.is_float(), kind == Kind::I32);
    match what {
        What::Copy => to.copy_from_slice(x),
        What::Select => map!(|a, yes, no| if a != 0 { yes } else { no }),
        What::Unary(U::Negate) if is_float => map!(|a| a ^ 0x8000_0000),
        What::Unary(U::Negate) => map!(|a| a.wrapping_neg()),
        What::Unary(U::LogicalNot) => map!(|a| a ^ 1),
        What::Unary(U::BitwiseNot) => map!(|a| !a),
        What::Relational(R::IsNan) => map!(|a| u32::from(f(a).is_nan())),
        What::Relational(R::IsInf) => map!(|a| u32::from(f(a).is_infinite())),
        What::Relational(R::All) => map!(|a, b| a & b),
        What::Relational(R::Any) => map!(|a, b| a | b),
        What::Convert(Kind::F32 | Kind::F16) => match kind {
            Kind::F32 | Kind::F16 => to.copy_from_slice(x),
            Kind::I32 => map!(|a| b(a as i32 as f32)),
            Kind::U32 | Kind::Bool => map!(|a| b(a as f32)),
        },
        What::Convert(Kind::Bool) if is_float => map!(|a| u32::from(f(a) != 0.0)),
        What::Convert(Kind::Bool) => map!(|a| u32::from(a != 0)),
        What::Convert(Kind::I32) if is_float => map!(|a| f(a) as i32 as u32),
        What::Convert(Kind::U32) if is_float => map!(|a| f(a) as u32),
        What::Convert(Kind::I32 | Kind::U32) => to.copy_from_slice(x),
        What::Exponent => map!(|a| frexp(f(a)).1 as u32),
        What::Unpack(F::Unpack4xI8, n) => map!(|a| signed_byte(a, n) as u32),
        What::Unpack(F::Unpack4x8snorm, n) => {
            map!(|a| b((signed_byte(a, n) as f32 / 127.0).max(-1.0)));
        }
        What::Unpack(F::Unpack4x8unorm, n) => map!(|a| b(byte(a, n) as f32 / 255.0)),
        What::Unpack(F::Unpack2x16snorm, n) => {
            map!(|a| b((f32::from((a >> (16 * n)) as i16) / 32767.0).max(-1.0)));
        }
        What::Unpack(F::Unpack2x16unorm, n) => {
            map!(|a| b(f32::from((a >> (16 * n)) as u16) / 65535.0));
        }
        What::Unpack(F::Unpack2x16float, n) => map!(|a| half(a >> (16 * n))),
        What::Unpack(_, n) => map!(|a| byte(a, n)),
        What::Binary(op) => match op {
            B::Add if is_float => float!(|a, b| a + b),
            B::Subtract if is_float => float!(|a, b| a - b),
            B::Multiply if is_float => float!(|a, b| a * b),
            B::Divide if is_float => float!(|a, b| a / b),
            B::Modulo if is_float => float!(|a, b| a % b),
            B::Add => map!(|a, b| a.wrapping_add(b)),
            B::Subtract => map!(|a, b| a.wrapping_sub(b)),
            B::Multiply => map!(|a, b| a.wrapping_mul(b)),
            B::Divide if is_signed => signed!(|a, b| if b == 0 { a } else { a.wrapping_div(b) }),
            B::Modulo if is_signed => signed!(|a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }),
            B::Divide => map!(|a, b| a.checked_div(b).unwrap_or(a)),
            B::Modulo => map!(|a, b| a.checked_rem(b).unwrap_or(0)),
            B::Equal => test!(|a, b| a == b),
            B::NotEqual => test!(|a, b| a != b),
            B::Less => test!(|a, b| a < b),
            B::LessEqual => test!(|a, b| a <= b),
            B::Greater => test!(|a, b| a > b),
            B::GreaterEqual => test!(|a, b| a >= b),
            B::And | B::LogicalAnd => map!(|a, b| a & b),
            B::InclusiveOr | B::LogicalOr => map!(|a, b| a | b),
            B::ExclusiveOr => map!(|a, b| a ^ b),
            B::ShiftLeft => map!(|a, b| a.wrapping_shl(b)),
            B::ShiftRight if is_signed => map!(|a, b| (a as i32).wrapping_shr(b) as u32),
            B::ShiftRight => map!(|a, b| a.wrapping_shr(b)),
        },
        What::Math(function) => match function {
            F::Abs if is_float => map!(|a| a & 0x7fff_ffff),
            F::Abs if is_signed => map!(|a| (a as i32).unsigned_abs()),
            F::Abs => to.copy_from_slice(x),
            // Of a NaN and a number, the number.
            F::Min if is_float => float!(|a, b| a.min(b)),
            F::Max if is_float => float!(|a, b| a.max(b)),
            F::Clamp if is_float => float!(|a, low, high| a.max(low).min(high)),
            F::Min if is_signed => signed!(|a, b| a.min(b)),
            F::Max if is_signed => signed!(|a, b| a.max(b)),
            F::Clamp if is_signed => signed!(|a, low, high| a.max(low).min(high)),
            F::Min => map!(|a, b| a.min(b)),
            F::Max => map!(|a, b| a.max(b)),
            F::Clamp => map!(|a, low, high| a.max(low).min(high)),
            F::Sign if is_float => float!(|a| f32::from(a > 0.0) - f32::from(a < 0.0)),
            F::Sign => signed!(|a| a.signum()),
            F::Saturate => float!(|a| a.max(0.0).min(1.0)),
            F::Ceil => float!(|a| a.ceil()),
            F::Floor => float!(|a| a.floor()),
            F::Round => float!(|a| a.round_ties_even()),
            F::Trunc => float!(|a| a.trunc()),
            F::Fract => float!(|a| a - a.floor()),
            F::Modf => float!(|a| a - a.trunc()),
            F::Frexp => map!(|a| b(frexp(f(a)).0)),
            F::Ldexp => map!(|a, e| {
                b((f64::from(f(a)) * 2f64.powi((e as i32).clamp(-400, 400))) as f32)
            }),
            F::Sqrt => float!(|a| a.sqrt()),
            F::InverseSqrt => wide!(|a| 1.0 / a.sqrt()),
            F::Exp => wide!(|a| a.exp()),
            F::Exp2 => wide!(|a| a.exp2()),
            F::Log => wide!(|a| a.ln()),
            F::Log2 => wide!(|a| a.log2()),
            F::Pow => wide!(|a, b| a.powf(b)),
            F::Sin => wide!(|a| a.sin()),
            F::Cos => wide!(|a| a.cos()),
            F::Tan => wide!(|a| a.tan()),
            F::Sinh => wide!(|a| a.sinh()),
            F::Cosh => wide!(|a| a.cosh()),
            F::Tanh => wide!(|a| a.tanh()),
            F::Asin => wide!(|a| a.asin()),
            F::Acos => wide!(|a| a.acos()),
            F::Atan => wide!(|a| a.atan()),
            F::Atan2 => wide!(|a, b| a.atan2(b)),
            F::Asinh => wide!(|a| a.asinh()),
            F::Acosh => wide!(|a| a.acosh()),
            F::Atanh => wide!(|a| a.atanh()),
            F::Radians => float!(|a| a * (std::f32::consts::PI / 180.0)),
            F::Degrees => float!(|a| a * (180.0 / std::f32::consts::PI)),
            F::Step => float!(|edge, a| f32::from(edge <= a)),
            F::Fma => float!(|a, b, c| a.mul_add(b, c)),
            F::Mix => float!(|a, b, t| a * (1.0 - t) + b * t),
            F::SmoothStep => float!(|low, high, a| {
                let t = ((a - low) / (high - low)).max(0.0).min(1.0);
                t * t * (3.0 - 2.0 * t)
            }),
            F::QuantizeToF16 => map!(|a| rounded(a)),
            F::CountOneBits => map!(|a| a.count_ones()),
            F::CountLeadingZeros => map!(|a| a.leading_zeros()),
            F::CountTrailingZeros => map!(|a| a.trailing_zeros()),
            F::ReverseBits => map!(|a| a.reverse_bits()),
            F::FirstLeadingBit if is_signed => {
                map!(|a| first_leading(if (a as i32) < 0 { !a } else { a }));
            }
            F::FirstLeadingBit => map!(|a| first_leading(a)),
            F::FirstTrailingBit => map!(|a| if a == 0 { u32::MAX } else { a.trailing_zeros() }),
            F::ExtractBits => map!(|a, at, n| extract(a, part(at, n), is_signed)),
            F::InsertBits => map!(|a, b, at, n| insert(a, b, part(at, n))),
            F::Dot4I8Packed => {
                let dot = |a, b| (0..4).map(|n| signed_byte(a, n) * signed_byte(b, n)).sum::<i32>();
                map!(|a, b| dot(a, b) as u32);
            }
            F::Dot4U8Packed => map!(|a, b| (0..4).map(|n| byte(a, n) * byte(b, n)).sum::<u32>()),
            F::Pack4xI8Clamp => {
                map!(|a, b, c, d| word([a, b, c, d], |x| (x as i32).clamp(-128, 127) as u32));
            }
            F::Pack4xU8Clamp => map!(|a, b, c, d| word([a, b, c, d], |x| x.min(255))),
            F::Pack4x8snorm => map!(|a, b, c, d| word([a, b, c, d], |x| norm(x, 127.0, -1.0))),
            F::Pack4x8unorm => map!(|a, b, c, d| word([a, b, c, d], |x| norm(x, 255.0, 0.0))),
            F::Pack2x16snorm => map!(|a, b| word([a, b], |x| norm(x, 32767.0, -1.0))),
            F::Pack2x16unorm => map!(|a, b| word([a, b], |x| norm(x, 65535.0, 0.0))),
            F::Pack2x16float => map!(|a, b| word([a, b], half_bits)),
            // Pack4xI8 and Pack4xU8: lowering lets nothing else come here.
            _ => map!(|a, b, c, d| word([a, b, c, d], |x| x)),
        },
    }
}

/// The bits of the nearest f16.
pub(super) fn half_bits(bits: u32) -> u32 {
    u32::from(f16::from_f32(f(bits)).to_bits())
}

/// Functions of [`apply`]: `math` of the lowering takes others apart.
#[rustfmt::skip]
pub(crate) fn is_known(function: MathFunction) -> bool {
    use MathFunction as F;
    matches!(
        function,
        F::Abs | F::Min | F::Max | F::Clamp | F::Sign | F::Saturate | F::Ceil | F::Floor | F::Round
        | F::Trunc | F::Fract | F::Ldexp | F::Sqrt | F::InverseSqrt | F::Exp | F::Exp2 | F::Log
        | F::Log2 | F::Pow | F::Sin | F::Cos | F::Tan | F::Sinh | F::Cosh | F::Tanh | F::Asin
        | F::Acos | F::Atan | F::Atan2 | F::Asinh | F::Acosh | F::Atanh | F::Radians | F::Degrees
        | F::Step | F::Fma | F::Mix | F::SmoothStep | F::QuantizeToF16 | F::CountOneBits
        | F::CountLeadingZeros | F::CountTrailingZeros | F::ReverseBits | F::FirstLeadingBit
        | F::FirstTrailingBit | F::ExtractBits | F::InsertBits | F::Dot4I8Packed | F::Dot4U8Packed
    )
}

/// The value that changes nothing.
pub(super) fn identity(what: SubgroupOperation, kind: Kind) -> u32 {
    use SubgroupOperation as S;
    match (what, kind) {
        (S::Mul, Kind::F32 | Kind::F16) => b(1.0),
        (S::Min, Kind::F32 | Kind::F16) => b(f32::INFINITY),
        (S::Max, Kind::F32 | Kind::F16) => b(f32::NEG_INFINITY),
        (S::All | S::Mul, _) => 1,
        (S::Min, Kind::I32) => i32::MAX as u32,
        (S::Max, Kind::I32) => i32::MIN as u32,
        (S::And | S::Min, _) => u32::MAX,
        (S::Any | S::Add | S::Or | S::Xor | S::Max, _) => 0,
    }
}

/// Two values of a subgroup as one.
pub(super) fn fold(what: SubgroupOperation, kind: Kind, a: u32, b: u32) -> u32 {
    use SubgroupOperation as S;
    let what = match what {
        S::All | S::And => What::Relational(RelationalFunction::All),
        S::Any | S::Or => What::Relational(RelationalFunction::Any),
        S::Add => What::Binary(BinaryOperator::Add),
        S::Mul => What::Binary(BinaryOperator::Multiply),
        S::Min => What::Math(MathFunction::Min),
        S::Max => What::Math(MathFunction::Max),
        S::Xor => What::Binary(BinaryOperator::ExclusiveOr),
    };
    one(what, kind, a, b)
}

/// Value that an atomic operation leaves.
pub(super) fn changed(function: AtomicFunction, kind: Kind, old: u32, operand: u32) -> u32 {
    use {AtomicFunction as A, BinaryOperator as B};
    let what = match function {
        A::Add => What::Binary(B::Add),
        A::Subtract => What::Binary(B::Subtract),
        A::And => What::Binary(B::And),
        A::ExclusiveOr => What::Binary(B::ExclusiveOr),
        A::InclusiveOr => What::Binary(B::InclusiveOr),
        A::Min => What::Math(MathFunction::Min),
        A::Max => What::Math(MathFunction::Max),
        A::Exchange { .. } => return operand,
    };
    one(what, kind, old, operand)
}

fn one(what: What, kind: Kind, a: u32, b: u32) -> u32 {
    let mut to = [0];
    apply(what, kind, &mut to, [&[a], &[b], &[], &[]]);
    to[0]
}
