//! Chat templates: the Jinja text by which a model wants a conversation spelled. It comes with the
//! file, unreviewed, so it is rendered with limits.
//!
//! Blocks are trimmed as the transformers library does (`trim_blocks`, `lstrip_blocks`). The
//! template sees a [`Conversation`], `add_generation_prompt`, the special tokens, `documents` (none),
//! `raise_exception`, `strftime_now` (of UTC), `tojson` as that library has it, and Python's methods
//! of strings, lists and dictionaries. There is no include, import or inheritance; a missing name is
//! an error where the template reaches it.

mod python;

use std::collections::BTreeMap;
use std::path::Path;

use jiff::fmt::strtime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value, context,
    escape_formatter,
};
use serde_json::Value as Json;

use super::error::ModelError;
use super::file::ModelFile;
use super::keys::Keys;
use super::mapped;
use super::tokenizer::Tokenizer;

pub use super::error::ChatError;

/// Longest template, in bytes; public ones have up to 20,000.
const LONGEST: u64 = 1 << 20;

/// Longest `tokenizer_config.json`: those with thousands of added tokens have a few megabytes.
const LONGEST_CONFIG: u64 = 64 << 20;

/// Longest text that comes out, in bytes.
const LONGEST_OUTPUT: usize = 4 << 20;

/// Fuel budget: 1 per instruction plus 1 per 64 bytes allocated, i.e. 500,000 steps or 32 MB. A
/// conversation of a hundred messages takes some ten thousand.
const FUEL: u64 = 500_000;

/// Values nest as deep as fuel allows, and dropping them recurses.
const STACK: usize = 256 << 20;

/// The name that errors of minijinja have for the template.
const NAME: &str = "chat template";

impl From<Error> for ChatError {
    fn from(error: Error) -> Self {
        let why = |error: &Error| {
            let kind = match error.kind() {
                ErrorKind::OutOfFuel => "it runs too long or makes too much".to_owned(),
                kind => kind.to_string(),
            };
            error.detail().map_or(kind.clone(), |detail| format!("{kind}: {detail}"))
        };
        // The place of the error is that of the innermost one that has one.
        let (mut line, mut all) = (error.line(), vec![why(&error)]);
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            let inner = cause.downcast_ref::<Error>();
            line = inner.and_then(Error::line).or(line);
            all.push(inner.map_or_else(|| cause.to_string(), why));
            source = cause.source();
        }
        let line = line.map_or_else(String::new, |line| format!(", line {line}"));
        Self(format!("{NAME}{line}: {}", all.join(": ")))
    }
}

/// Special tokens that a template may name, by their names there: `bos_token`, `eos_token`, ….
pub type SpecialTokens = Vec<(String, String)>;

/// A conversation as templates see it. Objects keep the order of their keys.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    messages: Vec<Value>,
    tools: Vec<Value>,
    variables: BTreeMap<String, Value>,
}

impl Conversation {
    /// Names that a conversation has for itself, which no variable can have.
    const OWN: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

    /// A conversation of texts, each with its role: `system`, `user`, `assistant`.
    pub fn of(texts: &[(&str, &str)]) -> Self {
        let mut all = Self::default();
        texts.iter().for_each(|(role, content)| all.say(role, content));
        all
    }

    /// Adds a text to the end.
    pub fn say(&mut self, role: &str, content: &str) {
        self.messages.push(context! { role, content });
    }

    /// Adds the messages of a JSON text: an array of objects that have a `role` and whatever else
    /// the template reads, such as `content` and `tool_calls`.
    ///
    /// # Errors
    ///
    /// It is something else, or the system says something twice; the message names the element.
    pub fn add_messages(&mut self, text: &str) -> Result<(), ChatError> {
        let messages = objects(text)?;
        let role = |m: &Value| m.get_attr("role").ok()?.as_str().map(str::to_owned);
        if let Some(i) = messages.iter().position(|message| role(message).is_none()) {
            return Err(ChatError(format!("element {i} has no `role` that is a text")));
        }
        let begins =
            |messages: &[Value]| messages.first().and_then(role).as_deref() == Some("system");
        if begins(&self.messages) && begins(&messages) {
            return Err(ChatError("element 0 is a second message of the system".into()));
        }
        self.messages.extend(messages.into_iter().map(with_thoughts));
        Ok(())
    }

    /// Adds the tools of a JSON text that the model may call: an array of objects.
    ///
    /// # Errors
    ///
    /// It is something else; the message names the element.
    pub fn add_tools(&mut self, text: &str) -> Result<(), ChatError> {
        self.tools.extend(objects(text)?);
        Ok(())
    }

