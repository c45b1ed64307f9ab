//! Any bytes: the reader and the oracle agree, and nothing panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(difference) = lathe_fuzz::oracle::agree(bytes) {
        panic!("{difference}");
    }
});
