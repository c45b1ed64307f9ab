//! A value of the file with its place, so that every complaint says where.

use serde_json::{Map, Value};

use crate::json::shown;
use crate::tokenizer::TokenizerError;

/// An error with its place.
pub(super) fn refused(key: impl Into<String>, why: impl Into<String>) -> TokenizerError {
    TokenizerError::Json { key: key.into(), why: why.into() }
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node<'v> {
    pub(super) path: String,
    value: &'v Value,
}

impl<'v> Node<'v> {
    pub(super) fn root(path: &str, value: &'v Value) -> Self {
        Self { path: path.to_owned(), value }
    }

    pub(super) fn error(&self, why: impl Into<String>) -> TokenizerError {
        refused(self.path.clone(), why)
    }

    fn expected(&self, what: &str) -> TokenizerError {
        self.error(format!("expected {what}, found {}", shown(self.value)))
    }

    pub(super) fn is_null(&self) -> bool {
        self.value.is_null()
    }

    fn object(&self) -> Result<&'v Map<String, Value>, TokenizerError> {
        self.value.as_object().ok_or_else(|| self.expected("an object"))
    }

    /// The entry with this name; null where there is none.
    pub(super) fn get(&self, key: &str) -> Result<Node<'v>, TokenizerError> {
        let value = self.object()?.get(key).unwrap_or(&Value::Null);
        Ok(Node { path: format!("{}.{key}", self.path), value })
    }

    /// The `type`, by which a part is known.
    pub(super) fn ty(&self) -> Result<&'v str, TokenizerError> {
        self.get("type")?.str()
    }

    /// Refuses entries other than `type` and these: what is not known cannot be followed.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), TokenizerError> {
        match self.object()?.keys().find(|k| *k != "type" && !known.contains(&k.as_str())) {
            None => Ok(()),
            Some(key) => Err(refused(format!("{}.{key}", self.path), "is not supported")),
        }
    }

    /// A `type` that is none of the supported ones.
    pub(super) fn unsupported(&self, supported: &str) -> TokenizerError {
        let ty = self.ty().unwrap_or_default();
        refused(
            format!("{}.type", self.path),
            format!("`{ty}` is not supported; supported are {supported}"),
        )
    }

    pub(super) fn str(&self) -> Result<&'v str, TokenizerError> {
        self.value.as_str().ok_or_else(|| self.expected("a string"))
    }

    pub(super) fn char(&self) -> Result<char, TokenizerError> {
        let mut chars = self.str()?.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) => Ok(c),
            _ => Err(self.expected("one character")),
        }
    }

    /// A flag; `missing` where it is not given.
    pub(super) fn flag(&self, missing: bool) -> Result<bool, TokenizerError> {
        match self.value {
            Value::Null => Ok(missing),
            Value::Bool(flag) => Ok(*flag),
            _ => Err(self.expected("true or false")),
        }
    }

    pub(super) fn number(&self) -> Result<u32, TokenizerError> {
        let number = self.value.as_u64().and_then(|n| u32::try_from(n).ok());
        number.ok_or_else(|| self.expected("a number below 2^32"))
    }

    pub(super) fn list(&self) -> Result<Vec<Node<'v>>, TokenizerError> {
        let list = self.value.as_array().ok_or_else(|| self.expected("a list"))?;
        let node = |(i, value)| Node { path: format!("{}[{i}]", self.path), value };
        Ok(list.iter().enumerate().map(node).collect())
    }

    /// The parts of a `Sequence` in `key`, of those in it too, in order; itself if it is none; none
    /// at all where it is null. The reader of the file bounds how deep they nest.
    pub(super) fn flattened(&self, key: &str) -> Result<Vec<Node<'v>>, TokenizerError> {
        if self.is_null() {
            return Ok(Vec::new());
        }
        if self.ty()? != "Sequence" {
            return Ok(vec![self.clone()]);
        }
        self.only(&[key])?;
        let mut all = Vec::new();
        for part in self.get(key)?.list()? {
            all.extend(part.flattened(key)?);
        }
        Ok(all)
    }
}
