//! What an operation declares about itself, once, for check, bench, select, decode and pages alike.
//!
//! [`Declaration`] is written with typed parameters; [`Kernel`] is the same without the type, as
//! everything sees it that works on any operation.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;

use crate::adapter::Capabilities;
use crate::codes::{FloatFormat, Format, KvFormat, Order, Packing};
use crate::layout::{KvVectors, RopeSpec};
use crate::param::{Param, Params, Problem, Shape, ShapeError, State};
use crate::phases::Grid;

/// Values of overrides by name; of several for one name the last holds.
pub type Overrides = Vec<(&'static str, f64)>;

/// Values of all overrides of a variant for one shape.
pub type Constants = BTreeMap<String, f64>;

/// Overrides a tuner may try, with the values worth trying.
pub type Tunables = &'static [(&'static str, &'static [f64])];

/// Workgroup sizes worth trying.
pub const WORKGROUPS: Tunables = &[("WG", &[32.0, 64.0, 128.0, 256.0])];

/// Workgroups of `WG` invocations, of which every item has one.
pub fn groups_for(items: usize, c: &Constants) -> usize {
    items.div_ceil(c["WG"] as usize)
}

/// What an operation of parameters `P` is: everything that any part of Lathe needs to know of it.
#[derive(Debug)]
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
    pub prefer: fn(&P) -> &'static [&'static str],
    /// Bytes and flops a perfect implementation must move and do.
    pub cost: fn(&P, State) -> Cost,
    /// How far f32 arithmetic may lie from the reference.
    pub tolerance: fn(&P, State) -> Tolerance,
    /// Problems that are always checked: the models' own and known traps.
    pub cases: fn() -> Vec<Case<P>>,
    /// The problems a benchmark runs when none is named; the first is also the default of
    /// `--shape`.
    pub bench: fn() -> Vec<Case<P>>,
}

/// Operations that one replaces.
#[derive(Debug)]
pub struct Fusion<P> {
    /// Their names, in order.
    pub of: &'static [&'static str],
    /// Why it is better not to, if it is: what was measured.
    pub against: fn(&P) -> Option<String>,
    /// The same where all of them would be phases of a run ([`crate::phases`]).
    pub against_phase: fn(&P) -> Option<String>,
    /// Whether it pays with a variant of that name.
    pub pays_with: fn(&P, &str) -> bool,
}

/// Parameters with the state they meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case<P> {
    /// Parameters.
    pub params: P,
    /// State of the sequence.
    pub state: State,
}

impl<P> Case<P> {
    /// With tokens of the sequence so far, the current one included.
    #[must_use]
    pub fn n_kv(mut self, n_kv: usize) -> Self {
        self.state.n_kv = n_kv;
        self
    }

    /// With tokens the host gave.
    #[must_use]
    pub fn prompt_len(mut self, prompt_len: usize) -> Self {
        self.state.prompt_len = prompt_len;
        self
    }

    /// With some parameters changed: `case.with(|p| p.k = 7)`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut P)) -> Self {
        change(&mut self.params);
        self
    }
}

impl<P> From<P> for Case<P> {
    fn from(params: P) -> Self {
        Self { params, state: State::default() }
    }
}

/// Number of elements of a binding, and the same as text for pages; [`crate::len!`] makes both.
pub struct Len<P> {
    /// From the parameters and the state.
    pub count: fn(&P, State) -> usize,
    /// As written.
    pub text: &'static str,
}

impl<P> fmt::Debug for Len<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

/// The length of a binding: `len!(p => p.rows * p.k)`, or with the state `len!(p, s => s.n_kv)`.
#[macro_export]
macro_rules! len {
    ($p:pat => $len:expr) => {
        $crate::descriptor::Len { count: |$p, _| $len, text: stringify!($len) }
    };
    ($p:pat, $state:pat => $len:expr) => {
        $crate::descriptor::Len { count: |$p, $state| $len, text: stringify!($len) }
    };
}

/// One buffer of an operation.
#[derive(Debug)]
pub struct Binding<P> {
    /// Name of the WGSL variable.
    pub name: &'static str,
    /// Direction of data.
    pub role: Role,
    /// What its elements are.
    pub elem: fn(&P, State) -> Elem,
    /// Elements.
    pub len: Len<P>,
    /// What checks and benchmarks put there.
    pub draw: fn(&P) -> Draw,
}

/// Elements of 32-bit floats.
pub fn f32s<P>(_: &P, _: State) -> Elem {
    Elem::F32
}

