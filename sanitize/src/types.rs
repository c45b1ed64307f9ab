//! Layout of types: a value is a list of scalar components, and memory is a list of cells.
//!
//! Buffers follow WGSL's byte layout. Variables of workgroup, private and function memory have one
//! cell per component, because their bytes cannot be observed.

use naga::proc::TypeResolution;
use naga::{ArraySize, Handle, Module, Scalar, ScalarKind, Type, TypeInner};

use crate::Error;

/// Scalar types. A column holds 32 bits of one per lane; of an f16, an f32 of the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    I32,
    U32,
    F32,
    F16,
}

impl Kind {
    pub(crate) fn of(scalar: Scalar) -> Result<Self, Error> {
        Ok(match (scalar.kind, scalar.width) {
            (ScalarKind::Bool, _) => Self::Bool,
            (ScalarKind::Sint, 4) => Self::I32,
            (ScalarKind::Uint, 4) => Self::U32,
            (ScalarKind::Float, 4) => Self::F32,
            (ScalarKind::Float, 2) => Self::F16,
            (kind, width) => {
                return Err(Error::Unsupported(format!("{kind:?} of {} bits", 8 * width)));
            }
        })
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16)
    }
}

/// Units of an offset into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes of a buffer.
    Byte,
    /// Scalar components of any other variable.
    Cell,
}

/// A scalar within a type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub(crate) at: u32,
    pub(crate) kind: Kind,
    pub(crate) is_atomic: bool,
}

/// A type, which naga names by handle or has resolved.
#[derive(Clone, Debug)]
pub(crate) enum Ty {
    Handle(Handle<Type>),
    Inner(TypeInner),
}

/// Number of elements that an index may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Known(u32),
    /// Elements as many as the buffer holds from the array's first byte on.
    Runtime,
}

/// The types of a module.
#[derive(Clone, Copy)]
pub(crate) struct Types<'a>(pub(crate) &'a Module);

impl<'a> Types<'a> {
    pub(crate) fn inner<'t>(self, ty: &'t Ty) -> &'t TypeInner
    where
        'a: 't,
    {
        match ty {
            Ty::Handle(handle) => &self.0.types[*handle].inner,
            Ty::Inner(inner) => inner,
        }
    }

    pub(crate) fn of(self, resolution: &TypeResolution) -> Ty {
        match resolution {
            TypeResolution::Handle(handle) => Ty::Handle(*handle),
            TypeResolution::Value(inner) => Ty::Inner(inner.clone()),
        }
    }

    fn count(self, size: ArraySize) -> Result<u32, Error> {
        match size {
            ArraySize::Constant(n) => Ok(n.get()),
            ArraySize::Dynamic => Ok(0),
            ArraySize::Pending(_) => {
                Err(Error::Unsupported("an override that has no value".into()))
            }
        }
    }

    /// The element that an index selects: its type, the distance between two, and their number.
    /// For a member of a structure, `index` is its number and the distance is its offset.
    pub(crate) fn element(
        self,
        ty: &Ty,
        unit: Unit,
        index: Option<u32>,
    ) -> Result<(Ty, u32, Length), Error> {
        let scalar = |scalar: Scalar| Ty::Inner(TypeInner::Scalar(scalar));
        let width = |scalar: Scalar| match unit {
            Unit::Byte => u32::from(scalar.width),
            Unit::Cell => 1,
        };
        Ok(match *self.inner(ty) {
            TypeInner::Vector { size, scalar: of } => {
                (scalar(of), width(of), Length::Known(size as u32))
            }
            TypeInner::Matrix { columns, rows, scalar: of } => {
                let column = Ty::Inner(TypeInner::Vector { size: rows, scalar: of });
                let stride = match unit {
                    Unit::Byte => width(of) * if rows as u32 == 2 { 2 } else { 4 },
                    Unit::Cell => rows as u32,
                };
                (column, stride, Length::Known(columns as u32))
            }
            TypeInner::Array { base, size, stride } => {
                let length = match self.count(size)? {
                    0 => Length::Runtime,
                    n => Length::Known(n),
                };
                let stride = match unit {
                    Unit::Byte => stride,
                    Unit::Cell => self.components(&Ty::Handle(base))?,
                };
                (Ty::Handle(base), stride, length)
            }
            TypeInner::Struct { ref members, .. } => {
                let index = index.unwrap_or_default() as usize;
                let member = &members[index];
                let mut at = member.offset;
                if unit == Unit::Cell {
                    at = 0;
                    for before in &members[..index] {
                        at += self.components(&Ty::Handle(before.ty))?;
                    }
                }
                (Ty::Handle(member.ty), at, Length::Known(members.len() as u32))
            }
            ref other => return Err(Error::Unsupported(format!("an index into {other:?}"))),
        })
    }

    /// Number of scalar components of a value.
    pub(crate) fn components(self, ty: &Ty) -> Result<u32, Error> {
        Ok(self.leaves(ty, Unit::Cell)?.len() as u32)
    }

    /// The scalars of a type in order.
    pub(crate) fn leaves(self, ty: &Ty, unit: Unit) -> Result<Vec<Leaf>, Error> {
        let mut all = Vec::new();
        self.add_leaves(ty, unit, 0, &mut all)?;
        Ok(all)
    }

    fn add_leaves(self, ty: &Ty, unit: Unit, at: u32, all: &mut Vec<Leaf>) -> Result<(), Error> {
        let leaf =
            |scalar: Scalar, is_atomic| Kind::of(scalar).map(|kind| Leaf { at, kind, is_atomic });
        match *self.inner(ty) {
            TypeInner::Scalar(scalar) => all.push(leaf(scalar, false)?),
            TypeInner::Atomic(scalar) => all.push(leaf(scalar, true)?),
            TypeInner::CooperativeMatrix { columns, rows, scalar, .. } => {
                let kind = Kind::of(scalar)?;
                let count = columns as u32 * rows as u32;
                all.extend((0..count).map(|i| Leaf { at: at + i, kind, is_atomic: false }));
            }
            TypeInner::Struct { ref members, .. } => {
                for i in 0..members.len() as u32 {
                    let (member, offset, _) = self.element(ty, unit, Some(i))?;
                    self.add_leaves(&member, unit, at + offset, all)?;
                }
            }
            _ => {
                let (element, stride, length) = self.element(ty, unit, None)?;
                // The first element stands for those of a runtime-sized array.
                let count = if let Length::Known(n) = length { n } else { 1 };
                for i in 0..count {
                    self.add_leaves(&element, unit, at + i * stride, all)?;
                }
            }
        }
        Ok(())
    }

    /// The scalar type of a scalar, a vector or a matrix.
    pub(crate) fn kind(self, ty: &Ty) -> Result<Kind, Error> {
        match self.inner(ty).scalar() {
            Some(scalar) => Kind::of(scalar),
            None => match *self.inner(ty) {
                TypeInner::CooperativeMatrix { scalar, .. } => Kind::of(scalar),
                ref other => Err(Error::Unsupported(format!("arithmetic on {other:?}"))),
            },
        }
    }
}
