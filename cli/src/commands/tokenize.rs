//! `lathe tokenize`: tokens of a text and text of tokens, by a model's tokenizer alone.

use std::path::{Path, PathBuf};

use clap::Args;
use lathe_harness::decode::model::tokenizer_of;
use lathe_harness::error::{Error, Result};
use lathe_harness::model::ModelFile;
use lathe_harness::model::tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};

use crate::global::Global;
use crate::model::read_any;
use crate::out;

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// GGUF file, folder, or .safetensors file, whose tokenizer it is
    #[arg(short, long, value_name = "MODEL", required_unless_present = "tokenizer")]
    model: Option<PathBuf>,
    /// This tokenizer.json instead of a model's
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    tokenizer: Option<PathBuf>,
    #[command(flatten)]
    source: SourceOpts,
}

/// Exactly one source of tokens.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct SourceOpts {
    /// The text, encoded as `decode --prompt` does; - reads it from stdin
    text: Option<String>,
    /// The text of a file, as it is; - is stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Token ids, whose text is printed
    #[arg(long, value_delimiter = ',', value_name = "2,5,7")]
    decode: Option<Vec<u32>>,
    /// Many texts: each line is JSON, and so is its answer. A string becomes an array of ids, an
    /// array of ids a string; - is stdin
    #[arg(long, value_name = "FILE")]
    batch: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    ids: Vec<u32>,
    /// Spelling of each in the vocabulary.
    pieces: Vec<String>,
    /// The text that was given, or that the ids stand for.
    text: String,
}

/// A line of a batch, and its answer.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Line {
    Text(String),
    Ids(Vec<u32>),
}

#[derive(Serialize)]
struct Batch {
    /// An answer per line.
    answers: Vec<Line>,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let SourceOpts { text, file, decode, batch } = &opts.source;
    let text = match (text.as_deref(), file) {
        (Some("-"), _) => Some(read_any(Path::new("-"))?),
        (Some(text), _) => Some(text.to_owned()),
        (_, Some(path)) => Some(read_any(path)?),
        _ => None,
    };
    let lines = batch.as_deref().map(read_any).transpose()?;
    let tokenizer = match (&opts.tokenizer, &opts.model) {
        (Some(path), _) => Tokenizer::open(path)?,
        (None, Some(path)) => tokenizer_of(&ModelFile::open(path)?)?,
        (None, None) => return Err(Error::Usage("give --model MODEL".into())),
    };
    if let Some(lines) = lines {
        let answers = lines.lines().zip(1..).map(|(line, number)| {
            let answer = answer(&tokenizer, line);
            answer.map_err(|why| Error::Usage(format!("line {number} of the batch: {why}")))
        });
        let batch = Batch { answers: answers.collect::<Result<_>>()? };
        global.print(&batch, || {
            for answer in &batch.answers {
                let answer = serde_json::to_string(answer).unwrap_or_default();
                out::text(&(out::tamed(answer) + "\n"));
            }
        });
        return Ok(());
    }
    let (ids, text) = match (text, decode) {
        (Some(text), _) => {
            let ids = tokenizer.encode(&text, true);
            (ids.map_err(|e| Error::Usage(format!("the text: {e}")))?, text)
        }
        (None, ids) => {
            let ids = ids.clone().unwrap_or_default();
            let text = tokenizer.decode(&ids);
            (ids, text)
        }
    };
    let piece = |id: &u32| {
        let piece = tokenizer.piece(*id);
        piece.ok_or_else(|| Error::Usage(format!("the vocabulary has no token {id}")))
    };
    let pieces = ids.iter().map(piece).collect::<Result<_>>()?;
    let report = Report { ids, pieces, text };
    global.print(&report, || match decode {
        Some(_) => out::piece(&format!("{}\n", report.text)),
        None => {
            for (id, piece) in report.ids.iter().zip(&report.pieces) {
                // A piece may be the end of a line.
                outln!("{id}\t{}", piece.replace('\n', "\\n").replace('\t', "\\t"));
            }
        }
    });
    Ok(())
}

fn answer(tokenizer: &Tokenizer, line: &str) -> std::result::Result<Line, String> {
    let line = serde_json::from_str(line).map_err(|_| "is no string or array of ids in JSON")?;
    Ok(match line {
        Line::Text(text) => Line::Ids(tokenizer.encode(&text, true).map_err(|e| e.to_string())?),
        Line::Ids(ids) => match ids.iter().find(|id| tokenizer.piece(**id).is_none()) {
            None => Line::Text(tokenizer.decode(&ids)),
            Some(id) => return Err(format!("the vocabulary has no token {id}")),
        },
    })
}
