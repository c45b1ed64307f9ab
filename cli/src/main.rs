//! The `lathe` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    lathe_cli::main()
}
