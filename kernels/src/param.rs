//! Parameters of operations: typed fields of a struct, each also known by name, so that a shape can
//! be read from a command line, drawn in a sweep, printed in a record and handed to WGSL.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use crate::codes::{
    Activation, Beta, FloatFormat, Format, HeadPart, KvFormat, Norm, NormOffset, Order, Packing,
    QkvBias, QueryRow, RopeFactors, RopeStyle, TablePart, TokensOf, WindowMove,
};

/// Kind of a parameter: it decides how the value is read, swept and printed.
#[derive(Clone, Copy, Debug)]
pub enum ParamKind {
    /// A size. Tests sweep {1, tile-1, tile, tile+1, 2*tile+3, random up to `max`}.
    Dim {
        /// The tile at whose edges kernels go wrong.
        tile: u32,
        /// Largest size a correctness sweep draws.
        max: u32,
    },
    /// A size out of a fixed set, such as head_dim.
    OneOf(&'static [u32]),
    /// A place from 0 on, such as the first element written. Tests draw 0 or up to `max`.
    Start {
        /// Largest place a correctness sweep draws.
        max: u32,
    },
    /// A named alternative, passed to WGSL as its code.
    Choice {
        /// The alternatives.
        set: &'static dyn Alternatives,
        /// Sweeps mostly draw the first.
        mostly_first: bool,
    },
    /// A real number, drawn from `[low, high]` in sweeps.
    Float {
        /// Lower end of the sweep.
        low: f32,
        /// Upper end of the sweep.
        high: f32,
        /// Smallest that is read; not below zero.
        least: f32,
        /// Largest that is read.
        most: f32,
    },
}

/// Alternatives of a choice: names and codes.
pub trait Alternatives: fmt::Debug + Sync {
    /// Name and code of each.
    fn all(&self) -> Vec<(&'static str, u32)>;
}

impl<T: Choice> Alternatives for &'static [T] {
    fn all(&self) -> Vec<(&'static str, u32)> {
        self.iter().map(|c| (c.name(), c.code())).collect()
    }
}

/// An enum of named alternatives; see [`crate::codes`].
pub trait Choice: Copy + fmt::Debug + Sync + 'static {
    /// All, in the order of their codes.
    const ALL: &'static [Self];
    /// Name on the command line.
    fn name(self) -> &'static str;
    /// Value in WGSL.
    fn code(self) -> u32;
}

macro_rules! choices {
    ($($name:ident)*) => {
        $(impl Choice for $name {
            const ALL: &'static [Self] = $name::ALL;
            fn name(self) -> &'static str { $name::name(self) }
            fn code(self) -> u32 { $name::code(self) }
        })*
    };
}

choices! {
    Activation Beta FloatFormat Format HeadPart KvFormat Norm NormOffset Order Packing QkvBias QueryRow
    RopeFactors RopeStyle TablePart TokensOf WindowMove
}

/// A type a parameter can have. Every value is exact in an f64, which is also how pipeline
/// constants travel.
pub trait Value: Copy {
    /// The value of a number that [`Value::to_f64`] made.
    fn from_f64(value: f64) -> Self;
    /// The value as a number.
    fn to_f64(self) -> f64;
}

impl Value for usize {
    fn from_f64(value: f64) -> Self {
        value as usize
    }
    fn to_f64(self) -> f64 {
        self as f64
    }
}

impl Value for f32 {
    fn from_f64(value: f64) -> Self {
        value as f32
    }
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl<T: Choice> Value for T {
    fn from_f64(value: f64) -> Self {
        T::ALL[value as usize]
    }
    fn to_f64(self) -> f64 {
        f64::from(self.code())
    }
}

/// A parameter of an operation. Where a WGSL `override` has the same name, it gets this value.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Name as in WGSL, upper case.
    pub name: &'static str,
    /// Meaning, with its unit.
    pub doc: &'static str,
    /// Kind, which decides how it is read, swept and printed.
    pub kind: ParamKind,
}

