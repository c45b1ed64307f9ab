//! Output of a decode: text on stdout while it is made, progress and figures on stderr.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use lathe_harness::decode::memory::Predicted;
use lathe_harness::decode::{Model, Observer, Phase, Script, Seen};
use lathe_harness::error::{Error, Result};
use lathe_harness::files::Partial;
use lathe_harness::model::tokenizer::TextStream;

use crate::global::Global;
use crate::out;

/// Progress of a decode or a benchmark on stderr, and generated tokens on stdout: their text as far
/// as it is whole, or ids where there is no tokenizer.
pub(crate) struct Shown<'a> {
    global: &'a Global,
    bar: ProgressBar,
    predicted: Option<Predicted>,
    out: Out<'a>,
    begun: bool,
    prompt: usize,
    positions: usize,
    logits: Option<&'a Path>,
    file: Option<LogitsFile>,
}

enum Out<'a> {
    /// stdout is for one JSON document or a table.
    Nothing,
    Text(TextStream<'a>),
    Ids,
}

impl<'a> Shown<'a> {
    /// Progress alone.
    pub(crate) fn new(global: &'a Global) -> Self {
        Self {
            global,
            bar: ProgressBar::hidden(),
            predicted: None,
            out: Out::Nothing,
            begun: false,
            prompt: 0,
            positions: 0,
            logits: None,
            file: None,
        }
    }

    /// A script's tokens, and the logits of its steps in a file where there is one.
    pub(crate) fn decoding(
        global: &'a Global,
        model: &'a Model,
        script: &Script,
        logits: Option<&'a Path>,
    ) -> Self {
        let out = match model.tokenizer() {
            _ if global.json => Out::Nothing,
            Ok(tokenizer) => Out::Text(tokenizer.stream()),
            Err(e) => {
                match model.file.vocabulary() {
                    Ok(None) => tracing::info!("token ids instead of text: {e}"),
                    _ => tracing::warn!("token ids instead of text: {e}"),
                }
                Out::Ids
            }
        };
        let (prompt, positions) = (script.prompt.len(), script.positions());
        Self { out, prompt, positions, logits, ..Self::new(global) }
    }

    /// Shows text that was held back, and ends the line. Returns the memory that was predicted.
    pub(crate) fn finish(mut self) -> Option<Predicted> {
        self.bar.finish_and_clear();
        match std::mem::replace(&mut self.out, Out::Nothing) {
            Out::Nothing => {}
            Out::Text(stream) => self.show(&(stream.finish() + "\n")),
            Out::Ids => self.show("\n"),
        }
        self.predicted
    }

    fn show(&mut self, text: &str) {
        if !self.begun {
            // Both may be the same terminal.
            self.bar.finish_and_clear();
            self.begun = true;
        }
        out::piece(text);
    }
}

impl Observer for Shown<'_> {
    fn predicted(&mut self, memory: &Predicted) {
        eprintln!("device memory: {memory}");
        self.predicted = Some(*memory);
        self.bar = self.global.progress(0, "loading", true);
    }

    fn loaded(&mut self, bytes: u64, all: u64) {
        self.bar.set_length(all);
        self.bar.set_position(bytes);
        if bytes == all {
            self.bar.finish_and_clear();
        }
    }

    fn phase(&mut self, phase: Phase) {
        let message = match phase {
            Phase::Verifying => "verifying",
            Phase::WarmingUp => "warming up",
            Phase::Running => "decoding",
            Phase::VerifyingEnd => "verifying the end",
        };
        if !self.begun {
            self.bar.finish_and_clear();
            self.bar = self.global.progress(self.positions as u64, message, false);
        }
        if phase == Phase::Running {
            self.bar.set_position(if self.logits.is_some() { 0 } else { self.prompt as u64 });
            self.file = None;
        }
    }

    fn token(&mut self, token: u32) {
        self.bar.inc(1);
        let comma = if self.begun { "," } else { "" };
        let text = match &mut self.out {
            Out::Nothing => return,
            Out::Text(stream) => stream.push(token),
            Out::Ids => format!("{comma}{token}"),
        };
        self.show(&text);
    }

    fn look(&mut self, seen: Seen<'_>) -> Result<()> {
        let Some(path) = self.logits else { return Ok(()) };
        if self.file.is_none() {
            self.file = Some(LogitsFile::create(path)?);
        }
        self.file.as_mut().map_or(Ok(()), |file| file.write(seen.logits))
    }

    fn looked(&mut self) -> Result<()> {
        self.file.take().map_or(Ok(()), LogitsFile::finish)
    }

    fn begins(&mut self, test: &str, runs: usize) {
        self.bar = self.global.progress(runs as u64, &out::escaped(test), false);
    }

    fn ran(&mut self) {
        self.bar.inc(1);
    }

    fn ended(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// File of raw logits.
struct LogitsFile {
    path: PathBuf,
    partial: Option<Partial>,
    out: BufWriter<File>,
}

impl LogitsFile {
    fn create(path: &Path) -> Result<Self> {
        if std::fs::metadata(path).is_ok_and(|m| m.len() > 0) {
            eprintln!("lathe: {} is replaced", path.display());
        }
        // A device or a pipe takes rows as they come; a file is there when it has them all.
        let is_file = std::fs::metadata(path).map_or(true, |m| m.is_file());
        let partial =
            is_file.then(|| Partial::create(path)).transpose().map_err(Error::io(path))?;
        let file = match &partial {
            Some(partial) => partial.file.try_clone(),
            None => File::create(path),
        };
        let out = BufWriter::new(file.map_err(Error::io(path))?);
        Ok(Self { path: path.to_owned(), partial, out })
    }

    fn write(&mut self, row: &[f32]) -> Result<()> {
        for value in row {
            self.out.write_all(&value.to_le_bytes()).map_err(Error::io(&self.path))?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        let path = &self.path;
        let finished = self.out.flush().and_then(|()| match self.partial {
            Some(partial) => partial.finish(path),
            None => Ok(()),
        });
        finished.map_err(Error::io(path))
    }
}
