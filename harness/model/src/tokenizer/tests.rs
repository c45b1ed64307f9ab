//! Vocabularies of GGUF files against the results of other implementations, and inconsistent ones.
//! Files of the `tokenizers` library are tested with the command.

mod reference;

use proptest::prelude::*;

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

/// A vocabulary of the bytes, the results of `merges`, then `words`.
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
    let pieces: Vec<String> = ids.iter().map(|&id| tokenizer.piece(id).unwrap()).collect();
    pieces.join(" ")
}

#[track_caller]
fn encodes(vocabulary: Vocabulary, text: &str, expected: &str) {
    assert_eq!(pieces(&Tokenizer::new(vocabulary).unwrap(), text, false), expected, "{text:?}");
}

#[test]
fn texts_become_what_other_implementations_give() {
    let mut vocabulary = with_bytes(&reference::pieces());
    vocabulary.token_types[259..262].fill(USER_DEFINED);
    let tokenizer = Tokenizer::new(vocabulary).unwrap();
    for (text, expected) in reference::SENTENCEPIECE {
        assert_eq!(pieces(&tokenizer, text, false), expected, "{text:?}");
    }
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

#[test]
fn the_highest_score_merges_first() {
    let abc = |ab, bc| {
        let single = [("a", -9.0, NORMAL), ("b", -9.0, NORMAL), ("c", -9.0, NORMAL)];
        sentencepiece(&[&single[..], &[("ab", ab, NORMAL), ("bc", bc, NORMAL)]].concat())
    };
    for (ab, bc, expected) in [
        (-1.0, -2.0, "ab c"),
        (-2.0, -1.0, "a bc"),
        (1.0, 2.0, "a bc"),
        (-1.0, 1.0, "a bc"),
        // Of equal scores the leftmost, and -0 equals 0.
        (-1.0, -1.0, "ab c"),
        (-0.0, 0.0, "ab c"),
        (f32::NEG_INFINITY, f32::INFINITY, "a bc"),
    ] {
        encodes(abc(ab, bc), "abc", expected);
    }
    let runs = [("a", -9.0, NORMAL), ("aa", -1.0, NORMAL), ("aaaa", -2.0, NORMAL)];
    // aa aa aa a, then the left two; aaaaaa is no token.
    encodes(sentencepiece(&runs), "aaaaaaa", "aaaa aa a");
    // Pieces whose characters are no tokens.
    encodes(
        sentencepiece(&[("日本", 0.0, NORMAL), ("<unk>", 0.0, UNKNOWN)]),
        "日本日",
        "日本 <unk>",
    );
}

#[test]
fn the_lowest_rank_merges_first() {
    for (pre, merges, words, text, expected) in [
        ("qwen2", &["h e", "l l", "he ll", "ll o", "hell o"][..], &[][..], "hello", "hello"),
        ("qwen2", &["l l", "ll o", "h e", "he ll"], &[], "hello", "he llo"),
        ("qwen2", &["a a", "aa aa"], &[], "aaaaaaa", "aaaa aa a"),
        // A pair named twice keeps its first rank.
        ("qwen2", &["a b", "b c", "a b"], &[], "abc", "ab c"),
        // A token that no chain of merges reaches stays in pieces, but for whole words.
        ("qwen2", &["h e"], &["hello"], "hello", "he l l o"),
        ("llama-bpe", &["h e"], &["hello"], "hello", "hello"),
        ("llama-bpe", &["h e"], &["hello"], "hellos", "he l l o s"),
    ] {
        encodes(byte_level(pre, merges, words), text, expected);
    }
    // Text cannot become a control token.
    let whole = with_literals(byte_level("llama-bpe", &["h e"], &[]), &[("hello", CONTROL)]);
    encodes(whole, "hello", "he l l o");
    let tokens = [("a", 0.0, NORMAL), ("b", 0.0, NORMAL), ("ab", 9.0, CONTROL)];
    encodes(sentencepiece(&tokens), "ab", "a b");
    // e with two acutes, and a syllable of Hangul from its letters: only Qwen's is composed.
    let (composed, apart) = ("Ã © Ì ģ ê ° Ģ", "e Ì ģ Ì ģ á Ħ Ģ á ħ ¡");
    for pre in ["qwen2", "llama-bpe", "gpt-2", "deepseek-r1-qwen"] {
        let expected = if pre == "qwen2" { composed } else { apart };
        encodes(byte_level(pre, &["a b"], &[]), "e\u{301}\u{301}\u{1100}\u{1161}", expected);
    }
}

#[test]
fn pre_tokenizers_split_as_their_expressions_do_elsewhere() {
    use tokenizers::{OffsetReferential, PreTokenizedString};
    // Made with Python's `regex` from the expressions of llama.cpp and of the models.
    let text = "I'LL don't  12345 ÉaBc,\n\n x=a/b+日本語(ok).\t½ $_y";
    for (pre, expected) in [
        ("llama-bpe", "I¦'LL¦ don¦'t¦ ¦ ¦123¦45¦ ÉaBc¦,\n\n¦ x¦=a¦/b¦+日本語¦(ok¦).¦\t¦½¦ $_¦y"),
        ("qwen2", "I¦'LL¦ don¦'t¦ ¦ ¦1¦2¦3¦4¦5¦ ÉaBc¦,\n\n¦ x¦=a¦/b¦+日本語¦(ok¦).¦\t¦½¦ $_¦y"),
        ("gpt-2", "I¦'¦LL¦ don¦'t¦ ¦ 12345¦ ÉaBc¦,¦\n\n¦ x¦=¦a¦/¦b¦+¦日本語¦(¦ok¦).¦\t¦½¦ $_¦y"),
        (
            "smollm",
            "I¦'¦LL¦ don¦'t¦  ¦1¦2¦3¦4¦5¦ ÉaBc¦,¦\n\n¦ x¦=¦a¦/¦b¦+¦日本語¦(¦ok¦).¦\t¦½¦ $_¦y",
        ),
        ("tekken", "I¦'LL¦ don¦'t¦ ¦ ¦1¦2¦3¦4¦5¦ Éa¦Bc¦,\n\n¦ x¦=a¦/b¦+日本語¦(ok¦).¦\t¦½¦ $_¦y"),
        ("gpt-4o", "I'LL¦ don't¦ ¦ ¦123¦45¦ Éa¦Bc¦,\n\n¦ x¦=a¦/b¦+日本語¦(ok¦).¦\t¦½¦ $_¦y"),
        (
            "deepseek-llm",
            "I¦'¦LL¦ don¦'¦t¦  ¦12345¦ É¦aBc¦,¦\n¦\n¦ x¦=¦a¦/¦b¦+¦日本語¦(¦ok¦).¦\t¦½¦ $_¦y",
        ),
        (
            "deepseek-coder",
            "I¦'¦LL¦ don¦'¦t¦  ¦1¦2¦3¦4¦5¦ ÉaBc¦,¦\n¦\n¦ x¦=¦a¦/¦b¦+¦日本語¦(¦ok¦).¦\t¦½¦ $¦_¦y",
        ),
        ("deepseek-v3", "I¦'LL¦ don¦'t¦  ¦123¦45¦ ÉaBc¦,\n\n¦ x¦=a¦/b¦+¦日本語¦(ok¦).¦\t¦½¦ $_¦y"),
        (
            "falcon",
            "I¦'¦LL¦ don¦'¦t¦ ¦ ¦123¦45¦ ÉaBc¦,¦\n\n¦ x¦=¦a¦/¦b¦+¦日本語¦(¦ok¦).¦\t¦½¦ ¦$_¦y",
        ),
        ("viking", "I'LL¦ don't¦ ¦ ¦1¦2¦3¦4¦5¦ ÉaBc¦,\n\n¦ x=a/b+日本語¦(¦ok¦).\t¦½¦ $_y"),
        (
            "seed-coder",
            "I¦'LL¦ don¦'t¦ ¦ ¦1¦2¦3¦4¦5¦ ÉaBc¦,¦\n\n¦ x¦=a¦/b¦+日本語¦(ok¦).¦\t¦½¦ $_¦y",
        ),
        ("minicpm5", "I¦'LL¦ don¦'t¦  ¦123¦45¦ ÉaBc¦,\n\n¦ x¦=a¦/b¦+日本語¦(ok¦).¦\t¦½¦ $_¦y"),
        (
            "default",
            "I¦'¦LL¦ don¦'¦t¦ ¦ ¦123¦45¦ ÉaBc¦,¦\n\n¦ x¦=¦a¦/¦b¦+¦日本語¦(¦ok¦).¦\t¦½¦ ¦$_¦y",
        ),
    ] {
        let tokenizer = Tokenizer::new(byte_level(pre, &["a b"], &[])).unwrap();
        let mut parts = PreTokenizedString::from(text);
        tokenizer.library.get_pre_tokenizer().unwrap().pre_tokenize(&mut parts).unwrap();
        let words = parts.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let words: Vec<_> = words.iter().map(|(_, (from, to), _)| &text[*from..*to]).collect();
        assert_eq!(words.join("¦"), expected, "{pre}");
    }
    // Every expression is one that the engine accepts.
    for name in crate::vocabulary::PRE.iter().flat_map(|pre| pre.names) {
        Tokenizer::new(byte_level(name, &["a b"], &[])).unwrap();
    }
}

#[test]
fn spaces_are_escaped_and_prefixed() {
    let mut vocabulary = with_bytes(&["▁", "a", "b", "▁a"]);
    encodes(vocabulary.clone(), "a b a", "a ▁ b ▁a");
    // The prefix is the default.
    vocabulary.add_space_prefix = None;
    let tokenizer = Tokenizer::new(vocabulary).unwrap();
    assert_eq!(pieces(&tokenizer, "a b a", false), "▁a ▁ b ▁a");
    assert_eq!(pieces(&tokenizer, "", false), "");
    // Also after a literal; decoding takes the first off.
    assert_eq!(pieces(&tokenizer, "a</s>a", true), "<s> ▁a </s> ▁a");
    let ids = tokenizer.encode(" a</s>a", true).unwrap();
    assert_eq!(tokenizer.decode(&ids), " a a");
    for run in ["▁▁", "  "] {
        let vocabulary = with_literals(with_bytes(&["▁", "a", "▁a"]), &[(run, USER_DEFINED)]);
        let tokenizer = Tokenizer::new(vocabulary).unwrap();
        let ids = tokenizer.encode("a  a a", false).unwrap();
        assert_eq!(ids, [260, 262, 260, 261], "{run:?}");
        assert_eq!(tokenizer.decode(&ids), "a  a a");
    }
}

#[test]
fn text_without_a_token_becomes_bytes_or_unknown() {
    encodes(with_bytes(&["a"]), "aé\n", "a <0xC3> <0xA9> <0x0A>");
    // One of the two bytes does not help.
    let half = [("a", 0.0, NORMAL), ("<0xC3>", 0.0, BYTE), ("<unk>", 0.0, UNKNOWN)];
    encodes(sentencepiece(&half), "aéa", "a <unk> a");
    let tokenizer = Tokenizer::new(sentencepiece(&half)).unwrap();
    assert_eq!(tokenizer.decode(&[0, 2, 0, 1]), "a\u{fffd}a\u{fffd}");
    // An unknown token that is named goes before one that is found by type.
    encodes(Vocabulary { unknown: Some(0), ..sentencepiece(&half) }, "é", "a");

    let error = Tokenizer::new(sentencepiece(&half[..2])).unwrap().encode("é", false);
    assert!(matches!(error, Err(TokenizerError::Unencodable { text }) if text == "é"));
    // Byte-level BPE leaves bytes out that have no token, also where an unknown token is named.
    let mut bytes = byte_level("qwen2", &["b c"], &[]);
    let lacking = |byte| alphabet().iter().position(|c| *c == byte).unwrap();
    bytes.tokens[lacking('a')] = "aa".to_owned();
    bytes.tokens[lacking('Ċ')] = "bb".to_owned();
    for unknown in [None, Some(7)] {
        encodes(Vocabulary { unknown, ..bytes.clone() }, "a\nbacb\nc", "bc b c");
    }
    let spaces = " ".repeat(600_000) + "a";
    let error = Tokenizer::new(byte_level("qwen2", &["a b"], &[])).unwrap().encode(&spaces, false);
    assert!(matches!(error, Err(TokenizerError::Spaces { found: 600_000, .. })), "{error:?}");
}

#[test]
fn literals_match_leftmost_then_longest() {
    let literals = [("<a>", USER_DEFINED), ("<a><b>", USER_DEFINED), ("<b><c>", CONTROL)];
    let tokenizer = Tokenizer::new(with_literals(with_bytes(&["x", "<"]), &literals)).unwrap();
    for (text, special, expected) in [
        ("<a>x<a><b>", false, "<a> x <a><b>"),
        ("<a><b><c>", true, "<s> <a><b> < <0x63> <0x3E>"),
        ("x<b><c>", true, "<s> x <b><c>"),
        ("<b><c>", false, "< <0x62> <0x3E> < <0x63> <0x3E>"),
        // A literal that only begins is text.
        ("<a", false, "< <0x61>"),
    ] {
        assert_eq!(pieces(&tokenizer, text, special), expected, "{text}");
    }
    let literals = [("<|im_start|>", CONTROL), ("<think>", USER_DEFINED)];
    let vocabulary = with_literals(byte_level("qwen2", &["x y"], &[]), &literals);
    let tokenizer = Tokenizer::new(vocabulary).unwrap();
    let text = "xy<|im_start|><think>xy";
    assert_eq!(pieces(&tokenizer, text, true), "xy <|im_start|> <think> xy");
    assert_eq!(pieces(&tokenizer, text, false), "xy < | i m _ s t a r t | > <think> xy");
    assert_eq!(tokenizer.decode(&tokenizer.encode(text, false).unwrap()), text);
    assert_eq!(tokenizer.decode(&tokenizer.encode(text, true).unwrap()), "xy<think>xy");
    // A control token that is typed as text is one all the same, and said.
    let literals = [("<|im_start|>", NORMAL), ("<b>", NORMAL)];
    let tokenizer = Tokenizer::new(with_literals(byte_level("qwen2", &["x y"], &[]), &literals));
    let tokenizer = tokenizer.unwrap();
    assert_eq!(pieces(&tokenizer, "<|im_start|><b>", true), "<|im_start|> < b >");
    assert!(tokenizer.note().unwrap().contains("1 tokens, such as <|im_start|>,"));
    // So are BOS and EOS where they look like one.
    let literals = [("<bos>", NORMAL), ("<b>", NORMAL), ("xz", NORMAL)];
    let mut vocabulary = with_literals(byte_level("qwen2", &["x y"], &[]), &literals);
    let ids = vocabulary.tokens.len() as u32;
    (vocabulary.bos, vocabulary.eos) = (Some(ids - 3), Some(ids - 1));
    let tokenizer = Tokenizer::new(vocabulary).unwrap();
    assert_eq!(pieces(&tokenizer, "<bos><b>xz", true), "<bos> < b > x z");
    // Others are said where a chat template has them.
    assert_eq!(tokenizer.divided("[a]<bos>{{ x }}<b>y<b>{{ z[0] }} <c"), ["<b>"]);
    let template = |source| crate::chat::ChatTemplate::new(source, vec![]).unwrap();
    let note = template("<bos>{{ messages[0].content }}<b>").divides(&tokenizer);
    assert!(note.unwrap().contains("<b>: tokens typed as text"));
    assert_eq!(template("<bos>").divides(&tokenizer), None);
}

#[test]
fn bos_comes_once_and_only_with_special() {
    for (add_bos, text, special, expected) in [
        (None, "a", true, "<s> a"),
        (None, "", true, "<s>"),
        (Some(true), "a", false, "a"),
        (Some(true), "<s>a", true, "<s> a"),
        (Some(true), "<s><s>a", true, "<s> <s> a"),
        (Some(false), "a", true, "a"),
        (Some(false), "<s>a", true, "<s> a"),
    ] {
        let vocabulary = Vocabulary { add_bos, ..with_bytes(&["a"]) };
        let tokenizer = Tokenizer::new(vocabulary).unwrap();
        assert_eq!(pieces(&tokenizer, text, special), expected, "{add_bos:?} {text}");
    }
    // An EOS too, where the file says so.
    for (text, special, expected) in
        [("a", true, "<s> a </s>"), ("<s>a</s>", true, "<s> a </s>"), ("a", false, "a")]
    {
        let (eos, add_eos) = (Some(2), Some(true));
        let tokenizer = Tokenizer::new(Vocabulary { eos, add_eos, ..with_bytes(&["a"]) }).unwrap();
        assert_eq!(pieces(&tokenizer, text, special), expected, "{text}");
    }
    // By default llama-bpe and tekken add one, the others do not.
    for (pre, expected) in [("llama-bpe", "<s> a"), ("tekken", "<s> a"), ("qwen2", "a")] {
        let mut vocabulary = with_literals(byte_level(pre, &["a b"], &[]), &[("<s>", CONTROL)]);
        vocabulary.bos = Some(257);
        assert_eq!(pieces(&Tokenizer::new(vocabulary).unwrap(), "a", true), expected);
    }
}

#[test]
fn a_character_over_several_tokens_comes_when_it_is_whole() {
    let tokenizer = Tokenizer::new(with_bytes(&["▁a"])).unwrap();
    let byte = |byte: u8| 3 + u32::from(byte);
    let mut stream = tokenizer.stream();
    for (id, shown) in [
        (byte(0xf0), ""),
        (byte(0x9f), ""),
        (byte(0x99), ""),
        (byte(0x82), "🙂"),
        // A byte that cannot go on with the character shows at once, and so does the broken one.
        (byte(0xe2), ""),
        (byte(b'x'), "\u{fffd}x"),
        (byte(0xff), "\u{fffd}"),
        (259, " a"),
        // Nor does it go on behind a control token.
        (byte(0xc3), ""),
        (1, "\u{fffd}"),
        (byte(0xa9), "\u{fffd}"),
        (u32::MAX, "\u{fffd}"),
        (0, "\u{fffd}"),
        (byte(0xe6), ""),
    ] {
        assert_eq!(stream.push(id), shown, "{id}");
    }
    assert_eq!(stream.finish(), "\u{fffd}");
    assert_eq!(tokenizer.piece(259).as_deref(), Some("▁a"));
    assert_eq!(tokenizer.piece(260), None);
    // A spelling outside the alphabet stands for itself.
    let odd = byte_level("qwen2", &["a b"], &["日 "]);
    assert_eq!(Tokenizer::new(odd).unwrap().decode(&[257, u32::from(b'a')]), "日 a");
}

/// Strings of words, white space and any other characters. U+2581 is left out: SentencePiece takes
/// it for a space.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        3 => proptest::sample::select(vec![
            "the", " ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "12345", "é", "日本", "<s>", "<tool>",
            "\u{a0}", "!?",
        ])
        .prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(part, 0..20).prop_map(|parts| parts.concat().replace('▁', ""))
}

