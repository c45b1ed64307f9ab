mod reference;

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use proptest::prelude::*;

use super::byte_level::alphabet;
use super::merge::{Merge, Symbol, merge};
use super::token_type::*;
use super::*;

/// A SentencePiece vocabulary without space prefix; BOS is `<s>` if there is one.
fn sentencepiece(tokens: &[(&str, f32, i32)]) -> Vocabulary {
    Vocabulary {
        model: "llama".to_owned(),
        tokens: tokens.iter().map(|token| token.0.to_owned()).collect(),
        scores: tokens.iter().map(|token| token.1).collect(),
        token_types: tokens.iter().map(|token| token.2).collect(),
        bos: tokens.iter().position(|token| token.0 == "<s>").map(|id| id as u32),
        add_space_prefix: Some(false),
        ..Vocabulary::default()
    }
}

/// <unk>, <s>, </s>, the bytes, then `pieces` with falling scores.
fn with_bytes(pieces: &[&str]) -> Vocabulary {
    let bytes: Vec<String> = (0..=255u8).map(|byte| format!("<0x{byte:02X}>")).collect();
    let mut tokens = vec![("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)];
    tokens.extend(bytes.iter().map(|byte| (byte.as_str(), 0.0, BYTE)));
    tokens.extend((0..).zip(pieces).map(|(i, &piece)| (piece, -(i as f32), NORMAL)));
    sentencepiece(&tokens)
}

/// The bytes, what `merges` give, then `words`.
fn byte_level(pre: &str, merges: &[&str], words: &[&str]) -> Vocabulary {
    let mut tokens: Vec<String> = alphabet().map(String::from).to_vec();
    for token in merges.iter().map(|merge| merge.replace(' ', "")) {
        if !tokens.contains(&token) {
            tokens.push(token);
        }
    }
    tokens.extend(words.iter().map(|&word| word.to_owned()));
    Vocabulary {
        model: "gpt2".to_owned(),
        pre: Some(pre.to_owned()),
        token_types: vec![NORMAL; tokens.len()],
        tokens,
        merges: merges.iter().map(|&merge| merge.to_owned()).collect(),
        ..Vocabulary::default()
    }
}

/// `vocabulary` with more tokens at its end.
fn with_literals(mut vocabulary: Vocabulary, literals: &[(&str, i32)]) -> Vocabulary {
    for &(literal, ty) in literals {
        vocabulary.tokens.push(literal.to_owned());
        vocabulary.token_types.push(ty);
        if !vocabulary.scores.is_empty() {
            vocabulary.scores.push(0.0);
        }
    }
    vocabulary
}

fn pieces(tokenizer: &Tokenizer, text: &str, special: bool) -> String {
    let ids = tokenizer.encode(text, special).unwrap();
    let pieces: Vec<&str> = ids.iter().map(|&id| tokenizer.piece(id).unwrap()).collect();
    pieces.join(" ")
}

#[track_caller]
fn encodes(vocabulary: Vocabulary, text: &str, expected: &str) {
    assert_eq!(pieces(&Tokenizer::new(vocabulary).unwrap(), text, false), expected, "{text:?}");
}

#[track_caller]
fn refused(vocabulary: Vocabulary, message: &[&str]) {
    let error = Tokenizer::new(vocabulary).unwrap_err().to_string();
    for part in message {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

// Merging.

#[test]
fn highest_score_merges_first() {
    let abc = |ab, bc| {
        let single = [("a", -9.0, NORMAL), ("b", -9.0, NORMAL), ("c", -9.0, NORMAL)];
        sentencepiece(&[&single[..], &[("ab", ab, NORMAL), ("bc", bc, NORMAL)]].concat())
    };
    encodes(abc(-1.0, -2.0), "abc", "ab c");
    encodes(abc(-2.0, -1.0), "abc", "a bc");
    // Of equal scores the leftmost, and -0 equals 0.
    encodes(abc(-1.0, -1.0), "abc", "ab c");
    encodes(abc(-0.0, 0.0), "abc", "ab c");
    encodes(abc(f32::NEG_INFINITY, f32::INFINITY), "abc", "a bc");
}

#[test]
fn ties_go_to_the_left() {
    let vocabulary =
        sentencepiece(&[("a", -9.0, NORMAL), ("aa", -1.0, NORMAL), ("aaaa", -2.0, NORMAL)]);
    encodes(vocabulary.clone(), "aaa", "aa a");
    // aa aa aa a, then the left two; aaaaaa is no token.
    encodes(vocabulary, "aaaaaaa", "aaaa aa a");
    encodes(byte_level("qwen2", &["a a", "aa aa"], &[]), "aaaaaaa", "aaaa aa a");
}

#[test]
fn lowest_rank_merges_first() {
    // h e first leaves l l and then ll o; "hell" needs "he ll", which is there.
    let merges = ["h e", "l l", "he ll", "ll o", "hell o"];
    encodes(byte_level("qwen2", &merges, &[]), "hello", "hello");
    encodes(byte_level("qwen2", &["l l", "ll o", "h e", "he ll"], &[]), "hello", "he llo");
    // A token that no chain of merges reaches stays in pieces.
    encodes(byte_level("qwen2", &["h e"], &["hello"]), "hello", "he l l o");
}

#[test]
fn pair_named_twice_keeps_its_first_rank() {
    encodes(byte_level("qwen2", &["a b", "b c", "a b"], &[]), "abc", "ab c");
}

#[test]
fn only_llama_bpe_takes_whole_words() {
    encodes(byte_level("llama-bpe", &["h e"], &["hello"]), "hello", "hello");
    encodes(byte_level("llama-bpe", &["h e"], &["hello"]), "hellos", "he l l o s");
}

/// Looks at every pair again after each merge.
fn merge_naively(
    symbols: &[Symbol],
    find: impl Fn(&Symbol, &Symbol) -> Option<Merge>,
) -> Vec<Symbol> {
    let mut symbols = symbols.to_vec();
    loop {
        let pairs = symbols.windows(2).enumerate();
        let found = pairs.filter_map(|(at, pair)| Some((find(&pair[0], &pair[1])?, at)));
        let Some((merge, at)) = found.min_by_key(|(merge, at)| (merge.rank, *at)) else {
            return symbols;
        };
        let end = symbols.remove(at + 1).end;
        symbols[at] = Symbol { start: symbols[at].start, end, id: Some(merge.id) };
    }
}

proptest! {
    #[test]
    fn merge_matches_naive(
        text in proptest::collection::vec(0u32..3, 0..40),
        rules in proptest::collection::hash_map((0u32..8, 0u32..8), (0u32..6, 3u32..8), 0..30),
    ) {
        let symbol = |(start, &id): (usize, &u32)| Symbol { start, end: start + 1, id: Some(id) };
        let symbols: Vec<Symbol> = text.iter().enumerate().map(symbol).collect();
        let find = |left: &Symbol, right: &Symbol| {
            let &(rank, id) = rules.get(&(left.id?, right.id?))?;
            Some(Merge { rank, id })
        };
        prop_assert_eq!(merge(&symbols, find), merge_naively(&symbols, find));
    }
}

// Spaces, bytes and what has no token.

#[test]
fn spaces_are_escaped_and_prefixed() {
    let mut vocabulary = with_bytes(&["▁", "a", "b", "▁a"]);
    encodes(vocabulary.clone(), "a b a", "a ▁ b ▁a");
    // The prefix is the default.
    vocabulary.add_space_prefix = None;
    let tokenizer = Tokenizer::new(vocabulary).unwrap();
    assert_eq!(pieces(&tokenizer, "a b a", false), "▁a ▁ b ▁a");
    assert_eq!(pieces(&tokenizer, "", false), "");
    // Also after a control token, and decoding takes off as many.
    assert_eq!(pieces(&tokenizer, "a</s>a", true), "<s> ▁a </s> ▁a");
    let ids = tokenizer.encode(" a</s>a", true).unwrap();
    assert_eq!(tokenizer.decode(&ids), " aa");
}

#[test]
fn what_has_no_token_becomes_bytes_or_unknown() {
    encodes(with_bytes(&["a"]), "aé\n", "a <0xC3> <0xA9> <0x0A>");
    // One of the two bytes does not help.
    let half = [("a", 0.0, NORMAL), ("<0xC3>", 0.0, BYTE), ("<unk>", 0.0, UNKNOWN)];
    encodes(sentencepiece(&half), "aéa", "a <unk> a");
    let tokenizer = Tokenizer::new(sentencepiece(&half)).unwrap();
    assert_eq!(tokenizer.decode(&[0, 2, 0, 1]), "a\u{fffd}a\u{fffd}");

    let error = Tokenizer::new(sentencepiece(&half[..2])).unwrap().encode("aé", false);
    assert!(matches!(error, Err(TokenizerError::Unencodable { text }) if text == "é"));
    // An unknown token that is named goes before one that is found by type.
    let named = Vocabulary { unknown: Some(0), ..sentencepiece(&half) };
    encodes(named, "é", "a");

    let mut bytes = byte_level("qwen2", &["b c"], &[]);
    bytes.tokens[usize::from(b'a')] = "aa".to_owned();
    bytes.tokens[usize::from(b'\n')] = "bb".to_owned();
    let tokenizer = Tokenizer::new(bytes).unwrap();
    for lacks in ["a", "\n"] {
        let error = tokenizer.encode(&format!("b{lacks}"), false);
        assert!(matches!(error, Err(TokenizerError::Unencodable { text }) if text == lacks));
    }
}

#[test]
fn alphabet_is_that_of_gpt2() {
    let alphabet = alphabet();
    for (byte, c) in [
        (0x00, 'Ā'),
        (0x0a, 'Ċ'),
        (0x20, 'Ġ'),
        (0x21, '!'),
        (0x7e, '~'),
        (0x7f, 'ġ'),
        (0xa0, 'ł'),
        (0xa1, '¡'),
        (0xad, 'Ń'),
        (0xff, 'ÿ'),
    ] {
        assert_eq!(alphabet[byte], c, "{byte:#04x}");
    }
    let distinct: HashMap<char, usize> = alphabet.into_iter().zip(0..).collect();
    assert_eq!(distinct.len(), 256);
}

// Literals.

#[test]
fn literals_match_leftmost_then_longest() {
    let literals = [("<a>", USER_DEFINED), ("<a><b>", USER_DEFINED), ("<b><c>", USER_DEFINED)];
    let tokenizer = Tokenizer::new(with_literals(with_bytes(&["x", "<"]), &literals)).unwrap();
    assert_eq!(pieces(&tokenizer, "<a>x<a><b>", false), "<a> x <a><b>");
    assert_eq!(pieces(&tokenizer, "<a><b><c>", false), "<a><b> < <0x63> <0x3E>");
    // What begins like a literal and is none is text.
    assert_eq!(pieces(&tokenizer, "<a", false), "< <0x61>");
    let ids = tokenizer.encode("<a>x<a><b>", false).unwrap();
    assert_eq!(tokenizer.decode(&ids), "<a>x<a><b>");
}

#[test]
fn control_tokens_take_special() {
    let literals = [("<|im_start|>", CONTROL), ("<think>", USER_DEFINED)];
    let vocabulary = with_literals(byte_level("qwen2", &["x y"], &[]), &literals);
    let tokenizer = Tokenizer::new(vocabulary).unwrap();
    let text = "xy<|im_start|><think>xy";
    assert_eq!(pieces(&tokenizer, text, true), "xy <|im_start|> <think> xy");
    let plain = tokenizer.encode(text, false).unwrap();
    assert_eq!(pieces(&tokenizer, text, false), "xy < | i m _ s t a r t | > <think> xy");
    assert_eq!(tokenizer.decode(&plain), text);
    assert_eq!(tokenizer.decode(&tokenizer.encode(text, true).unwrap()), "xy<think>xy");
}

#[test]
fn text_cannot_merge_into_a_control_token() {
    let tokens = [("a", 0.0, NORMAL), ("b", 0.0, NORMAL), ("ab", 9.0, CONTROL)];
    encodes(sentencepiece(&tokens), "ab", "a b");
    let whole = with_literals(byte_level("llama-bpe", &["h e"], &[]), &[("hello", CONTROL)]);
    encodes(whole, "hello", "he l l o");
}

#[test]
fn user_defined_spaces_match_in_either_spelling() {
    for run in ["▁▁", "  "] {
        let vocabulary = with_literals(with_bytes(&["a", "▁a"]), &[(run, USER_DEFINED)]);
        let tokenizer = Tokenizer::new(vocabulary).unwrap();
        let ids = tokenizer.encode("a  a a", false).unwrap();
        assert_eq!(ids, [259, 261, 259, 260], "{run:?}");
        assert_eq!(tokenizer.decode(&ids), "a  a a");
    }
}

#[test]
fn bos_comes_once_and_only_with_special() {
    let ask = |add_bos, text: &str, special| {
        let vocabulary = Vocabulary { add_bos, ..with_bytes(&["a"]) };
        pieces(&Tokenizer::new(vocabulary).unwrap(), text, special)
    };
    assert_eq!(ask(None, "a", true), "<s> a");
    assert_eq!(ask(None, "", true), "<s>");
    assert_eq!(ask(Some(true), "a", false), "a");
    assert_eq!(ask(Some(true), "<s>a", true), "<s> a");
    assert_eq!(ask(Some(true), "<s><s>a", true), "<s> <s> a");
    assert_eq!(ask(Some(false), "a", true), "a");
    assert_eq!(ask(Some(false), "<s>a", true), "<s> a");

    // By default llama-bpe adds one, qwen2 does not.
    for (pre, expected) in [("llama-bpe", "<s> a"), ("qwen2", "a")] {
        let mut vocabulary = with_literals(byte_level(pre, &["a b"], &[]), &[("<s>", CONTROL)]);
        vocabulary.bos = Some(257);
        assert_eq!(pieces(&Tokenizer::new(vocabulary).unwrap(), "a", true), expected);
    }
}

// Decoding.

#[test]
fn decode_is_lossy_and_total() {
    let tokenizer = Tokenizer::new(with_bytes(&["▁a"])).unwrap();
    let byte = |byte: u8| 3 + u32::from(byte);
    assert_eq!(tokenizer.decode(&[]), "");
    assert_eq!(tokenizer.decode(&[1, byte(0xc3), byte(0xa9), 259, 2]), "é a");
    assert_eq!(tokenizer.decode(&[byte(0xc3), 259]), "\u{fffd} a");
    assert_eq!(tokenizer.decode(&[259, 260, u32::MAX, 0]), " a\u{fffd}\u{fffd}\u{fffd}");
    assert_eq!(tokenizer.piece(259), Some("▁a"));
    assert_eq!(tokenizer.piece(260), None);
    // A spelling outside the alphabet stands for itself.
    let odd = byte_level("qwen2", &["a b"], &["日 "]);
    assert_eq!(Tokenizer::new(odd).unwrap().decode(&[257, u32::from(b'a')]), "日 a");
}

/// Decoding as it was before there were streams: all bytes of a run at once.
fn decode_at_once(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let control = |&id: &u32| tokenizer.tokens.kind(id) == Some(Kind::Control);
    let runs = ids.split(control).filter(|run| !run.is_empty()).map(|run| {
        let mut bytes = Vec::new();
        run.iter().for_each(|&id| tokenizer.push_bytes(id, false, &mut bytes));
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Model::SentencePiece(_) = tokenizer.model else { return text };
        let text = text.replace('▁', " ");
        let prefixed =
            tokenizer.space_prefix && tokenizer.tokens.kind(run[0]) != Some(Kind::UserDefined);
        text.strip_prefix(' ').filter(|_| prefixed).map_or(text.clone(), str::to_owned)
    });
    runs.collect()
}

/// Strings of words, white space and any other characters. U+2581 is left out: SentencePiece takes
/// it for a space.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        3 => proptest::sample::select(vec![
            "the", " ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "12345", "é", "日本", "<s>", "<tool>",
            "▁", "\u{a0}", "!?",
        ])
        .prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(part, 0..20).prop_map(|parts| parts.concat().replace('▁', ""))
}

/// With every byte, with and without a space prefix and user-defined tokens.
static ROUND_TRIP: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let literals = [("<tool>", USER_DEFINED), ("▁▁", USER_DEFINED)];
    let prefixed = |vocabulary| Vocabulary { add_space_prefix: Some(true), ..vocabulary };
    let byte_level =
        |pre| with_literals(byte_level(pre, &reference::merges(), &[]), &literals[..1]);
    let vocabularies = [
        with_bytes(&[]),
        with_bytes(&reference::pieces()),
        prefixed(with_bytes(&[])),
        prefixed(with_literals(with_bytes(&reference::pieces()[3..]), &literals)),
        byte_level("llama-bpe"),
        byte_level("qwen2"),
        byte_level("gpt-2"),
    ];
    vocabularies.into_iter().map(|vocabulary| Tokenizer::new(vocabulary).unwrap()).collect()
});