/// A [`Param`] with the type of the field that holds it.
#[derive(Clone, Copy, Debug)]
pub struct Typed<T> {
    /// The parameter.
    pub param: Param,
    of: PhantomData<fn() -> T>,
}

impl<T> Typed<T> {
    const fn new(name: &'static str, doc: &'static str, kind: ParamKind) -> Self {
        let param = Param { name, doc, kind };
        Self { param, of: PhantomData }
    }

    /// A real number that is read from `least` to `most` only.
    #[must_use]
    pub const fn within(mut self, least: f32, most: f32) -> Self {
        if let ParamKind::Float { low, high, .. } = self.param.kind {
            self.param.kind = ParamKind::Float { low, high, least, most };
        }
        self
    }
}

/// A size; see [`ParamKind::Dim`].
pub const fn dim(name: &'static str, doc: &'static str, tile: u32, max: u32) -> Typed<usize> {
    Typed::new(name, doc, ParamKind::Dim { tile, max })
}

/// A size out of a fixed set.
pub const fn one_of(name: &'static str, doc: &'static str, set: &'static [u32]) -> Typed<usize> {
    Typed::new(name, doc, ParamKind::OneOf(set))
}

/// A place from 0 on; sweeps draw at most `max`.
pub const fn start(name: &'static str, doc: &'static str, max: u32) -> Typed<usize> {
    Typed::new(name, doc, ParamKind::Start { max })
}

/// A real number; sweeps draw it from `[low, high]`.
pub const fn float(name: &'static str, doc: &'static str, low: f32, high: f32) -> Typed<f32> {
    Typed::new(name, doc, ParamKind::Float { low, high, least: 0.0, most: f32::MAX })
}

/// One of the alternatives in `set`.
pub const fn choice<T: Choice>(
    name: &'static str,
    doc: &'static str,
    set: &'static &'static [T],
) -> Typed<T> {
    Typed::new(name, doc, ParamKind::Choice { set, mostly_first: false })
}

/// A [`choice`] of which sweeps mostly draw the first.
pub const fn mostly<T: Choice>(
    name: &'static str,
    doc: &'static str,
    set: &'static &'static [T],
) -> Typed<T> {
    Typed::new(name, doc, ParamKind::Choice { set, mostly_first: true })
}

/// The typed parameters of an operation; [`crate::params!`] writes the implementation.
pub trait Params: Clone + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// In the order they are printed.
    const PARAMS: &'static [Param];
    /// Reads a complete shape.
    fn read(shape: &Shape) -> Self;
    /// The values by name.
    fn shape(&self) -> Shape;
}

/// Declares a struct of parameters: `field: Type = parameter`, where the parameter's type must be
/// the field's.
///
/// ```
/// use lathe_kernels::param::{Params, Typed, dim, float};
///
/// lathe_kernels::params! {
///     /// Parameters of `scale`.
///     pub struct Scale {
///         n: usize = dim("N", "elements", 64, 1000),
///         by: f32 = float("BY", "factor", 0.5, 2.0),
///     }
/// }
/// assert_eq!(Scale { n: 3, by: 0.5 }.shape().show(Scale::PARAMS), "N=3,BY=0.5");
/// ```
///
/// A field that is missing, misspelled or of another type does not compile:
///
/// ```compile_fail
/// # use lathe_kernels::param::{Params, dim};
/// # lathe_kernels::params! { struct Scale { n: usize = dim("N", "elements", 64, 1000), } }
/// let wrong = Scale { m: 3 };
/// ```
#[macro_export]
macro_rules! params {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty = $param:expr,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(missing_docs, reason = "a parameter's own text says what it is")]
        $vis struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $crate::param::Params for $name {
            const PARAMS: &'static [$crate::param::Param] = &[
                $({
                    const PARAM: $crate::param::Typed<$type> = $param;
                    PARAM.param
                },)*
            ];

            fn read(shape: &$crate::Shape) -> Self {
                Self {
                    $($field: {
                        const PARAM: $crate::param::Typed<$type> = $param;
                        <$type as $crate::param::Value>::from_f64(shape.value(PARAM.param.name))
                    },)*
                }
            }

            fn shape(&self) -> $crate::Shape {
                $crate::Shape::new([
                    $({
                        const PARAM: $crate::param::Typed<$type> = $param;
                        (PARAM.param.name, $crate::param::Value::to_f64(self.$field))
                    },)*
                ])
            }
        }
    };
}