proptest! {
    #[test]
    fn decode_returns_what_was_encoded(text in text()) {
        let byte_level = |pre| {
            let vocabulary = byte_level(pre, &reference::merges(), &[]);
            with_literals(vocabulary, &[("<tool>", USER_DEFINED)])
        };
        let prefixed = Vocabulary { add_space_prefix: None, ..with_bytes(&reference::pieces()) };
        let spaces = with_literals(with_bytes(&reference::pieces()[3..]), &[("▁▁", USER_DEFINED)]);
        for vocabulary in [
            with_bytes(&["▁"]), prefixed, spaces, byte_level("llama-bpe"), byte_level("gpt-2"),
        ] {
            let tokenizer = Tokenizer::new(vocabulary).unwrap();
            let ids = tokenizer.encode(&text, false).unwrap();
            let mut stream = tokenizer.stream();
            let parts: String = ids.iter().map(|&id| stream.push(id)).collect();
            // A text ends with a whole character.
            prop_assert_eq!(stream.finish(), "");
            prop_assert_eq!(&parts, &text);
        }
    }
}

#[test]
fn long_text_is_not_quadratic() {
    // Minutes if it were; also one word and one run of spaces.
    for text in ["a".repeat(300_000), " ".repeat(300_000), "the cat ".repeat(40_000)] {
        for vocabulary in [
            with_bytes(&reference::pieces()),
            byte_level("llama-bpe", &reference::merges(), &["a a"]),
        ] {
            let tokenizer = Tokenizer::new(vocabulary).unwrap();
            let ids = tokenizer.encode(&text, false).unwrap();
            assert!(tokenizer.decode(&ids) == text);
        }
    }
}

