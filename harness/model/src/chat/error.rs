//! Why a template gives no text.

/// A chat template that cannot be used. Messages name the line where there is one.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum ChatError {
    #[error("chat template{}: {why}", .line.map_or_else(String::new, |line| format!(", line {line}")))]
    Template { line: Option<usize>, why: String },
    #[error("chat template: it has {found} bytes; at most {limit} are read")]
    TooLong { found: usize, limit: usize },
    #[error("chat template: it makes more than {limit} bytes of text")]
    OutputTooLong { limit: usize },
    #[error("chat template: byte {offset} is not UTF-8")]
    Utf8 { offset: usize },
    #[error("`{key}` {why}")]
    Config { key: &'static str, why: String },
    #[error("is no JSON: {why}")]
    Syntax { why: String },
    #[error("chat template: {why}")]
    Thread { why: String },
}

impl From<minijinja::Error> for ChatError {
    fn from(error: minijinja::Error) -> Self {
        use std::error::Error as _;
        // The place where it went wrong is that of the innermost error that has one.
        let mut line = error.line();
        let mut causes = Vec::new();
        let mut source = error.source();
        while let Some(cause) = source {
            if let Some(inner) = cause.downcast_ref::<minijinja::Error>() {
                line = inner.line().or(line);
                causes.push(why(inner));
            } else {
                causes.push(cause.to_string());
            }
            source = cause.source();
        }
        let all = std::iter::once(why(&error)).chain(causes).collect::<Vec<_>>();
        ChatError::Template { line, why: all.join(": ") }
    }
}

fn why(error: &minijinja::Error) -> String {
    let kind = match error.kind() {
        minijinja::ErrorKind::OutOfFuel => "it runs too long or makes too much".to_owned(),
        kind => kind.to_string(),
    };
    match error.detail() {
        None => kind,
        Some(detail) => format!("{kind}: {detail}"),
    }
}