/// State of the sequence that a step finds on the GPU, no parameter of any operation. Checks draw
/// it, decode keeps it in a buffer; see [`crate::StateWord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Tokens of the sequence so far, the current one included: position + 1.
    pub n_kv: usize,
    /// Tokens the host gave.
    pub prompt_len: usize,
}

impl Default for State {
    fn default() -> Self {
        Self { n_kv: 1, prompt_len: 1 }
    }
}

impl State {
    /// Name of [`State::n_kv`] in shapes.
    pub const N_KV: &'static str = "N_KV";
    /// Name of [`State::prompt_len`] in shapes.
    pub const PROMPT_LEN: &'static str = "PROMPT_LEN";

    pub(crate) fn get(&self, name: &str) -> Option<usize> {
        match name {
            Self::N_KV => Some(self.n_kv),
            Self::PROMPT_LEN => Some(self.prompt_len),
            _ => None,
        }
    }

    fn set(&mut self, name: &str, value: usize) {
        match name {
            Self::N_KV => self.n_kv = value,
            Self::PROMPT_LEN => self.prompt_len = value,
            _ => {}
        }
    }
}

/// Tokens of the sequence so far; sweeps draw them as a size of `tile`, at most `max`.
pub const fn n_kv(tile: u32, max: u32) -> Param {
    let doc =
        "tokens of the sequence, the current one included (state: decode keeps it on the GPU)";
    dim(State::N_KV, doc, tile, max).param
}

/// Tokens of the prompt.
pub const PROMPT_LEN: Param =
    dim(State::PROMPT_LEN, "tokens the host gave (state: decode keeps it on the GPU)", 4, 9).param;

/// A fault of a `--shape` text.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ShapeError {
    /// Not of the form `NAME=VALUE`.
    #[error("`{0}` is not of the form NAME=VALUE")]
    Form(String),
    /// No such parameter.
    #[error("kernel {kernel} has no parameter `{name}`; it has {known}")]
    Unknown {
        /// The kernel asked.
        kernel: &'static str,
        /// The name given.
        name: String,
        /// All its parameters.
        known: String,
    },
    /// The value does not fit the parameter.
    #[error("{name}={value}: expected {expected}")]
    Value {
        /// Parameter.
        name: &'static str,
        /// Text given.
        value: String,
        /// Accepted values.
        expected: String,
    },
    /// A complete shape was wanted, and the text lacks a parameter.
    #[error("{kernel}: `{text}` does not say {name}")]
    Missing {
        /// The kernel asked.
        kernel: &'static str,
        /// The text.
        text: String,
        /// Parameter.
        name: &'static str,
    },
}

/// Values of an operation's parameters by name: how they travel to WGSL, records and hashes. Code
/// that knows its operation uses the typed parameters instead.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    values: BTreeMap<&'static str, f64>,
}

impl Shape {
    /// A shape of the given values.
    pub fn new(values: impl IntoIterator<Item = (&'static str, f64)>) -> Self {
        Self { values: values.into_iter().collect() }
    }

    /// The value of a parameter, if set.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    /// The value of a parameter. Panics when it is not set: shapes are complete, made from typed
    /// parameters or parsed over a complete one.
    pub fn value(&self, name: &str) -> f64 {
        self.get(name).unwrap_or_else(|| panic!("shape {self} has no parameter {name}"))
    }

    /// All values by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.values.iter().map(|(n, v)| (*n, *v))
    }

