//! Broken and hostile checkpoints: each is refused with a message that says where and what.
//!
//! Every rejected file is one case, and so one test. The small ones are also the corpus of the fuzz
//! target `gguf`; after changing a case write it again:
//! `cargo test -p lathe-cli --test gguf_hostile -- --ignored write_corpus`.

/// `cases! { name => (bytes, what the message says), … }` makes a test of each line and a list of
/// all.
macro_rules! cases {
    ($check:path; $($name:ident => $case:expr;)*) => {
        $(
            #[test]
            fn $name() {
                let (bytes, says): crate::Case = $case;
                $check(&bytes, &says);
            }
        )*
        pub(crate) fn all() -> Vec<(&'static str, crate::Case)> {
            vec![$((stringify!($name), $case)),*]
        }
    };
}

mod accepted;
mod config;
mod corpus;
mod index;

/// A file, and the parts that its error message must have.
type Case = (Vec<u8>, Vec<String>);

/// Where `needle` first lies in `bytes`.
fn find(bytes: &[u8], needle: &[u8]) -> usize {
    let found = bytes.windows(needle.len()).position(|w| w == needle);
    found.expect("the file holds what the case speaks of")
}

/// Where the length-prefixed string `text` begins: the key of an entry or the name of a tensor.
fn find_name(bytes: &[u8], text: &str) -> usize {
    let mut needle = (text.len() as u64).to_le_bytes().to_vec();
    needle.extend_from_slice(text.as_bytes());
    find(bytes, &needle)
}

fn assert_says(message: &str, says: &[String]) {
    for part in says {
        assert!(message.contains(part.as_str()), "`{message}` does not say `{part}`");
    }
}
