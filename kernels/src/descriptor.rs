//! Declarations of operations, written once for check, bench, select, decode and pages alike.
//!
//! A [`Declaration`] is written with typed parameters. [`Kernel`] wraps it over a [`Shape`], whose
//! parameters have names alone, for code that works on any operation.

mod table;

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use crate::adapter::Capabilities;
use crate::codes::{FloatFormat, Format, KvFormat, Order, Packing};
use crate::layout::{KvVectors, RopeSpec};
use crate::param::{Param, Params, Problem, Shape, ShapeError, State};

/// A function of an operation's parameters.
pub type Of<P, T> = &'static (dyn Fn(&P) -> T + Send + Sync);

/// A function of an operation's parameters and the state they meet.
pub type OfState<P, T> = &'static (dyn Fn(&P, State) -> T + Send + Sync);

/// A function of an operation's parameters and of an adapter, or of a variant's constants.
pub type On<P, A, T> = &'static (dyn Fn(&P, &A) -> T + Send + Sync);

/// Values of overrides as a stage of a run; see [`Variant::stage`].
pub type AsStage<P> = &'static (dyn Fn(&P, &Capabilities, Grid) -> Option<Overrides> + Send + Sync);

/// Values of overrides by name; of several for one name the last holds.
pub type Overrides = Vec<(&'static str, f64)>;

/// Values of all overrides of a variant for one shape.
pub type Constants = BTreeMap<String, f64>;

/// Workgroup sizes worth trying.
pub const WORKGROUPS: &str = "WG=32|64|128|256";

/// Workgroups of `WG` invocations, of which every item has one.
pub fn groups_for(items: usize, c: &Constants) -> usize {
    items.div_ceil(c["WG"] as usize)
}

/// Everything that Lathe needs to know of an operation with parameters `P`.
pub struct Declaration<P: 'static> {
    /// The one name: folder, reference, oracle, benchmark and page.
    pub name: &'static str,
    /// One line for `lathe list`.
    pub summary: &'static str,
    /// The operations that it replaces where it pays.
    pub fuses: Option<Fusion<P>>,
    /// Words of the step state that its inputs or outputs depend on: [`crate::param::n_kv`],
    /// [`crate::param::PROMPT_LEN`].
    pub state: &'static [Param],
    /// Buffers, by their name in WGSL.
    pub bindings: &'static [Binding<P>],
    /// Variants, naive first.
    pub variants: &'static [Variant<P>],
    /// Variants from the one expected to be fastest downwards; the first that can run is selected.
    pub prefer: Of<P, &'static [&'static str]>,
    /// Bytes and flops a perfect implementation must move and do.
    pub cost: OfState<P, Cost>,
    /// Allowed distance of f32 arithmetic from the reference.
    pub tolerance: OfState<P, Tolerance>,
    /// Problems that are always checked: the models' own and known traps, as a
    /// [table](Kernel::read).
    pub cases: &'static str,
    /// A table of the problems a benchmark runs when none is named; the first is also the default
    /// of `--shape`.
    pub bench: &'static str,
}

/// Operations that a fused one replaces.
pub struct Fusion<P: 'static> {
    /// Their names, in order.
    pub of: &'static [&'static str],
    /// Measured reason against the fusion, if there is one.
    pub against: Of<P, Option<String>>,
    /// Reason against it where all of them would be stages of a run ([`crate::stages`]).
    pub against_stage: Of<P, Option<String>>,
    /// Returns true if it pays with a variant of that name.
    pub pays_with: On<P, str, bool>,
}

/// Number of elements of a binding, and the same as text for pages; [`crate::len!`] makes both.
pub struct Len<P: 'static> {
    /// The number, from the parameters and the state.
    pub count: OfState<P, usize>,
    /// The expression as written.
    pub text: &'static str,
}