/// Elements of 32-bit words.
pub fn words<P>(_: &P, _: State) -> Elem {
    Elem::U32
}

fn normal<P>(_: &P) -> Draw {
    Draw::Normal
}

impl<P> Binding<P> {
    const fn new(name: &'static str, role: Role, elem: fn(&P, State) -> Elem, len: Len<P>) -> Self {
        Self { name, role, elem, len, draw: normal }
    }

    /// A buffer that is only read.
    pub const fn input(name: &'static str, elem: fn(&P, State) -> Elem, len: Len<P>) -> Self {
        Self::new(name, Role::Input, elem, len)
    }

    /// A buffer that is written completely and never read.
    pub const fn output(name: &'static str, elem: fn(&P, State) -> Elem, len: Len<P>) -> Self {
        Self::new(name, Role::Output, elem, len)
    }

    /// A buffer that is read and partly or wholly rewritten.
    pub const fn in_out(name: &'static str, elem: fn(&P, State) -> Elem, len: Len<P>) -> Self {
        Self::new(name, Role::InOut, elem, len)
    }

    /// Memory of the invocation's own.
    pub const fn scratch(name: &'static str, elem: fn(&P, State) -> Elem, len: Len<P>) -> Self {
        Self::new(name, Role::Scratch, elem, len)
    }

    /// Words that are zero before and after.
    pub const fn counter(name: &'static str, len: Len<P>) -> Self {
        Self::new(name, Role::Counter, words, len)
    }

    /// With other content in checks than normal values.
    #[must_use]
    pub const fn drawn(mut self, draw: fn(&P) -> Draw) -> Self {
        self.draw = draw;
        self
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

/// What the elements of a binding are.
#[derive(Clone, Debug, PartialEq)]
pub enum Elem {
    /// 32-bit float.
    F32,
    /// 32-bit unsigned.
    U32,
    /// Activations or plain values, 16-bit ones two to a word. What a kernel reads of them beyond
    /// their length is padding.
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
    /// How values run through blocks.
    pub order: Order,
    /// How rows are packed, where the operation reads any packing and a parameter says which; else
    /// the variant decides.
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
    /// power of two. Strained: scaled by a power of two, about another mean.
    Normal,
    /// Rows of `row` elements, the first `of` of each queries: normal values. Strained: queries so
    /// large that scores leave what `exp` can hold.
    Queries {
        /// Elements of a row that make up its queries.
        of: usize,
        /// Elements of a row.
        row: usize,
    },
    /// Normal values times 1 / sqrt(k), so that products are about one: an activation
    /// function makes zero of what is far below zero.
    UnitProducts,
    /// Normal rows of which some are equal, near each other and far apart: ties happen.
    TiedRows,
    /// Few distinct values, so that ties happen, from one that is drawn on. Strained: between
    /// values that lie nearer or farther apart.
    Ties,
    /// The same. Strained: some are NaN too.
    TiesAndNan,
    /// Normal values times a factor, the largest first: what an earlier part left.
    Descending(f32),
    /// The step state: position, prompt length, seed.
    State,
    /// The same, for a kernel that draws random numbers by the seed: its time may depend on what it
    /// draws, so every timed sample has another seed.
    SeededState,
    /// Tokens below a vocabulary's size.
    Tokens(usize),
    /// The same of a sequence that grows, with room behind it: a step's position may run on while
    /// it is timed.
    Sequence(usize),
    /// Ascending numbers from one on.
    Count(u32),
}

impl Draw {
    /// Whether this is the step state.
    pub fn is_state(self) -> bool {
        matches!(self, Draw::State | Draw::SeededState)
    }
}

/// One implementation of an operation: a WGSL file of the same name.
#[derive(Debug)]
pub struct Variant<P: 'static> {
    /// File stem.
    pub name: &'static str,
    /// Dispatches, in order.
    pub stages: &'static [Stage<P>],
    /// Values of tunable overrides for a shape on an adapter; the rest keep their WGSL defaults.
    pub constants: fn(&P, &Capabilities) -> Overrides,
    /// Values of the same overrides as a phase of a run ([`crate::phases`]), whose workgroups are
    /// given: all that there are, and the invocations of each. None where it is no good phase.
    pub phase: fn(&P, &Capabilities, Grid) -> Option<Overrides>,
    /// Whether a run declares its weights `read_write`: a driver then leaves loads ahead of a wait
    /// where they are. Measured for each; it does not always win.
    pub early: bool,
    /// Bindings that a phase loads before its wait although it also writes them. It does not use
    /// what it loaded from an element that may have been written since: it has the new value from
    /// elsewhere, or needs none.
    pub renews: &'static [&'static str],
    /// What the next phase may compute itself in place of the last stage.
    pub inlined: Option<Inlined<P>>,
    /// Overrides a tuner may try, with the values worth trying.
    pub tunables: Tunables,
    /// Why this variant cannot run a shape, beyond what reflection finds (features, memory).
    pub unsupported: fn(&P, &Capabilities) -> Option<String>,
    /// How it wants quantised weight rows laid out; see [`Kernel::packing`].
    pub packing: Packing,
    /// Its own tolerance where its arithmetic is not the operation's, such as rounding its inputs.
    pub tolerance: Option<fn(&P, State) -> Tolerance>,
}

