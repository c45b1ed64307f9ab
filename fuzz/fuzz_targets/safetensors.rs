//! Any bytes as a configuration and a safetensors file: the rules hold, and nothing panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(broken) = lathe_fuzz::safetensors::hold(bytes) {
        panic!("{broken}");
    }
});