/// The length of a binding: `len!(p => p.rows * p.k)`, or with the state `len!(p, s => s.n_kv)`.
#[macro_export]
macro_rules! len {
    ($p:pat => $len:expr) => {
        $crate::descriptor::Len { count: &|$p, _| $len, text: stringify!($len) }
    };
    ($p:pat, $state:pat => $len:expr) => {
        $crate::descriptor::Len { count: &|$p, $state| $len, text: stringify!($len) }
    };
}

/// One buffer of an operation.
pub struct Binding<P: 'static> {
    /// Name of the WGSL variable.
    pub name: &'static str,
    /// Direction of data.
    pub role: Role,
    /// Type of its elements.
    pub elem: OfState<P, Elem>,
    /// Elements.
    pub len: Len<P>,
    /// Values that checks and benchmarks put there.
    pub draw: Of<P, Draw>,
    /// Vectors of a KV cache that no invocation may read, by their number. Checks put NaN there.
    pub unread: OfState<P, Vec<usize>>,
    /// True if a NaN or an infinity in it reaches the outputs that depend on it, as the formula
    /// has it: such an output is one of the two. Checks draw one where that is promised.
    pub spreads: bool,
}

/// Elements in the storage format that a parameter names, by its field.
macro_rules! floats {
    ($format:ident) => {
        &|p, _| Elem::Floats(p.$format)
    };
}

pub(crate) use floats;

/// Elements of 32-bit floats.
pub fn f32s<P>(_: &P, _: State) -> Elem {
    Elem::F32
}

/// Elements of 32-bit words.
pub fn words<P>(_: &P, _: State) -> Elem {
    Elem::U32
}

impl<P: 'static> Binding<P> {
    const fn new(name: &'static str, role: Role, elem: OfState<P, Elem>, len: Len<P>) -> Self {
        Self {
            name,
            role,
            elem,
            len,
            draw: &|_| Draw::Normal,
            spreads: false,
            unread: &|_, _| Vec::new(),
        }
    }

    /// A buffer that is only read.
    pub const fn input(name: &'static str, elem: OfState<P, Elem>, len: Len<P>) -> Self {
        Self::new(name, Role::Input, elem, len)
    }

    /// A buffer that is written completely and never read.
    pub const fn output(name: &'static str, elem: OfState<P, Elem>, len: Len<P>) -> Self {
        Self::new(name, Role::Output, elem, len)
    }

    /// A buffer that is read and partly or wholly rewritten.
    pub const fn in_out(name: &'static str, elem: OfState<P, Elem>, len: Len<P>) -> Self {
        Self::new(name, Role::InOut, elem, len)
    }

    /// Memory of the invocation's own.
    pub const fn scratch(name: &'static str, elem: OfState<P, Elem>, len: Len<P>) -> Self {
        Self::new(name, Role::Scratch, elem, len)
    }

    /// Words that are zero before and after.
    pub const fn counter(name: &'static str, len: Len<P>) -> Self {
        Self::new(name, Role::Counter, &words, len)
    }

    /// Sets content other than normal values for checks.
    #[must_use]
    pub const fn drawn(mut self, draw: Of<P, Draw>) -> Self {
        self.draw = draw;
        self
    }

    /// Sets the vectors of a KV cache that no invocation may read.
    #[must_use]
    pub const fn never_reads(mut self, unread: OfState<P, Vec<usize>>) -> Self {
        self.unread = unread;
        self
    }
}

/// Promises of a buffer that a NaN or an infinity in it is seen in the outputs:
/// [`Binding::spreads`].
pub const fn spreads<P: 'static>(mut binding: Binding<P>) -> Binding<P> {
    binding.spreads = true;
    binding
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
#[derive(Clone, Debug, PartialEq)]
pub enum Elem {
    /// 32-bit float.
    F32,
    /// 32-bit unsigned.
    U32,
    /// Activations or plain values, 16-bit ones two to a word. Elements beyond their length are
    /// padding.
    Floats(FloatFormat),
    /// Vectors of a KV cache.
    Kv(KvVectors),
    /// Packed weight rows.
    Weights(Matrix),
    /// `(cos, sin)` pairs.
    Rope(RopeSpec),
}