impl<P> Variant<P> {
    /// A variant without anything special: completes the others with `..Variant::PLAIN`.
    pub const PLAIN: Self = Self {
        name: "",
        stages: &[],
        constants: |_, _| Vec::new(),
        phase: |_, _, _| None,
        early: false,
        renews: &[],
        inlined: None,
        tunables: &[],
        unsupported: |_, _| None,
        packing: Packing::Blocks,
        tolerance: None,
    };

    /// A variant that is nothing but its stages, in workgroups of any size: [`WORKGROUPS`].
    pub const fn sized(name: &'static str, stages: &'static [Stage<P>]) -> Self {
        Self { name, stages, tunables: WORKGROUPS, ..Self::PLAIN }
    }
}

/// An output that the next phase can compute itself: it calls a function where it would load an
/// element. The last stage is then left out, and the wait for it.
#[derive(Debug)]
pub struct Inlined<P: 'static> {
    /// The output.
    pub output: &'static str,
    /// The function of the WGSL text that returns the element at an index, of the variable's type.
    /// It uses buffers only, no workgroup memory.
    pub function: &'static str,
    /// Whether that pays: every workgroup of the phase that reads makes what it needs.
    pub pays: fn(&P, &Constants) -> bool,
}

/// One dispatch of a variant.
#[derive(Debug)]
pub struct Stage<P> {
    /// WGSL entry point.
    pub entry: &'static str,
    /// Workgroups. The executor folds more than 65535 into two dimensions; kernels read
    /// `workgroup_id.y * num_workgroups.x + workgroup_id.x` and return beyond their last. With
    /// none the dispatch is left out.
    pub grid: fn(&P, &Constants) -> usize,
}

impl<P> Stage<P> {
    /// The dispatch of a variant that has one.
    pub const fn main(grid: fn(&P, &Constants) -> usize) -> Self {
        Self { entry: "main", grid }
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

/// How far a correct kernel may lie from the reference. What the type of an output rounds is added
/// to it: see [`Tolerance::stored`].
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Multiples of 2^-23 times the reference's magnitude, per element.
    pub k: f64,
    /// Relative rounding.
    pub rounding: f64,
    /// Normalised mean squared error over the output.
    pub nmse: f64,
    /// Why these.
    pub reason: &'static str,
}

impl Tolerance {
    /// The tolerance of an output that is stored like this.
    #[must_use]
    pub fn stored(self, elem: &Elem) -> Self {
        let (rounding, nmse) = elem.rounding();
        Self { rounding: self.rounding.max(rounding), nmse: self.nmse.max(nmse), ..self }
    }
}

type Of<T> = Box<dyn Fn(&Shape, State) -> T + Send + Sync>;
type OfShape<T> = Box<dyn Fn(&Shape) -> T + Send + Sync>;
type OfVariant = Box<dyn Fn(&Shape, &str) -> bool + Send + Sync>;
type On<A, T> = Box<dyn Fn(&Shape, &A) -> T + Send + Sync>;
type AsPhase = Box<dyn Fn(&Shape, &Capabilities, Grid) -> Option<Overrides> + Send + Sync>;
type Problems = Box<dyn Fn() -> Vec<Problem> + Send + Sync>;

/// An operation as everything sees it that works on any: its [`Declaration`] without the type.
pub struct Kernel {
    /// The one name.
    pub name: &'static str,
    /// One line for `lathe list`.
    pub summary: &'static str,
    /// Parameters, in the order they are printed.
    pub params: &'static [Param],
    /// Words of the step state that it depends on.
    pub state: &'static [Param],
    /// Buffers.
    pub bindings: Vec<KernelBinding>,
    /// Variants, naive first.
    pub variants: Vec<KernelVariant>,
    /// The operations that it replaces where it pays.
    pub fuses: Option<KernelFusion>,
    /// The type of its parameters.
    pub(crate) params_type: TypeId,
    prefer: OfShape<&'static [&'static str]>,
    cost: Of<Cost>,
    tolerance: Of<Tolerance>,
    cases: Problems,
    bench: Problems,
}

