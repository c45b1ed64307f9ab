//! A Hugging Face `tokenizer.json`: BPE over bytes (Llama 3, Qwen3) or over characters with U+2581
//! for spaces and bytes for what has no token (Gemma 3). Parts are named and checked one by one; an
//! unknown one, or a known one with a setting that is not implemented, is refused with its place in
//! the file.

mod node;
mod parts;
mod vocab;

use std::collections::HashMap;
use std::path::Path;

use node::{Node, refused};
use parts::Decoder;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use vocab::{Added, ModelJson, Spellings};

use super::byte_level::alphabet;
use super::literals::Literals;
use super::pieces::Pieces;
use super::tokens::{Tokens, byte_of};
use super::{Model, Tokenizer, TokenizerError, normalize};
use crate::ModelError;

/// Longest file that is read: the largest public one has 33 MB.
const LONGEST: u64 = 256 << 20;

/// The file but for its model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "version")]
    _version: IgnoredAny,
    #[serde(default)]
    truncation: Value,
    /// How batches are filled up; nothing to one text.
    #[serde(default, rename = "padding")]
    _padding: IgnoredAny,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: ModelJson,
}

/// Only the type of the model: what else is in it depends on that.
#[derive(Deserialize)]
struct Probe {
    model: ProbeModel,
}

#[derive(Deserialize)]
struct ProbeModel {
    #[serde(rename = "type")]
    ty: Option<String>,
}

impl Tokenizer {
    /// The tokenizer of a `tokenizer.json` file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or as for [`Tokenizer::from_json`]; the message names the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        let bytes = crate::file::read(path, LONGEST)?;
        Self::from_json(&bytes).map_err(ModelError::at(path))
    }

    /// The tokenizer of the bytes of a `tokenizer.json`.
    ///
    /// Read are models of type `BPE`; the normalisers `NFC`, `NFD`, `NFKC`, `NFKD`, `Replace` (of a
    /// string), `Prepend`; the pre-tokenisers `Split`, `ByteLevel`, `Metaspace`; the
    /// post-processors `TemplateProcessing` and `ByteLevel`; the decoders `ByteLevel`, `Metaspace`,
    /// and sequences of `Replace`, `ByteFallback`, `Fuse` and `Strip`; `Sequence` of each.
    ///
    /// Ids are those of the `tokenizers` library, decoded text too, but for what is no UTF-8:
    /// U+FFFD stands for each broken sequence of bytes, added tokens come back as they are spelled,
    /// and [`Tokenizer::encode`] adds a BOS once if the text spells it already.
    ///
    /// # Errors
    ///
    /// The bytes are no such file, or it has a part or a setting that is not read. The message
    /// names the place, such as `pre_tokenizer.pretokenizers[1].type`.
    pub fn from_json(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let ty = serde_json::from_slice::<Probe>(bytes)?.model.ty;
        if ty.as_deref() != Some("BPE") {
            let found = ty.map_or_else(|| "no value".to_owned(), |ty| format!("`{ty}`"));
            return Err(refused("model.type", format!("{found} is not supported; only BPE is")));
        }
        let file: File = serde_json::from_slice(bytes)?;
        if !file.truncation.is_null() {
            return Err(refused("truncation", "is not supported; only null is"));
        }
        build(file)
    }
}

/// What a `post_processor` puts before and after a text. `is` says whether an id has a spelling.
pub(crate) fn around(
    post_processor: &Value,
    is: impl Fn(u32, &str) -> bool,
) -> Result<[Vec<u32>; 2], TokenizerError> {
    parts::around(&Node::root("post_processor", post_processor), is)
}

fn build(file: File) -> Result<Tokenizer, TokenizerError> {
    let File { added_tokens, normalizer, pre_tokenizer, post_processor, decoder, model, .. } = file;
    model.check()?;
    let normalize = parts::normalizers(&Node::root("normalizer", &normalizer))?;
    let (splits, byte_level) = parts::splits(&Node::root("pre_tokenizer", &pre_tokenizer))?;
    let Decoder { spelling, bytes, strip } = parts::decoder(&Node::root("decoder", &decoder))?;

    let spellings = Spellings::new(&model.vocab, &added_tokens)?;
    let around = around(&post_processor, |id, spelling| spellings.piece(id) == Some(spelling))?;
    let vocab: HashMap<String, u32> = model.vocab.0.into_iter().collect();
    let unknown = match &model.unk_token {
        None => None,
        Some(token) => Some(*vocab.get(token).ok_or_else(|| {
            refused("model.unk_token", format!("{token:?} is not in the vocabulary"))
        })?),
    };
    let fallback = model.byte_fallback.then(|| {
        Box::new(std::array::from_fn(|byte| vocab.get(&format!("<0x{byte:02X}>")).copied()))
    });
    let merges = vocab::merges(&model.merges, &vocab)?;

    // Bytes are bytes again only where the decoder says so.
    let is_byte = |piece: &str| bytes && byte_of(piece).is_some();
    let (pieces, types) = spellings.into_tokens(is_byte);
    let tokens = Tokens::new(pieces, &types, None)?;

    let mut literals = Literals::default();
    let mut normalized = Literals::default();
    let mut any_normalized = false;
    for added in &added_tokens {
        if added.normalized {
            any_normalized = true;
            let spelling = normalize::apply(&normalize, &added.content);
            normalized.insert(&spelling, added.id, added.special);
        } else {
            literals.insert(&added.content, added.id, added.special);
        }
    }
    let pieces = Pieces {
        splits,
        alphabet: byte_level.then(alphabet),
        vocab,
        merges,
        bytes: fallback,
        unknown,
        fuse_unknown: model.fuse_unk,
        whole_words: model.ignore_merges,
    };
    Ok(Tokenizer {
        tokens,
        literals,
        normalized_literals: any_normalized.then_some(normalized),
        normalize,
        model: Model::Pieces(Box::new(pieces)),
        around,
        space_prefix: false,
        spelling,
        strip,
    })
}
