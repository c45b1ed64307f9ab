//! Mistakes of users and their files end in a message and an exit code: full disks, pipes and
//! devices in place of files, texts that take a compiler or a driver down, stale caches.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{
    self, Folder, assert_ends, assert_refused, code, command_in, ended, golden_name, printed, said,
};

/// Runs a command that has to end by itself.
fn run(folder: &Folder, args: &[&str]) -> Output {
    let mut child = command_in(folder, args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(300) {
            child.kill().unwrap();
            panic!("{args:?} did not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

fn tiny() -> String {
    golden_name("llama-tiny-f16.gguf")
}

#[test]
fn a_full_disk_is_an_error_and_a_closed_pipe_is_none() {
    let folder = Folder::new();
    let model = tiny();
    for args in [
        &["list"][..],
        &["list", "--json"],
        &["inspect", &model],
        &["inspect", &model, "--json"],
        &["validate", "gemv/naive"],
        &["show", "gemv/naive"],
        &["tune", "--show"],
        &["decode", "--model", &model, "--prompt-tokens", "1", "-n", "2", "--executor", "cpu"],
        &["--help"],
        &["bench", "--help"],
        &["--version"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command_in(&folder, args).stdout(full).output().unwrap();
        assert_ends(&output, 2, "lathe: stdout: No space left");

        let mut piped = command_in(&folder, args);
        let mut child = piped.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let errors = ended(&child.wait_with_output().unwrap(), 0);
        assert!(!errors.contains("stdout"), "{args:?}: {errors}");
    }
}

#[test]
fn only_regular_files_are_read() {
    let folder = Folder::new();
    let made = Command::new("mkfifo").arg(folder.path("pipe.wgsl")).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("/dev/zero", folder.path("zero.wgsl")).unwrap();
    let model = tiny();
    for path in ["pipe.wgsl", "zero.wgsl"] {
        for (args, expected) in [
            (&["check", "gemv/naive", "--wgsl", path][..], 2),
            (&["bench", "gemv/naive", "--wgsl", path], 2),
            (&["compare", path, path], 2),
            (&["report", path, "-o", "page.html"], 2),
            (&["tune", "--show", "--store", path], 2),
            (&["inspect", path], 5),
            (&["decode", "--model", path, "--prompt", "a"], 5),
            (&["diff", "--model", path, "--prompt", "a"], 5),
            (&["decode", "--model", &model, "--prompt-tokens", "1", "--manifest", path], 2),
            (&["decode", "--model", &model, "--prompt-file", path], 2),
            (&["decode", "--model", &model, "--prompt-tokens-file", path], 2),
            (&["perplexity", "--model", &model, "--text", path], 2),
        ] {
            let output = run(&folder, args);
            assert_ends(&output, expected, &format!("{path}: "));
            assert_ends(&output, expected, "not a regular file");
        }
    }
    assert!(!folder.join("page.html").exists());
}

/// Files in the place of `residual_add/naive`, whose `delta` has N values as `x` has: a change to
/// its text, a shape, the exit code, and words.
#[test]
fn what_a_text_makes_of_a_shape_or_a_compiler_ends_in_a_message() {
    let Some(_) = common::gpu() else { return };
    let folder = Folder::new();
    let text = lathe_kernels::source("residual_add", "naive").unwrap().text;
    let long = format!("{}\n@compute", "// A text is long.\n".repeat(1 << 18));
    let private = "var<private> big: array<f32, 134217728>;\n@compute";
    let reads = "big[i] = delta[i]; x[i] = big[i + 1u];";
    // A text that naga takes, until a shape has put its numbers in.
    let divides = "+ delta[i] + f32(1u / (N - 64u))";
    for (changes, shape, expected, words) in [
        (&[("+ delta[i]", divides)][..], "N=64", 2, "Division by zero"),
        (&[("+ delta[i]", divides)], "N=65", 1, "out of bound"),
        (&[("@compute", &long)], "N=64", 2, "mine.wgsl: "),
        (&[("@compute", private), ("x[i] = x[i] + delta[i];", reads)], "N=64", 2, "mine.wgsl: "),
        (
            &[("delta: array<f32>", "delta: array<f32, 1000000>")],
            "N=64",
            1,
            "declared with 4000000",
        ),
    ] {
        let mut wrong = text.to_owned();
        for (from, to) in changes {
            assert!(wrong.contains(from), "{from}: {text}");
            wrong = wrong.replace(from, to);
        }
        folder.write("mine.wgsl", wrong);
        let check = ["check", "residual_add", "--wgsl", "mine.wgsl", "--shape", shape];
        let output = run(&folder, &check);
        let text = said(&output).chars().take(2000).collect::<String>();
        assert_eq!(code(&output), expected, "{words}: {text}");
        assert!(said(&output).contains(words), "{words}: {text}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_usage() {
    let folder = Folder::new();
    folder.write("file", "");
    let long = "n".repeat(300);
    for path in ["missing/a.gguf", "file/a.gguf", &long] {
        let output = run(&folder, &["synth", "--arch", "gemma3-mini", "-o", path]);
        assert_ends(&output, 2, &format!("{path}: cannot "));
        ended(&run(&folder, &["quantize", &tiny(), "--to", "q8_0", "-o", path]), 2);
    }
}

#[test]
fn names_that_are_no_text_and_names_that_move_the_cursor_are_shown() {
    let folder = Folder::new();
    let named = |bytes: &[u8]| folder.as_ref().join(OsStr::from_bytes(bytes));
    let (latin, red) = (named(b"caf\xe9.gguf"), named(b"\x1b[31mred.gguf"));
    for path in [&latin, &red] {
        fs::copy(tiny(), path).unwrap();
        for flag in [None, Some("--json")] {
            let mut command = command_in(&folder, &["inspect"]);
            let output = command.arg(path).args(flag).output().unwrap();
            let text = printed(&output);
            assert!(text.contains("caf\u{fffd}.gguf") || text.contains("red.gguf"), "{text}");
            assert!(!said(&output).contains('\x1b'), "{text:?}");
        }
    }
    let errors = ended(&run(&folder, &["inspect", "\x1b[31mnone.gguf"]), 5);
    assert!(!errors.contains('\x1b'), "{errors:?}");
}

#[test]
fn parameters_and_adapters_have_ranges() {
    for kernel in ["rope", "qk_norm_rope", "qkv_rope_append", "attention_append"] {
        for value in ["0", "-0", "1e-300", "inf"] {
            let shape = format!("ROPE_BASE={value}");
            let words = format!("{shape}: expected a number from 1.0");
            assert_refused(&["check", kernel, "--shape", &shape], 2, &words);
        }
    }
    assert_refused(&["doctor", "--adapter", ""], 2, "the adapter's name is empty");
}

#[test]
fn a_stale_choice_is_said_once_and_left_out() {
    let Some(gpu) = common::gpu() else { return };
    let folder = Folder::new();
    let kernel = lathe_kernels::kernel("gemv").unwrap();
    let shape = kernel.key(&common::problem(kernel, "ROWS=64,K=64").shape);
    let place = gpu.place();
    let store = serde_json::json!({ "schema_version": 1, "entries": [{
        "adapter": place.adapter.name, "driver": place.adapter.driver, "wgpu": place.wgpu,
        "runtime_checks": place.runtime_checks, "kernel": "gemv", "shape": shape,
        "variant": "subgroup_multicol", "constants": { "ROWS_PER_WG": 0.0, "WG": 0.0 },
        "source": "0", "ratio": { "median": 0.5, "low": 0.4, "high": 0.6 },
        "incumbent": "naive", "date": "",
    }]});
    let path = folder.write("tuned.json", store.to_string());
    let args = ["bench", "gemv", "--selected", "--shape", &shape];
    let output = command_in(&folder, &args).env("LATHE_TUNED", &path).output().unwrap();
    let errors = ended(&output, 0);
    assert_eq!(errors.matches("tuned entry is stale, ignored").count(), 1, "{errors}");
}
