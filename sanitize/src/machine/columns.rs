//! Arithmetic of scalars and of whole columns.

use half::f16;

use crate::code::{Bin, Tri, Un};

fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

fn b(value: f32) -> u32 {
    value.to_bits()
}

/// The f16 nearest to a float, as a float.
pub(super) fn rounded(bits: u32) -> u32 {
    b(f16::from_f32(f(bits)).to_f32())
}

/// Applies a function of f64, so that an f32 result is right to half a unit in nearly all cases.
fn wide(bits: u32, of: impl Fn(f64) -> f64) -> u32 {
    b(of(f64::from(f(bits))) as f32)
}

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

fn extract(x: u32, offset: u32, count: u32, signed: bool) -> u32 {
    let offset = offset.min(32);
    let count = count.min(32 - offset);
    if count == 0 {
        return 0;
    }
    let moved = x << (32 - offset - count);
    if signed { (moved as i32 >> (32 - count)) as u32 } else { moved >> (32 - count) }
}

/// Applies an operator to every lane of a column.
pub(super) fn un(op: Un, to: &mut [u32], a: &[u32]) {
    macro_rules! map {
        ($each:expr) => {{
            let each = $each;
            for (to, a) in to.iter_mut().zip(a) {
                *to = each(*a);
            }
        }};
    }
    match op {
        Un::Copy => to.copy_from_slice(a),
        Un::NegF => map!(|a| a ^ 0x8000_0000),
        Un::NegI => map!(u32::wrapping_neg),
        Un::NotBool => map!(|a| a ^ 1),
        Un::NotBits => map!(|a: u32| !a),
        Un::AbsF => map!(|a| a & 0x7fff_ffff),
        Un::AbsI => map!(|a| (a as i32).unsigned_abs()),
        Un::Ceil => map!(|a| b(f(a).ceil())),
        Un::Floor => map!(|a| b(f(a).floor())),
        Un::Round => map!(|a| b(f(a).round_ties_even())),
        Un::Trunc => map!(|a| b(f(a).trunc())),
        Un::Fract => map!(|a| b(f(a) - f(a).floor())),
        Un::Sqrt => map!(|a| b(f(a).sqrt())),
        Un::InverseSqrt => map!(|a| wide(a, |x| 1.0 / x.sqrt())),
        Un::Exp => map!(|a| wide(a, f64::exp)),
        Un::Exp2 => map!(|a| wide(a, f64::exp2)),
        Un::Log => map!(|a| wide(a, f64::ln)),
        Un::Log2 => map!(|a| wide(a, f64::log2)),
        Un::Sin => map!(|a| wide(a, f64::sin)),
        Un::Cos => map!(|a| wide(a, f64::cos)),
        Un::Tan => map!(|a| wide(a, f64::tan)),
        Un::Sinh => map!(|a| wide(a, f64::sinh)),
        Un::Cosh => map!(|a| wide(a, f64::cosh)),
        Un::Tanh => map!(|a| wide(a, f64::tanh)),
        Un::Asin => map!(|a| wide(a, f64::asin)),
        Un::Acos => map!(|a| wide(a, f64::acos)),
        Un::Atan => map!(|a| wide(a, f64::atan)),
        Un::Asinh => map!(|a| wide(a, f64::asinh)),
        Un::Acosh => map!(|a| wide(a, f64::acosh)),
        Un::Atanh => map!(|a| wide(a, f64::atanh)),
        Un::SignF => map!(|a| b(if f(a) > 0.0 {
            1.0
        } else if f(a) < 0.0 {
            -1.0
        } else {
            0.0
        })),
        Un::SignI => map!(|a| (a as i32).signum() as u32),
        Un::Saturate => map!(|a| b(min(max(f(a), 0.0), 1.0))),
        Un::CountOnes => map!(u32::count_ones),
        Un::CountLeading => map!(u32::leading_zeros),
        Un::CountTrailing => map!(u32::trailing_zeros),
        Un::Reverse => map!(u32::reverse_bits),
        Un::FirstLeadingI => map!(|a: u32| first_leading(if (a as i32) < 0 { !a } else { a })),
        Un::FirstLeadingU => map!(first_leading),
        Un::FirstTrailing => map!(|a: u32| if a == 0 { u32::MAX } else { a.trailing_zeros() }),
        Un::IsNan => map!(|a| u32::from(f(a).is_nan())),
        Un::IsInf => map!(|a| u32::from(f(a).is_infinite())),
        Un::ToHalf | Un::RoundHalf => map!(rounded),
        Un::IntToF => map!(|a| b(a as i32 as f32)),
        Un::UintToF => map!(|a| b(a as f32)),
        Un::NonZeroF => map!(|a| u32::from(f(a) != 0.0)),
        Un::NonZeroI => map!(|a| u32::from(a != 0)),
        Un::BoolToF => map!(|a| b(if a != 0 { 1.0 } else { 0.0 })),
        Un::FToInt => map!(|a| f(a) as i32 as u32),
        Un::FToUint => map!(|a| f(a) as u32),
        Un::LowHalf => map!(|a| b(f16::from_bits(a as u16).to_f32())),
        Un::HighHalf => map!(|a| b(f16::from_bits((a >> 16) as u16).to_f32())),
        Un::HalfBits => map!(|a| u32::from(f16::from_f32(f(a)).to_bits())),
        Un::ByteU(n) => map!(|a| (a >> (8 * n)) & 0xff),
        Un::ByteI(n) => map!(|a| i32::from((a >> (8 * n)) as i8) as u32),
        Un::PackSnorm8 => map!(|a| norm(a, 127.0, -1.0) & 0xff),
        Un::PackUnorm8 => map!(|a| norm(a, 255.0, 0.0)),
        Un::PackSnorm16 => map!(|a| norm(a, 32767.0, -1.0) & 0xffff),
        Un::PackUnorm16 => map!(|a| norm(a, 65535.0, 0.0)),
        Un::UnpackSnorm8 => map!(|a| b((a as i32 as f32 / 127.0).max(-1.0))),
        Un::UnpackUnorm8 => map!(|a| b(a as f32 / 255.0)),
        Un::UnpackSnorm16 => map!(|a| b((f32::from(a as i16) / 32767.0).max(-1.0))),
        Un::UnpackUnorm16 => map!(|a| b(f32::from(a as u16) / 65535.0)),
        Un::ClampI8 => map!(|a| (a as i32).clamp(-128, 127) as u32 & 0xff),
        Un::ClampU8 => map!(|a: u32| a.min(255)),
        Un::FrexpFraction => map!(|a| b(frexp(f(a)).0)),
        Un::FrexpExponent => map!(|a| frexp(f(a)).1 as u32),
    }
}

