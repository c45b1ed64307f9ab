//! Typed reading of keyed values, the metadata of a GGUF or an object of JSON. Every error names
//! the key.

use super::fault::Fault;

/// A value as it stands in a file.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Found<'a> {
    Whole(i128),
    Real(f64),
    Switch(bool),
    Text(&'a str),
    /// A list or an object.
    Other,
}

/// Values by their keys, whatever the format. A getter gives none where a key is absent, and an
/// error where its value has another type.
#[allow(missing_docs, clippy::missing_errors_doc, reason = "said of all getters above")]
pub trait Keys {
    /// Column of the format in the tables of keys: 0 GGUF, 1 `config.json`.
    const FORMAT: usize;

    fn find(&self, key: &str) -> Option<Found<'_>>;
    /// The value in words, for messages; a type where that says more.
    fn shown(&self, key: &str) -> String;
    /// An error at a key.
    fn error(&self, key: &str, why: impl Into<String>) -> Fault;

    /// Refuses a value and shows it.
    fn refused(&self, key: &str, why: impl Into<String>) -> Fault {
        self.error(key, format!("{} is refused: {}", self.shown(key), why.into()))
    }

    fn missing(&self, key: &str) -> Fault {
        self.error(key, "is missing")
    }

    /// An error of type.
    fn wrong(&self, key: &str, expected: &str) -> Fault {
        self.error(key, format!("expected {expected}, found {}", self.shown(key)))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl FnOnce(Found<'a>) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        let Some(found) = self.find(key) else { return Ok(None) };
        read(found).map(Some).ok_or_else(|| self.wrong(key, expected))
    }

    fn u32(&self, key: &str) -> Result<Option<u32>, Fault> {
        self.typed(key, "a whole number from 0 to 4294967295", |found| match found {
            Found::Whole(v) => u32::try_from(v).ok(),
            _ => None,
        })
    }

    fn f64(&self, key: &str) -> Result<Option<f64>, Fault> {
        self.typed(key, if Self::FORMAT == 0 { "a float" } else { "a number" }, |found| match found
        {
            Found::Real(v) => Some(v),
            // JSON has one type of numbers, GGUF many.
            Found::Whole(v) if Self::FORMAT == 1 => Some(v as f64),
            _ => None,
        })
    }

    fn bool(&self, key: &str) -> Result<Option<bool>, Fault> {
        self.typed(key, "true or false", |found| match found {
            Found::Switch(v) => Some(v),
            _ => None,
        })
    }

    fn text(&self, key: &str) -> Result<Option<&str>, Fault> {
        self.typed(key, "a string", |found| match found {
            Found::Text(v) => Some(v),
            _ => None,
        })
    }

    /// A size, above zero where it is given.
    fn optional_size(&self, key: &str) -> Result<Option<usize>, Fault> {
        match self.u32(key)? {
            Some(0) => Err(self.refused(key, "it must be above zero")),
            size => Ok(size.map(|size| size as usize)),
        }
    }

    fn size(&self, key: &str) -> Result<usize, Fault> {
        self.optional_size(key)?.ok_or_else(|| self.missing(key))
    }

    /// A number that is above zero, also as f32.
    fn optional_positive(&self, key: &str) -> Result<Option<f64>, Fault> {
        match self.f64(key)? {
            Some(v) if !((v as f32).is_finite() && (v as f32) > 0.0) => {
                Err(self.refused(key, "it must be finite and above zero"))
            }
            v => Ok(v),
        }
    }

    fn positive(&self, key: &str) -> Result<f64, Fault> {
        self.optional_positive(key)?.ok_or_else(|| self.missing(key))
    }
}
