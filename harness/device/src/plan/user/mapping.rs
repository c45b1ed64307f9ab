//! What stands in the TOML file beside a user's WGSL.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// A whole mapping.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mapping {
    /// The WGSL, of a mapping that is named itself; else that of its own name.
    pub(super) file: Option<PathBuf>,
    pub(super) packing: Option<String>,
    pub(super) tolerance: Option<ToleranceMapping>,
    #[serde(default)]
    pub(super) takes: BTreeMap<String, Taken>,
    #[serde(default)]
    pub(super) stage: Vec<StageMapping>,
    /// What each storage variable is.
    #[serde(default)]
    pub(super) bindings: BTreeMap<String, BoundTo>,
    /// What each uniform variable holds.
    #[serde(default)]
    pub(super) uniforms: BTreeMap<String, Content>,
    #[serde(default)]
    pub(super) overrides: BTreeMap<String, Setting>,
    /// Bytes of scratch memory, by its name.
    #[serde(default)]
    pub(super) scratch: BTreeMap<String, Number>,
    /// The operation, where Lathe does not have it.
    pub(super) operation: Option<OperationMapping>,
}

/// An operation of the user's own.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct OperationMapping {
    /// That of the golden file's stem where it has none.
    pub(super) name: Option<String>,
    /// Inputs and what should come of them, as safetensors; beside the mapping.
    pub(super) golden: PathBuf,
    #[serde(default)]
    pub(super) params: Vec<String>,
    #[serde(default)]
    pub(super) inputs: BTreeMap<String, Element>,
    #[serde(default)]
    pub(super) outputs: BTreeMap<String, Element>,
    #[serde(default)]
    pub(super) in_out: BTreeMap<String, Element>,
    /// Bytes that an invocation must move, over parameters and `BINDING.len`.
    pub(super) bytes: Number,
    /// Floating-point operations of an invocation.
    pub(super) flops: Number,
    /// Bounds of real outputs.
    pub(super) tolerance: Option<OwnTolerance>,
}

/// What a binding of such an operation holds.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged, expecting = "expected a type such as `f32`, or a table of `type` and `len`")]
pub(super) enum Element {
    /// As many as the golden file has.
    Type(String),
    /// As many as an expression over the parameters says.
    Sized(SizedElement),
}

/// A binding of a stated length.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct SizedElement {
    #[serde(rename = "type")]
    pub(super) stored: String,
    pub(super) len: Number,
}

impl Element {
    /// The type's name, and the length where it is stated.
    pub(super) fn parts(&self) -> (&str, Option<&Number>) {
        match self {
            Element::Type(name) => (name, None),
            Element::Sized(SizedElement { stored, len }) => (stored, Some(len)),
        }
    }
}

/// What a storage variable is.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a binding's name, or a table of `of` and how it lies there"
)]
pub(super) enum BoundTo {
    /// A binding, `weights.FIELD`, or scratch memory.
    Name(String),
    /// A binding in a layout of its own.
    Laid(Laid),
}

/// How a variable holds a binding, where that is not our way.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Laid {
    pub(super) of: String,
    /// The first row, and the one behind the last.
    pub(super) from: Option<Number>,
    pub(super) to: Option<Number>,
    /// A field of quantised blocks, and its type.
    pub(super) field: Option<String>,
    #[serde(rename = "type")]
    pub(super) stored: Option<String>,
    pub(super) packing: Option<String>,
    pub(super) order: Option<String>,
}

impl BoundTo {
    /// The same as a table; nothing of a binding that stays as it is.
    pub(super) fn laid(&self) -> Option<Laid> {
        match self {
            BoundTo::Laid(laid) => Some(laid.clone()),
            BoundTo::Name(name) => {
                let (of, field) = name.split_once('.')?;
                Some(Laid { of: of.into(), field: Some(field.into()), ..Laid::default() })
            }
        }
    }

    /// The binding.
    pub(super) fn of(&self) -> &str {
        match self {
            BoundTo::Name(name) => name.split('.').next().unwrap_or(name),
            BoundTo::Laid(laid) => &laid.of,
        }
    }
}

/// What a uniform variable holds.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    /// Of each field of a struct.
    Fields(BTreeMap<String, Numbers>),
    /// Of one that is no struct.
    Whole(Numbers),
}

/// A number, or all of a vector, matrix or array in the order in which WGSL constructs it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Numbers {
    One(Number),
    List(Vec<Number>),
    /// What is neither; whoever wants numbers says where it stands.
    Other(serde_json::Value),
}

impl Numbers {
    pub(super) fn list(&self) -> Result<&[Number], &serde_json::Value> {
        match self {
            Numbers::One(number) => Ok(std::slice::from_ref(number)),
            Numbers::List(list) => Ok(list),
            Numbers::Other(value) => Err(value),
        }
    }
}

/// The value of an override.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected true, false, a number or an expression")]
pub(super) enum Setting {
    Truth(bool),
    Number(Number),
}

/// How far the file may lie from the reference.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected the name of a variant, or a table of `nmse` and `k`")]
pub(super) enum ToleranceMapping {
    /// As far as a built-in variant.
    Variant(String),
    /// As far as it says.
    Own(OwnTolerance),
}

/// What is left out is the operation's.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct OwnTolerance {
    pub(super) nmse: Option<f64>,
    pub(super) k: Option<f64>,
}

/// One dispatch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StageMapping {
    /// Another file than the mapping's.
    pub(super) file: Option<PathBuf>,
    pub(super) entry: String,
    /// One to three.
    pub(super) workgroups: Numbers,
    // What differs from the sections of these names, for this stage alone.
    #[serde(default)]
    pub(super) bindings: BTreeMap<String, BoundTo>,
    #[serde(default)]
    pub(super) uniforms: BTreeMap<String, Content>,
    #[serde(default)]
    pub(super) overrides: BTreeMap<String, Setting>,
}

impl StageMapping {
    /// Runs the mapping's own file with the mapping's own sections.
    pub(super) fn is_plain(&self) -> bool {
        let Self { file, bindings, uniforms, overrides, .. } = self;
        file.is_none() && bindings.is_empty() && uniforms.is_empty() && overrides.is_empty()
    }
}

/// A number, or an expression that has one; a parameter's value may be another text.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged, expecting = "expected a number or an expression")]
pub(super) enum Number {
    Literal(f64),
    Expression(String),
}

/// Values that a parameter may have, or under `when` conditions.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a value, `multiple of N`, or a list of values")]
pub(super) enum Taken {
    One(Number),
    List(Vec<Number>),
}

impl Number {
    /// As `--shape` reads it.
    fn text(&self) -> String {
        match self {
            Number::Literal(number) => number.to_string(),
            Number::Expression(text) => text.clone(),
        }
    }
}

impl Taken {
    /// One value or several, each as a text.
    pub(super) fn texts(&self) -> Vec<String> {
        match self {
            Taken::One(value) => vec![value.text()],
            Taken::List(list) => list.iter().map(Number::text).collect(),
        }
    }
}
