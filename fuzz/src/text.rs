//! Properties of any tokenizer and chat template that is accepted, whatever bytes it came from.

use lathe_harness::model::Gguf;
use lathe_harness::model::chat::{ChatTemplate, Conversation};
use lathe_harness::model::tokenizer::{Tokenizer, Vocabulary};

/// Words, white space, combining characters, control tokens, bytes and a few characters of four.
const TEXTS: [&str; 7] = [
    "",
    "the cat  sat\n\n on 12345 mats, don't",
    "<bos>a<eos><unk>\u{2581}b<0x41>",
    "e\u{301}\u{301} 한 \u{1112}\u{1161}\u{11ab} ﬁ ①",
    "\t \u{a0}\u{3000}\r\n",
    "🙂👩\u{200d}👩日本\u{0}",
    "abababababababababab",
];

/// The tokenizer of a GGUF file's metadata or of a `tokenizer.json`.
fn tokenizer(bytes: &[u8]) -> Option<Tokenizer> {
    if bytes.starts_with(b"GGUF") {
        let gguf = Gguf::parse(bytes).ok()?;
        Tokenizer::new(Vocabulary::from_gguf(&gguf, bytes).ok()??).ok()
    } else {
        Tokenizer::from_json(bytes).ok()
    }
}

/// Returns true if the bytes are a tokenizer. An error names the property that it breaks.
pub fn tokenizes(bytes: &[u8]) -> Result<bool, String> {
    let Some(tokenizer) = tokenizer(bytes) else { return Ok(false) };
    for text in TEXTS {
        for encoded in [
            tokenizer.encode(text, false),
            tokenizer.encode(text, true),
            tokenizer.encode_markup(text),
        ] {
            // It may lack a character; then it says so.
            let Ok(ids) = encoded else { continue };
            if let Some(id) = ids.iter().find(|id| tokenizer.piece(**id).is_none()) {
                return Err(format!("{text:?} has token {id}, which there is not"));
            }
            streams(&tokenizer, &ids)?;
        }
    }
    streams(&tokenizer, &[0, 3, 1, 5, 4, 200, 9, u32::MAX, 2, 7, 197, 172])?;
    Ok(true)
}

/// Parts of a text are the text.
fn streams(tokenizer: &Tokenizer, ids: &[u32]) -> Result<(), String> {
    let mut stream = tokenizer.stream();
    let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
    text.push_str(&stream.finish());
    let whole = tokenizer.decode(ids);
    match text == whole {
        true => Ok(()),
        false => Err(format!("{ids:?} streams as {text:?} and decodes as {whole:?}")),
    }
}

/// Returns true if the bytes are a template that renders a conversation.
pub fn renders(bytes: &[u8]) -> bool {
    let Ok(source) = String::from_utf8(bytes.to_vec()) else { return false };
    let tokens = vec![("bos_token".to_owned(), "<bos>".to_owned())];
    let Ok(template) = ChatTemplate::new(&source, tokens) else { return false };
    template.render(&Conversation::of(&[("system", "Be brief."), ("user", "hello")])).is_ok()
}
