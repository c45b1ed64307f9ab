//! A file of the user's: its entry points, and its faults as a whole.

use std::path::Path;

use lathe_harness::error::{Error, Result};
use lathe_harness::files;
use lathe_harness::plan::PlanError;
use lathe_harness::plan::limits::{Profile, lacking};
use lathe_harness::plan::user::reflected;
use lathe_kernels::dialect::{self, Lint};
use lathe_kernels::uniformity::{Scope, Violation, violations};
use lathe_kernels::{Constants, Reflection};
use serde::Serialize;

use super::asked::{Asked, Page};
use super::{Fit, Row};

/// Faults of a file as a whole.
#[derive(Default)]
pub(super) struct Found {
    /// Calls that no browser allows where they are.
    pub(super) violations: Vec<Shown>,
    /// Constructs that single engines lack.
    pub(super) lints: Vec<Lint>,
}

impl Found {
    /// Rows that are not valid: all where the file as a whole is not.
    pub(super) fn failed(&self, rows: &[Row]) -> usize {
        match self.violations.is_empty() {
            true => rows.iter().filter(|row| !row.errors.is_empty()).count(),
            false => rows.len(),
        }
    }
}

/// A [`Violation`] with files and lines.
#[derive(Serialize)]
pub(super) struct Shown {
    pub(super) place: String,
    pub(super) what: String,
    /// Places and words, from the call to the source of non-uniformity. A built-in value has no
    /// place.
    pub(super) because: Vec<(Option<String>, String)>,
}

impl Shown {
    fn new(violation: &Violation, text: &str, file: &str) -> Self {
        let place = |at: naga::Span| {
            let line = at.is_defined().then(|| at.location(text).line_number as usize)?;
            Some(placed(text, file, line))
        };
        let because = violation.because.iter().map(|(at, why)| (place(*at), why.clone()));
        Self {
            place: place(violation.at).unwrap_or_else(|| file.to_owned()),
            what: violation.what.clone(),
            because: because.collect(),
        }
    }
}

/// Calls of a text that are not in uniform control flow. Texts with cooperative matrices have
/// none: browsers do not read them.
pub(super) fn not_uniform(
    reflection: &Reflection,
    text: &str,
    file: &str,
    subgroups: bool,
) -> Vec<Shown> {
    if !reflection.needs_cooperative_matrix.is_empty() {
        return Vec::new();
    }
    let found = violations(&reflection.module);
    let found = found.iter().filter(|v| subgroups || v.scope == Scope::Workgroup);
    found.map(|violation| Shown::new(violation, text, file)).collect()
}

/// A row for each entry point of a file, with values of all its overrides, and its faults.
pub(super) fn of_file(
    shown: &str,
    set: &[String],
    profiles: &[Profile],
    asked: &Asked,
    pages: &mut Vec<Page>,
) -> Result<(Vec<Row>, Found)> {
    let path = Path::new(shown);
    if path.extension().is_some_and(|e| e == "toml") {
        let why = format!("{shown}: a mapping; validate the WGSL that it names");
        return Err(Error::Usage(why));
    }
    // An unreadable file is `reflected`'s to report.
    let own = files::read_text(path, files::TEXT).unwrap_or_default();
    let lints = dialect::lints(&own);
    let (text, reflection) = reflected(path).map_err(|e| with_lints(e, shown, &lints))?;
    let constants = settings(&reflection, set, shown)?;
    if reflection.entries.is_empty() {
        return Err(Error::CheckFailed(format!("{shown}: has no entry point")));
    }
    let subgroups = !dialect::allows_subgroup_divergence(&own);
    let found = Found { violations: not_uniform(&reflection, &text, shown, subgroups), lints };
    let rows = reflection.entries.iter().map(|entry| {
        let mut row = Row { shapes: 1, ..Row::new(entry.name.clone(), &reflection) };
        if profiles.is_empty() {
            row = row.written(&reflection);
        }
        let errors = row.entry(&reflection, &entry.name, &constants, Some(asked));
        row.errors.extend(errors);
        let taken = (row.workgroup_memory, row.invocations);
        let fit = |profile: &Profile| {
            let reasons = lacking(&reflection, &entry.name, taken, &profile.caps);
            Fit { profile: profile.name, shapes: usize::from(reasons.is_empty()), of: 1, reasons }
        };
        row.fits = profiles.iter().map(fit).collect();
        row
    });
    let rows: Vec<_> = rows.collect();
    if asked.wants_pages() {
        // With its own directives, which naga does not know all of.
        let linked = lathe_kernels::link(&own, shown)?;
        let (text, file) = (linked.clone(), shown.to_owned());
        pages.push(Page {
            entries: rows.iter().map(|row| row.name.clone()).collect(),
            text: linked,
            place: Box::new(move |line| placed(&text, &file, line)),
            rows: 0..rows.len(),
        });
    }
    Ok((rows, found))
}

/// `file:line` of a line of a linked text.
fn placed(text: &str, file: &str, line: usize) -> String {
    let (file, line) = lathe_kernels::place(text, file, line);
    format!("{file}:{line}")
}

/// The error of a text that does not parse, and what may be the reason.
fn with_lints(error: PlanError, shown: &str, lints: &[Lint]) -> Error {
    let error = error.into_usage();
    let lines =
        lints.iter().map(|lint| format!("\n{shown}:{}: {}: {}", lint.line, lint.engine, lint.what));
    match lines.collect::<String>() {
        none if none.is_empty() => error,
        lines => Error::Usage(format!("{}{lines}", error.to_string().trim_end())),
    }
}

/// All overrides with their values: defaults, overridden by `--set`.
fn settings(reflection: &Reflection, set: &[String], shown: &str) -> Result<Constants> {
    let mut given = Vec::new();
    for text in set {
        let pair = text.split_once('=');
        let pair = pair.and_then(|(name, value)| Some((name, value.parse::<f64>().ok()?)));
        let Some((name, value)) = pair.filter(|(_, value)| value.is_finite()) else {
            return Err(Error::Usage(format!("--set {text}: expected NAME=NUMBER")));
        };
        if !reflection.has_override(name) {
            let known: Vec<_> = reflection.overrides.iter().map(|(n, _)| n.as_str()).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            return Err(Error::Usage(format!("{shown}: no override `{name}`; there are {known}")));
        }
        given.push((name, value));
    }
    reflection
        .constants(given)
        .map_err(|e| Error::Usage(format!("{shown}: {e}; give it with --set NAME=VALUE")))
}
