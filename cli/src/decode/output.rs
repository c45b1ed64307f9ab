//! What a run says: text on stdout while it is made, figures on stderr when it is over.

use indicatif::ProgressBar;
use lathe_harness::model::tokenizer::TextStream;

use super::*;

/// Generated tokens, which go to stdout: their text as far as it is whole, or ids where there is no
/// tokenizer.
pub(super) struct Said<'a> {
    pub(super) bar: &'a ProgressBar,
    pub(super) known: Known,
    out: Out<'a>,
    begun: bool,
}

enum Out<'a> {
    /// stdout is for one JSON document.
    Nothing,
    Text(TextStream<'a>),
    Ids,
}

impl<'a> Said<'a> {
    pub(super) fn of(global: &Global, loaded: &'a Loaded, bar: &'a ProgressBar) -> Self {
        let out = match loaded.model.tokenizer() {
            _ if global.json => Out::Nothing,
            Ok(tokenizer) => Out::Text(tokenizer.stream()),
            Err(e) => {
                match loaded.model.file.vocabulary() {
                    Ok(None) => tracing::info!("token ids instead of text: {e}"),
                    _ => tracing::warn!("token ids instead of text: {e}"),
                }
                Out::Ids
            }
        };
        Self { bar, known: Known::default(), out, begun: false }
    }

    pub(super) fn push(&mut self, token: u32, begun: Instant) {
        self.known.push(token, begun);
        let comma = if self.begun { "," } else { "" };
        let text = match &mut self.out {
            Out::Nothing => return,
            Out::Text(stream) => stream.push(token),
            Out::Ids => format!("{comma}{token}"),
        };
        self.show(&text);
    }

    /// Shows what was held back, and ends the line.
    pub(super) fn finish(mut self) {
        self.bar.finish_and_clear();
        match std::mem::replace(&mut self.out, Out::Nothing) {
            Out::Nothing => {}
            Out::Text(stream) => self.show(&(stream.finish() + "\n")),
            Out::Ids => self.show("\n"),
        }
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

/// The figures of a run, on stderr: stdout has the text alone.
pub(super) fn print(r: &Report) {
    let ids: Vec<_> = r.generated.iter().map(ToString::to_string).collect();
    eprintln!("tokens {}", ids.join(","));
    let mut t = table::table(&["", ""], &[1]);
    let mut row = |name: &str, value: String| {
        t.add_row(vec![name.to_owned(), value]);
    };
    row(
        "adapter",
        format!(
            "{} ({}, run-time checks {})",
            r.adapter.name, r.adapter.backend, r.adapter.runtime_checks
        ),
    );
    if let Some(s) = &r.sampling {
        row("sampling", s.to_string());
    }
    let figure = |text: String| match &r.verified {
        Some(_) => text,
        None => format!("{text} (not verified)"),
    };
    row("time to first token", figure(format!("{:.1} ms", r.ttft_ms)));
    let prompt = format!("{} tokens, {:.1} tok/s", r.prompt_tokens.len(), r.prefill_tok_s);
    row("prompt", figure(prompt));
    if let (Some(rate), Some(step)) = (r.decode_tok_s, &r.step_ms) {
        row("decode", figure(format!("{rate:.1} tok/s")));
        row("step p50 / p95", figure(format!("{:.3} / {:.3} ms", step.p50, step.p95)));
    }
    if let Some(ms) = r.gpu_ms_per_token {
        row("GPU time a token", figure(format!("{ms:.3} ms")));
    }
    if let Some(submits) = r.submits_per_token {
        row("submissions a token", format!("{submits:.3}"));
    }
    row("dispatches a token", r.dispatches_per_token.to_string());
    if let Some(gave_up) = &r.runs_gave_up {
        row("runs", format!("gave up after {} tokens, then off", gave_up.tokens));
    }
    row("bytes a token", table::bytes(r.bytes_per_token));
    if let Some(fraction) = r.bandwidth_fraction {
        row("% of copy bandwidth", figure(format!("{:.1} %", 100.0 * fraction)));
    }
    row("KV cache", format!("{} ({})", table::bytes(r.kv_cache_bytes), r.kv));
    if let Some(memory) = &r.memory {
        row("device memory", memory.to_string());
    }
    if let Some(v) = &r.verified {
        // The last token is chosen and not looked at.
        let all = (r.prompt_tokens.len() + r.generated.len()).saturating_sub(1).max(v.positions);
        let which = if v.positions < all {
            format!("the first {} of {all}", v.positions)
        } else {
            format!("all {all}")
        };
        row("verified", format!("{which} positions, NMSE ≤ {:.1e}", v.worst_nmse));
        if let Some(end) = v.end_nmse {
            row("the end", format!("as of a prompt, NMSE {end:.1e}"));
        }
    }
    eprintln!("{t}");
}
