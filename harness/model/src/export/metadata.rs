//! The metadata of a written file: a GGUF's unchanged, or derived from a configuration.

use super::ExportSpec;
use crate::config::{Config, END_KEYS, write_shape};
use crate::file::{ModelError, ModelFile};
use crate::gguf::writer::GgufWriter;
use crate::quantise::file_types;
use crate::tokenizer::{Tokenizer, Vocabulary};

/// The key without which a file has no tokenizer.
pub(super) const MODEL: &str = "tokenizer.ggml.model";

/// Entries that are written anew or hold no longer: the writer has its own alignment.
const REPLACED: [&str; 3] =
    ["general.file_type", "general.quantization_version", "general.alignment"];

pub(super) fn add(
    writer: &mut GgufWriter,
    file: &ModelFile,
    config: &Config,
    spec: &ExportSpec,
    vocabulary: Option<&Vocabulary>,
) -> Result<(), ModelError> {
    match file.gguf() {
        Some(gguf) => {
            let bytes = file.files()[0].bytes();
            let tokenizer = |key: &str| key.starts_with("tokenizer.");
            for (key, value) in gguf.metadata.iter() {
                let left = spec.without_tokenizer && tokenizer(key);
                if !REPLACED.contains(&key) && !key.starts_with("split.") && !left {
                    writer.add_value(key, value, bytes);
                }
            }
        }
        None => {
            if let Some(why) = config.beyond_gguf() {
                let why = format!("a GGUF file cannot say {why}");
                return Err(ModelError::at(&file.path)(why));
            }
            shape(writer, file, config);
        }
    }
    file_types(writer, spec.weights, spec.embed);
    if let Some(vocabulary) = vocabulary {
        tokenizer(writer, vocabulary);
        ends(writer, file, config, vocabulary)?;
    }
    Ok(())
}

/// The checkpoint's tokenizer, known to be sound.
pub(super) fn vocabulary(file: &ModelFile) -> Result<Vocabulary, ModelError> {
    let wrong = ModelError::at(file.tokenizer_json().unwrap_or(&file.path));
    let vocabulary = file.vocabulary()?.ok_or_else(|| {
        wrong(
            "no tokenizer.json beside the weights; --no-tokenizer writes a file without".to_owned(),
        )
    })?;
    Tokenizer::new(vocabulary.clone()).map_err(|e| wrong(e.to_string()))?;
    Ok(vocabulary)
}

fn shape(writer: &mut GgufWriter, file: &ModelFile, config: &Config) {
    writer.add_str("general.architecture", config.arch.name());
    writer.add_str("general.type", "model");
    let name = if file.path.is_dir() { file.path.file_name() } else { file.path.file_stem() };
    if let Some(name) = name {
        writer.add_str("general.name", &name.to_string_lossy());
    }
    write_shape(writer, config);
    if config.window.is_some() {
        writer.add_f32(&format!("{}.rope.freq_base_swa", config.arch), config.rope_base_local);
    }
}

fn tokenizer(writer: &mut GgufWriter, v: &Vocabulary) {
    writer.add_str(MODEL, &v.model);
    if let Some(pre) = &v.pre {
        writer.add_str("tokenizer.ggml.pre", pre);
    }
    writer.add_str_array("tokenizer.ggml.tokens", &v.tokens);
    writer.add_i32_array("tokenizer.ggml.token_type", &v.token_types);
    writer.add_str_array("tokenizer.ggml.merges", &v.merges);
    for (key, id) in [("bos", v.bos), ("eos", v.eos)] {
        if let Some(id) = id {
            writer.add_u32(&format!("tokenizer.ggml.{key}_token_id"), id);
        }
    }
    if let Some(add) = v.add_bos {
        writer.add_bool("tokenizer.ggml.add_bos_token", add);
    }
}

/// Adds the tokens besides the EOS that end a text: the end of a turn and, by Llama's name, the end
/// of a message that waits for a tool.
fn ends(
    writer: &mut GgufWriter,
    file: &ModelFile,
    config: &Config,
    v: &Vocabulary,
) -> Result<(), ModelError> {
    let mut others: Vec<u32> = Vec::new();
    for id in config.end_tokens.iter().filter(|id| Some(**id) != v.eos) {
        if !others.contains(id) {
            others.push(*id);
        }
    }
    if others.len() > END_KEYS.len() {
        let why = format!(
            "a GGUF file cannot say {} tokens that end a text beside the EOS, only {}",
            others.len(),
            END_KEYS.len()
        );
        return Err(ModelError::at(&file.path)(why));
    }
    let message = |id: &u32| v.tokens.get(*id as usize).is_some_and(|t| t == "<|eom_id|>");
    others.sort_by_key(message);
    for (key, id) in END_KEYS.iter().zip(others) {
        writer.add_u32(key, id);
    }
    Ok(())
}
