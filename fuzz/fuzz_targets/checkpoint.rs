//! Any bytes as the files of a sharded checkpoint: refused, or a model inside its folder; nothing
//! panics.
#![no_main]

use std::sync::LazyLock;

static FOLDER: LazyLock<lathe_fuzz::checkpoint::Folder> =
    LazyLock::new(lathe_fuzz::checkpoint::Folder::temporary);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(broken) = lathe_fuzz::checkpoint::holds(&FOLDER, bytes) {
        panic!("{broken}");
    }
});
