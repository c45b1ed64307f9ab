//! What a kernel declares about itself, once, for check, bench, select, decode and docs alike.

use std::collections::BTreeMap;
use std::fmt;

use crate::layout::{Format, Packing};
use crate::shape::{Param, ParamKind, Shape};

/// One kernel: a named operation with its variants.
#[derive(Debug)]
pub struct Kernel {
    /// The one name: WGSL folder, module, reference, test, bench and page.
    pub name: &'static str,
    /// One line for `lathe list`.
    pub summary: &'static str,
    /// Parameters, in the order they are printed.
    pub params: &'static [Param],
    /// Buffers, by their name in WGSL.
    pub bindings: &'static [Binding],
    /// Variants, naive first.
    pub variants: &'static [Variant],
    /// Variants from the one expected to be fastest downwards; the first that can run is selected.
    pub prefer: fn(&Shape) -> &'static [&'static str],
    /// Bytes and flops a perfect implementation must move and do.
    pub cost: fn(&Shape) -> Cost,
    /// How far f32 arithmetic may lie from the reference.
    pub tolerance: fn(&Shape) -> Tolerance,
    /// Shapes that are always checked: the models' own and known traps.
    pub cases: fn() -> Vec<Shape>,
    /// The shapes a benchmark runs when none is named; the first is also the default of `--shape`.
    pub bench: fn() -> Vec<Shape>,
}

/// One buffer of a kernel.
#[derive(Debug)]
pub struct Binding {
    /// Name of the WGSL variable.
    pub name: &'static str,
    /// Direction of data.
    pub role: Role,
    /// What its elements are.
    pub elem: Elem,
    /// Elements, from the shape.
    pub len: fn(&Shape) -> usize,
}

type Len = fn(&Shape) -> usize;

impl Binding {
    /// A buffer that is only read.
    pub const fn input(name: &'static str, elem: Elem, len: Len) -> Self {
        Self { name, role: Role::Input, elem, len }
    }

    /// A buffer that is written completely and never read.
    pub const fn output(name: &'static str, elem: Elem, len: Len) -> Self {
        Self { name, role: Role::Output, elem, len }
    }

    /// A buffer that is read and partly or wholly rewritten.
    pub const fn in_out(name: &'static str, elem: Elem, len: Len) -> Self {
        Self { name, role: Role::InOut, elem, len }
    }

    /// Memory of the invocation's own.
    pub const fn scratch(name: &'static str, elem: Elem, len: Len) -> Self {
        Self { name, role: Role::Scratch, elem, len }
    }

    /// Words that are zero before and after.
    pub const fn counter(name: &'static str, len: Len) -> Self {
        Self { name, role: Role::Counter, elem: Elem::U32, len }
    }
}

/// Direction of data through a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read only.
    Input,
    /// Every element is written, none read before.
    Output,
    /// Read and partly or wholly rewritten.
    InOut,
    /// Private to the invocation; holds nothing before or after.
    Scratch,
    /// U32 words shared by the workgroups of a dispatch: zero before, and left at zero again, so
    /// that no one has to clear them between invocations. May be absent in some variants.
    Counter,
}

impl Role {
    /// Memory of the variant's own, which whoever records it need not bind.
    pub fn is_own(self) -> bool {
        matches!(self, Role::Scratch | Role::Counter)
    }
}

/// Element type of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elem {
    /// 32-bit float.
    F32,
    /// 32-bit unsigned.
    U32,
    /// Packed weight rows in the format of parameter `WEIGHT`; see [`crate::layout::Format`] and
    /// [`Kernel::packing`].
    Weights,
    /// Activations in the format of parameter `ACTS`: f32, or f16 two to a word. What a kernel
    /// reads of them beyond their length is padding.
    Act,
    /// KV cache values in the format of parameter `KV`.
    Kv,
    /// Values in the format of the named parameter: f32, f16 or bf16, 16-bit ones two to a word.
    Floats(&'static str),
    /// `(cos, sin)` pairs; see [`crate::layout::RopeSpec`].
    Rope,
}

