//! `lathe chat`: a conversation, whose KV cache stays between turns.

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use lathe_harness::decode::{Model, Run, Script, Session, memory};
use lathe_harness::error::{Error, Result};
use lathe_harness::gpu::Pipelines;
use serde::{Serialize, Serializer};

use crate::global::Global;
use crate::model::{ChatOpts, ExecutorName, Ran, Renderer, Reported, SetupOpts, Shown};
use crate::out::{self, Stream};
use crate::{args, table};

/// Context where none is asked for, if the model was made for as much.
const CONTEXT: usize = 4096;

#[derive(Debug, Args)]
pub(crate) struct Opts {
    #[command(flatten)]
    setup: SetupOpts,
    #[command(flatten)]
    chat: ChatOpts,
    /// JSON array of the messages with which the conversation begins; - is stdin
    #[arg(long, value_name = "FILE", help_heading = "Conversation")]
    messages: Option<PathBuf>,
    /// Tokens of an answer, at most; without it as many as the context has room for
    #[arg(short = 'n', long = "tokens", value_name = "N", value_parser = args::within::<1, { 1 << 24 }>)]
    generate: Option<usize>,
    /// Tokens of the whole conversation, at most [default: 4096, or what the model was made for if
    /// that is less]
    #[arg(long, value_name = "N", value_parser = args::within::<1, { 1 << 24 }>)]
    context: Option<usize>,
    /// Executor of the step
    #[arg(long, default_value = "gpu")]
    executor: ExecutorName,
}

/// End of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Ended {
    EndToken,
    TokenLimit,
    FullContext,
}

#[derive(Serialize)]
struct Turn {
    /// Absent where the messages of a file are answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    /// Tokens of the conversation when the answer begins.
    prompt_tokens: usize,
    /// Prompt tokens that were in the KV cache already.
    kept_tokens: usize,
    /// Prompt tokens that ran in this turn.
    fed_tokens: usize,
    generated: Vec<u32>,
    text: String,
    ended_by: Ended,
    ttft_ms: f64,
    decode_tok_s: Option<f64>,
}

#[derive(Serialize)]
struct Report<M: Serialize> {
    #[serde(flatten)]
    ran: Ran,
    /// Absent when greedy.
    sampling: Option<Reported>,
    context: usize,
    turns: Vec<Turn>,
    /// Positions of the context that are taken: the last token of an answer has none yet.
    tokens: usize,
    fed_tokens: usize,
    generated_tokens: usize,
    /// The whole conversation, as --messages reads it.
    #[serde(serialize_with = "serialized")]
    messages: M,
}

