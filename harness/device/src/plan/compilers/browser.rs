//! Tint, the WGSL compiler of Chrome, asked through Node: by the npm package `webgpu`, or by headless
//! Chromium.
//!
//! The package's back end `null` compiles nothing for a GPU, but parses and validates as Chrome does,
//! so no GPU and no driver is needed. Chromium runs on its own software Vulkan, without `shader-f16`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

/// Variable that names the package's folder.
const VARIABLE: &str = "LATHE_WEBGPU";

/// Programs that read texts and print the messages about each, both as JSON.
const BY_PACKAGE: &str = include_str!("tint.mjs");
const BY_CHROMIUM: &str = concat!(include_str!("chromium.mjs"), include_str!("in_chromium.mjs"));

/// Chrome's compiler.
#[derive(Clone, Debug)]
pub enum Browser {
    /// Folder of the npm package `webgpu`.
    Package(PathBuf),
    /// Headless Chromium, which `CHROMIUM` names or the path has.
    Chromium,
}

/// Something that the compiler says about a text.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Message {
    /// `error`, `warning`, `info`, or `unavailable` for a text that was not compiled.
    #[serde(rename = "type")]
    pub kind: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// Its text.
    pub text: String,
}

impl Browser {
    /// Chromium through Node.
    ///
    /// # Errors
    /// Node is missing.
    pub fn chromium() -> Result<Self, String> {
        has_node().map(|()| Self::Chromium)
    }

    /// Finds the package: the folder that `LATHE_WEBGPU` names, else `node_modules/webgpu` here or
    /// in a folder above.
    ///
    /// # Errors
    /// Node or the package is missing, with the ways to get them.
    pub fn package() -> Result<Self, String> {
        has_node()?;
        let is_package = |folder: &Path| folder.join("package.json").is_file();
        if let Some(folder) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            let package = PathBuf::from(folder);
            return match is_package(&package) {
                true => Ok(Self::Package(package)),
                false => Err(format!(
                    "{VARIABLE}={}: has no package.json: name the folder of the npm package webgpu",
                    package.display()
                )),
            };
        }
        let here = std::env::current_dir().map_err(|e| e.to_string())?;
        let mut folders = here.ancestors().map(|folder| folder.join("node_modules/webgpu"));
        let package = folders.find(|folder| is_package(folder)).ok_or_else(|| {
            format!(
                "no npm package webgpu in node_modules here or above, which holds Chrome's compiler: \
                 `npm install webgpu`, or name its folder in {VARIABLE}; or ask `--browser=chromium`"
            )
        })?;
        Ok(Self::Package(package))
    }

    /// Messages about each text.
    ///
    /// # Errors
    /// The program fails, with what it says.
    pub fn ask(&self, texts: &[&str]) -> Result<Vec<Vec<Message>>, String> {
        let mut command = Command::new("node");
        command.args(["--input-type=module", "-e"]);
        match self {
            Self::Package(package) => {
                let path = package.canonicalize();
                let path = path.map_err(|e| format!("{}: {e}", package.display()))?;
                command.arg(BY_PACKAGE).env(VARIABLE, path);
            }
            Self::Chromium => {
                command.arg(BY_CHROMIUM);
            }
        }
        let failed = |e: std::io::Error| format!("node: {e}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let input = serde_json::to_vec(texts).map_err(|e| e.to_string())?;
        // Where it ends early, its exit status says why.
        if let Some(mut stdin) = child.stdin.take() {
            let _ = stdin.write_all(&input);
        }
        let output = child.wait_with_output().map_err(failed)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("node ends with {}: {}", output.status, said.trim()));
        }
        let said: Vec<Vec<Message>> = serde_json::from_slice(&output.stdout)
            .map_err(|e| format!("node prints something else: {e}"))?;
        match said.len() == texts.len() {
            true => Ok(said),
            false => Err(format!("node answers {} of {} texts", said.len(), texts.len())),
        }
    }
}

fn has_node() -> Result<(), String> {
    let ran = Command::new("node").arg("--version").output();
    ran.map(drop).map_err(|e| format!("node: {e}; --browser runs Chrome's compiler through Node"))
}
