//! Compilers of back ends, asked about what naga writes: they need no device, but are programs and
//! libraries that a machine may lack.

mod browser;
mod dxc;

use std::io::Write as _;
use std::process::{Command, Stdio};

use naga::Module;
use naga::valid::ModuleInfo;

pub use browser::{Browser, Message};
pub use dxc::Dxc;

use super::backend_text::Language;

/// Words in which versions of spirv-val refuse cooperative matrices: by name, or by the number of
/// their capability in SPIR-V.
const UNKNOWN: [&str; 2] = ["CooperativeMatrix", "Invalid capability operand: 6022"];

/// A compiler of one back end's language.
pub enum Compiler {
    /// Direct3D's, of HLSL.
    Dxc(Dxc),
    /// Khronos' validator of SPIR-V.
    SpirvVal,
}

/// Answer of a compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It takes the text.
    Takes,
    /// Its message.
    Refuses(String),
    /// There is no text for it, or it does not know a feature; the reason.
    Unavailable(String),
}

impl Compiler {
    /// The validator of Debian's package `spirv-tools`, if it can be run.
    ///
    /// # Errors
    /// It cannot be run, in words.
    pub fn spirv_val() -> Result<Self, String> {
        match Command::new("spirv-val").arg("--version").output() {
            Ok(_) => Ok(Self::SpirvVal),
            Err(e) => Err(format!("spirv-val: {e}; it is part of the package spirv-tools")),
        }
    }

    /// Name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Compiler::Dxc(_) => "DXC",
            Compiler::SpirvVal => "spirv-val",
        }
    }

    /// Language that it reads.
    pub fn language(&self) -> Language {
        match self {
            Compiler::Dxc(_) => Language::Hlsl,
            Compiler::SpirvVal => Language::Spirv,
        }
    }

    /// Asks about an entry point of a module whose overrides are applied, as the language's writer
    /// writes it.
    pub fn ask(&self, module: &Module, info: &ModuleInfo, entry: &str) -> Answer {
        let text = match self.language().write(module, info, entry) {
            Ok(text) => text,
            Err(e) => return Answer::Refuses(e),
        };
        let answer = match self {
            Compiler::Dxc(dxc) => dxc.compile(&text, entry_of(&text).unwrap_or(entry)),
            Compiler::SpirvVal => valid(&text),
        };
        match answer {
            Ok(()) => Answer::Takes,
            Err(message) if UNKNOWN.iter().any(|known| message.contains(known)) => {
                Answer::Unavailable("this version does not know cooperative matrices".into())
            }
            Err(message) => Answer::Refuses(message),
        }
    }
}

/// Name of the entry point in HLSL, which may have to differ from WGSL's.
fn entry_of(text: &str) -> Option<&str> {
    let behind = text.split_once("[numthreads(")?.1.split_once("void ")?.1;
    behind.split('(').next()
}

/// Asks spirv-val about hexadecimal words.
fn valid(words: &str) -> Result<(), String> {
    let words = words.split_whitespace().map(|word| u32::from_str_radix(word, 16));
    let words: Vec<u32> = words.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    let failed = |e: std::io::Error| format!("spirv-val: {e}");
    let mut child = Command::new("spirv-val")
        .args(["--target-env", "vulkan1.2", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // It reads all before it writes. Where it ends early, its exit status says why.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(&bytes);
    }
    let output = child.wait_with_output().map_err(failed)?;
    match output.status.success() {
        true => Ok(()),
        false => Err([output.stderr, output.stdout]
            .map(|said| String::from_utf8_lossy(&said).trim().to_owned())
            .join("\n")
            .trim()
            .to_owned()),
    }
}
