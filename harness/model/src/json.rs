//! JSON of files that are not trusted: no key twice, values of stated types, and messages that name
//! the key.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::fault::Fault;
use super::keys::{Found, Keys};

/// Reads a document. Readers differ in which of two equal keys they believe, so none may come
/// twice.
///
/// # Errors
/// It is no JSON, nests too deeply, or an object names a key twice; with line and column.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice::<Strict>(bytes).map(|strict| strict.0)
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any).map(Strict)
    }
}

struct Any;

macro_rules! scalars {
    ($($visit:ident($ty:ty))*) => {
        $(fn $visit<E>(self, v: $ty) -> Result<Value, E> {
            Ok(v.into())
        })*
    };
}

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    scalars! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Strict(value)) = seq.next_element()? {
            all.push(value);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!("key `{key}` comes twice")));
            }
            map.insert(key, entries.next_value::<Strict>()?.0);
        }
        Ok(Value::Object(map))
    }
}

/// A value as a message shows it: short, whatever the file holds.
pub(crate) fn shown(value: &Value) -> String {
    cut(value.to_string(), 60)
}

/// The first characters of a text, and a sign that there are more.
pub(crate) fn cut(mut text: String, most: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// An object and the path to it. A key whose value is null counts as missing, as it does for those
/// who write these files.
#[derive(Clone, Debug)]
pub(crate) struct Object<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    /// The whole document.
    pub(crate) fn root(value: &'a Value) -> Result<Self, Fault> {
        let map = value.as_object().ok_or_else(|| {
            Fault::of("key `.`", format!("expected an object, found {}", shown(value)))
        })?;
        Ok(Self { path: String::new(), map })
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Returns true for a key that is there, be its value null.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.map.iter()
    }

    pub(crate) fn object(&self, key: &str) -> Result<Option<Object<'a>>, Fault> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let map = value.as_object().ok_or_else(|| self.wrong(key, "an object"))?;
        Ok(Some(Object { path: format!("{}{key}.", self.path), map }))
    }

    pub(crate) fn array(&self, key: &str) -> Result<Option<&'a Vec<Value>>, Fault> {
        let array = |value: &'a Value| value.as_array().ok_or_else(|| self.wrong(key, "an array"));
        self.get(key).map(array).transpose()
    }
}

impl Keys for Object<'_> {
    const FORMAT: usize = 1;

    fn find(&self, key: &str) -> Option<Found<'_>> {
        Some(match self.get(key)? {
            Value::Bool(v) => Found::Switch(*v),
            Value::String(v) => Found::Text(v),
            Value::Number(v) => match v.as_i128() {
                Some(v) => Found::Whole(v),
                None => Found::Real(v.as_f64()?),
            },
            _ => Found::Other,
        })
    }

    fn shown(&self, key: &str) -> String {
        self.map.get(key).map_or_else(|| "nothing".to_owned(), shown)
    }

    fn error(&self, key: &str, why: impl Into<String>) -> Fault {
        Fault::of(format!("key `{}{key}`", self.path), why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_comes_twice_is_refused_at_any_depth() {
        let error = parse(br#"{"a": {"b": 1, "b": 1}}"#).unwrap_err().to_string();
        assert!(error.contains("key `b` comes twice"), "{error}");
        assert_eq!(parse(br#"{"a": [{"b": 1}, {"b": 1}]}"#).unwrap()["a"][1]["b"], 1);
        assert!(parse(&[b'['; 100_000]).is_err(), "deep nesting is an error and no overflow");
    }

    #[test]
    fn values_of_wrong_types_name_their_path() {
        let value = parse(br#"{"a": {"n": -1, "x": 1e400, "z": 0, "none": null}}"#);
        assert!(value.is_err(), "a number beyond f64 is no JSON value");
        let value = parse(br#"{"a": {"n": -1, "x": 1e300, "z": 0, "none": null}}"#).unwrap();
        let a = Object::root(&value).unwrap().object("a").unwrap().unwrap();
        let says = |e: Fault| e.to_string();
        assert!(says(a.u32("n").unwrap_err()).starts_with("key `a.n`: expected a whole number"));
        assert!(says(a.optional_positive("x").unwrap_err()).contains("finite"));
        assert!(says(a.size("z").unwrap_err()).contains("above zero"));
        assert_eq!(says(a.size("none").unwrap_err()), "key `a.none`: is missing");
        assert!(says(a.text("n").unwrap_err()).contains("expected a string, found -1"));
    }
}