impl Elem {
    /// Relative rounding and NMSE that an output is allowed at least, for how it is stored.
    pub fn rounding(&self) -> (f64, f64) {
        match self {
            // The square of the largest rounding error, 2^-11 of a value just above a power of two:
            // a third of it is usual, but one element may outweigh all others.
            Elem::Floats(FloatFormat::F16) => (1.0 / 2048.0, 2.5e-7),
            // WGSL leaves the direction of f32 to f16 rounding open: a whole step of f16.
            Elem::Kv(KvVectors { format: KvFormat::F16, .. }) => (1.0 / 1024.0, 1e-6),
            // What a step takes is the expected value's own allowance. The squares of half a step
            // each are largest where one of a block's 32 values is nearly all that there is: the
            // step is 1/127 of it.
            Elem::Kv(KvVectors { format: KvFormat::Q8_0, .. }) => {
                (0.0, 32.0 / 4.0 / (127.0 * 127.0))
            }
            _ => (0.0, 0.0),
        }
    }
}

/// A matrix of weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matrix {
    /// Storage.
    pub format: Format,
    /// Elements of a row.
    pub k: usize,
    /// Order of the values in blocks.
    pub order: Order,
    /// Packing of the rows, if a parameter of the operation sets it; else the variant decides.
    pub packing: Option<Packing>,
}

impl Matrix {
    /// Row after row, packed as the variant wants.
    pub const fn rows(format: Format, k: usize) -> Self {
        Self { format, k, order: Order::RowWise, packing: None }
    }
}

/// Values that a check puts into a binding. Each kind has usual values, which are also the ones
/// that are timed, and may have strained ones. Strained values only judge: a kernel that relies on
/// what the usual ones have in common fails with them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Draw {
    /// Normally distributed values of variance one, rounded to the storage format; weights times a
    /// power of two. Strained: each kind of values that trained models hold, by the case's seed.
    Normal,
    /// Normal weights, some rows so small that f16 holds them, or their scales, as subnormals.
    TinyRows,
    /// Rows of `row` elements, the first `of` of each queries: normal values. Strained: queries so
    /// large that scores leave what `exp` can hold, or massive ones in a few places.
    Queries {
        /// Elements of a row that make up its queries.
        of: usize,
        /// Elements of a row.
        row: usize,
    },
    /// Vectors of a KV cache: normal values. Strained, by checks alone: a massive column or element,
    /// a vector that draws all attention, another mean. Where a NaN [spreads](Binding::spreads), one
    /// tensor in three holds one.
    Cache,
    /// Normal values times 1 / sqrt(k), so that products are about one: an activation function
    /// makes zero of values far below zero.
    UnitProducts,
    /// Normal rows of which some are equal, near each other and far apart: ties happen. One, mostly
    /// the last or at the border of a tile, is eight times as large.
    TiedRows,
    /// Few distinct values, so that ties happen, from one that is drawn on; in half of the tensors
    /// the largest stands alone, at the end or at the border of a tile. Strained: values that lie
    /// nearer or farther apart, are all equal, or at most two units in the last place apart.
    Ties,
    /// Values of [`Draw::Ties`]. Stress inputs: one, some or all may be NaN or infinite.
    TiesAndNan,
    /// Normal values times a factor, the largest first: the result of an earlier part.
    Descending(f32),
    /// The step state: position, prompt length, seed.
    State,
    /// The step state for a kernel that draws random numbers by the seed. Its time may depend on
    /// the draws, so every timed sample has another seed.
    SeededState,
    /// Tokens below a vocabulary's size, every third of its last sixteenth.
    Tokens(usize),
    /// Tokens of a sequence that grows, with room behind it: a step's position may run on while it
    /// is timed.
    Sequence(usize),
    /// Ascending numbers from one on.
    Count(u32),
}

impl Draw {
    /// Returns true for the step state.
    pub fn is_state(self) -> bool {
        matches!(self, Draw::State | Draw::SeededState)
    }
}