fn serialized<T: Serialize, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    value.serialize(to)
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let mut options = opts.setup.options()?;
    let mut conversation = opts.chat.begin(opts.messages.as_deref())?;
    let model = opts.setup.open()?;
    let renderer = opts.chat.renderer(&model)?;
    options.context =
        opts.context.unwrap_or_else(|| CONTEXT.min(model.config.context_length.max(1)));
    let context = options.context;
    let gpu = opts.executor.open(global)?;
    let graph = model.graph(gpu.as_deref(), &options)?;
    let mut shown = Shown::new(global);
    let load = |gpu| memory::load(gpu, &Pipelines::default(), &graph, &mut shown);
    let executor = gpu.as_ref().map(load).transpose()?;
    let mut session = Session::new(&model, graph, executor, options);
    let mut talk = Talk { global, opts, session: &mut session, renderer };

    let (mut turns, mut failed): (Vec<Turn>, Option<Error>) = (Vec::new(), None);
    // Messages that end with a question are answered before another is read.
    let mut due = matches!(conversation.last_role().as_deref(), Some("user" | "tool"));
    while failed.is_none() {
        let input = match std::mem::take(&mut due) {
            true => None,
            false => match line() {
                Ok(None) => break,
                Ok(Some(line)) => {
                    conversation.say("user", &line);
                    Some(line)
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            },
        };
        let answered = talk.renderer.tokens(&conversation).and_then(|(prompt, _)| {
            let needs = prompt.len();
            Ok((needs, talk.answer(prompt, input)?))
        });
        let (needs, turn) = match answered {
            Ok(answered) => answered,
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        if turn.as_ref().is_none_or(|turn| turn.ended_by == Ended::FullContext) {
            let so_far = match &turn {
                Some(_) => "the answer is cut off".to_owned(),
                None => format!("the conversation has {needs} tokens before the next answer"),
            };
            let made_for = model.config.context_length;
            failed = Some(Error::Usage(format!(
                "the context of {context} tokens is full, {so_far}; --context N has more (the \
                 model was made for {made_for})"
            )));
        }
        if let Some(turn) = turn {
            conversation.say("assistant", &turn.text);
            turns.push(turn);
        }
    }
    let options = &session.options;
    let generated = |turn: &Turn| turn.generated.len();
    let report = Report {
        ran: Ran::of(&model.file.path, gpu.as_deref(), options),
        sampling: options.sampling.map(|s| Reported::of(s, options.seed)),
        context,
        tokens: turns.last().map_or(0, |turn| turn.prompt_tokens + generated(turn) - 1),
        fed_tokens: turns.iter().map(|turn| turn.fed_tokens).sum(),
        generated_tokens: turns.iter().map(generated).sum(),
        messages: conversation.messages(),
        turns,
    };
    match failed {
        // An answer that is not there is no document either.
        Some(error) if report.turns.is_empty() => Err(error),
        failed => {
            global.print(&report, || print(&report));
            failed.map_or(Ok(()), Err)
        }
    }
}

/// A conversation's model on a device.
struct Talk<'a, 's> {
    global: &'a Global,
    opts: &'a Opts,
    session: &'s mut Session<'a>,
    renderer: Renderer<'a>,
}

impl Talk<'_, '_> {
    /// Answers a conversation; none where the context has no room for it.
    fn answer(&mut self, prompt: Vec<u32>, input: Option<String>) -> Result<Option<Turn>> {
        let model: &Model = self.renderer.model;
        // The last token of an answer is chosen and not fed.
        let room = (self.session.options.context + 1).saturating_sub(prompt.len());
        let n = self.opts.generate.map_or(room, |n| n.min(room));
        if n == 0 {
            return Ok(None);
        }
        let script = Script { prompt, generate: n, ..Script::default() };
        let mut shown = Shown::decoding(self.global, model, &script, None);
        let run = self.session.go_on(&script.prompt, n, &mut shown)?;
        shown.finish();
        let (prompt_tokens, decode_tok_s) = (script.prompt.len(), rate(&run));
        let Run { generated, kept, ttft, .. } = run;
        let ends = |token: &&u32| model.config.end_tokens.contains(*token);
        let ended_by = match generated.last().filter(ends) {
            Some(_) => Ended::EndToken,
            None if n < room => Ended::TokenLimit,
            None => Ended::FullContext,
        };
        let said = generated.len() - usize::from(ended_by == Ended::EndToken);
        Ok(Some(Turn {
            input,
            prompt_tokens,
            kept_tokens: kept,
            fed_tokens: prompt_tokens - kept,
            text: model.tokenizer()?.decode(&generated[..said]),
            generated,
            ended_by,
            ttft_ms: ttft.as_secs_f64() * 1e3,
            decode_tok_s,
        }))
    }
}

fn rate(run: &Run) -> Option<f64> {
    let seconds: f64 = run.steps.iter().map(std::time::Duration::as_secs_f64).sum();
    (seconds > 0.0).then(|| run.steps.len() as f64 / seconds)
}

/// The next line of stdin that is not empty, without its end; none at the end of stdin.
fn line() -> Result<Option<String>> {
    let mut stdin = std::io::stdin().lock();
    let at = |e| Error::io("stdin")(e);
    loop {
        if stdin.is_terminal() {
            out::write(Stream::Stderr, "> ");
        }
        let mut bytes = Vec::new();
        if stdin.read_until(b'\n', &mut bytes).map_err(at)? == 0 {
            return Ok(None);
        }
        let text = lathe_harness::files::text(bytes).map_err(at)?;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if !text.is_empty() {
            return Ok(Some(text.to_owned()));
        }
    }
}

/// The figures, on stderr: stdout has the answers alone.
fn print<M: Serialize>(r: &Report<M>) {
    let adapter = &r.ran.adapter;
    let seconds = |turn: &Turn| Some((turn.generated.len() as f64 - 1.0) / turn.decode_tok_s?);
    let decoded = |turn: &Turn| turn.decode_tok_s.map_or(0, |_| turn.generated.len() - 1);
    let all: f64 = r.turns.iter().filter_map(seconds).sum();
    let steps: usize = r.turns.iter().map(decoded).sum();
    let kept: usize = r.turns.iter().map(|turn| turn.kept_tokens).sum();
    let rows = [
        ("adapter", Some(format!("{} ({})", adapter.name, adapter.backend))),
        ("sampling", r.sampling.as_ref().map(ToString::to_string)),
        ("turns", Some(r.turns.len().to_string())),
        ("context", Some(format!("{} of {} tokens", r.tokens, r.context))),
        ("prompts", Some(format!("{} tokens, {kept} more were in the KV cache", r.fed_tokens))),
        ("decode", (all > 0.0).then(|| format!("{:.1} tok/s (not verified)", steps as f64 / all))),
    ];
    let rows = rows.into_iter().filter_map(|(name, value)| Some((name, value?)));
    eprintln!("{}", table::facts(rows));
}