/// The greater of two floats; of a NaN and a number, the number.
pub(super) fn max(x: f32, y: f32) -> f32 {
    x.max(y)
}

/// The lesser of two floats; of a NaN and a number, the number.
pub(super) fn min(x: f32, y: f32) -> f32 {
    x.min(y)
}

fn dot4(x: u32, y: u32, signed: bool) -> u32 {
    let byte = |v: u32, n: u32| match signed {
        true => i32::from((v >> (8 * n)) as i8),
        false => i32::from((v >> (8 * n)) as u8),
    };
    (0..4).map(|n| byte(x, n) * byte(y, n)).sum::<i32>() as u32
}

/// Applies an operator to every lane of two columns. Division by zero gives what WGSL says: the
/// dividend, and a remainder of zero.
pub(super) fn bin(op: Bin, to: &mut [u32], a: &[u32], c: &[u32]) {
    macro_rules! map {
        ($each:expr) => {{
            let each = $each;
            for ((to, a), c) in to.iter_mut().zip(a).zip(c) {
                *to = each(*a, *c);
            }
        }};
    }
    macro_rules! float {
        ($each:expr) => {{
            let each: fn(f32, f32) -> f32 = $each;
            map!(|x, y| b(each(f(x), f(y))))
        }};
    }
    match op {
        Bin::AddF => map!(|x, y| b(f(x) + f(y))),
        Bin::SubF => map!(|x, y| b(f(x) - f(y))),
        Bin::MulF => map!(|x, y| b(f(x) * f(y))),
        Bin::DivF => map!(|x, y| b(f(x) / f(y))),
        Bin::RemF => map!(|x, y| b(f(x) % f(y))),
        Bin::AddI => map!(u32::wrapping_add),
        Bin::SubI => map!(u32::wrapping_sub),
        Bin::MulI => map!(u32::wrapping_mul),
        Bin::DivI => map!(|x, y| match y {
            0 => x,
            _ => (x as i32).wrapping_div(y as i32) as u32,
        }),
        Bin::RemI => map!(|x, y| match y {
            0 => 0,
            _ => (x as i32).wrapping_rem(y as i32) as u32,
        }),
        Bin::DivU => map!(|x: u32, y| x.checked_div(y).unwrap_or(x)),
        Bin::RemU => map!(|x: u32, y| x.checked_rem(y).unwrap_or(0)),
        Bin::EqF => map!(|x, y| u32::from(f(x) == f(y))),
        Bin::NeF => map!(|x, y| u32::from(f(x) != f(y))),
        Bin::LtF => map!(|x, y| u32::from(f(x) < f(y))),
        Bin::LeF => map!(|x, y| u32::from(f(x) <= f(y))),
        Bin::EqI => map!(|x, y| u32::from(x == y)),
        Bin::NeI => map!(|x, y| u32::from(x != y)),
        Bin::LtI => map!(|x, y| u32::from((x as i32) < y as i32)),
        Bin::LeI => map!(|x, y| u32::from(x as i32 <= y as i32)),
        Bin::LtU => map!(|x, y| u32::from(x < y)),
        Bin::LeU => map!(|x, y| u32::from(x <= y)),
        Bin::And => map!(|x, y| x & y),
        Bin::Or => map!(|x, y| x | y),
        Bin::Xor => map!(|x, y| x ^ y),
        Bin::Shl => map!(u32::wrapping_shl),
        Bin::ShrI => map!(|x, y| (x as i32).wrapping_shr(y) as u32),
        Bin::ShrU => map!(u32::wrapping_shr),
        Bin::MinF => map!(|x, y| b(min(f(x), f(y)))),
        Bin::MaxF => map!(|x, y| b(max(f(x), f(y)))),
        Bin::MinI => map!(|x, y| (x as i32).min(y as i32) as u32),
        Bin::MaxI => map!(|x, y| (x as i32).max(y as i32) as u32),
        Bin::MinU => map!(|x: u32, y| x.min(y)),
        Bin::MaxU => map!(|x: u32, y| x.max(y)),
        Bin::Atan2 => float!(|x, y| f64::from(x).atan2(f64::from(y)) as f32),
        Bin::Pow => float!(|x, y| f64::from(x).powf(f64::from(y)) as f32),
        Bin::Step => float!(|edge, x| if edge <= x { 1.0 } else { 0.0 }),
        Bin::Ldexp => {
            map!(|x, e| b((f64::from(f(x)) * 2f64.powi((e as i32).clamp(-400, 400))) as f32));
        }
        Bin::Dot4I8 => map!(|x, y| dot4(x, y, true)),
        Bin::Dot4U8 => map!(|x, y| dot4(x, y, false)),
    }
}