#[test]
fn vocabularies_that_do_not_hold_together_are_refused_by_key() {
    let level = || byte_level("qwen2", &["a b"], &[]);
    let pre = |pre: Option<&str>| Vocabulary { pre: pre.map(str::to_owned), ..level() };
    let short = |scores, types| {
        let mut vocabulary = with_bytes(&["a"]);
        vocabulary.scores.truncate(scores);
        vocabulary.token_types.truncate(types);
        vocabulary
    };
    let mut score = with_bytes(&["a"]);
    score.scores[259] = f32::NAN;
    let mut table = vec![
        (Vocabulary { model: "bert".to_owned(), ..level() }, "model`: `bert` … llama, gpt2"),
        (pre(Some("plamo")), "pre`: `plamo` … llama-bpe … qwen2 … smollm"),
        (pre(None), "pre`: is missing"),
        (sentencepiece(&[]), "tokens` … empty or missing"),
        (Vocabulary { merges: vec![], ..level() }, "merges` … missing"),
        (
            Vocabulary { bos: None, add_bos: Some(true), ..with_bytes(&[]) },
            "add_bos_token`: is true, but … bos_token_id",
        ),
        (
            Vocabulary { add_eos: Some(true), ..with_bytes(&[]) },
            "add_eos_token`: is true, but … eos_token_id",
        ),
        (short(259, 260), "scores`: 259 entries for 260 tokens"),
        (short(0, 260), "scores`: 0 entries"),
        (short(260, 0), "token_type`: is empty or missing"),
        (Vocabulary { scores: vec![0.0; 300], ..level() }, "scores`: 300 entries for 257"),
        (Vocabulary { bos: Some(259), ..with_bytes(&[]) }, "bos_token_id`: 259 is beyond the 259"),
        (Vocabulary { eos: Some(u32::MAX), ..with_bytes(&[]) }, "eos_token_id … beyond the 259"),
        (Vocabulary { unknown: Some(259), ..with_bytes(&[]) }, "unknown_token_id … beyond"),
        (with_bytes(&["a", "b", "a"]), "tokens`: tokens 259 and 261 are both \"a\""),
        (score, "scores`: the score of token 259"),
    ];
    for ty in [-1, 7, i32::MIN] {
        table.push((with_literals(with_bytes(&[]), &[("a", ty)]), "token_type … of token 259"));
    }
    for spelling in ["a", "<0x4>", "<0x004>", "<0x+4>", "<0xGG>", "<0x41", "<0xé>", ""] {
        let vocabulary = with_literals(sentencepiece(&[]), &[(spelling, BYTE)]);
        let vocabulary = Vocabulary { scores: vec![0.0], ..vocabulary };
        table.push((vocabulary, "token_type`: token 0 is a byte but is spelled"));
    }
    for (merge, says) in [
        ("", "is not two spellings"),
        (" ", "is not two spellings"),
        ("ab", "is not two spellings"),
        ("a ", "is not two spellings"),
        (" b", "is not two spellings"),
        ("a b c", "is not two spellings"),
        ("a  b", "is not two spellings"),
        ("xy z", "merges`: entry 1 … needs \"xy\""),
        ("a 日", "needs \"日\""),
        ("y z", "needs \"yz\""),
        ("a c", "needs \"ac\", which is no token of text"),
    ] {
        let mut vocabulary = with_literals(level(), &[("ac", CONTROL)]);
        vocabulary.merges.push(merge.to_owned());
        table.push((vocabulary, says));
    }
    for (vocabulary, says) in table {
        let error = Tokenizer::new(vocabulary).unwrap_err().to_string();
        for part in says.split(" … ") {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
    // Empty spellings are padding: any number of them, never matched.
    let padding = with_literals(with_bytes(&["a", "", ""]), &[("", CONTROL), ("", USER_DEFINED)]);
    encodes(padding, "aa", "a a");
}