    /// `NAME=VALUE,…` in the order of `params`, choices by name.
    pub fn show(&self, params: &[Param]) -> String {
        let shown = params.iter().filter_map(|p| Some(p.show(self.get(p.name)?)));
        shown.collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{name}={value}")?;
        }
        Ok(())
    }
}

/// One invocation to check, time or describe: its parameters, and the state it finds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Problem {
    /// Parameters.
    pub shape: Shape,
    /// State of the sequence.
    pub state: State,
}

impl Problem {
    /// `NAME=VALUE,…` of parameters, then of the state that the operation reads.
    pub fn show(&self, params: &[Param], state: &[Param]) -> String {
        let shown = params.iter().chain(state).filter_map(|p| Some(p.show(self.get(p)?)));
        shown.collect::<Vec<_>>().join(",")
    }

    /// Sets a parameter or a word of the state by name.
    pub fn set(&mut self, param: &Param, value: f64) {
        if self.state.get(param.name).is_some() {
            self.state.set(param.name, value as usize);
        } else {
            self.shape.values.insert(param.name, value);
        }
    }

    /// The value of a parameter or a word of the state.
    pub fn get(&self, param: &Param) -> Option<f64> {
        let state = self.state.get(param.name).map(|value| value as f64);
        state.or_else(|| self.shape.get(param.name))
    }

    /// Reads `NAME=VALUE,…` over `self`; names are matched without regard to case. Also returns
    /// the names of the parameters in the text.
    pub fn parse_over(
        &self,
        kernel: &'static str,
        params: &[&[Param]],
        text: &str,
    ) -> Result<(Problem, Vec<&'static str>), ShapeError> {
        let (mut problem, mut named) = (self.clone(), Vec::new());
        let all = || params.iter().copied().flatten();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| ShapeError::Form(part.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            let param = all().find(|p| p.is_called(name)).ok_or_else(|| ShapeError::Unknown {
                kernel,
                name: name.to_owned(),
                known: all().map(|p| p.name).collect::<Vec<_>>().join(", "),
            })?;
            problem.set(param, param.parse(value)?);
            named.push(param.name);
        }
        Ok((problem, named))
    }
}

