//! Chat templates: the Jinja text by which a model wants a conversation spelled, rendered with
//! limits, since it comes with the file and nobody has read it.
//!
//! Blocks are trimmed as the transformers library does (`trim_blocks`, `lstrip_blocks`), and the
//! template sees what it gives: `messages`, `add_generation_prompt`, the special tokens, `tools`
//! and `documents` (none), `raise_exception`, `strftime_now`, and Python's methods of strings,
//! lists and dictionaries. There is no include, import or inheritance.

mod error;
mod python;
mod strftime;

use std::path::Path;
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value, context};

use super::file::{self, ModelError, ModelFile};
use super::tokenizer::Tokenizer;

pub use error::ChatError;

/// Longest template, in bytes; public ones have up to 20,000.
const LONGEST: u64 = 1 << 20;

/// Longest `tokenizer_config.json`: those with thousands of added tokens have a few megabytes.
const LONGEST_CONFIG: u64 = 64 << 20;

/// Longest text that comes out, in bytes.
const LONGEST_OUTPUT: usize = 4 << 20;

/// About one an instruction and one for every 64 bytes that are made on the way: half a million
/// steps, or 32 MB. A conversation of a hundred messages takes some ten thousand.
const FUEL: u64 = 500_000;

/// Values nest as deep as fuel allows, and dropping them recurses.
const STACK: usize = 256 << 20;

/// The name that errors of minijinja have for the template.
const NAME: &str = "chat template";

/// The metadata key in a GGUF file.
const KEY: &str = "tokenizer.chat_template";

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// Its text.
    pub content: String,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: &str, content: &str) -> Self {
        Self { role: role.to_owned(), content: content.to_owned() }
    }

    fn value(&self) -> Value {
        context! { role => self.role.as_str(), content => self.content.as_str() }
    }
}

/// Special tokens that a template may name, by their names there: `bos_token`, `eos_token`, ….
pub type SpecialTokens = Vec<(String, String)>;

/// A template that parses.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    tokens: SpecialTokens,
}

impl ChatTemplate {
    /// Parses a template.
    ///
    /// # Errors
    ///
    /// It is too long or no template; the message names the line.
    pub fn new(source: String, tokens: SpecialTokens) -> Result<Self, ChatError> {
        if source.len() as u64 > LONGEST {
            return Err(ChatError::TooLong { found: source.len(), limit: LONGEST as usize });
        }
        let mut environment = environment()?;
        let parsed = deep(|| environment.add_template_owned(NAME, source))?;
        parsed.map_err(ChatError::from)?;
        Ok(Self { environment, tokens })
    }

    /// The template of a checkpoint, if it has one; special tokens of a GGUF are spelled by its
    /// tokenizer.
    ///
    /// # Errors
    ///
    /// The entry is no text, or no template. The message names the file.
    pub fn of(file: &ModelFile, tokenizer: &Tokenizer) -> Result<Option<Self>, ModelError> {
        let Some(index) = file.gguf() else {
            let folder = file.tokenizer_json().and_then(Path::parent);
            return folder.map_or(Ok(None), Self::from_folder);
        };
        let source = index.get_str(KEY).map_err(ModelError::at(&file.path))?;
        let Some(source) = source else { return Ok(None) };
        let tokens = Self::gguf_tokens(file, tokenizer)?;
        Self::new(source.to_owned(), tokens).map(Some).map_err(ModelError::at(&file.path))
    }

    /// The special tokens that a GGUF file names; none of another checkpoint.
    ///
    /// # Errors
    ///
    /// An id is no number. The message names the file.
    pub fn gguf_tokens(
        file: &ModelFile,
        tokenizer: &Tokenizer,
    ) -> Result<SpecialTokens, ModelError> {
        let mut tokens = SpecialTokens::new();
        let Some(index) = file.gguf() else { return Ok(tokens) };
        for (name, key) in [("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")]
        {
            let key = format!("tokenizer.ggml.{key}_token_id");
            let id = index.get_u32(&key).map_err(ModelError::at(&file.path))?;
            let piece = id.and_then(|id| tokenizer.piece(id));
            tokens.extend(piece.map(|piece| (format!("{name}_token"), piece.to_owned())));
        }
        Ok(tokens)
    }

    /// The template of a Hugging Face folder, if it has one: `chat_template.jinja`, else
    /// `chat_template` of `tokenizer_config.json` (of several the one called `default`).
    ///
    /// # Errors
    ///
    /// A file is there and cannot be read, or is not what it must be. The message names it.
    pub fn from_folder(folder: &Path) -> Result<Option<Self>, ModelError> {
        let path = folder.join("tokenizer_config.json");
        let (inline, tokens) = if path.exists() { read_config(&path)? } else { (None, vec![]) };
        let own = folder.join("chat_template.jinja");
        if own.exists() {
            return Self::open(&own, tokens).map(Some);
        }
        let Some(source) = inline else { return Ok(None) };
        Self::new(source, tokens).map(Some).map_err(ModelError::at(&path))
    }