    /// Sets a variable of the template, such as `enable_thinking`, to a JSON value.
    ///
    /// # Errors
    ///
    /// The value is no JSON, or the conversation has that name for itself.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ChatError> {
        if Self::OWN.contains(&name) {
            return Err(ChatError(format!("`{name}` is the conversation's own")));
        }
        let letter = |c: char| c == '_' || c.is_alphabetic();
        if !name.starts_with(letter) || !name.chars().all(|c| letter(c) || c.is_numeric()) {
            return Err(ChatError(format!("`{name}` is no name of a variable")));
        }
        let value = serde_json::from_str(value);
        let value = value.map_err(|e| ChatError(format!("the value is no JSON: {e}")))?;
        match self.variables.insert(name.to_owned(), value) {
            None => Ok(()),
            Some(_) => Err(ChatError(format!("`{name}` is set already"))),
        }
    }

    /// Role of the last message.
    pub fn last_role(&self) -> Option<String> {
        let role = self.messages.last()?.get_attr("role").ok()?;
        role.as_str().map(str::to_owned)
    }

    /// The messages, to be written as JSON.
    pub fn messages(&self) -> impl serde::Serialize {
        &self.messages
    }
}

/// Names for what a model thought before it answered.
const THOUGHTS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A message whose thoughts stand under the two names that templates read, whatever name they came
/// under. transformers gives templates the same.
fn with_thoughts(message: Value) -> Value {
    let get = |key: &str| message.get_attr(key).ok().filter(|v| !v.is_none() && !v.is_undefined());
    let Some(thoughts) = THOUGHTS.into_iter().find_map(get) else { return message };
    let Ok(keys) = message.try_iter() else { return message };
    let old = keys.filter_map(|key| message.get_item(&key).ok().map(|value| (key, value)));
    let [content, thinking, _] = THOUGHTS;
    let mut pairs: Vec<(Value, Value)> = vec![(thinking.into(), thoughts.clone())];
    for (key, value) in old.chain([(content.into(), thoughts)]) {
        match pairs.iter_mut().find(|(known, _)| *known == key) {
            Some(pair) => pair.1 = value,
            None => pairs.push((key, value)),
        }
    }
    Value::from_pairs(pairs)
}

/// The objects of a JSON array.
fn objects(text: &str) -> Result<Vec<Value>, ChatError> {
    let all: Vec<Value> =
        serde_json::from_str(text).map_err(|e| ChatError(format!("is no JSON array: {e}")))?;
    match all.iter().position(|value| value.kind() != ValueKind::Map) {
        Some(i) => Err(ChatError(format!("element {i} is no object"))),
        None if all.is_empty() => Err(ChatError("the array is empty".into())),
        None => Ok(all),
    }
}

/// A template that parses.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    note: Option<String>,
}

