//! A SentencePiece vocabulary of any size: special tokens, the 256 bytes, single characters, then
//! words of letters, each the extension of another, so that any text can be tokenised.

use crate::gguf::writer::GgufWriter;
use crate::token_type::{BYTE, CONTROL, NORMAL, UNKNOWN};

/// SentencePiece's spelling of a space.
const SPACE: char = '▁';

const SPECIAL: [(&str, i32); 4] =
    [("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), ("<unk>", UNKNOWN)];

pub(super) fn add(writer: &mut GgufWriter, size: usize) {
    let tokens: Vec<String> = pieces().take(size).collect();
    let fillers = SPECIAL.len() + 256;
    // A higher score is merged first: shorter words before longer ones.
    let scores: Vec<f32> = (0..size).map(|i| -(i.saturating_sub(fillers) as f32)).collect();
    let types: Vec<i32> = (0..size)
        .map(|i| match SPECIAL.get(i) {
            Some(&(_, ty)) => ty,
            None if i < fillers => BYTE,
            None => NORMAL,
        })
        .collect();
    writer.add("tokenizer.ggml.model", "llama");
    writer.add("tokenizer.ggml.tokens", &tokens[..]);
    writer.add("tokenizer.ggml.scores", &scores[..]);
    writer.add("tokenizer.ggml.token_type", &types[..]);
    for (token, id) in [("bos", 2u32), ("eos", 1), ("unknown", 3), ("padding", 0)] {
        writer.add(&format!("tokenizer.ggml.{token}_token_id"), &id);
    }
    writer.add("tokenizer.ggml.add_bos_token", &true);
    writer.add("tokenizer.ggml.add_eos_token", &false);
}

fn pieces() -> impl Iterator<Item = String> {
    let special = SPECIAL.iter().map(|(piece, _)| (*piece).to_owned());
    let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
    let single = std::iter::once(SPACE).chain('!'..='~').map(String::from);
    special.chain(bytes).chain(single).chain((1..).map(word))
}

/// ▁a … ▁z, ▁aa …: the letters of a number in bijective base 26.
fn word(mut number: u32) -> String {
    let mut letters = Vec::new();
    while number > 0 {
        number -= 1;
        letters.push(char::from(b'a' + (number % 26) as u8));
        number /= 26;
    }
    std::iter::once(SPACE).chain(letters.into_iter().rev()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_extends_a_piece_before_it() {
        let pieces: Vec<String> = pieces().take(4096).collect();
        assert_eq!(pieces[4 + 0x0a], "<0x0A>");
        let first_word = pieces.iter().position(|p| p == "▁a").unwrap();
        for (index, piece) in pieces.iter().enumerate().skip(first_word) {
            let mut shorter = piece.clone();
            shorter.pop();
            let found = pieces.iter().position(|p| *p == shorter);
            assert!(found.is_some_and(|at| at < index), "{piece}");
        }
    }
}