/// One implementation of a kernel: a WGSL file of the same name.
#[derive(Debug)]
pub struct Variant {
    /// File stem.
    pub name: &'static str,
    /// Dispatches, in order.
    pub stages: &'static [Stage],
    /// Values of tunable overrides for a shape on an adapter; the rest keep their WGSL defaults.
    pub constants: fn(&Shape, &Capabilities) -> Vec<(&'static str, f64)>,
    /// Overrides a tuner may try, with the values worth trying.
    pub tunables: &'static [(&'static str, &'static [f64])],
    /// Why this variant cannot run a shape, beyond what reflection finds (features, memory).
    pub refuses: fn(&Shape, &Capabilities) -> Option<String>,
    /// How it wants quantised weight rows laid out; see [`Kernel::packing`].
    pub packing: Packing,
    /// Its own tolerance where its arithmetic is not the kernel's, such as rounding its inputs.
    pub tolerance: Option<fn(&Shape) -> Tolerance>,
}

/// A variant without anything special: completes the others with `..PLAIN`.
pub(crate) const PLAIN: Variant = Variant {
    name: "",
    stages: &[],
    constants: |_, _| Vec::new(),
    tunables: &[],
    refuses: |_, _| None,
    packing: Packing::Blocks,
    tolerance: None,
};

/// One dispatch of a variant.
#[derive(Debug)]
pub struct Stage {
    /// WGSL entry point.
    pub entry: &'static str,
    /// Workgroups. The executor folds more than 65535 into two dimensions; kernels read
    /// `workgroup_id.y * num_workgroups.x + workgroup_id.x` and return beyond their last. With
    /// none the dispatch is left out.
    pub grid: fn(&Shape, &Constants) -> usize,
}

/// Values of all overrides of a variant for one shape.
pub type Constants = BTreeMap<String, f64>;

/// What an adapter offers, as far as kernels care.
#[derive(Clone, Debug, PartialEq)]
pub struct Capabilities {
    /// Smallest and largest subgroup size, when subgroup operations are available.
    pub subgroup: Option<(u32, u32)>,
    /// 16-bit floats in WGSL.
    pub f16: bool,
    /// Bytes of workgroup memory.
    pub workgroup_memory: u32,
    /// Invocations in a workgroup.
    pub invocations: u32,
    /// Bytes of one storage binding.
    pub binding_bytes: u64,
    /// Storage buffers a stage may bind.
    pub storage_buffers: u32,
    /// Workgroups per grid dimension.
    pub grid_dimension: u32,
    /// Cooperative matrices that a subgroup multiplies.
    pub cooperative_matrices: Vec<CooperativeMatrix>,
}

/// Sizes and types of cooperative matrices, C (m, n) += A (m, k) times B (k, n), that an adapter
/// multiplies in one operation of a subgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CooperativeMatrix {
    /// Rows of A and C.
    pub m: u32,
    /// Columns of B and C.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
    /// Elements of A and B.
    pub inputs: MatrixScalar,
    /// Elements of C.
    pub sums: MatrixScalar,
}

/// Element type of a cooperative matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatrixScalar {
    /// IEEE binary16.
    F16,
    /// IEEE binary32.
    F32,
    /// 32-bit signed.
    I32,
    /// 32-bit unsigned.
    U32,
}

impl fmt::Display for CooperativeMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |s: MatrixScalar| match s {
            MatrixScalar::F16 => "f16",
            MatrixScalar::F32 => "f32",
            MatrixScalar::I32 => "i32",
            MatrixScalar::U32 => "u32",
        };
        let Self { m, n, k, inputs, sums } = *self;
        write!(f, "{m}x{n}x{k} {} to {}", name(inputs), name(sums))
    }
}

impl Capabilities {
    /// What every WebGPU adapter offers: no optional feature, the default limits.
    pub fn minimal() -> Self {
        Self {
            subgroup: None,
            f16: false,
            workgroup_memory: 16 << 10,
            invocations: 256,
            binding_bytes: 128 << 20,
            storage_buffers: 8,
            grid_dimension: 65535,
            cooperative_matrices: Vec::new(),
        }
    }

    /// The subgroup size if every pipeline gets the same one, else 0 (read it at run time).
    pub fn fixed_subgroup(&self) -> u32 {
        match self.subgroup {
            Some((min, max)) if min == max => min,
            _ => 0,
        }
    }
}

