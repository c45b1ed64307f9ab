//! Sections of the TOML file that accompanies a user's WGSL.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// A whole mapping.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Mapping {
    /// The WGSL file, for a mapping that is itself named; by default the one of the same name.
    pub(super) file: Option<PathBuf>,
    pub(super) packing: Option<String>,
    pub(super) tolerance: Option<ToleranceMapping>,
    /// Values that parameters may have; under `when`, conditions.
    pub(super) takes: BTreeMap<String, Numbers>,
    pub(super) stage: Vec<StageMapping>,
    /// Bytes of scratch memory, by its name.
    pub(super) scratch: BTreeMap<String, Number>,
    /// Meanings of the variables of every stage.
    #[serde(flatten)]
    pub(super) sections: Sections,
}

/// One dispatch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StageMapping {
    /// WGSL file, if not the mapping's.
    pub(super) file: Option<PathBuf>,
    pub(super) entry: String,
    /// Workgroups in one to three dimensions.
    pub(super) workgroups: Numbers,
    /// Differences from the mapping's sections, for this stage alone.
    #[serde(flatten)]
    pub(super) sections: Sections,
}

/// Meanings of the variables of a text.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Sections {
    /// Bindings that storage variables hold.
    pub(super) bindings: BTreeMap<String, BoundTo>,
    /// Content of uniform variables.
    pub(super) uniforms: BTreeMap<String, Content>,
    pub(super) overrides: BTreeMap<String, Number>,
}

/// Target of a storage variable.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a binding's name, or a table of `of` and how it lies there"
)]
pub(super) enum BoundTo {
    /// A binding, or scratch memory.
    Name(String),
    /// A binding in a layout of its own.
    Laid(Laid),
}

/// Layout of a binding in a variable, where it differs from ours.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Laid {
    pub(super) of: String,
    /// The first row, and the one after the last.
    pub(super) from: Option<Number>,
    pub(super) to: Option<Number>,
    /// A field of quantised blocks, and its type.
    pub(super) field: Option<String>,
    #[serde(rename = "type")]
    pub(super) stored: Option<String>,
    pub(super) order: Option<String>,
}

impl BoundTo {
    /// The layout; none for a binding in our layout.
    pub(super) fn laid(&self) -> Option<&Laid> {
        match self {
            BoundTo::Laid(laid) => Some(laid),
            BoundTo::Name(_) => None,
        }
    }

    /// The binding.
    pub(super) fn of(&self) -> &str {
        match self {
            BoundTo::Name(name) => name,
            BoundTo::Laid(laid) => &laid.of,
        }
    }
}

/// Content of a uniform variable.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected numbers or expressions, one or a flat list, or a table of these by field"
)]
pub(super) enum Content {
    /// Values of each field of a struct.
    Fields(BTreeMap<String, Numbers>),
    /// Values of a uniform that is not a struct.
    Whole(Numbers),
}

/// A number, or all numbers of a vector, matrix or array in the order of WGSL's constructor.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number, an expression, or a flat list of them")]
pub(super) enum Numbers {
    One(Number),
    List(Vec<Number>),
}

impl Numbers {
    pub(super) fn list(&self) -> &[Number] {
        match self {
            Numbers::One(number) => std::slice::from_ref(number),
            Numbers::List(list) => list,
        }
    }

    /// Each as a text: for [takes], where a value may be a name such as `f16`.
    pub(super) fn texts(&self) -> Vec<String> {
        let text = |number: &Number| match number {
            Number::Truth(holds) => holds.to_string(),
            Number::Literal(number) => number.to_string(),
            Number::Expression(text) => text.clone(),
        };
        self.list().iter().map(text).collect()
    }
}

/// Tolerance of the file's distance from the reference.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected the name of a variant, or a table of `nmse` and `k`")]
pub(super) enum ToleranceMapping {
    /// The tolerance of a built-in variant.
    Variant(String),
    /// Bounds of its own; the operation's where one is left out.
    Own(OwnTolerance),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OwnTolerance {
    pub(super) nmse: Option<f64>,
    pub(super) k: Option<f64>,
}

/// A number, true or false as 1 or 0, or an expression. A value of a parameter may be another text.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected true, false, a number or an expression")]
pub(super) enum Number {
    Truth(bool),
    Literal(f64),
    Expression(String),
}