impl ChatTemplate {
    /// Parses a template. The first of several special tokens with one name counts.
    ///
    /// # Errors
    ///
    /// It is too long or no template; the message names the line.
    pub fn new(source: &str, tokens: SpecialTokens) -> Result<Self, ChatError> {
        if source.len() as u64 > LONGEST {
            return Err(wrong(format!("it has {} bytes; at most {LONGEST} fit", source.len())));
        }
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
        let mut environment = Environment::new();
        environment.set_fuel(Some(FUEL));
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_syntax(syntax);
        environment.set_unknown_method_callback(method);
        environment.set_formatter(|out, state, value| match python::float(value) {
            Some(float) => Ok(out.write_str(&float)?),
            None => escape_formatter(out, state, value),
        });
        environment.add_filter("string", |value: &Value| {
            python::float(value).map_or_else(|| value.to_string().into(), Value::from)
        });
        environment.add_filter("default", default);
        environment.add_filter("d", default);
        environment.add_function("raise_exception", |message: &str| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, format!("raise_exception: {message}")))
        });
        environment.add_function("strftime_now", |format: &str| {
            let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
            let why = |e| format!("strftime_now: {format:?}: {e}");
            strtime::format(format, &now)
                .map_err(|e| Error::new(ErrorKind::InvalidOperation, why(e)))
        });
        environment.add_filter("tojson", python::to_json);
        // Python cannot iterate over None.
        environment.add_test("iterable", |v: &Value| !v.is_none() && v.try_iter().is_ok());
        for (name, token) in tokens.into_iter().rev() {
            environment.add_global(name, token);
        }
        let source = prepared(source);
        deep(|| environment.add_template_owned(NAME, source))??;
        Ok(Self { environment, note: None })
    }

    /// A note for the user where the template has tokens of the vocabulary that the tokenizer
    /// encodes in pieces, since their type is that of text.
    pub fn divides(&self, tokenizer: &Tokenizer) -> Option<String> {
        let read = self.environment.get_template(NAME).ok()?;
        let divided = tokenizer.divided(read.source());
        (!divided.is_empty()).then(|| {
            let all = divided.join(", ");
            format!("{NAME}: {all}: tokens typed as text, which are encoded in pieces")
        })
    }

    /// A note for the user where a folder has two templates that differ.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
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
        let source = index.text("tokenizer.chat_template").map_err(ModelError::at(&file.path))?;
        let Some(source) = source else { return Ok(None) };
        let tokens = Self::gguf_tokens(file, tokenizer)?;
        Self::new(source, tokens).map(Some).map_err(ModelError::at(&file.path))
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
            let id = index.u32(&key).map_err(ModelError::at(&file.path))?;
            let piece = id.and_then(|id| tokenizer.piece(id));
            tokens.extend(piece.map(|piece| (format!("{name}_token"), piece)));
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
            let mut template = Self::open(&own, tokens)?;
            let read = template.environment.get_template(NAME).map(|read| read.source().to_owned());
            template.note =
                inline.filter(|inline| read.is_ok_and(|read| read != prepared(inline))).map(|_| {
                    format!(
                        "{} is read; `chat_template` of {} differs and is not",
                        own.display(),
                        path.display()
                    )
                });
            return Ok(Some(template));
        }
        let Some(source) = inline else { return Ok(None) };
        Self::new(&source, tokens).map(Some).map_err(ModelError::at(&path))
    }

    /// The template in a file: text of a template, or a `tokenizer_config.json` if its name ends
    /// in `.json`, whose special tokens go before `tokens`.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is no template. The message names the file.
    pub fn open(path: &Path, tokens: SpecialTokens) -> Result<Self, ModelError> {
        let at = ModelError::at::<ChatError>(path);
        if path.extension().is_some_and(|extension| extension == "json") {
            let (source, mut own) = read_config(path)?;
            own.extend(tokens);
            let source =
                source.ok_or_else(|| at(ChatError("`chat_template` is missing".into())))?;
            return Self::new(&source, own).map_err(at);
        }
        let source = String::from_utf8(mapped::read(path, LONGEST)?).map_err(|error| {
            at(wrong(format!("byte {} is not UTF-8", error.utf8_error().valid_up_to())))
        })?;
        Self::new(&source, tokens).map_err(at)
    }

    /// The text of a conversation. It is ready for [`Tokenizer::encode_markup`] and ends where the
    /// model's answer begins.
    ///
    /// # Errors
    ///
    /// The template fails, refuses the conversation (`raise_exception`), runs too long or makes
    /// too much. The message names the line.
    pub fn render(&self, conversation: &Conversation) -> Result<String, ChatError> {
        let Conversation { messages, tools, variables } = conversation;
        let mut output = Bounded(Vec::new());
        deep(|| {
            let tools = (!tools.is_empty()).then_some(tools);
            let own = context! { messages, tools, add_generation_prompt => true };
            let context = context! {
                ..own, ..Value::from_pairs(variables.clone()), ..context! { documents => () }
            };
            self.environment
                .get_template(NAME)?
                .render_captured_to(context, &mut output)
                .map(|_| ())
        })??;
        Ok(String::from_utf8_lossy(&output.0).into_owned())
    }
}

/// The template as the engine reads it. Jinja takes every end of a line for `\n`.
fn prepared(source: &str) -> String {
    with_generation(&source.replace("\r\n", "\n").replace('\r', "\n"))
}