/// One implementation of an operation: a WGSL file of the same name.
pub struct Variant<P: 'static> {
    /// File stem.
    pub name: &'static str,
    /// Dispatches, in order.
    pub stages: &'static [Stage<P>],
    /// Values of tunable overrides for a shape on an adapter; the rest keep their WGSL defaults.
    pub constants: On<P, Capabilities, Overrides>,
    /// Values of the same overrides as a stage of a run ([`crate::stages`]), whose workgroups are
    /// given: all that there are, and the invocations of each. None where it is no good stage.
    pub as_stage: AsStage<P>,
    /// True if a run declares its weights `read_write`: a driver then leaves loads ahead of a wait
    /// where they are. Measured for each; it does not always win.
    pub pins_loads: bool,
    /// Buffers this stage reads before the grid barrier even though it writes them. Sound only
    /// because it never uses a value that may have been overwritten meanwhile.
    pub refreshes: &'static [&'static str],
    /// Output that the next stage may compute itself in place of the last stage.
    pub fused_producer: Option<&'static FusedProducer<P>>,
    /// Overrides a tuner may try, with the values worth trying: `NAME=VALUE|VALUE,…`.
    pub tunables: &'static str,
    /// Reason why this variant cannot run a shape, beyond what reflection finds (features, memory).
    pub unsupported: On<P, Capabilities, Option<String>>,
    /// Layout that it wants for quantised weight rows; see [`Kernel::packing`].
    pub packing: Packing,
    /// Bytes of the integers that activations are rounded to, by the largest of each 32: 1 to 3,
    /// or 0 where they stay floats.
    pub digits: u32,
    /// True where it was measured to be the fastest in a browser, although another one is preferred
    /// elsewhere: clamped indices cost some variants more than others.
    pub first_on_the_web: Of<P, bool>,
    /// True if codes of quantised weights, zero points and minimums meet activations apart, and a
    /// block's scale its sums.
    pub apart: bool,
    /// Its own tolerance if its arithmetic is not the operation's, such as rounding its inputs.
    pub tolerance: Option<OfState<P, Tolerance>>,
}

impl<P: 'static> Variant<P> {
    /// A variant without anything special: completes the others with `..Variant::PLAIN`.
    pub const PLAIN: Self = Self {
        name: "",
        stages: &[],
        constants: &|_, _| Vec::new(),
        as_stage: &|_, _, _| None,
        pins_loads: false,
        refreshes: &[],
        fused_producer: None,
        tunables: "",
        unsupported: &|_, _| None,
        packing: Packing::Blocks,
        digits: 0,
        first_on_the_web: &|_| false,
        apart: false,
        tolerance: None,
    };

    /// A variant that is nothing but its stages.
    pub const fn new(name: &'static str, stages: &'static [Stage<P>]) -> Self {
        Self { name, stages, ..Self::PLAIN }
    }

    /// A variant that is nothing but its stages, in workgroups of any size: [`WORKGROUPS`].
    pub const fn sized(name: &'static str, stages: &'static [Stage<P>]) -> Self {
        Self { name, stages, tunables: WORKGROUPS, ..Self::PLAIN }
    }
}

/// An output that the next stage can compute itself: it calls a function where it would load an
/// element. The last stage and its grid barrier are then left out.
pub struct FusedProducer<P: 'static> {
    /// The output.
    pub output: &'static str,
    /// The function of the WGSL text that returns the element at an index, of the variable's type.
    /// It uses buffers only, no workgroup memory.
    pub function: &'static str,
    /// Returns true if that pays, although every workgroup of the reading stage computes all it
    /// needs.
    pub pays: On<P, Constants, bool>,
}

/// One dispatch of a variant.
pub struct Stage<P: 'static> {
    /// WGSL entry point.
    pub entry: &'static str,
    /// Workgroups. The executor folds more than 65535 into two dimensions; kernels read
    /// `workgroup_id.y * num_workgroups.x + workgroup_id.x` and return beyond their last. With
    /// none the dispatch is left out.
    pub grid: On<P, Constants, usize>,
}