proptest! {
    #[test]
    fn decode_returns_what_was_encoded(text in text()) {
        for tokenizer in ROUND_TRIP.iter() {
            let ids = tokenizer.encode(&text, false).unwrap();
            let mut stream = tokenizer.stream();
            let parts: String = ids.iter().map(|&id| stream.push(id)).collect();
            // What was text ends with a whole character.
            prop_assert_eq!(stream.finish(), "");
            prop_assert_eq!(&parts, &tokenizer.decode(&ids));
            let text = normalize::apply(&tokenizer.normalize, &text);
            prop_assert_eq!(tokenizer.decode(&ids), text.as_ref());
        }
    }
}

proptest! {
    #[test]
    fn a_stream_gives_what_decoding_at_once_gives(
        // Bytes among them, that make no UTF-8, and ids beyond the vocabulary.
        ids in proptest::collection::vec(prop_oneof![0..360u32, 195..262u32], 0..12),
    ) {
        for tokenizer in ROUND_TRIP.iter() {
            let expected = decode_at_once(tokenizer, &ids);
            let mut stream = tokenizer.stream();
            let mut text = String::new();
            for &id in &ids {
                let part = stream.push(id);
                text.push_str(&part);
                // Nothing is held back but the beginning of one character.
                prop_assert!(stream.clone().finish().chars().count() <= 1);
            }
            text.push_str(&stream.finish());
            prop_assert_eq!(&text, &expected);
            prop_assert_eq!(tokenizer.decode(&ids), expected);
        }
    }
}

