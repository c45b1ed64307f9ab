//! The metadata of a written file: a GGUF's unchanged, or derived from a configuration.

use super::ExportSpec;
use crate::config::{Config, END_KEYS, write_shape};
use crate::error::ModelError;
use crate::file::ModelFile;
use crate::gguf::writer::GgufWriter;
use crate::quantise::file_types;
use crate::tokenizer::{Tokenizer, Vocabulary};
use crate::vocabulary::key;

/// Entries that are written anew or hold no longer: the writer has its own alignment.
const REPLACED: [&str; 3] =
    ["general.file_type", "general.quantization_version", "general.alignment"];

/// The metadata of the written file, and whether there is a tokenizer among them.
pub(super) fn of(
    file: &ModelFile,
    config: &Config,
    spec: &ExportSpec,
) -> Result<(GgufWriter, bool), ModelError> {
    let mut writer = GgufWriter::new();
    let mut has_tokenizer = !spec.without_tokenizer;
    if let Some(gguf) = file.gguf() {
        for (key, value) in gguf.metadata.iter() {
            let left = spec.without_tokenizer && key.starts_with("tokenizer.");
            if !REPLACED.contains(&key) && !key.starts_with("split.") && !left {
                writer.add_value(key, value, file.files()[0].bytes());
            }
        }
        file_types(&mut writer, spec.weights, spec.embed);
        has_tokenizer &= gguf.metadata.get(key::MODEL).is_some();
        return Ok((writer, has_tokenizer));
    }
    if let Some(why) = config.beyond_gguf() {
        return Err(ModelError::at(&file.path)(format!("a GGUF file cannot say {why}")));
    }
    writer.add("general.architecture", config.arch.name());
    writer.add("general.type", "model");
    let name = if file.path.is_dir() { file.path.file_name() } else { file.path.file_stem() };
    if let Some(name) = name {
        writer.add("general.name", &*name.to_string_lossy());
    }
    write_shape(&mut writer, config);
    if config.global_period.is_some() {
        writer.add(&format!("{}.rope.freq_base_swa", config.arch), &config.rope_base_local);
    }
    file_types(&mut writer, spec.weights, spec.embed);
    if has_tokenizer {
        let vocabulary = vocabulary(file)?;
        tokenizer(&mut writer, &vocabulary);
        ends(&mut writer, file, config, &vocabulary)?;
    }
    Ok((writer, has_tokenizer))
}

/// The checkpoint's tokenizer, known to be sound.
fn vocabulary(file: &ModelFile) -> Result<Vocabulary, ModelError> {
    let wrong = ModelError::at(file.tokenizer_json().unwrap_or(&file.path));
    let vocabulary = file.vocabulary()?.ok_or_else(|| {
        wrong(
            "no tokenizer.json beside the weights; --no-tokenizer writes a file without".to_owned(),
        )
    })?;
    Tokenizer::new(vocabulary.clone()).map_err(|e| wrong(e.to_string()))?;
    Ok(vocabulary)
}

fn tokenizer(writer: &mut GgufWriter, v: &Vocabulary) {
    writer.add(key::MODEL, &v.model);
    if let Some(pre) = &v.pre {
        writer.add(key::PRE, pre);
    }
    writer.add(key::TOKENS, &v.tokens[..]);
    writer.add(key::TYPES, &v.token_types[..]);
    writer.add(key::MERGES, &v.merges[..]);
    for (key, id) in [(key::BOS, v.bos), (key::EOS, v.eos)] {
        if let Some(id) = id {
            writer.add(key, &id);
        }
    }
    for (key, add) in [(key::ADD_BOS, v.add_bos), (key::ADD_EOS, v.add_eos)] {
        if let Some(add) = add {
            writer.add(key, &add);
        }
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
        writer.add(key, &id);
    }
    Ok(())
}