impl Param {
    /// Returns true for the parameter's name in any case.
    pub fn is_called(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// The plainest value: 1 of sizes, 0 of places, the first alternative of a choice.
    pub fn plainest(&self) -> Option<f64> {
        match self.kind {
            ParamKind::Dim { .. } => Some(1.0),
            ParamKind::Start { .. } => Some(0.0),
            ParamKind::Choice { set, .. } => Some(f64::from(set.all()[0].1)),
            ParamKind::OneOf(_) | ParamKind::Float { .. } => None,
        }
    }

    /// `NAME=VALUE`, choices by name.
    pub fn show(&self, value: f64) -> String {
        let name = self.name;
        match self.kind {
            ParamKind::Choice { set, .. } => {
                let all = set.all();
                let known = all.iter().find(|(_, code)| f64::from(*code) == value);
                let text = known.map_or_else(|| value.to_string(), |(name, _)| (*name).to_owned());
                format!("{name}={text}")
            }
            ParamKind::Float { .. } => format!("{name}={}", value as f32),
            _ => format!("{name}={value}"),
        }
    }

    /// A value drawn by `pick(n)`, which returns a number below `n`: sizes from the edges of their
    /// tile or at random, the rest uniformly.
    pub fn draw(&self, pick: &mut dyn FnMut(u32) -> u32) -> f64 {
        match self.kind {
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
            ParamKind::OneOf(set) => f64::from(set[pick(set.len() as u32) as usize]),
            ParamKind::Choice { set, mostly_first } => {
                let all = set.all();
                let first = mostly_first && pick(2) == 0;
                f64::from(if first { all[0].1 } else { all[pick(all.len() as u32) as usize].1 })
            }
            ParamKind::Float { low, high, .. } => {
                f64::from(low + (high - low) * (pick(1001) as f32 / 1000.0))
            }
        }
    }

    fn parse(&self, text: &str) -> Result<f64, ShapeError> {
        let wrong = |expected: String| ShapeError::Value {
            name: self.name,
            value: text.to_owned(),
            expected,
        };
        let whole = |least: u32| match text.parse::<u32>() {
            Ok(v) if v >= least => Ok(f64::from(v)),
            _ => Err(wrong(format!("a whole number from {least} to {}", u32::MAX))),
        };
        match self.kind {
            ParamKind::Dim { .. } => whole(1),
            ParamKind::Start { .. } => whole(0),
            ParamKind::OneOf(set) => match text.parse::<u32>() {
                Ok(v) if set.contains(&v) => Ok(f64::from(v)),
                _ => Err(wrong(format!("one of {set:?}"))),
            },
            ParamKind::Choice { set, .. } => {
                let all = set.all();
                let known = all.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
                known.map(|(_, code)| f64::from(*code)).ok_or_else(|| {
                    let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
                    wrong(format!("one of {}", names.join(", ")))
                })
            }
            ParamKind::Float { least, most, .. } => {
                // Neither -0 nor what is smaller than an f32 can hold.
                let is_zero = text.parse::<f64>().is_ok_and(|v| v.to_bits() == 0);
                match text.parse::<f32>() {
                    Ok(v) if (is_zero || v.is_normal()) && (least..=most).contains(&v) => {
                        Ok(f64::from(v))
                    }
                    _ => Err(wrong(format!("a number from {least:?} to {most:?}"))),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::params! {
        /// Parameters of a test.
        struct Gemv {
            k: usize = dim("K", "", 8, 64),
            weight: Format = choice("WEIGHT", "", &Format::DENSE),
            base: f32 = float("BASE", "", 2.0, 3.0).within(1.0, 1e6),
            scale: f32 = float("SCALE", "", 2.0, 3.0),
        }
    }

    fn parse(text: &str) -> Result<Problem, ShapeError> {
        let base = Gemv { k: 1, weight: Format::F32, base: 2.0, scale: 2.0 }.shape();
        let base = Problem { shape: base, ..Problem::default() };
        base.parse_over("gemv", &[Gemv::PARAMS, &[n_kv(4, 9)]], text).map(|(p, _)| p)
    }

    #[test]
    fn parses_over_a_base_and_prints_back() {
        let problem = parse("k=1152, weight=F16, n_kv=7").unwrap();
        assert_eq!(
            problem.show(Gemv::PARAMS, &[n_kv(4, 9)]),
            "K=1152,WEIGHT=f16,BASE=2,SCALE=2,N_KV=7"
        );
        let read = Gemv { k: 1152, weight: Format::F16, base: 2.0, scale: 2.0 };
        assert_eq!(Gemv::read(&problem.shape), read);
        assert_eq!(problem.state, State { n_kv: 7, ..State::default() });
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let error = |t: &str| parse(t).unwrap_err().to_string();
        assert_eq!(error("K"), "`K` is not of the form NAME=VALUE");
        assert_eq!(
            error("M=1"),
            "kernel gemv has no parameter `M`; it has K, WEIGHT, BASE, SCALE, N_KV"
        );
        assert_eq!(error("WEIGHT=q9"), "WEIGHT=q9: expected one of f32, f16, bf16");
        assert!(error("K=0").starts_with("K=0: expected a whole number"));
        for value in ["0", "-0", "0.5", "1e-300", "1e7", "nan", "inf", "-2", "x"] {
            let text = format!("BASE={value}");
            assert_eq!(error(&text), format!("{text}: expected a number from 1.0 to 1000000.0"));
        }
        for (value, is_read) in
            [("0", true), ("1e-30", true), ("-0", false), ("1e-300", false), ("1e-40", false)]
        {
            assert_eq!(parse(&format!("SCALE={value}")).is_ok(), is_read, "{value}");
        }
        assert!(error("K=-3").starts_with("K=-3: expected a whole number"));
    }
}
