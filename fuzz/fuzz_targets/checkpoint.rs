//! Any bytes as the files of a sharded checkpoint: refused, or a model inside its folder; nothing
//! panics.
#![no_main]

use std::sync::LazyLock;

static PLACE: LazyLock<lathe_fuzz::checkpoint::Place> =
    LazyLock::new(lathe_fuzz::checkpoint::Place::temporary);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(broken) = lathe_fuzz::checkpoint::holds(&PLACE, bytes) {
        panic!("{broken}");
    }
});