/// A [`Fusion`] without the type.
pub struct KernelFusion {
    /// The operations replaced.
    pub of: &'static [&'static str],
    pays_with: OfVariant,
    against: OfShape<Option<String>>,
    against_phase: OfShape<Option<String>>,
}

impl KernelFusion {
    /// Whether it pays with a variant.
    pub fn pays_with(&self, shape: &Shape, variant: &KernelVariant) -> bool {
        (self.pays_with)(shape, variant.name)
    }

    /// Why it is better not to fuse, if it is.
    pub fn against(&self, shape: &Shape) -> Option<String> {
        (self.against)(shape)
    }

    /// The same among phases of a run.
    pub fn against_phase(&self, shape: &Shape) -> Option<String> {
        (self.against_phase)(shape)
    }
}

/// A [`Binding`] without the type.
pub struct KernelBinding {
    /// Name of the WGSL variable.
    pub name: &'static str,
    /// Direction of data.
    pub role: Role,
    /// Its length as text, in terms of the parameters.
    pub len_text: &'static str,
    elem: Of<Elem>,
    len: Of<usize>,
    draw: OfShape<Draw>,
}

/// A [`Variant`] without the type.
pub struct KernelVariant {
    /// File stem.
    pub name: &'static str,
    /// Dispatches, in order.
    pub stages: Vec<KernelStage>,
    /// Overrides a tuner may try, with the values worth trying.
    pub tunables: Tunables,
    /// How it wants quantised weight rows laid out; see [`Kernel::packing`].
    pub packing: Packing,
    /// Whether a run declares its weights `read_write`; see [`Variant::early`].
    pub early: bool,
    /// Bindings that it loads ahead of its wait and writes; see [`Variant::renews`].
    pub renews: &'static [&'static str],
    /// What the phase behind may do itself; see [`Variant::inlined`].
    pub inlined: Option<KernelInlined>,
    constants: On<Capabilities, Overrides>,
    phase: AsPhase,
    unsupported: On<Capabilities, Option<String>>,
    tolerance: Option<Of<Tolerance>>,
}

/// An [`Inlined`] without the type.
pub struct KernelInlined {
    /// The output.
    pub output: &'static str,
    /// The function that makes an element of it.
    pub function: &'static str,
    pays: On<Constants, bool>,
}

impl KernelInlined {
    /// Whether it pays; see [`Inlined::pays`].
    pub fn pays(&self, shape: &Shape, constants: &Constants) -> bool {
        (self.pays)(shape, constants)
    }
}

/// A [`Stage`] without the type.
pub struct KernelStage {
    /// WGSL entry point.
    pub entry: &'static str,
    grid: On<Constants, usize>,
}

impl<P: Params> Declaration<P> {
    /// The declaration without its type, for the registry. `self` is a static: what it refers to
    /// lives as long as the program.
    pub fn erase(&'static self) -> Kernel {
        let problems = |cases: Vec<Case<P>>| {
            let problem = |c: Case<P>| Problem { shape: c.params.shape(), state: c.state };
            cases.into_iter().map(problem).collect()
        };
        Kernel {
            name: self.name,
            summary: self.summary,
            params: P::PARAMS,
            state: self.state,
            bindings: self.bindings.iter().map(Binding::erase).collect(),
            variants: self.variants.iter().map(Variant::erase).collect(),
            fuses: self.fuses.as_ref().map(|fusion| KernelFusion {
                of: fusion.of,
                pays_with: Box::new(|shape, name| (fusion.pays_with)(&P::read(shape), name)),
                against: Box::new(|shape| (fusion.against)(&P::read(shape))),
                against_phase: Box::new(|shape| (fusion.against_phase)(&P::read(shape))),
            }),
            params_type: TypeId::of::<P>(),
            prefer: Box::new(|shape| (self.prefer)(&P::read(shape))),
            cost: Box::new(|shape, state| (self.cost)(&P::read(shape), state)),
            tolerance: Box::new(|shape, state| (self.tolerance)(&P::read(shape), state)),
            cases: Box::new(move || problems((self.cases)())),
            bench: Box::new(move || problems((self.bench)())),
        }
    }
}

