//! Results of other implementations for small vocabularies: `tokenizers` 0.23.3 for byte-level BPE,
//! `sentencepiece` 0.2.3 for SentencePiece. Their ids are shown as spellings separated by spaces.

/// Merges in the order of ranks. The vocabulary is the 256 bytes, the results of these, then
/// [`WHOLE_WORDS`].
pub(super) fn merges() -> Vec<&'static str> {
    let merges = "\
        Ġ t, h e, Ġt he, a t, Ġ a, n d, Ġa nd, o n, Ġ on, i n, Ġ s, Ġs at, m at, Ġ m, Ġm at, \
        Ċ Ċ, Ġ Ġ, ĠĠ Ġ, 1 2, 12 3, 2 0, 20 2, 202 4, Ã Ł, Ã ¯, ' t, ' l, 'l l, e n, t h, th en, \
        p r, pr in, prin t, æ Ĺ, æĹ ¥, æ ľ, æľ ¬, æĹ¥ æľ¬, . ., .. ., ) ;, ); Ċ, l e, Ġ le, \
        Ġle t, a nd";
    merges.split(", ").collect()
}

/// Tokens that no merge gives.
pub(super) const WHOLE_WORDS: [&str; 2] = ["Ġtwo", "cats"];

/// A text and its tokens with `llama-bpe`.
pub(super) const LLAMA_BPE: [(&str, &str); 12] = [
    ("the cats and the matter", "t he Ġ c at s Ġand Ġthe Ġ mat t e r"),
    ("Don't say they'LL; we'Re 's", "D on 't Ġs a y Ġthe y ' L L ; Ġ w e ' R e Ġ ' s"),
    ("123456 1 20242", "123 4 5 6 Ġ 1 Ġ 202 4 2"),
    ("   let x = 10;\n\n\n  print(x);", "ĠĠ Ġlet Ġ x Ġ = Ġ 1 0 ; ĊĊ Ċ Ġ Ġ print ( x );"),
    ("one  two   \t\n end ", "on e Ġ Ġtwo ĠĠĠ ĉ Ċ Ġ e nd Ġ"),
    ("straße daß 日本語日 🙂", "s t r a ÃŁ e Ġ d a ÃŁ Ġ æĹ¥æľ¬ è ª ŀ æĹ¥ Ġ ð Ł Ļ Ĥ"),
    ("naïve\u{a0}on...\r\nthe\u{3000}mat", "n a Ã¯ v e Â ł on ... č Ċ t he ã Ģ Ģ mat"),
    ("(then)then'then 'ſaid", "( t he n ) t he n 't he n Ġ ' Å ¿ a i d"),
    ("\n\n \n  the", "ĊĊ Ġ Ċ Ġ Ġthe"),
    ("e\u{301}a ½٣x9 ..!!\n\n)", "e Ì ģ a Ġ Â ½ Ù £ x 9 Ġ .. ! ! ĊĊ )"),
    ("on the", "on Ġthe"),
    (" the the", "Ġthe Ġthe"),
];

/// Texts of [`LLAMA_BPE`] that `qwen2` encodes otherwise.
pub(super) const QWEN2: [(&str, &str); 3] = [
    ("123456 1 20242", "1 2 3 4 5 6 Ġ 1 Ġ 2 0 2 4 2"),
    ("one  two   \t\n end ", "on e Ġ Ġt w o ĠĠĠ ĉ Ċ Ġ e nd Ġ"),
    ("e\u{301}a ½٣x9 ..!!\n\n)", "Ã © a Ġ Â ½ Ù £ x 9 Ġ .. ! ! ĊĊ )"),
];

/// The pieces after `<unk>`, `<s>`, `</s>` and the 256 bytes, in the order of ids. The first three
/// are user-defined; each later one has a score 1 below its predecessor's.
pub(super) fn pieces() -> Vec<&'static str> {
    let pieces = "\
        ▁▁ ▁▁▁ \n he the ▁the at on ▁s ▁on .. an in og ße ▁l ▁m 日本 and ▁sat () ); DO aï et fn gr \
        ll oo ou pr ra re ve we ▁= ▁I ▁c ▁ t e n o a h r ' 2 1 d l . g m s ( ) 0 3 4 9 ; i x ß 日 \
        本 , = D I N O T c f p u v w y { } ï ö 語";
    pieces.split(' ').collect()
}

/// A text and its tokens with [`pieces`].
pub(super) const SENTENCEPIECE: [(&str, &str); 12] = [
    ("the cats and the matter", "the ▁c at s ▁ and ▁the ▁m at t e r"),
    (
        "Don't say they'LL; we'Re 's",
        "D on ' t ▁s a y ▁the y ' <0x4C> <0x4C> ; ▁ we ' <0x52> e ▁ ' s",
    ),
    ("123456 1 20242", "1 2 3 4 <0x35> <0x36> ▁ 1 ▁ 2 0 2 4 2"),
    ("   let x = 10;\n\n\n  print(x);", "▁▁▁ l et ▁ x ▁= ▁ 1 0 ; \n \n \n ▁▁ pr in t ( x );"),
    ("one  two   \t\n end ", "on e ▁▁ t w o ▁▁▁ <0x09> \n ▁ e n d ▁"),
    ("straße daß 日本語日 🙂", "s t ra ße ▁ d a ß ▁ 日本 語 日 ▁ <0xF0> <0x9F> <0x99> <0x82>"),
    (
        "naïve\u{a0}on...\r\nthe\u{3000}mat",
        "n aï ve <0xC2> <0xA0> on .. . <0x0D> \n the <0xE3> <0x80> <0x80> m at",
    ),
    ("(then)then'then 'ſaid", "( the n ) the n ' the n ▁ ' <0xC5> <0xBF> a i d"),
    ("\n\n \n  the", "\n \n ▁ \n ▁▁ the"),
    (
        "e\u{301}a ½٣x9 ..!!\n\n)",
        "e <0xCC> <0x81> a ▁ <0xC2> <0xBD> <0xD9> <0xA3> x 9 ▁ .. <0x21> <0x21> \n \n )",
    ),
    ("on the", "on ▁the"),
    (" the the", "▁the ▁the"),
];
