//! Properties of every accepted safetensors file, stated from the format's description: each
//! tensor's bytes are as many as its type and shape ask for, they lie behind the header, and
//! together they are the rest of the file, each byte once.
//!
//! The input is a file of weights with its configuration: an u16 (little-endian), as many bytes of
//! `config.json`, then the safetensors file.

use lathe_harness::model::{config_of, safetensors};

/// Reads an input as a checkpoint and says whether weights and configuration were accepted.
///
/// # Errors
/// In what the reader breaks the rules.
pub fn hold(input: &[u8]) -> Result<(bool, bool), String> {
    let (config, weights) = split(input);
    let understood = config_of(config, weights);
    if let Ok(config) = &understood {
        for layer in 0..config.n_layers {
            let _ = (config.layer_window(layer), config.layer_rope_base(layer));
        }
    }
    let Ok(listed) = safetensors::index(weights) else {
        return match understood {
            Ok(_) => Err("a configuration is accepted over weights that are not".to_owned()),
            Err(_) => Ok((false, false)),
        };
    };
    let header = weights.first_chunk::<8>().map_or(0, |b| u128::from(u64::from_le_bytes(*b)));
    let mut owned = 0;
    let mut at = 8 + header;
    let mut names = std::collections::BTreeSet::new();
    for tensor in &listed {
        let values = tensor.shape.iter().fold(1u128, |n, &d| n.saturating_mul(d.into()));
        let bits = values.saturating_mul(tensor.dtype.bitsize() as u128);
        let (start, end) = (tensor.range.start as u128, tensor.range.end as u128);
        if bits != 8 * (end - start) {
            return Err(format!("`{}` has {bits} bits in {:?}", tensor.name, tensor.range));
        }
        if start != at && start != end {
            return Err(format!("`{}` begins at {start}, not {at}", tensor.name));
        }
        if !names.insert(&tensor.name) {
            return Err(format!("`{}` comes twice", tensor.name));
        }
        at = at.max(end);
        owned += end - start;
    }
    if 8 + header + owned != weights.len() as u128 {
        return Err(format!("{owned} bytes are owned behind {header} of {}", weights.len()));
    }
    Ok((true, understood.is_ok()))
}

/// Configuration and weights of an input.
pub fn split(input: &[u8]) -> (&[u8], &[u8]) {
    let Some((len, rest)) = input.split_first_chunk::<2>() else { return (&[], input) };
    rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()))
}
