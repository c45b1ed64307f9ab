//! Any text as a chat template: it ends within its limits, with a text or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    lathe_fuzz::text::renders(bytes);
});
