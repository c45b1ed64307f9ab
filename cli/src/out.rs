//! The one writer of everything that a command prints.
//!
//! A reader of stdout that has seen enough ends the command silently. Any other refusal, such as of
//! a full disk, ends it with a message and exit code 2: nobody takes half an answer for a whole.
//! Within [`captured`] both streams of the calling thread are collected instead.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};

use comfy_table::Table;
use console::Term;
use lathe_harness::data::record::SCHEMA_VERSION;
use serde::Serialize;

use crate::table::fit;

/// Like `println!`, through [`line`].
macro_rules! outln {
    () => { $crate::out::line(format_args!("")) };
    ($($text:tt)*) => { $crate::out::line(format_args!($($text)*)) };
}

/// Takes the place of the standard macro in this crate, so that stderr can be captured.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::out::said(format_args!($($text)*)) };
}

/// A stream of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

#[derive(Default)]
struct Captured {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

thread_local! {
    static CAPTURED: RefCell<Option<Captured>> = const { RefCell::new(None) };
}

/// Runs `work` and returns its result with the bytes that it wrote to stdout and to stderr.
pub(crate) fn captured<T>(work: impl FnOnce() -> T) -> (T, Vec<u8>, Vec<u8>) {
    CAPTURED.set(Some(Captured::default()));
    let result = work();
    let Captured { stdout, stderr } = CAPTURED.take().unwrap_or_default();
    (result, stdout, stderr)
}

impl Stream {
    /// Returns true if a person reads this stream in a terminal.
    pub(crate) fn is_terminal(self) -> bool {
        let captured = CAPTURED.with_borrow(Option::is_some);
        !captured
            && match self {
                Stream::Stdout => io::stdout().is_terminal(),
                Stream::Stderr => io::stderr().is_terminal(),
            }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        CAPTURED.with_borrow_mut(|captured| match (captured, *self) {
            (Some(captured), Stream::Stdout) => captured.stdout.write_all(bytes),
            (Some(captured), Stream::Stderr) => captured.stderr.write_all(bytes),
            // Shown at once: a line is buffered to its end otherwise.
            (None, Stream::Stdout) => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
            (None, Stream::Stderr) => io::stderr().lock().write_all(bytes),
        })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints a line on stderr, and ignores a closed stderr.
pub(crate) fn said(line: fmt::Arguments<'_>) {
    let _ = Stream::Stderr.write_all(format!("{line}\n").as_bytes());
}

#[derive(Serialize)]
struct Document<'a, T: Serialize> {
    schema_version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// Prints a body as the only document on stdout.
pub(crate) fn json(body: &impl Serialize) {
    document(&Document { schema_version: SCHEMA_VERSION, body });
}

/// Prints a value with a version of its own, such as a record, as the only document on stdout.
pub(crate) fn document(body: &impl Serialize) {
    match serde_json::to_string_pretty(body) {
        Ok(text) => line(format_args!("{}", tamed(text))),
        Err(e) => end(&e.into()),
    }
}

/// JSON whose strings have no control character that JSON allows and a terminal obeys.
pub(crate) fn tamed(text: String) -> String {
    let obeyed = |c: char| matches!(c, '\u{7f}'..='\u{9f}');
    if !text.contains(obeyed) {
        return text;
    }
    let shown = |c: char| if obeyed(c) { format!("\\u{:04x}", c as u32) } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// Prints a line, or several. Names and contents of files cannot move a terminal's cursor: control
/// characters are escaped.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    self::text(&(escaped(&text.to_string()).into_owned() + "\n"));
}

/// Tone of a verdict: its colour on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Right, or faster.
    Good,
    /// Wrong, or slower.
    Bad,
    /// Undecided.
    Unclear,
}

/// Prints a verdict, in its colour where stdout is a terminal that may have some.
pub(crate) fn verdict(tone: Tone, said: &str) {
    let said = escaped(said);
    let coloured = Stream::Stdout.is_terminal() && colours();
    text(&(toned(tone, &said, coloured) + "\n"));
}

fn toned(tone: Tone, text: &str, coloured: bool) -> String {
    let code = match tone {
        Tone::Good => 32,
        Tone::Bad => 31,
        Tone::Unclear => 33,
    };
    match coloured {
        true => format!("\x1b[{code}m{text}\x1b[0m"),
        false => text.to_owned(),
    }
}

/// Returns true if a terminal may be written to in colours: see <https://no-color.org>.
pub(crate) fn colours() -> bool {
    let asked = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    asked && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Prints a table: at most as wide as the terminal, or at full width where stdout is none.
pub(crate) fn table(mut table: Table) {
    if Stream::Stdout.is_terminal()
        && let Some((_, columns)) = Term::stdout().size_checked()
    {
        fit(&mut table, columns);
    }
    line(format_args!("{table}"));
}

/// Prints a table of texts that may be long: as wide as the terminal at most, or 80 columns.
pub(crate) fn fitted(mut table: Table) {
    fit(&mut table, 80);
    self::table(table);
}

/// Prints a piece of a model's output: unchanged, but with escapes on a terminal.
pub(crate) fn piece(text: &str) {
    match Stream::Stdout.is_terminal() {
        true => self::text(&escaped(text)),
        false => self::text(text),
    }
}

/// Prints lines that were made for other programs, as they are.
pub(crate) fn text(text: &str) {
    write(Stream::Stdout, text);
}

/// Prints a text on a stream, as it is.
pub(crate) fn write(mut stream: Stream, text: &str) {
    if let Err(e) = stream.write_all(text.as_bytes())
        && stream == Stream::Stdout
    {
        end(&e);
    }
}

/// Ends the command after a write to stdout, or in its place, was refused.
pub(crate) fn end(why: &io::Error) -> ! {
    if why.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    eprintln!("lathe: stdout: {why}");
    std::process::exit(2);
}

/// A text with control characters as escapes, but for ends of lines and tabs.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    let acts = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut all = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match acts(c) && !(c == '\r' && rest.peek() == Some(&'\n')) {
            true => all.extend(c.escape_default()),
            false => all.push(c),
        }
    }
    Cow::Owned(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_moves_no_cursor_and_says_the_same() {
        let value = serde_json::json!({"name": "a\u{7f}\u{9b}2J\u{1b}é"});
        let text = tamed(value.to_string());
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn verdicts_have_colours_only_where_told() {
        assert_eq!(toned(Tone::Bad, "FAILED y", false), "FAILED y");
        assert_eq!(toned(Tone::Bad, "FAILED y", true), "\x1b[31mFAILED y\x1b[0m");
        let all = [Tone::Good, Tone::Bad, Tone::Unclear].map(|tone| toned(tone, "x", true));
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
    }

    #[test]
    fn controls_are_escaped_and_lines_stay() {
        assert_eq!(escaped("a\tb\nc\r\nd é"), "a\tb\nc\r\nd é");
        assert_eq!(escaped("\x1b[31mred\x07\r\u{9b}2J"), "\\u{1b}[31mred\\u{7}\\r\\u{9b}2J");
    }
}
