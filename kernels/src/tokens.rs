//! Tokens and top-level declarations of a WGSL text: as much of the language as linking needs.
//! naga does not say which names a text leaves open, because it does not read such a text at all.

use std::ops::Range;

/// A word, a number or one other character, and the line it is on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    /// Line, from 1.
    pub(crate) line: usize,
    /// Bytes of the text before it.
    pub(crate) at: usize,
}

impl Token<'_> {
    /// An identifier or keyword.
    pub(crate) fn is_word(self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// A declaration at the top level of a text.
#[derive(Clone, Debug)]
pub(crate) struct Declaration<'a> {
    /// `fn`, `struct`, `alias`, `const`, `override` or `var`; a directive's own keyword.
    pub(crate) kind: &'a str,
    /// Empty for directives and assertions.
    pub(crate) name: &'a str,
    /// Types that a user of the name relies on, without parameter names, values and attributes.
    pub(crate) signature: String,
    pub(crate) line: usize,
    /// Tokens of the declaration, attributes included.
    pub(crate) tokens: Range<usize>,
    /// True if it has `@compute`.
    pub(crate) is_entry: bool,
    /// True if it has `@binding`.
    pub(crate) is_binding: bool,
}

/// The tokens of a text without its comments.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if c.is_whitespace() {
            c.len_utf8()
        } else {
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            let length = if c.is_ascii_digit() {
                rest.find(|c| !is_part(c) && c != '.').unwrap_or(rest.len())
            } else if is_part(c) {
                rest.find(|c| !is_part(c)).unwrap_or(rest.len())
            } else {
                c.len_utf8()
            };
            found.push(Token { text: &rest[..length], line, at: text.len() - rest.len() });
            length
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    found
}

/// Length of the block comment that a text begins with. They nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The top-level declarations. Text that is not WGSL gives some; naga reports the fault.
pub(crate) fn declarations<'a>(tokens: &[Token<'a>]) -> Vec<Declaration<'a>> {
    let text = |i: usize| tokens.get(i).map_or("", |t| t.text);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if text(at) == ";" {
            at += 1;
            continue;
        }
        let begin = at;
        let (mut is_entry, mut is_binding) = (false, false);
        while text(at) == "@" {
            is_entry |= text(at + 1) == "compute";
            is_binding |= text(at + 1) == "binding";
            at += 2;
            if text(at) == "(" {
                at = closing(tokens, at) + 1;
            }
        }
        let (kind, line) = (text(at), tokens.get(at).map_or(0, |t| t.line));
        let mut name = at + 1;
        if kind == "var" && text(name) == "<" {
            while name < tokens.len() && text(name) != ">" {
                name += 1;
            }
            name += 1;
        }
        // A body ends a function and a struct, a semicolon the others.
        let mut end = name;
        while end < tokens.len() && text(end) != ";" {
            if matches!(text(end), "(" | "[" | "{") {
                let is_body = text(end) == "{";
                end = closing(tokens, end);
                if is_body {
                    break;
                }
            }
            end += 1;
        }
        let end = (end + 1).min(tokens.len());
        let named = matches!(kind, "fn" | "struct" | "alias" | "const" | "override" | "var");
        found.push(Declaration {
            kind,
            name: if named { text(name) } else { "" },
            signature: signature(kind, tokens.get(name + 1..end).unwrap_or_default()),
            line,
            tokens: begin..end,
            is_entry,
            is_binding,
        });
        at = end;
    }
    found
}

/// Index of the bracket that closes the one at `open`, or of the last token.
fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i;
                }
            }
            _ => {}
        }
    }
    tokens.len().saturating_sub(1)
}

/// Signature of a declaration; `rest` is the text after the name.
fn signature(kind: &str, rest: &[Token<'_>]) -> String {
    let words: Vec<&str> = match kind {
        "fn" => parameters(rest),
        "struct" | "alias" => rest.iter().map(|t| t.text).filter(|t| *t != ";").collect(),
        _ => rest.iter().map(|t| t.text).take_while(|t| *t != "=" && *t != ";").collect(),
    };
    let mut shown = String::new();
    for (i, word) in words.iter().enumerate() {
        let next = words.get(i + 1).copied().unwrap_or_default();
        if *word == "," && matches!(next, ")" | "}" | ">" | "") {
            continue;
        }
        shown.push_str(word);
        let apart = matches!(*word, ":" | "," | "{" | ")") && next != "," && next != ")";
        if apart
            || next == "-"
            || next == "{"
            || next == "}"
            || (*word == ">" && i > 0 && words[i - 1] == "-")
        {
            shown.push(' ');
        }
    }
    shown.trim_end().to_owned()
}

/// Types of the parameters and of the result.
fn parameters<'a>(rest: &[Token<'a>]) -> Vec<&'a str> {
    let mut words = Vec::new();
    let mut i = 0;
    let mut depth = 0usize;
    while i < rest.len() && !matches!(rest[i].text, "{" | ";") {
        let word = rest[i].text;
        match word {
            "@" => {
                i += 2;
                if rest.get(i).is_some_and(|t| t.text == "(") {
                    i = closing(rest, i) + 1;
                }
                continue;
            }
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        let names_parameter = depth == 1 && rest.get(i + 1).is_some_and(|t| t.text == ":");
        if names_parameter {
            i += 2;
            continue;
        }
        words.push(word);
        i += 1;
    }
    words
}
