//! What stands in the TOML file beside a user's WGSL.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A whole mapping.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mapping {
    pub(super) packing: Option<String>,
    pub(super) tolerance: Option<ToleranceMapping>,
    #[serde(default)]
    pub(super) takes: BTreeMap<String, Taken>,
    #[serde(default)]
    pub(super) stage: Vec<StageMapping>,
    #[serde(default)]
    pub(super) bindings: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) uniforms: BTreeMap<String, BTreeMap<String, Number>>,
    #[serde(default)]
    pub(super) overrides: BTreeMap<String, Number>,
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
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OwnTolerance {
    pub(super) nmse: Option<f64>,
    pub(super) k: Option<f64>,
}

/// One dispatch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StageMapping {
    pub(super) entry: String,
    pub(super) workgroups: Workgroups,
}

/// One number, or a list of one to three.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number, an expression, or a list of one to three")]
pub(super) enum Workgroups {
    X(Number),
    List(Vec<Number>),
}

impl Workgroups {
    pub(super) fn list(&self) -> &[Number] {
        match self {
            Workgroups::X(number) => std::slice::from_ref(number),
            Workgroups::List(list) => list,
        }
    }
}

/// A number, or an expression that has one.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number or an expression")]
pub(super) enum Number {
    Literal(f64),
    Expression(String),
}

/// Values that a parameter may have, or under `when` conditions.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a value, `multiple of N`, or a list of values")]
pub(super) enum Taken {
    Number(f64),
    Text(String),
    List(Vec<Value>),
}

/// One value.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a value")]
pub(super) enum Value {
    Number(f64),
    Text(String),
}

impl Value {
    /// As `--shape` reads it.
    pub(super) fn text(&self) -> String {
        match self {
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text.clone(),
        }
    }
}

impl Taken {
    /// One value or several, each as a text.
    pub(super) fn texts(&self) -> Vec<String> {
        match self {
            Taken::Number(number) => vec![number.to_string()],
            Taken::Text(text) => vec![text.clone()],
            Taken::List(list) => list.iter().map(Value::text).collect(),
        }
    }
}