/// Applies an operator to every lane of three columns.
pub(super) fn tri(op: Tri, to: &mut [u32], x: &[u32], y: &[u32], z: &[u32]) {
    macro_rules! map {
        ($each:expr) => {{
            let each = $each;
            for (((to, x), y), z) in to.iter_mut().zip(x).zip(y).zip(z) {
                *to = each(*x, *y, *z);
            }
        }};
    }
    match op {
        Tri::Select => map!(|condition, yes, no| if condition != 0 { yes } else { no }),
        Tri::Fma => map!(|x, y, z| b(f(x).mul_add(f(y), f(z)))),
        Tri::ClampF => map!(|x, low, high| b(min(max(f(x), f(low)), f(high)))),
        Tri::ClampI => {
            map!(|x, low, high| (x as i32).max(low as i32).min(high as i32) as u32);
        }
        Tri::ClampU => map!(|x: u32, low, high| x.max(low).min(high)),
        Tri::Mix => map!(|x, y, t| b(f(x) * (1.0 - f(t)) + f(y) * f(t))),
        Tri::SmoothStep => map!(|low, high, x| {
            let t = min(max((f(x) - f(low)) / (f(high) - f(low)), 0.0), 1.0);
            b(t * t * (3.0 - 2.0 * t))
        }),
        Tri::ExtractI => map!(|x, offset, count| extract(x, offset, count, true)),
        Tri::ExtractU => map!(|x, offset, count| extract(x, offset, count, false)),
    }
}
