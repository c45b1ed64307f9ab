//! Source of a prompt: text or token ids, from the command line, a file or stdin.

use std::path::{Path, PathBuf};

use clap::Args;
use lathe_harness::decode::Model;
use lathe_harness::error::{Error, Result};
use lathe_harness::files;
use lathe_harness::model::chat::ChatTemplate;
use lathe_harness::model::tokenizer::Tokenizer;

#[derive(Debug, Args)]
#[command(next_help_heading = "Prompt")]
pub(crate) struct PromptOpts {
    #[command(flatten)]
    source: SourceOpts,
    /// With --chat, what the system says first
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// With --chat, this template (Jinja, or a tokenizer_config.json) instead of the model's
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// This tokenizer.json instead of the model's own tokenizer
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
}

/// Exactly one source of a prompt.
#[derive(Debug, Args)]
#[group(id = "source", multiple = false)]
struct SourceOpts {
    /// Prompt as text, through the model's tokenizer; - reads it from stdin
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Prompt as the text of a file, as it is; - is stdin
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Prompt as token ids
    #[arg(long, value_delimiter = ',', value_name = "2,5,7")]
    prompt_tokens: Vec<u32>,
    /// Prompt as a file of token ids with commas or white space between; - is stdin
    #[arg(long, value_name = "FILE")]
    prompt_tokens_file: Option<PathBuf>,
    /// Prompt as what a user says in a conversation, through the model's chat template; - reads it
    /// from stdin
    #[arg(long, value_name = "TEXT")]
    chat: Option<String>,
}

/// A prompt as it was given.
pub(crate) enum Source {
    Text(String),
    Chat(String),
    Tokens(Vec<u32>),
}

impl PromptOpts {
    /// Reads the prompt, which is not empty. Refuses options that say nothing about it. (Clap's
    /// `requires` does not hold for an option that the given prompt excludes.)
    pub(crate) fn read(&self) -> Result<Source> {
        let what = "the prompt";
        let argument = |text: &String, option: &str| match text.as_str() {
            "-" => read_text(Path::new("-"), what),
            "" => Err(Error::Usage(format!("{option}: the prompt is empty"))),
            text => Ok(text.to_owned()),
        };
        let given = &self.source;
        let source = if let Some(text) = &given.prompt {
            Source::Text(argument(text, "--prompt")?)
        } else if let Some(path) = &given.prompt_file {
            Source::Text(read_text(path, what)?)
        } else if let Some(text) = &given.chat {
            return argument(text, "--chat").map(Source::Chat);
        } else if let Some(path) = &given.prompt_tokens_file {
            Source::Tokens(parse_ids(&read_text(path, what)?, &shown(path))?)
        } else if !given.prompt_tokens.is_empty() {
            Source::Tokens(given.prompt_tokens.clone())
        } else {
            return Err(Error::Usage(
                "give a prompt: --prompt TEXT, --prompt-file FILE, --chat TEXT, --prompt-tokens \
                 2,5,7 or --prompt-tokens-file FILE"
                    .into(),
            ));
        };
        match (&self.system, &self.chat_template) {
            (None, None) => Ok(source),
            (system, _) => {
                let option = if system.is_some() { "system" } else { "chat-template" };
                Err(Error::Usage(format!("--{option} says nothing without --chat TEXT")))
            }
        }
    }

    /// A prompt's tokens, and the text that they are, where it was text. The model gets the
    /// tokenizer that was asked for.
    pub(crate) fn tokens(
        &self,
        model: &mut Model,
        source: Source,
    ) -> Result<(Vec<u32>, Option<String>)> {
        if let Some(path) = &self.tokenizer {
            model.set_tokenizer(Tokenizer::open(path)?);
        }
        let (tokens, text) = match source {
            Source::Tokens(tokens) => return Ok((tokens, None)),
            Source::Text(text) => (model.encode(&text)?, text),
            Source::Chat(text) => {
                let text = self.render(model, &text)?;
                let encoded = model.tokenizer()?.encode_markup(&text);
                (encoded.map_err(|e| Error::Usage(format!("--chat: {e}")))?, text)
            }
        };
        if tokens.is_empty() {
            return Err(Error::Usage("the prompt has no tokens; decoding starts from one".into()));
        }
        Ok((tokens, Some(text)))
    }

    fn render(&self, model: &Model, user: &str) -> Result<String> {
        let template = match &self.chat_template {
            None => model.chat_template()?,
            Some(path) => {
                let tokens = ChatTemplate::gguf_tokens(&model.file, model.tokenizer()?)?;
                ChatTemplate::open(path, tokens)?
            }
        };
        let system = self.system.iter().map(|text| ("system", text.as_str()));
        let messages: Vec<_> = system.chain([("user", user)]).collect();
        let path = self.chat_template.as_ref().unwrap_or(&model.file.path);
        template
            .render(&messages)
            .map_err(|e| Error::Undecodable { path: path.clone(), reason: e.to_string() })
    }
}

fn shown(path: &Path) -> String {
    if path == Path::new("-") { "stdin".into() } else { path.display().to_string() }
}

/// The text of a file, or of stdin for `-`. An error says `what` is empty.
pub(crate) fn read_text(path: &Path, what: &str) -> Result<String> {
    let read = match path == Path::new("-") {
        true => files::read_from(std::io::stdin().lock(), files::DATA).and_then(files::text),
        false => files::read_text(path, files::DATA),
    };
    let text = read.map_err(Error::io(shown(path)))?;
    match text.is_empty() {
        true => Err(Error::Usage(format!("{}: {what} is empty", shown(path)))),
        false => Ok(text),
    }
}

/// Token ids with commas or white space between.
fn parse_ids(text: &str, file: &str) -> Result<Vec<u32>> {
    let separates = |c: char| c == ',' || c.is_whitespace();
    let mut ids = Vec::new();
    let mut offset = 0;
    for part in text.split_inclusive(separates) {
        let id = part.trim_end_matches(separates);
        if !id.is_empty() {
            let parsed = id.parse::<u32>().ok().filter(|_| !id.starts_with('+'));
            ids.push(parsed.ok_or_else(|| {
                let shown: String = id.chars().take(20).collect();
                Error::Usage(format!("{file}: byte {offset}: `{shown}` is no token id"))
            })?);
        }
        offset += part.len();
    }
    match ids.is_empty() {
        true => Err(Error::Usage(format!("{file}: the prompt is empty"))),
        false => Ok(ids),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_with_commas_and_white_space() {
        assert_eq!(parse_ids("1, 2,3\n4\t5\r\n\n,6,", "f").unwrap(), [1, 2, 3, 4, 5, 6]);
        for (text, message) in [
            ("", "f: the prompt is empty"),
            (" ,\n", "f: the prompt is empty"),
            ("1 x7", "f: byte 2: `x7` is no token id"),
            ("1,é,-2", "f: byte 2: `é` is no token id"),
            ("日, 4294967296", "f: byte 0: `日` is no token id"),
            ("1\u{2003}4294967296", "f: byte 4: `4294967296` is no token id"),
            ("+1", "f: byte 0: `+1` is no token id"),
        ] {
            assert_eq!(parse_ids(text, "f").unwrap_err().to_string(), message, "{text:?}");
        }
    }
}
