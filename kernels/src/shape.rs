//! A problem: the named parameters of one kernel invocation.

use std::collections::BTreeMap;
use std::fmt;

use crate::layout::Format;

/// How a parameter is read, swept and printed.
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
    /// A weight format out of a set, passed to WGSL as its code.
    Formats(&'static [Format]),
    /// A named alternative, passed to WGSL as its index.
    Choice(&'static [&'static str]),
    /// As `Choice`; sweeps mostly draw the first.
    Mostly(&'static [&'static str]),
    /// A real number, drawn from `[low, high]` in sweeps.
    Float {
        /// Lower end of the sweep.
        low: f32,
        /// Upper end of the sweep.
        high: f32,
    },
}

/// A parameter of a kernel. Where a WGSL `override` has the same name, it gets this value.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Name as in WGSL, upper case.
    pub name: &'static str,
    /// What it is, with its unit.
    pub doc: &'static str,
    /// How it is read, swept and printed.
    pub kind: ParamKind,
}

/// Why a `--shape` text is not a shape of this kernel.
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
        /// What would be accepted.
        expected: String,
    },
}

/// Values of a kernel's parameters. Sizes and choices are whole numbers; every value is exact in
/// an f64, which is also how pipeline constants travel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    values: BTreeMap<&'static str, f64>,
}

impl Shape {
    /// A shape of the given parameters.
    pub fn new(values: &[(&'static str, f64)]) -> Self {
        Self { values: values.iter().copied().collect() }
    }

    /// This shape with one more (or another) value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: f64) -> Self {
        self.values.insert(name, value);
        self
    }

    /// The value of a parameter, if set.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    /// A size or choice. Panics when it is not set: shapes are complete by construction
    /// ([`Param`] defaults, or the decode graph).
    pub fn dim(&self, name: &str) -> usize {
        self.float(name) as usize
    }

    /// A real parameter. Panics when it is not set.
    pub fn float(&self, name: &str) -> f64 {
        self.get(name).unwrap_or_else(|| panic!("shape {self} has no parameter {name}"))
    }

    /// All values by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.values.iter().map(|(n, v)| (*n, *v))
    }

    /// `NAME=VALUE,…` in the order of `params`, choices by name.
    pub fn show(&self, params: &[Param]) -> String {
        let mut parts = Vec::new();
        for p in params {
            if let Some(v) = self.get(p.name) {
                match p.kind {
                    ParamKind::Choice(names) | ParamKind::Mostly(names) => {
                        parts.push(format!("{}={}", p.name, names[v as usize]));
                    }
                    ParamKind::Formats(_) => {
                        parts.push(format!("{}={}", p.name, Format::from_code(v as usize).name()));
                    }
                    ParamKind::Float { .. } => parts.push(format!("{}={}", p.name, v as f32)),
                    _ => parts.push(format!("{}={v}", p.name)),
                }
            }
        }
        parts.join(",")
    }

    /// Reads `NAME=VALUE,…` over `base`; names are matched without regard to case.
    pub fn parse_over(
        base: &Shape,
        kernel: &'static str,
        params: &[Param],
        text: &str,
    ) -> Result<Shape, ShapeError> {
        let mut shape = base.clone();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| ShapeError::Form(part.to_owned()))?;
            let param = params
                .iter()
                .find(|p| p.name.eq_ignore_ascii_case(name.trim()))
                .ok_or_else(|| ShapeError::Unknown {
                    kernel,
                    name: name.trim().to_owned(),
                    known: params.iter().map(|p| p.name).collect::<Vec<_>>().join(", "),
                })?;
            shape.values.insert(param.name, param.parse(value.trim())?);
        }
        Ok(shape)
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

impl Param {
    /// A size; see [`ParamKind::Dim`].
    pub const fn dim(name: &'static str, doc: &'static str, tile: u32, max: u32) -> Self {
        Self { name, doc, kind: ParamKind::Dim { tile, max } }
    }

    /// A size out of a fixed set.
    pub const fn one_of(name: &'static str, doc: &'static str, set: &'static [u32]) -> Self {
        Self { name, doc, kind: ParamKind::OneOf(set) }
    }

