//! Composing and validating one WGSL variant; shared by the build script and its test.

use std::fs;
use std::path::Path;

#[path = "../src/compose.rs"]
mod compose;

/// A variant's text with its preludes, and where each of those begins.
pub(crate) struct Composed {
    pub(crate) text: String,
    preludes: Vec<(String, usize)>,
}

/// Reads a variant and appends the preludes it names.
pub(crate) fn read(root: &Path, file: &Path) -> Result<Composed, String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let find =
        |name: &str| fs::read_to_string(root.join("shared").join(format!("{name}.wgsl"))).ok();
    let composed = compose::compose(&text, find);
    composed.map(|(text, preludes)| Composed { text, preludes }).map_err(|name| {
        format!("{}: `// uses: {name}`: no wgsl/shared/{name}.wgsl", file.display())
    })
}

/// Parses and validates; the error begins with `file:line` and holds naga's annotated source.
pub(crate) fn validate(file: &Path, composed: &Composed) -> Result<(), String> {
    let Composed { text, preludes } = composed;
    let shown = format!("kernels/{}", file.display());
    let module = naga::front::wgsl::parse_str(text).map_err(|e| {
        let line = e.location(text).map(|l| l.line_number as usize);
        format!("{}\n{}", place(&shown, line, preludes), e.emit_to_string_with_path(text, &shown))
    })?;
    naga::valid::Validator::new(
        naga::valid::ValidationFlags::all(),
        naga::valid::Capabilities::all(),
    )
    .validate(&module)
    .map(|_| ())
    .map_err(|e| {
        let line = e.location(text).map(|l| l.line_number as usize);
        format!("{}\n{}", place(&shown, line, preludes), e.emit_to_string_with_path(text, &shown))
    })
}

/// `file:line` of an error, in the prelude's own numbering when it lies in one.
fn place(file: &str, line: Option<usize>, preludes: &[(String, usize)]) -> String {
    let Some(line) = line else { return file.to_owned() };
    match preludes.iter().rev().find(|(_, first)| line >= *first) {
        Some((name, first)) => {
            format!("kernels/wgsl/shared/{name}.wgsl:{} (used by {file})", line - first + 1)
        }
        None => format!("{file}:{line}"),
    }
}
