//! Any bytes as GGUF metadata or `tokenizer.json`: an accepted tokenizer encodes and decodes, and
//! nothing panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(wrong) = lathe_fuzz::text::tokenizes(bytes) {
        panic!("{wrong}");
    }
});