/// The template with `{% generation %}` as a block of its own scope, which renders what stands in
/// it. transformers marks answers with it for training; the engine does not know it.
fn with_generation(source: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(source.len()), source);
    while let Some(at) =
        rest.find("{%").into_iter().chain(rest.find("{{")).chain(rest.find("{#")).min()
    {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let end = tag_end(tag);
        let (tag, after) = tag.split_at(end);
        let signs = |c: char| c.is_whitespace() || c == '-' || c == '+';
        let name = tag.strip_prefix("{%").and_then(|inner| inner.strip_suffix("%}"));
        let name = name.map_or("", |inner| inner.trim_matches(signs));
        match name {
            "generation" => out.push_str(&tag.replacen(name, "with", 1)),
            "endgeneration" => out.push_str(&tag.replacen(name, "endwith", 1)),
            _ => out.push_str(tag),
        }
        rest = after;
        if name == "raw" {
            // Up to the tag that ends it, all is text.
            let end = rest.find("endraw").unwrap_or(rest.len());
            out.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    out + rest
}

/// Length of a tag or comment at the beginning of `text`; all of it where it does not end.
fn tag_end(text: &str) -> usize {
    let close = match &text[..2] {
        "{%" => "%}",
        "{{" => "}}",
        _ => return text.find("#}").map_or(text.len(), |at| at + 2),
    };
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.char_indices().skip(2) {
        match quote {
            _ if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(q) if c == q => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if text[at..].starts_with(close) => return at + 2,
            _ => {}
        }
    }
    text.len()
}

fn wrong(why: impl std::fmt::Display) -> ChatError {
    ChatError(format!("{NAME}: {why}"))
}

/// Python's methods, which minijinja's values do not have. Methods with a much larger result than
/// input go through the filters of the same name, which ask for fuel first.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match (name, args) {
        _ if value.kind() != ValueKind::String => {}
        ("replace", [from, to]) => {
            return state.apply_filter("replace", &[value.clone(), from.clone(), to.clone()]);
        }
        ("join", [items]) => return state.apply_filter("join", &[items.clone(), value.clone()]),
        ("replace", [from, to, count]) => {
            return python::replace(state, value.as_str().unwrap_or_default(), from, to, count);
        }
        ("removeprefix" | "removesuffix" | "rsplit", args) => {
            return python::cut(value.as_str().unwrap_or_default(), name, args);
        }
        ("format", args) => return python::format(state, value.as_str().unwrap_or_default(), args),
        // It can ask for any number.
        ("replace", _) => {
            let why = "str.replace with these arguments is not supported";
            return Err(Error::new(ErrorKind::UnknownMethod, why));
        }
        _ => {}
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

/// The filter `default`, whose arguments may be named: minijinja's cannot.
#[allow(clippy::needless_pass_by_value, reason = "minijinja hands arguments to filters by value")]
fn default(value: &Value, positional: Rest<Value>, options: Kwargs) -> Result<Value, Error> {
    if positional.len() > 2 {
        return Err(ErrorKind::TooManyArguments.into());
    }
    let named = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = options.get(name)?;
        Ok(named.or_else(|| positional.get(at).cloned()))
    };
    let (other, lax) = (named(0, "default_value")?, named(1, "boolean")?);
    options.assert_all_used()?;
    let lax = lax.is_some_and(|lax| lax.is_true());
    match value.is_undefined() || lax && !value.is_true() {
        true => Ok(other.unwrap_or_else(|| "".into())),
        false => Ok(value.clone()),
    }
}

/// Runs `work` on a stack of its own, which is deep enough for whatever fuel can nest.
fn deep<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, ChatError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(NAME.into()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, work).map_err(wrong)?;
        thread.join().map_err(|_| wrong("it panicked"))
    })
}

/// Bytes, at most [`LONGEST_OUTPUT`] of them.
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > LONGEST_OUTPUT {
            let why = format!("it makes more than {LONGEST_OUTPUT} bytes of text");
            return Err(std::io::Error::other(why));
        }
        self.0.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Template and special tokens of a `tokenizer_config.json`.
fn read_config(path: &Path) -> Result<(Option<String>, SpecialTokens), ModelError> {
    parse_config(&mapped::read(path, LONGEST_CONFIG)?).map_err(ModelError::at(path))
}

fn parse_config(bytes: &[u8]) -> Result<(Option<String>, SpecialTokens), ChatError> {
    let wrong = |key, why| ChatError(format!("`{key}` {why}"));
    let value: Json =
        serde_json::from_slice(bytes).map_err(|e| ChatError(format!("is no JSON: {e}")))?;
    let template = match &value["chat_template"] {
        Json::Null => None,
        Json::String(template) => Some(template.clone()),
        Json::Array(named) => {
            let default = named.iter().find(|entry| entry["name"] == "default");
            let template = default.and_then(|entry| entry["template"].as_str());
            let none = wrong("chat_template", "is a list in which none is called `default`");
            Some(template.ok_or(none)?.to_owned())
        }
        _ => return Err(wrong("chat_template", "is neither a text nor a list of them")),
    };
    let mut tokens = SpecialTokens::new();
    for name in ["bos_token", "eos_token", "unk_token", "pad_token"] {
        let token = &value[name];
        match token.as_str().or_else(|| token["content"].as_str()) {
            Some(token) => tokens.push((name.to_owned(), token.to_owned())),
            None if token.is_null() => {}
            None => return Err(wrong(name, "is no token")),
        }
    }
    Ok((template, tokens))
}

#[cfg(test)]
mod tests;