#[test]
fn a_character_over_several_tokens_comes_when_it_is_whole() {
    let tokenizer = Tokenizer::new(with_bytes(&["▁a"])).unwrap();
    let byte = |byte: u8| 3 + u32::from(byte);
    let mut stream = tokenizer.stream();
    let smile = "🙂".as_bytes();
    for &b in &smile[..3] {
        assert_eq!(stream.push(byte(b)), "");
    }
    assert_eq!(stream.clone().finish(), "\u{fffd}");
    assert_eq!(stream.push(byte(smile[3])), "🙂");
    // A byte that cannot go on with the character shows at once, and so does what it broke.
    assert_eq!(stream.push(byte(0xe2)), "");
    assert_eq!(stream.push(byte(b'x')), "\u{fffd}x");
    assert_eq!(stream.push(byte(0xff)), "\u{fffd}");
    // Nor does it go on behind a control token.
    assert_eq!(stream.push(byte(0xc3)), "");
    assert_eq!(stream.push(1), "\u{fffd}");
    assert_eq!(stream.push(byte(0xa9)), "\u{fffd}");
    assert_eq!(stream.finish(), "");
}

#[test]
fn qwen_composes_and_the_others_do_not() {
    for (pre, expected) in [
        ("qwen2", "Ã © Ì ģ ê ° Ģ"),
        ("llama-bpe", "e Ì ģ Ì ģ á Ħ Ģ á ħ ¡"),
        ("gpt-2", "e Ì ģ Ì ģ á Ħ Ģ á ħ ¡"),
        ("deepseek-r1-qwen", "e Ì ģ Ì ģ á Ħ Ģ á ħ ¡"),
    ] {
        // e with two acutes, and a syllable of Hangul from its letters.
        encodes(byte_level(pre, &["a b"], &[]), "e\u{301}\u{301}\u{1100}\u{1161}", expected);
    }
    // A literal is matched in text as it is.
    let vocabulary = byte_level("qwen2", &["a b"], &[]);
    let vocabulary = with_literals(vocabulary, &[("e\u{301}", USER_DEFINED)]);
    encodes(vocabulary, "e\u{301}é", "e\u{301} Ã ©");
}