/// What a perfect implementation must move and compute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Bytes read from and written to device memory, each once.
    pub bytes: f64,
    /// Floating-point operations, a multiply-add counted as two.
    pub flops: f64,
}

/// How far a correct kernel may lie from the reference.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Multiples of 2^-23 times the reference's magnitude, per element.
    pub k: f64,
    /// Relative rounding of the stored output type.
    pub rounding: f64,
    /// Normalised mean squared error over the output.
    pub nmse: f64,
    /// Why these.
    pub reason: &'static str,
}

impl Kernel {
    /// The variant of a name.
    pub fn variant(&self, name: &str) -> Option<&'static Variant>
    where
        Self: 'static,
    {
        // `variants` is 'static whatever the borrow of self.
        let variants: &'static [Variant] = self.variants;
        variants.iter().find(|v| v.name == name)
    }

    /// The binding of a name.
    pub fn binding(&self, name: &str) -> Option<&Binding> {
        self.bindings.iter().find(|b| b.name == name)
    }

    /// How a variant finds quantised weight rows: as the shape says where the kernel has a
    /// parameter `PACKING` (it reads any), else as the variant wants them. Dense rows have one
    /// layout only.
    pub fn packing(&self, variant: &Variant, shape: &Shape) -> Packing {
        match (shape.get("WEIGHT"), shape.get("PACKING")) {
            (Some(code), _) if Format::from_code(code as usize).is_dense() => Packing::Blocks,
            (_, Some(code)) => Packing::from_code(code as usize),
            (_, None) => variant.packing,
        }
    }

    /// How far a variant may lie from the reference.
    pub fn tolerance_of(&self, variant: &Variant) -> fn(&Shape) -> Tolerance {
        variant.tolerance.unwrap_or(self.tolerance)
    }

    /// The parameter of a name.
    pub fn param(&self, name: &str) -> Option<&Param> {
        self.params.iter().find(|p| p.name == name)
    }

    /// A shape's parameters that some variant compiles in: what a tuned choice depends on. Those
    /// only tests set, such as the tokens seen, are left out.
    pub fn key(&self, shape: &Shape) -> String {
        let compiled = |name: &str| {
            self.variants.iter().any(|v| {
                crate::reflection(self.name, v.name)
                    .is_some_and(|r| r.overrides.iter().any(|(o, _)| o == name))
            })
        };
        let params: Vec<Param> = self.params.iter().filter(|p| compiled(p.name)).copied().collect();
        shape.show(&params)
    }

    /// The default shape: the first benchmark shape.
    pub fn default_shape(&self) -> Shape {
        (self.bench)().swap_remove(0)
    }

    /// A shape with every parameter drawn by `pick(n)`, which returns a number below `n`: sizes
    /// from the edges of their tile or at random, the rest uniformly.
    pub fn draw_shape(&self, pick: &mut dyn FnMut(u32) -> u32) -> Shape {
        let mut shape = Shape::default();
        for p in self.params {
            let value = match p.kind {
                ParamKind::Dim { tile, max } => f64::from(match pick(7) {
                    0 => 1,
                    1 => tile.saturating_sub(1).clamp(1, max),
                    2 => tile.min(max),
                    3 => (tile + 1).min(max),
                    4 => (2 * tile + 3).min(max),
                    _ => 1 + pick(max),
                }),
                ParamKind::Start { max } => f64::from(match pick(3) {
                    0 | 1 => 0,
                    _ => pick(max + 1),
                }),
                ParamKind::Formats(set) => set[pick(set.len() as u32) as usize].code(),
                ParamKind::OneOf(set) => f64::from(set[pick(set.len() as u32) as usize]),
                ParamKind::Choice(names) => f64::from(pick(names.len() as u32)),
                ParamKind::Mostly(names) => f64::from(match pick(2) {
                    0 => 0,
                    _ => pick(names.len() as u32),
                }),
                ParamKind::Float { low, high } => {
                    f64::from(low + (high - low) * (pick(1001) as f32 / 1000.0))
                }
            };
            shape = shape.with(p.name, value);
        }
        shape
    }
}

/// Workgroup sizes worth trying.
pub(crate) const WORKGROUPS: &[(&str, &[f64])] = &[("WG", &[32.0, 64.0, 128.0, 256.0])];