impl<P: 'static> Stage<P> {
    /// The dispatch of a variant that has one.
    pub const fn main(grid: On<P, Constants, usize>) -> Self {
        Self { entry: "main", grid }
    }
}

/// Workgroups that run at the same time, and their invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Workgroups: a power of two, all of which the device runs at once.
    pub groups: u32,
    /// Invocations of each.
    pub invocations: u32,
    /// Sectors of weights that each invocation brings into the device's cache at a wait, those of
    /// the stages that come next: memory is idle then. Invocations of the first 32 poll meanwhile.
    pub prefetch: u32,
    /// Layers that a run may have; at least one.
    pub layers: u32,
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.groups, self.invocations)?;
        if self.prefetch > 0 {
            write!(f, "+{}", self.prefetch)?;
        }
        match self.layers {
            u32::MAX => Ok(()),
            layers => write!(f, "/{layers}"),
        }
    }
}

/// Memory traffic and arithmetic of a perfect implementation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Bytes read from and written to device memory, each once.
    pub bytes: f64,
    /// Floating-point operations, a multiply-add counted as two.
    pub flops: f64,
}

/// Allowed distance of a correct kernel from the reference. The rounding of an output's type is
/// added to it: see [`Tolerance::stored`].
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Multiples of 2^-23 times the reference's magnitude, per element.
    pub k: f64,
    /// Relative rounding.
    pub rounding: f64,
    /// Normalised mean squared error over the output.
    pub nmse: f64,
    /// [`Variant::digits`]. The reference derives from them and from the inputs what is allowed in
    /// addition.
    pub digits: u32,
    /// [`Variant::apart`], of which the same holds.
    pub apart: bool,
    /// Operands of a product that are rounded to f16, of which the same holds.
    pub f16_operands: u32,
    /// True if activations pass through f16: those beyond 65504 may leave results that
    /// are not finite.
    pub f16_range: bool,
    /// Derivation of these figures.
    pub reason: &'static str,
}

impl Tolerance {
    /// Tolerance of f32 arithmetic, without a rounding of its own.
    pub const fn new(k: f64, nmse: f64, reason: &'static str) -> Self {
        Self {
            k,
            rounding: 0.0,
            nmse,
            digits: 0,
            apart: false,
            f16_operands: 0,
            f16_range: false,
            reason,
        }
    }

    /// No tolerance beyond the rounding of how an output is stored.
    pub const fn exact(reason: &'static str) -> Self {
        Self::new(0.0, 0.0, reason)
    }

    /// The tolerance of an output that is stored like this.
    #[must_use]
    pub fn stored(self, elem: &Elem) -> Self {
        let (rounding, nmse) = elem.rounding();
        Self { rounding: self.rounding.max(rounding), nmse: self.nmse.max(nmse), ..self }
    }
}

/// A binding of a [`Kernel`].
pub type KernelBinding = Binding<Shape>;

/// A variant of a [`Kernel`].
pub type KernelVariant = Variant<Shape>;

/// An operation as everything sees it that works on any: its [`Declaration`] over a [`Shape`], and
/// its tables read.
pub struct Kernel {
    declared: Declaration<Shape>,
    /// Parameters, in the order they are printed.
    pub params: &'static [Param],
    /// The type of its parameters.
    pub(crate) params_type: TypeId,
    cases: Vec<Problem>,
    bench: Vec<Problem>,
}

impl Deref for Kernel {
    type Target = Declaration<Shape>;

    fn deref(&self) -> &Self::Target {
        &self.declared
    }
}

/// Keeps a part of a declaration as long as the program runs: it is made once for an operation.
fn kept<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn list<T>(of: impl Iterator<Item = T>) -> &'static [T] {
    kept(of.collect::<Vec<_>>())
}