#[test]
fn long_text_is_not_quadratic() {
    // Minutes if it were; also one word and one run of spaces.
    for text in ["a".repeat(300_000), " ".repeat(300_000), "the cat ".repeat(40_000)] {
        for vocabulary in [
            with_bytes(&reference::pieces()),
            byte_level("llama-bpe", &reference::merges(), &["a a"]),
            byte_level("qwen2", &reference::merges(), &["a a"]),
        ] {
            let tokenizer = Tokenizer::new(vocabulary).unwrap();
            let ids = tokenizer.encode(&text, false).unwrap();
            assert!(tokenizer.decode(&ids) == text);
        }
    }
}

#[test]
fn a_million_spaces_are_an_error_at_worst() {
    let tokenizer = Tokenizer::new(byte_level("qwen2", &["a b"], &[])).unwrap();
    let error = tokenizer.encode(&(" ".repeat(1_100_000) + "a"), false).unwrap_err();
    assert!(matches!(error, TokenizerError::Split(_)), "{error}");
}

// Against other implementations.

#[test]
fn sentencepiece_matches_reference() {
    let mut vocabulary = with_bytes(&reference::pieces());
    vocabulary.token_types[259..262].fill(USER_DEFINED);
    let tokenizer = Tokenizer::new(vocabulary).unwrap();
    for (text, expected) in reference::SENTENCEPIECE {
        assert_eq!(pieces(&tokenizer, text, false), expected, "{text:?}");
    }
}