    /// The template in a file: text of a template, or a `tokenizer_config.json` if its name ends
    /// in `.json`, whose special tokens go before `tokens`.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is no template. The message names the file.
    pub fn open(path: &Path, tokens: SpecialTokens) -> Result<Self, ModelError> {
        let chat = ModelError::at(path);
        if path.extension().is_some_and(|extension| extension == "json") {
            let (source, mut own) = read_config(path)?;
            own.extend(tokens);
            let source = source.ok_or_else(|| chat(config("chat_template", "is missing")))?;
            return Self::new(source, own).map_err(chat);
        }
        let bytes = file::read(path, LONGEST)?;
        let source = String::from_utf8(bytes)
            .map_err(|error| chat(ChatError::Utf8 { offset: error.utf8_error().valid_up_to() }))?;
        Self::new(source, tokens).map_err(chat)
    }

    /// The text of a conversation, ready for [`Tokenizer::encode_markup`], ending where the model's
    /// answer begins. `now` is what `strftime_now` tells, in UTC.
    ///
    /// # Errors
    ///
    /// The template fails, refuses the conversation (`raise_exception`), runs too long or makes
    /// too much. The message names the line.
    pub fn render(&self, messages: &[Message], now: SystemTime) -> Result<String, ChatError> {
        deep(|| self.render_here(messages, now))?
    }

    fn render_here(&self, messages: &[Message], now: SystemTime) -> Result<String, ChatError> {
        let mut environment = self.environment.clone();
        environment.add_function("strftime_now", move |format: &str| {
            strftime::format(now, format).map_err(|why| {
                Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {why}"))
            })
        });
        // What comes first stands.
        for (name, token) in self.tokens.iter().rev() {
            environment.add_global(name.clone(), token.clone());
        }
        let context = context! {
            messages => messages.iter().map(Message::value).collect::<Value>(),
            add_generation_prompt => true,
            tools => (),
            documents => (),
        };
        let template = environment.get_template(NAME)?;
        let mut output = Bounded::default();
        let rendered = template.render_captured_to(context, &mut output).map(|_| ());
        if output.passed {
            return Err(ChatError::OutputTooLong { limit: LONGEST_OUTPUT });
        }
        rendered?;
        Ok(String::from_utf8_lossy(&output.bytes).into_owned())
    }
}

/// An environment with limits, in which templates find what the transformers library gives them.
fn environment() -> Result<Environment<'static>, ChatError> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_function("raise_exception", |message: &str| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("raise_exception: {message}")))
    });
    environment.add_filter("tojson", python::tojson);
    environment.set_unknown_method_callback(python::method);
    Ok(environment)
}

/// Runs `work` on a stack of its own, which is deep enough for whatever fuel can nest.
fn deep<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, ChatError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat template".into()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, work);
        let thread = thread.map_err(|error| ChatError::Thread { why: error.to_string() })?;
        thread.join().map_err(|_| ChatError::Thread { why: "it panicked".into() })
    })
}

/// Bytes, at most [`LONGEST_OUTPUT`] of them.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    /// There were more.
    passed: bool,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > LONGEST_OUTPUT {
            self.passed = true;
            return Err(std::io::Error::other(format!("more than {LONGEST_OUTPUT} bytes")));
        }
        self.bytes.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn config(key: &'static str, why: &str) -> ChatError {
    ChatError::Config { key, why: why.to_owned() }
}

/// Template and special tokens of a `tokenizer_config.json`.
fn read_config(path: &Path) -> Result<(Option<String>, SpecialTokens), ModelError> {
    let bytes = file::read(path, LONGEST_CONFIG)?;
    parse_config(&bytes).map_err(ModelError::at(path))
}

fn parse_config(bytes: &[u8]) -> Result<(Option<String>, SpecialTokens), ChatError> {
    use serde_json::Value;
    let value: Value =
        serde_json::from_slice(bytes).map_err(|e| ChatError::Syntax { why: e.to_string() })?;
    let template = match &value["chat_template"] {
        Value::Null => None,
        Value::String(template) => Some(template.clone()),
        Value::Array(named) => {
            let default = named.iter().find(|entry| entry["name"] == "default");
            let template = default.and_then(|entry| entry["template"].as_str());
            let none = || config("chat_template", "is a list in which none is called `default`");
            Some(template.ok_or_else(none)?.to_owned())
        }
        _ => return Err(config("chat_template", "is neither a text nor a list of them")),
    };
    let mut tokens = SpecialTokens::new();
    for name in ["bos_token", "eos_token", "unk_token", "pad_token"] {
        let token = match &value[name] {
            Value::Null => continue,
            Value::String(token) => token,
            Value::Object(token) => match &token.get("content") {
                Some(Value::String(token)) => token,
                _ => return Err(config(name, "has no content")),
            },
            _ => return Err(config(name, "is no token")),
        };
        tokens.push((name.to_owned(), token.clone()));
    }
    Ok((template, tokens))
}

#[cfg(test)]
mod tests;