    /// A place from 0 on; sweeps draw at most `max`.
    pub const fn start(name: &'static str, doc: &'static str, max: u32) -> Self {
        Self { name, doc, kind: ParamKind::Start { max } }
    }

    /// A weight format out of a set.
    pub const fn formats(name: &'static str, doc: &'static str, set: &'static [Format]) -> Self {
        Self { name, doc, kind: ParamKind::Formats(set) }
    }

    /// A named alternative.
    pub const fn choice(
        name: &'static str,
        doc: &'static str,
        names: &'static [&'static str],
    ) -> Self {
        Self { name, doc, kind: ParamKind::Choice(names) }
    }

    /// A named alternative of which sweeps mostly draw the first.
    pub const fn mostly(
        name: &'static str,
        doc: &'static str,
        names: &'static [&'static str],
    ) -> Self {
        Self { name, doc, kind: ParamKind::Mostly(names) }
    }

    /// A real number; sweeps draw it from `[low, high]`.
    pub const fn float(name: &'static str, doc: &'static str, low: f32, high: f32) -> Self {
        Self { name, doc, kind: ParamKind::Float { low, high } }
    }

    fn parse(&self, text: &str) -> Result<f64, ShapeError> {
        let wrong = |expected: String| ShapeError::Value {
            name: self.name,
            value: text.to_owned(),
            expected,
        };
        match self.kind {
            ParamKind::Dim { .. } => match text.parse::<u32>() {
                Ok(v) if v > 0 => Ok(f64::from(v)),
                _ => Err(wrong("a whole number from 1 to 4294967295".into())),
            },
            ParamKind::Start { .. } => {
                let wanted = || wrong("a whole number from 0 to 4294967295".into());
                text.parse::<u32>().map(f64::from).map_err(|_| wanted())
            }
            ParamKind::Formats(set) => {
                set.iter().find(|f| f.name().eq_ignore_ascii_case(text)).map_or_else(
                    || {
                        let names: Vec<_> = set.iter().map(|f| f.name()).collect();
                        Err(wrong(format!("one of {}", names.join(", "))))
                    },
                    |f| Ok(f.code()),
                )
            }
            ParamKind::OneOf(set) => match text.parse::<u32>() {
                Ok(v) if set.contains(&v) => Ok(f64::from(v)),
                _ => Err(wrong(format!("one of {set:?}"))),
            },
            ParamKind::Choice(names) | ParamKind::Mostly(names) => names
                .iter()
                .position(|n| n.eq_ignore_ascii_case(text))
                .map(|i| i as f64)
                .ok_or_else(|| wrong(format!("one of {}", names.join(", ")))),
            ParamKind::Float { low, .. } => match text.parse::<f32>() {
                Ok(v) if v.is_finite() && (v >= 0.0 || low < 0.0) => Ok(f64::from(v)),
                _ => Err(wrong("a finite number, not negative".into())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: &[Param] = &[
        Param { name: "K", doc: "", kind: ParamKind::Dim { tile: 8, max: 64 } },
        Param { name: "WEIGHT", doc: "", kind: ParamKind::Choice(&["f32", "f16"]) },
    ];

    #[test]
    fn parses_over_a_base_and_prints_back() {
        let base = Shape::new(&[("K", 1.0), ("WEIGHT", 0.0)]);
        let shape = Shape::parse_over(&base, "gemv", PARAMS, "k=1152, weight=F16").unwrap();
        assert_eq!(shape.show(PARAMS), "K=1152,WEIGHT=f16");
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let base = Shape::default();
        let error = |t| Shape::parse_over(&base, "gemv", PARAMS, t).unwrap_err().to_string();
        assert_eq!(error("K"), "`K` is not of the form NAME=VALUE");
        assert_eq!(error("M=1"), "kernel gemv has no parameter `M`; it has K, WEIGHT");
        assert_eq!(error("WEIGHT=q9"), "WEIGHT=q9: expected one of f32, f16");
        assert!(error("K=0").starts_with("K=0: expected a whole number"));
        assert!(error("K=-3").starts_with("K=-3: expected a whole number"));
    }
}