fn of<P: Params, T: 'static>(f: Of<P, T>) -> Of<Shape, T> {
    kept(move |shape: &Shape| f(&P::read(shape)))
}

fn of_state<P: Params, T: 'static>(f: OfState<P, T>) -> OfState<Shape, T> {
    kept(move |shape: &Shape, state: State| f(&P::read(shape), state))
}

fn on<P: Params, A: ?Sized + 'static, T: 'static>(f: On<P, A, T>) -> On<Shape, A, T> {
    kept(move |shape: &Shape, other: &A| f(&P::read(shape), other))
}

impl<P: Params> Declaration<P> {
    /// The declaration over a [`Shape`], for the registry.
    ///
    /// # Errors
    /// A table of problems is wrong.
    pub fn erase(&self) -> Result<Kernel, ShapeError> {
        let &Self { name, summary, state, prefer, cost, tolerance, cases, bench, .. } = self;
        let declared = Declaration {
            bindings: list(self.bindings.iter().map(Binding::erase)),
            variants: list(self.variants.iter().map(Variant::erase)),
            fuses: self.fuses.as_ref().map(|fusion| Fusion {
                of: fusion.of,
                against: of(fusion.against),
                against_stage: of(fusion.against_stage),
                pays_with: on(fusion.pays_with),
            }),
            prefer: of(prefer),
            cost: of_state(cost),
            tolerance: of_state(tolerance),
            name,
            summary,
            state,
            cases,
            bench,
        };
        let (params, params_type) = (P::PARAMS, TypeId::of::<P>());
        let kernel = Kernel { declared, params, params_type, cases: Vec::new(), bench: Vec::new() };
        Ok(Kernel { cases: kernel.read(cases)?, bench: kernel.read(bench)?, ..kernel })
    }
}

impl<P: Params> Binding<P> {
    fn erase(&self) -> KernelBinding {
        let len = Len { count: of_state(self.len.count), text: self.len.text };
        let (elem, draw, unread) = (of_state(self.elem), of(self.draw), of_state(self.unread));
        Binding { name: self.name, role: self.role, elem, len, draw, spreads: self.spreads, unread }
    }
}

impl<P: Params> Variant<P> {
    pub(crate) fn erase(&self) -> KernelVariant {
        let &Self {
            name, pins_loads, refreshes, tunables, packing, digits, apart, as_stage, ..
        } = self;
        let grid = |stage: &Stage<P>| Stage { entry: stage.entry, grid: on(stage.grid) };
        Variant {
            stages: list(self.stages.iter().map(grid)),
            constants: on(self.constants),
            as_stage: kept(move |shape: &Shape, caps: &Capabilities, grid: Grid| {
                as_stage(&P::read(shape), caps, grid)
            }),
            fused_producer: self.fused_producer.map(|fused_producer| {
                let &FusedProducer { output, function, pays } = fused_producer;
                kept(FusedProducer { output, function, pays: on(pays) })
            }),
            unsupported: on(self.unsupported),
            first_on_the_web: of(self.first_on_the_web),
            tolerance: self.tolerance.map(of_state),
            name,
            pins_loads,
            refreshes,
            digits,
            apart,
            tunables,
            packing,
        }
    }
}

impl KernelBinding {
    /// Type of its elements.
    pub fn elem(&self, problem: &Problem) -> Elem {
        (self.elem)(&problem.shape, problem.state)
    }

    /// Elements.
    pub fn len(&self, problem: &Problem) -> usize {
        (self.len.count)(&problem.shape, problem.state)
    }

    /// Values that checks and benchmarks put there.
    pub fn draw(&self, shape: &Shape) -> Draw {
        (self.draw)(shape)
    }

    /// Vectors of a KV cache that no invocation may read.
    pub fn unread(&self, problem: &Problem) -> Vec<usize> {
        (self.unread)(&problem.shape, problem.state)
    }
}

impl KernelVariant {
    /// Values of tunable overrides for a shape on an adapter.
    pub fn constants(&self, shape: &Shape, caps: &Capabilities) -> Overrides {
        (self.constants)(shape, caps)
    }

