//! Mistakes of users and their files end in a message and an exit code: those that no script can
//! tell.
#![cfg(unix)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::common::{
    self, Folder, assert_ends, command_in, ended, golden_name, lathe_in, printed, said,
};

#[test]
fn a_text_of_any_length_ends_in_a_message() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let text = lathe_kernels::source("residual_add", "naive").unwrap().text;
    let long = format!("{}\n@compute", "// A text is long.\n".repeat(1 << 18));
    folder.write("mine.wgsl", text.replace("@compute", &long));
    let check = ["check", "residual_add", "--wgsl", "mine.wgsl", "--shape", "N=64"];
    assert_ends(&lathe_in(&folder, &check), 2, "mine.wgsl: ");
}

#[test]
fn names_that_are_no_text_and_names_that_move_the_cursor_are_shown() {
    let folder = Folder::new();
    let named = |bytes: &[u8]| folder.as_ref().join(OsStr::from_bytes(bytes));
    let (latin, red) = (named(b"caf\xe9.gguf"), named(b"\x1b[31mred.gguf"));
    for path in [&latin, &red] {
        fs::copy(golden_name("llama-tiny-f16.gguf"), path).unwrap();
        for flag in [None, Some("--json")] {
            let mut command = command_in(&folder, &["inspect"]);
            let output = command.arg(path).args(flag).output().unwrap();
            let text = printed(&output);
            assert!(text.contains("caf\u{fffd}.gguf") || text.contains("red.gguf"), "{text}");
            assert!(!said(&output).contains('\x1b'), "{text:?}");
        }
    }
    let errors = ended(&lathe_in(&folder, &["inspect", "\x1b[31mnone.gguf"]), 5);
    assert!(!errors.contains('\x1b'), "{errors:?}");
}
