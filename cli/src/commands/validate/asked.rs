//! Compilers that `lathe validate` asks, and their answers.

use lathe_harness::error::{Error, Result};
use lathe_harness::plan::compilers::{Answer, Browser, Compiler, Dxc};
use lathe_kernels::Reflection;
use naga::Module;
use naga::valid::ModuleInfo;
use serde::Serialize;

use super::{Engine, Opts, Row};

/// Name of Chrome's compiler in reports.
const TINT: &str = "Tint";

/// The compilers that the command line names.
pub(super) struct Asked {
    compilers: Vec<Compiler>,
    browser: Option<Browser>,
}

/// Answer of a compiler about an entry point.
#[derive(Serialize)]
pub(super) struct Told {
    compiler: &'static str,
    entry: String,
    /// None where it was not asked.
    takes: Option<bool>,
    /// Its message, or the reason why it was not asked.
    message: Option<String>,
}

/// A text for the browser.
pub(super) struct Page {
    /// Entry points in it.
    pub(super) entries: Vec<String>,
    pub(super) text: String,
    /// File and line of a line of it.
    pub(super) place: Box<dyn Fn(usize) -> String>,
    /// Rows that the answer belongs to.
    pub(super) rows: std::ops::Range<usize>,
}

impl Asked {
    pub(super) fn open(opts: &Opts) -> Result<Self> {
        let mut compilers = Vec::new();
        if opts.spirv_val {
            compilers.push(Compiler::spirv_val().map_err(Error::Usage)?);
        }
        if let Some(library) = &opts.dxc {
            compilers.push(Compiler::Dxc(Dxc::open(library).map_err(Error::Usage)?));
        }
        let browser = opts.browser.map(|engine| match engine {
            Engine::Node => Browser::package(),
            Engine::Chromium => Browser::chromium(),
        });
        let browser = browser.transpose().map_err(Error::Usage)?;
        Ok(Self { compilers, browser })
    }

    pub(super) fn wants_pages(&self) -> bool {
        self.browser.is_some()
    }

    /// Answers of the compilers of other languages about an entry point.
    pub(super) fn about(
        &self,
        reflection: &Reflection,
        module: &Module,
        info: &ModuleInfo,
        entry: &str,
        row: &mut Row,
    ) {
        for compiler in &self.compilers {
            let answer = match compiler.language().limitation(reflection) {
                Some(limitation) => Answer::Unavailable(limitation.to_string()),
                None => compiler.ask(module, info, entry),
            };
            row.told(compiler.name(), entry, answer);
        }
    }

    /// Asks the browser about all pages at once, as its start takes longest.
    pub(super) fn browser(&self, pages: &[Page], rows: &mut [Row]) -> Result<()> {
        let Some(browser) = &self.browser else { return Ok(()) };
        let texts: Vec<_> = pages.iter().map(|page| page.text.as_str()).collect();
        let said = browser.ask(&texts).map_err(Error::Usage)?;
        for (page, messages) in pages.iter().zip(said) {
            let shown = messages.iter().filter(|message| message.kind != "warning");
            let shown = shown.map(|m| format!("{}:{}: {}", (page.place)(m.line), m.column, m.text));
            let shown: Vec<_> = shown.collect();
            let is = |kind: &str| messages.iter().find(|message| message.kind == kind);
            let answer = match (is("unavailable"), is("error")) {
                (Some(message), _) => Answer::Unavailable(message.text.clone()),
                (None, Some(_)) => Answer::Refuses(shown.join("; ")),
                (None, None) => Answer::Takes,
            };
            for row in &mut rows[page.rows.clone()] {
                for entry in &page.entries {
                    if page.rows.len() == 1 || row.name == *entry {
                        row.told(TINT, entry, answer.clone());
                    }
                }
            }
        }
        Ok(())
    }
}

impl Row {
    fn told(&mut self, compiler: &'static str, entry: &str, answer: Answer) {
        let (takes, message) = match answer {
            Answer::Takes => (Some(true), None),
            Answer::Refuses(message) => (Some(false), Some(message)),
            Answer::Unavailable(reason) => (None, Some(reason)),
        };
        if let (Some(false), Some(message)) = (takes, &message) {
            self.errors.push(format!("{compiler} ({entry}): {message}"));
        }
        self.compilers.push(Told { compiler, entry: entry.to_owned(), takes, message });
    }
}

/// A line for each compiler: entry points that it takes, refuses, and was not asked about.
pub(super) fn summary(rows: &[Row]) -> Vec<String> {
    let all = || rows.iter().flat_map(|row| &row.compilers);
    let mut names: Vec<_> = all().map(|told| told.compiler).collect();
    names.sort_unstable();
    names.dedup();
    let line = |name: &str| {
        let own = || all().filter(|told| told.compiler == name);
        let count = |takes| own().filter(|told| told.takes == takes).count();
        let mut line = format!("{name} takes {} of {} stages", count(Some(true)), own().count());
        let mut why: Vec<_> = own()
            .filter(|told| told.takes.is_none())
            .filter_map(|t| t.message.as_deref())
            .collect();
        if !why.is_empty() {
            line += &format!("; {} unavailable: ", why.len());
            why.sort_unstable();
            why.dedup();
            line += &why.join(", ");
        }
        line
    };
    names.into_iter().map(line).collect()
}