#[test]
fn byte_level_matches_reference() {
    for pre in ["llama-bpe", "qwen2"] {
        let vocabulary = byte_level(pre, &reference::merges(), &reference::WHOLE_WORDS);
        let tokenizer = Tokenizer::new(vocabulary).unwrap();
        for (text, expected) in reference::LLAMA_BPE {
            let other = reference::QWEN2.iter().find(|case| pre == "qwen2" && case.0 == text);
            let expected = other.map_or(expected, |case| case.1);
            assert_eq!(pieces(&tokenizer, text, false), expected, "{pre}: {text:?}");
        }
    }
}

// Vocabularies that do not hold together.

#[test]
fn unsupported_names_are_refused() {
    let other = Vocabulary { model: "bert".to_owned(), ..with_bytes(&[]) };
    refused(other, &["tokenizer.ggml.model", "`bert`", "llama, gpt2"]);
    let pre = |pre: Option<&str>| Vocabulary {
        pre: pre.map(str::to_owned),
        ..byte_level("qwen2", &["a b"], &[])
    };
    refused(pre(Some("tekken")), &["tokenizer.ggml.pre", "`tekken`", "llama-bpe", "qwen2"]);
    refused(pre(Some("default")), &["tokenizer.ggml.pre", "`default`"]);
    refused(pre(None), &["tokenizer.ggml.pre", "no value"]);
    // SentencePiece has no pre-tokenizer.
    let default = Vocabulary { pre: Some("default".to_owned()), ..with_bytes(&["a"]) };
    encodes(default, "a", "a");
}

