//! A command that compiles a user's file runs in a process of its own: what the file does to a
//! front end or a driver ends in a message and an exit code, not in this process.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;

use lathe_harness::guard;

use super::out;

/// Set in the child.
const VARIABLE: &str = "LATHE_SUPERVISED";

/// Exit code of a child that did not end by itself.
const ENDED: u8 = 4;

/// Stack of the child, of which only what is used takes memory: front ends walk nested expressions
/// by recursion.
const STACK: usize = 1 << 29;

/// Runs the same command in a child, if it names a file of the user's; or `work` in this process.
pub(super) fn run(args: &[OsString], work: impl FnOnce() -> ExitCode + Send) -> ExitCode {
    if std::env::var_os(VARIABLE).is_some() {
        guard::watch(ENDED.into(), |why| eprintln!("lathe: {}", out::escaped(why)));
        return thread::scope(|scope| {
            let worker = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
            match worker.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(code)) => code,
                // It panicked, and has said so.
                Ok(Err(_)) => ExitCode::from(101),
                Err(e) => {
                    eprintln!("lathe: cannot start a thread: {e}");
                    ExitCode::from(ENDED)
                }
            }
        });
    }
    let files: Vec<_> = args.iter().skip(1).filter_map(file).collect();
    if files.is_empty() {
        return work();
    }
    let child = std::env::current_exe()
        .and_then(|command| Command::new(command).args(&args[1..]).env(VARIABLE, "1").status());
    match child {
        Ok(status) => ended(status, &files.join(", ")),
        Err(e) => {
            eprintln!("lathe: cannot run {} in a process of its own: {e}", files.join(", "));
            ExitCode::from(ENDED)
        }
    }
}

/// The file of an argument that names WGSL, or a manifest, which may: `FILE`, `VARIANT=FILE`,
/// `--wgsl=FILE`.
fn file(arg: &OsString) -> Option<String> {
    let text = arg.to_string_lossy();
    let is_manifest = text == "--manifest" || text.starts_with("--manifest=");
    let is_wgsl = Path::new(text.as_ref()).extension().is_some_and(|e| e == "wgsl" || e == "toml");
    match (is_wgsl, is_manifest) {
        (true, _) => Some(text.rsplit('=').next().unwrap_or_default().to_owned()),
        (_, true) => Some("the manifest's files".to_owned()),
        _ => None,
    }
}

/// The child's exit code; or what ended it, said.
fn ended(status: ExitStatus, files: &str) -> ExitCode {
    if let Some(code) = status.code().and_then(|code| u8::try_from(code).ok()) {
        return ExitCode::from(code);
    }
    #[cfg(unix)]
    let what = {
        use std::os::unix::process::ExitStatusExt;
        let signal = status.signal().unwrap_or_default();
        // The user, or the system as a whole, ended it: nothing is to be said of the file.
        if let 1 | 2 | 15 = signal {
            return ExitCode::from(128 + signal as u8);
        }
        match signal {
            4 | 6 | 7 | 8 | 11 => format!("crashed ({status})"),
            9 => format!("was killed, perhaps for want of memory ({status})"),
            _ => format!("ended with {status}"),
        }
    };
    #[cfg(not(unix))]
    let what = format!("crashed ({status})");
    let files = out::escaped(files);
    eprintln!("lathe: {files}: the compiler or the driver {what}; nothing was measured");
    ExitCode::from(ENDED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_name_files() {
        let named = |text: &str| file(&OsString::from(text));
        assert_eq!(named("a b.wgsl").as_deref(), Some("a b.wgsl"));
        assert_eq!(named("naive=x.wgsl").as_deref(), Some("x.wgsl"));
        assert_eq!(named("--wgsl=x.wgsl").as_deref(), Some("x.wgsl"));
        assert!(named("--manifest").is_some() && named("--manifest=x").is_some());
        assert_eq!(named("gemv/naive"), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_crash_is_said_and_a_code_passed_on() {
        let status = |script| Command::new("sh").args(["-c", script]).status().expect("a shell");
        let code = |script| format!("{:?}", ended(status(script), "x.wgsl"));
        let exits = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(code("exit 6"), exits(6));
        assert_eq!(code("kill -SEGV $$"), exits(ENDED));
        assert_eq!(code("kill -KILL $$"), exits(ENDED));
        assert_eq!(code("kill -TERM $$"), exits(143));
    }
}
