//! What templates expect of Python: methods of strings, lists and dictionaries, and its JSON.

use std::io::{self, Write};

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};

use super::Bounded;

/// Methods that minijinja's values do not have. Those that could make much of little go through
/// the filters of the same name, which ask for fuel first.
pub(super) fn method(
    state: &mut State,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if value.kind() == ValueKind::String {
        match (name, args) {
            ("replace", [from, to]) => {
                return state.apply_filter("replace", &[value.clone(), from.clone(), to.clone()]);
            }
            ("join", [items]) => {
                return state.apply_filter("join", &[items.clone(), value.clone()]);
            }
            // Both can ask for any width or number.
            ("replace" | "format", _) => {
                let why = format!("str.{name} with these arguments is not supported");
                return Err(Error::new(ErrorKind::UnknownMethod, why));
            }
            _ => {}
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

/// Python's `json.dumps` without escaping what is not ASCII, as the transformers library has it.
#[allow(clippy::needless_pass_by_value, reason = "what a filter is given")]
pub(super) fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let ensure_ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    kwargs.assert_all_used()?;
    let refuse = |why: &str| Error::new(ErrorKind::InvalidOperation, format!("tojson: {why}"));
    if ensure_ascii == Some(true) {
        return Err(refuse("ensure_ascii is not supported"));
    }
    // A list may hold one long text a thousand times, which costs no fuel before it is written out.
    let mut out = Bounded::default();
    let written = match indent {
        Some(indent) if indent > 16 => return Err(refuse("an indent is at most 16")),
        Some(indent) => {
            let spaces = " ".repeat(indent);
            let formatter = PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Spaced)),
    };
    written.map_err(|e| refuse(&e.to_string()))?;
    String::from_utf8(out.bytes).map(Value::from).map_err(|e| refuse(&e.to_string()))
}

/// A space after commas and colons.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}