#[test]
fn empty_and_missing_are_refused() {
    refused(sentencepiece(&[]), &["tokenizer.ggml.tokens", "empty"]);
    let merges = Vocabulary { merges: vec![], ..byte_level("qwen2", &["a b"], &[]) };
    refused(merges, &["tokenizer.ggml.merges", "missing"]);
    let bos = Vocabulary { bos: None, add_bos: Some(true), ..with_bytes(&[]) };
    refused(bos, &["tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id"]);
    // Empty spellings are padding: any number of them, never matched.
    let padding = with_literals(with_bytes(&["a", "", ""]), &[("", CONTROL), ("", USER_DEFINED)]);
    encodes(padding, "aa", "a a");
}

#[test]
fn lengths_must_agree() {
    let short = |scores, types| {
        let mut vocabulary = with_bytes(&["a"]);
        vocabulary.scores.truncate(scores);
        vocabulary.token_types.truncate(types);
        vocabulary
    };
    refused(short(259, 260), &["tokenizer.ggml.scores", "259 entries for 260 tokens"]);
    refused(short(0, 260), &["tokenizer.ggml.scores", "0 entries"]);
    refused(short(260, 0), &["tokenizer.ggml.token_type", "0 entries for 260"]);
    let long = Vocabulary { scores: vec![0.0; 300], ..byte_level("qwen2", &["a b"], &[]) };
    refused(long, &["tokenizer.ggml.scores", "300 entries for 257"]);
}

