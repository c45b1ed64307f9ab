//! What is done to text before it is split: Unicode normal forms and replacements.

use std::borrow::Cow;

use unicode_normalization::{IsNormalized, is_nfd_quick, is_nfkd_quick};
use unicode_normalization::{UnicodeNormalization, is_nfc_quick, is_nfkc_quick};

/// One step; a tokenizer has a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Normalize {
    /// A Unicode normal form.
    Form(Form),
    /// Every `from`, which is not empty, becomes `to`.
    Replace { from: String, to: String },
    /// Goes before text that is not empty.
    Prepend(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

impl Form {
    fn apply(self, text: &str) -> Option<String> {
        let quick = match self {
            Form::Nfc => is_nfc_quick(text.chars()),
            Form::Nfd => is_nfd_quick(text.chars()),
            Form::Nfkc => is_nfkc_quick(text.chars()),
            Form::Nfkd => is_nfkd_quick(text.chars()),
        };
        if quick == IsNormalized::Yes {
            return None;
        }
        Some(match self {
            Form::Nfc => text.nfc().collect(),
            Form::Nfd => text.nfd().collect(),
            Form::Nfkc => text.nfkc().collect(),
            Form::Nfkd => text.nfkd().collect(),
        })
    }
}

/// `text` after all steps, borrowed where they change nothing.
pub(super) fn apply<'t>(steps: &[Normalize], text: &'t str) -> Cow<'t, str> {
    let mut text = Cow::Borrowed(text);
    for step in steps {
        let changed = match step {
            Normalize::Form(form) => form.apply(&text),
            Normalize::Replace { from, to } => {
                text.contains(from.as_str()).then(|| text.replace(from.as_str(), to))
            }
            Normalize::Prepend(prefix) => (!text.is_empty()).then(|| format!("{prefix}{text}")),
        };
        if let Some(changed) = changed {
            text = Cow::Owned(changed);
        }
    }
    text
}
