//! Source of a prompt: text or token ids, from the command line, a file or stdin.

use std::path::{Path, PathBuf};

use clap::Args;
use lathe_harness::decode::Model;
use lathe_harness::error::{Error, Result};
use lathe_harness::files;
use lathe_harness::model::chat::{ChatError, ChatTemplate, Conversation};

#[derive(Debug, Args)]
#[command(next_help_heading = "Prompt")]
pub(crate) struct PromptOpts {
    #[command(flatten)]
    source: SourceOpts,
    #[command(flatten)]
    chat: ChatOpts,
}

/// Parts of a conversation other than its messages.
#[derive(Debug, Args)]
#[command(next_help_heading = "Conversation")]
pub(crate) struct ChatOpts {
    /// System message at the beginning
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// JSON array of the tools that the model may call, as its template wants them
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Variable of the template as JSON, such as enable_thinking=false. May be repeated
    #[arg(long, value_name = "NAME=JSON")]
    set: Vec<String>,
    /// This template (Jinja, or a tokenizer_config.json) instead of the model's
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
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
    /// Prompt as a conversation, a JSON array of messages, through the model's chat template; - is
    /// stdin
    #[arg(long, value_name = "FILE")]
    messages: Option<PathBuf>,
}

/// A prompt as it was given.
pub(crate) enum Source {
    Text(String),
    Chat(Conversation),
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
            let mut conversation = self.chat.begin(None)?;
            conversation.say("user", &argument(text, "--chat")?);
            return Ok(Source::Chat(conversation));
        } else if let Some(path) = &given.messages {
            return self.chat.begin(Some(path)).map(Source::Chat);
        } else if let Some(path) = &given.prompt_tokens_file {
            Source::Tokens(parse_ids(&read_text(path, what)?, &shown(path))?)
        } else if !given.prompt_tokens.is_empty() {
            Source::Tokens(given.prompt_tokens.clone())
        } else {
            return Err(Error::Usage(
                "give a prompt: --prompt TEXT, --prompt-file FILE, --chat TEXT, --messages FILE, \
                 --prompt-tokens 2,5,7 or --prompt-tokens-file FILE"
                    .into(),
            ));
        };
        match self.chat.first_given() {
            None => Ok(source),
            Some(option) => {
                let why = format!("--{option} says nothing without --chat TEXT or --messages FILE");
                Err(Error::Usage(why))
            }
        }
    }

    /// A prompt's tokens, and the text that they are, where it was text.
    pub(crate) fn tokens(
        &self,
        model: &Model,
        source: Source,
    ) -> Result<(Vec<u32>, Option<String>)> {
        let (tokens, text) = match source {
            Source::Tokens(tokens) => return Ok((tokens, None)),
            Source::Text(text) => (model.encode(&text)?, text),
            Source::Chat(conversation) => self.chat.renderer(model)?.tokens(&conversation)?,
        };
        if tokens.is_empty() {
            return Err(Error::Usage("the prompt has no tokens; decoding starts from one".into()));
        }
        Ok((tokens, Some(text)))
    }
}

impl ChatOpts {
    /// The first of its options that was given.
    fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("system", self.system.is_some()),
            ("tools", self.tools.is_some()),
            ("set", !self.set.is_empty()),
            ("chat-template", self.chat_template.is_some()),
        ];
        given.into_iter().find_map(|(option, given)| given.then_some(option))
    }

    /// A conversation with tools and variables, what the system says, and the messages of a file.
    pub(crate) fn begin(&self, messages: Option<&Path>) -> Result<Conversation> {
        let mut conversation = Conversation::default();
        for variable in &self.set {
            let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
            let set = conversation.set(name, value);
            set.map_err(|e| Error::Usage(format!("--set {variable}: {e}")))?;
        }
        let at = |path: &Path| {
            let path = shown(path);
            move |e: ChatError| Error::Usage(format!("{path}: {e}"))
        };
        if let Some(path) = &self.tools {
            conversation.add_tools(&read_text(path, "the array of tools")?).map_err(at(path))?;
        }
        if let Some(text) = &self.system {
            conversation.say("system", text);
        }
        if let Some(path) = messages {
            let text = read_text(path, "the array of messages")?;
            conversation.add_messages(&text).map_err(at(path))?;
        }
        Ok(conversation)
    }

    /// The template that was asked for, or the model's, with the model's tokenizer.
    pub(crate) fn renderer<'a>(&self, model: &'a Model) -> Result<Renderer<'a>> {
        let template = match &self.chat_template {
            None => model.chat_template()?,
            Some(path) => {
                let tokens = ChatTemplate::gguf_tokens(&model.file, model.tokenizer()?)?;
                ChatTemplate::open(path, tokens)?
            }
        };
        if let Some(note) = template.divides(model.tokenizer()?) {
            tracing::warn!("{note}");
        }
        let path = self.chat_template.as_ref().unwrap_or(&model.file.path).clone();
        Ok(Renderer { model, template, path })
    }
}

/// A chat template and a tokenizer: conversations to tokens.
pub(crate) struct Renderer<'a> {
    pub(crate) model: &'a Model,
    template: ChatTemplate,
    /// File of the template.
    path: PathBuf,
}

impl Renderer<'_> {
    /// Tokens of a conversation, up to where the model's answer begins, and their text.
    pub(crate) fn tokens(&self, conversation: &Conversation) -> Result<(Vec<u32>, String)> {
        let rendered = self.template.render(conversation);
        let text = rendered
            .map_err(|e| Error::Undecodable { path: self.path.clone(), reason: e.to_string() })?;
        let tokens = self.model.tokenizer()?.encode_markup(&text);
        Ok((tokens.map_err(|e| Error::Usage(format!("the conversation: {e}")))?, text))
    }
}

fn shown(path: &Path) -> String {
    if path == Path::new("-") { "stdin".into() } else { path.display().to_string() }
}

/// The text of a file, or of stdin for `-`. An error says `what` is empty.
pub(crate) fn read_text(path: &Path, what: &str) -> Result<String> {
    let text = read_any(path)?;
    match text.is_empty() {
        true => Err(Error::Usage(format!("{}: {what} is empty", shown(path)))),
        false => Ok(text),
    }
}

/// The text of a file, or of stdin for `-`, which may be empty.
pub(crate) fn read_any(path: &Path) -> Result<String> {
    let read = match path == Path::new("-") {
        true => files::read_from(std::io::stdin().lock(), files::DATA).and_then(files::text),
        false => files::read_text(path, files::DATA),
    };
    read.map_err(Error::io(shown(path)))
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
