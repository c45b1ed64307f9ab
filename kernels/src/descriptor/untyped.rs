//! An operation that no type declares: what a user's text says of one of his own.

use std::any::TypeId;

use super::{
    Binding, Cost, Declaration, Draw, Elem, Kernel, Len, Role, Tolerance, Variant, kept, list,
};
use crate::param::{Param, Problem, Shape, State};

/// The type of parameters that have none.
struct NoParams;

/// An operation whose parameters and bindings are known by name alone. It is known at some shapes,
/// those that somebody has computed answers for, and at no other.
#[derive(Debug)]
pub struct Untyped {
    /// The one name.
    pub name: String,
    /// What its only variant is called: the file that implements it.
    pub variant: String,
    /// Parameters, in the order they are printed.
    pub params: Vec<UntypedParam>,
    /// Buffers.
    pub bindings: Vec<UntypedBinding>,
    /// The shapes at which it is known.
    pub shapes: Vec<UntypedShape>,
    /// How far f32 arithmetic may lie from what is expected.
    pub tolerance: Tolerance,
}

/// A parameter by name.
#[derive(Debug)]
pub struct UntypedParam {
    /// Name as in WGSL.
    pub name: String,
    /// How it is read and printed.
    pub kind: crate::param::ParamKind,
}

/// A buffer by name.
#[derive(Debug)]
pub struct UntypedBinding {
    /// Name of the WGSL variable.
    pub name: String,
    /// Direction of data.
    pub role: Role,
    /// What its elements are.
    pub elem: Elem,
}

/// A shape at which the operation is known.
#[derive(Clone, Debug)]
pub struct UntypedShape {
    /// A value for each parameter, in their order.
    pub values: Vec<f64>,
    /// Elements of each binding, in their order.
    pub lens: Vec<usize>,
    /// Bytes and flops a perfect implementation must move and do.
    pub cost: Cost,
}

impl Untyped {
    /// The operation as everything sees it that works on any. Names and sizes stay in memory until
    /// the program ends, as those of declared operations do; so it is made once for what a command
    /// is told to work on.
    ///
    /// # Panics
    /// Where it is known at no shape.
    pub fn leak(self) -> &'static Kernel {
        let Self { name, variant, params, bindings, shapes, tolerance } = self;
        assert!(!shapes.is_empty(), "{name}: an operation is known at some shape");
        let params: Vec<Param> = params
            .into_iter()
            .map(|UntypedParam { name, kind }| {
                let doc = "as its author says";
                Param { name: name.leak(), doc, kind }
            })
            .collect();
        let params: &'static [Param] = params.leak();
        let shapes: &'static [(Shape, UntypedShape)] = shapes
            .into_iter()
            .map(|known| {
                let names = params.iter().map(|param| param.name);
                (Shape::new(names.zip(known.values.iter().copied())), known)
            })
            .collect::<Vec<_>>()
            .leak();
        let at = move |shape: &Shape| {
            shapes.iter().find(|(known, _)| known == shape).map(|(_, known)| known)
        };
        let binding = |(index, binding): (usize, UntypedBinding)| Binding {
            name: binding.name.leak(),
            role: binding.role,
            elem: kept(move |_: &Shape, _: State| binding.elem.clone()),
            len: Len {
                count: kept(move |shape: &Shape, _: State| {
                    at(shape).map_or(0, |known| known.lens[index])
                }),
                text: "as in its golden file",
            },
            draw: &|_| Draw::Normal,
        };
        let problem =
            |(shape, _): &(Shape, _)| Problem { shape: shape.clone(), state: State::default() };
        let problems: Vec<_> = shapes.iter().map(problem).collect();
        let declared = Declaration {
            name: name.leak(),
            summary: "an operation of the user's own",
            fuses: None,
            state: &[],
            bindings: list(bindings.into_iter().enumerate().map(binding)),
            variants: kept([Variant { name: variant.leak(), ..Variant::PLAIN }]),
            prefer: &|_| &[],
            cost: kept(move |shape: &Shape, _: State| {
                at(shape).map_or(Cost { bytes: 0.0, flops: 0.0 }, |known| known.cost)
            }),
            tolerance: kept(move |_: &Shape, _: State| tolerance),
            cases: "",
            bench: "",
        };
        let params_type = TypeId::of::<NoParams>();
        kept(Kernel { declared, params, params_type, cases: problems.clone(), bench: problems })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::param::ParamKind;

    #[test]
    fn it_is_known_at_its_shapes_alone() {
        let shape = |n: f64, len| UntypedShape {
            values: vec![n, 0.5],
            lens: vec![len, len],
            cost: Cost { bytes: 8.0 * n, flops: n },
        };
        let binding =
            |name: &str, role| UntypedBinding { name: name.into(), role, elem: Elem::F32 };
        let size = ParamKind::Dim { tile: 1, max: 1 };
        let real = ParamKind::Float { low: 0.0, high: 1.0, least: -1.0, most: 1.0 };
        let kernel = Untyped {
            name: "mine".into(),
            variant: "mine.toml".into(),
            params: vec![
                UntypedParam { name: "N".into(), kind: size },
                UntypedParam { name: "BY".into(), kind: real },
            ],
            bindings: vec![binding("x", Role::Input), binding("y", Role::Output)],
            shapes: vec![shape(3.0, 3), shape(5.0, 5)],
            tolerance: Tolerance { k: 4.0, rounding: 0.0, nmse: 1e-10, reason: "" },
        }
        .leak();
        let known = kernel.cases();
        assert_eq!(known.len(), 2);
        assert_eq!(kernel.show(&known[1]), "N=5,BY=0.5");
        assert_eq!(kernel.binding("y").map(|b| b.len(&known[1])), Some(5));
        assert_eq!(kernel.cost(&known[0]).bytes, 24.0);
        let other = kernel.parse_over(&known[0], "N=4").expect("a shape");
        assert_eq!((kernel.cost(&other).bytes, kernel.bindings[0].len(&other)), (0.0, 0));
    }
}