#[test]
fn ids_must_be_tokens() {
    for (key, vocabulary) in [
        ("tokenizer.ggml.bos_token_id", Vocabulary { bos: Some(259), ..with_bytes(&[]) }),
        ("tokenizer.ggml.eos_token_id", Vocabulary { eos: Some(u32::MAX), ..with_bytes(&[]) }),
        ("tokenizer.ggml.unknown_token_id", Vocabulary { unknown: Some(259), ..with_bytes(&[]) }),
    ] {
        refused(vocabulary, &[key, "beyond the 259 tokens"]);
    }
}

#[test]
fn tokens_must_be_sound() {
    refused(with_bytes(&["a", "b", "a"]), &["tokenizer.ggml.tokens", "259 and 261", "\"a\""]);
    let mut score = with_bytes(&["a"]);
    score.scores[259] = f32::NAN;
    refused(score, &["tokenizer.ggml.scores", "token 259"]);
    for ty in [-1, 7, i32::MIN] {
        let vocabulary = with_literals(with_bytes(&[]), &[("a", ty)]);
        refused(vocabulary, &["tokenizer.ggml.token_type", "token 259", &ty.to_string()]);
    }
    for spelling in ["a", "<0x4>", "<0x004>", "<0x+4>", "<0xGG>", "<0x41", "<0xé>", ""] {
        let vocabulary = with_literals(sentencepiece(&[]), &[(spelling, BYTE)]);
        let vocabulary = Vocabulary { scores: vec![0.0], ..vocabulary };
        refused(vocabulary, &["tokenizer.ggml.token_type", "token 0", &format!("{spelling:?}")]);
    }
}

#[test]
fn merges_must_be_sound() {
    let with = |merge: &str| {
        let mut vocabulary = with_literals(byte_level("qwen2", &["a b"], &[]), &[("ac", CONTROL)]);
        vocabulary.merges.push(merge.to_owned());
        vocabulary
    };
    for merge in ["", " ", "ab", "a ", " b", "a b c", "a  b"] {
        refused(with(merge), &["tokenizer.ggml.merges", "entry 1", &format!("{merge:?}")]);
    }
    // A part, the whole, and a whole that is not text.
    for (merge, missing) in [("xy z", "xy"), ("a 日", "日"), ("y z", "yz"), ("a c", "ac")] {
        refused(with(merge), &["tokenizer.ggml.merges", "entry 1", &format!("needs {missing:?}")]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn hostile_vocabularies_do_not_panic(
        gpt2 in any::<bool>(),
        tokens in proptest::collection::vec(
            prop_oneof![
                20 => ("[ab ▁<>]{1,4}", any::<f32>(), 0..6i32),
                2 => ("<0x4[0-9]>", any::<f32>(), Just(6)),
                1 => ("[ab]{0,2}", any::<f32>(), any::<i32>()),
            ],
            0..12,
        ),
        merges in proptest::collection::vec("[ab] [ab]|[ab ]{0,5}", 1..3),
        lost in 0..8usize,
        bos in proptest::option::of(0..12u32),
        unknown in proptest::option::of(0..12u32),
        text in "[ab ▁<>AB]{0,12}",
    ) {
        // Most are refused; these let some byte-level ones through.
        let mut tokens = tokens;
        let base = ["a", "b", "ab", "ba"].map(|token| (token.to_owned(), 0.0, NORMAL));
        tokens.splice(..0, base.into_iter().filter(|_| gpt2));
        let mut seen = HashSet::new();
        tokens.retain(|token| seen.insert(token.0.clone()) || token.0.is_empty());
        let vocabulary = Vocabulary {
            model: if gpt2 { "gpt2" } else { "llama" }.to_owned(),
            pre: Some("llama-bpe".to_owned()),
            tokens: tokens.iter().map(|token| token.0.clone()).collect(),
            scores: tokens.iter().skip(lost / 7).map(|token| token.1).collect(),
            token_types: tokens.iter().map(|token| token.2).collect(),
            merges,
            bos,
            unknown,
            ..Vocabulary::default()
        };
        if let Ok(tokenizer) = Tokenizer::new(vocabulary) {
            for special in [false, true] {
                let ids = tokenizer.encode(&text, special).unwrap_or_default();
                prop_assert!(ids.iter().all(|&id| tokenizer.piece(id).is_some()));
                tokenizer.decode(&ids);
            }
            tokenizer.decode(&[0, 3, 11, 12, u32::MAX]);
        }
    }
}