    /// Values of its overrides as a stage of a run; see [`Variant::stage`].
    pub fn as_stage(&self, shape: &Shape, caps: &Capabilities, grid: Grid) -> Option<Overrides> {
        (self.as_stage)(shape, caps, grid)
    }

    /// Reason why it cannot run a shape, beyond what reflection finds.
    pub fn unsupported(&self, shape: &Shape, caps: &Capabilities) -> Option<String> {
        (self.unsupported)(shape, caps)
    }

    /// Overrides a tuner may try, with the values worth trying. None if the text is malformed.
    pub fn tunables(&self) -> Option<Vec<(&'static str, Vec<f64>)>> {
        let read = |part: &'static str| {
            let (name, values) = part.split_once('=')?;
            let values = values.split('|').map(|value| value.parse().ok());
            Some((name, values.collect::<Option<_>>()?))
        };
        self.tunables.split_terminator(',').map(read).collect()
    }

    /// Returns true if it has a tolerance of its own.
    pub fn has_own_tolerance(&self) -> bool {
        self.tolerance.is_some()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<P> fmt::Debug for Binding<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}[{}]", self.role, self.name, self.len.text)
    }
}

impl<P> fmt::Debug for Variant<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variant").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Kernel {
    /// Adds variants.
    pub(crate) fn add(&mut self, added: Vec<KernelVariant>) {
        let own = self.declared.variants.iter().map(|v| Variant { ..*v });
        self.declared.variants = list(own.chain(added));
    }

    /// The variant of a name.
    pub fn variant(&self, name: &str) -> Option<&KernelVariant> {
        self.variants.iter().find(|v| v.name == name)
    }

    /// The binding of a name.
    pub fn binding(&self, name: &str) -> Option<&KernelBinding> {
        self.bindings.iter().find(|b| b.name == name)
    }

    /// The binding of the step state.
    pub fn state_binding(&self, shape: &Shape) -> Option<&KernelBinding> {
        self.bindings.iter().find(|b| b.draw(shape).is_state())
    }

    /// The parameter or word of the state of a name.
    pub fn param(&self, name: &str) -> Option<&Param> {
        self.params.iter().chain(self.state).find(|p| p.name == name)
    }

    /// Variants from the one expected to be fastest downwards.
    pub fn prefer(&self, shape: &Shape) -> &'static [&'static str] {
        (self.prefer)(shape)
    }

    /// Preferred variants on an adapter.
    pub fn prefer_on<'a>(
        &'a self,
        shape: &'a Shape,
        caps: &Capabilities,
    ) -> impl Iterator<Item = &'static str> + 'a {
        let first = |v: &&'static KernelVariant| (v.first_on_the_web)(shape);
        let on_the_web = if caps.web { self.variants } else { &[] };
        let first = on_the_web.iter().filter(first).map(|variant| variant.name);
        first.chain(self.prefer(shape).iter().copied())
    }

    /// Bytes and flops a perfect implementation must move and do.
    pub fn cost(&self, problem: &Problem) -> Cost {
        (self.cost)(&problem.shape, problem.state)
    }

    /// Allowed distance of a variant from the reference.
    pub fn tolerance(&self, variant: Option<&KernelVariant>, problem: &Problem) -> Tolerance {
        let own = variant.and_then(|v| v.tolerance);
        let (digits, apart) = variant.map_or((0, false), |v| (v.digits, v.apart));
        Tolerance { digits, apart, ..own.unwrap_or(self.tolerance)(&problem.shape, problem.state) }
    }

    /// Problems that are always checked.
    pub fn cases(&self) -> Vec<Problem> {
        self.cases.clone()
    }

    /// Problems a benchmark runs when none is named.
    pub fn bench(&self) -> Vec<Problem> {
        self.bench.clone()
    }

    /// The first benchmarked problem: the default of `--shape`.
    pub fn default_problem(&self) -> Problem {
        self.bench().swap_remove(0)
    }

    /// Layout of quantised weight rows: as a parameter says where the operation reads any
    /// packing, else as the variant wants them. Dense rows have one layout only.
    pub fn packing(&self, wanted: Packing, shape: &Shape) -> Packing {
        let problem = Problem { shape: shape.clone(), state: State::default() };
        let matrix = self.bindings.iter().find_map(|b| match b.elem(&problem) {
            Elem::Weights(matrix) => Some(matrix),
            _ => None,
        });
        match matrix {
            Some(m) if m.format.is_dense() => Packing::Blocks,
            Some(Matrix { packing: Some(packing), .. }) => packing,
            _ => wanted,
        }
    }

    /// A problem as text: `NAME=VALUE,…`, parameters first, then the state.
    pub fn show(&self, problem: &Problem) -> String {
        problem.show(self.params, self.state)
    }

    /// The text of a problem without its plain parameters, for tables and headings. `--shape`
    /// reads it as the same problem: a value is left out only where it is both the plainest one
    /// and the default of `--shape`.
    pub fn show_brief(&self, problem: &Problem) -> String {
        problem.show(&self.told(problem), self.state)
    }

    /// The parameters that a brief text names.
    fn told(&self, problem: &Problem) -> Vec<Param> {
        let default = self.default_problem();
        let told = |p: &&Param| {
            let value = problem.get(p);
            p.plainest().is_none() || p.plainest() != value || default.get(p) != value
        };
        self.params.iter().filter(told).copied().collect()
    }

    /// The text of a record as [`Kernel::show_brief`] has it, with the state only where it names
    /// one; a text that this kernel cannot read stays as it is.
    pub fn brief(&self, text: &str) -> String {
        let named = self.default_problem().parse_over(self.name, &[self.params, self.state], text);
        let (Ok(problem), Ok((_, named))) = (self.parse_complete(text), named) else {
            return text.to_owned();
        };
        let state: Vec<Param> =
            self.state.iter().filter(|p| named.contains(&p.name)).copied().collect();
        problem.show(&self.told(&problem), &state)
    }

    /// Reads `NAME=VALUE,…` over another problem.
    pub fn parse_over(&self, base: &Problem, text: &str) -> Result<Problem, ShapeError> {
        base.parse_over(self.name, &[self.params, self.state], text).map(|(problem, _)| problem)
    }

    /// Reads the text of a record, which names every parameter. Words of the state that it does not
    /// name keep their defaults.
    ///
    /// # Errors
    /// The text is no shape of this operation, or lacks a parameter.
    pub fn parse_complete(&self, text: &str) -> Result<Problem, ShapeError> {
        let base = self.default_problem();
        let (problem, named) = base.parse_over(self.name, &[self.params, self.state], text)?;
        match self.params.iter().find(|p| !named.contains(&p.name)) {
            None => Ok(problem),
            Some(param) => Err(ShapeError::Missing {
                kernel: self.name,
                text: text.to_owned(),
                name: param.name,
            }),
        }
    }

    /// The parameters that some variant compiles in, on which a tuned choice depends.
    pub fn key(&self, shape: &Shape) -> String {
        let params: Vec<Param> =
            self.params.iter().filter(|p| self.is_compiled(p)).copied().collect();
        shape.show(&params)
    }

    fn is_compiled(&self, param: &Param) -> bool {
        self.variants.iter().any(|v| {
            crate::reflection(self.name, v.name)
                .is_some_and(|r| r.overrides.iter().any(|(o, _)| o == param.name))
        })
    }

    /// A problem with every parameter and word of the state drawn by `pick(n)`, which returns a
    /// number below `n`.
    pub fn draw(&self, pick: &mut dyn FnMut(u32) -> u32) -> Problem {
        let mut problem = Problem::default();
        for param in self.params.iter().chain(self.state) {
            let value = param.draw(pick);
            problem.set(param, value);
        }
        problem
    }
}