impl<P: Params> Binding<P> {
    fn erase(&'static self) -> KernelBinding {
        KernelBinding {
            name: self.name,
            role: self.role,
            len_text: self.len.text,
            elem: Box::new(|shape, state| (self.elem)(&P::read(shape), state)),
            len: Box::new(|shape, state| (self.len.count)(&P::read(shape), state)),
            draw: Box::new(|shape| (self.draw)(&P::read(shape))),
        }
    }
}

impl<P: Params> Variant<P> {
    pub(crate) fn erase(&'static self) -> KernelVariant {
        let stage = |stage: &'static Stage<P>| KernelStage {
            entry: stage.entry,
            grid: Box::new(|shape, constants| (stage.grid)(&P::read(shape), constants)),
        };
        KernelVariant {
            name: self.name,
            stages: self.stages.iter().map(stage).collect(),
            tunables: self.tunables,
            packing: self.packing,
            early: self.early,
            renews: self.renews,
            inlined: self.inlined.as_ref().map(|inlined| KernelInlined {
                output: inlined.output,
                function: inlined.function,
                pays: Box::new(|shape, constants| (inlined.pays)(&P::read(shape), constants)),
            }),
            constants: Box::new(|shape, caps| (self.constants)(&P::read(shape), caps)),
            phase: Box::new(|shape, caps, grid| (self.phase)(&P::read(shape), caps, grid)),
            unsupported: Box::new(|shape, caps| (self.unsupported)(&P::read(shape), caps)),
            tolerance: self.tolerance.map(|tolerance| -> Of<Tolerance> {
                Box::new(move |shape, state| tolerance(&P::read(shape), state))
            }),
        }
    }
}

impl KernelBinding {
    /// What its elements are.
    pub fn elem(&self, problem: &Problem) -> Elem {
        (self.elem)(&problem.shape, problem.state)
    }

    /// Elements.
    pub fn len(&self, problem: &Problem) -> usize {
        (self.len)(&problem.shape, problem.state)
    }

    /// What checks and benchmarks put there.
    pub fn draw(&self, shape: &Shape) -> Draw {
        (self.draw)(shape)
    }
}

impl KernelVariant {
    /// Values of tunable overrides for a shape on an adapter.
    pub fn constants(&self, shape: &Shape, caps: &Capabilities) -> Overrides {
        (self.constants)(shape, caps)
    }

    /// Values of its overrides as a phase of a run; see [`Variant::phase`].
    pub fn phase(&self, shape: &Shape, caps: &Capabilities, grid: Grid) -> Option<Overrides> {
        (self.phase)(shape, caps, grid)
    }

    /// Why it cannot run a shape, beyond what reflection finds.
    pub fn unsupported(&self, shape: &Shape, caps: &Capabilities) -> Option<String> {
        (self.unsupported)(shape, caps)
    }

    /// Whether it has a tolerance of its own.
    pub fn has_own_tolerance(&self) -> bool {
        self.tolerance.is_some()
    }
}

impl KernelStage {
    /// Workgroups; see [`Stage::grid`].
    pub fn grid(&self, shape: &Shape, constants: &Constants) -> usize {
        (self.grid)(shape, constants)
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for KernelBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}[{}]", self.role, self.name, self.len_text)
    }
}

impl fmt::Debug for KernelVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelVariant").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Kernel {
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

    /// Bytes and flops a perfect implementation must move and do.
    pub fn cost(&self, problem: &Problem) -> Cost {
        (self.cost)(&problem.shape, problem.state)
    }

    /// How far a variant may lie from the reference.
    pub fn tolerance(&self, variant: Option<&KernelVariant>, problem: &Problem) -> Tolerance {
        let own = variant.and_then(|v| v.tolerance.as_ref());
        own.unwrap_or(&self.tolerance)(&problem.shape, problem.state)
    }

    /// Problems that are always checked.
    pub fn cases(&self) -> Vec<Problem> {
        (self.cases)()
    }

    /// Problems a benchmark runs when none is named.
    pub fn bench(&self) -> Vec<Problem> {
        (self.bench)()
    }

    /// The first benchmarked problem: the default of `--shape`.
    pub fn default_problem(&self) -> Problem {
        self.bench().swap_remove(0)
    }

    /// How quantised weight rows are packed: as a parameter says where the operation reads any
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

    /// The parameters that some variant compiles in: what a tuned choice depends on.
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
