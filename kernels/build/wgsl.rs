//! Composing and validating one WGSL variant; shared by the build script and its test.

use std::fs;
use std::path::Path;

/// A prelude's name and the line of the composed text at which it begins.
pub(crate) struct Prelude {
    name: String,
    first_line: usize,
}

/// A variant's text followed by its preludes.
pub(crate) struct Composed {
    pub(crate) text: String,
    preludes: Vec<Prelude>,
}

/// Appends the preludes that `// uses:` lines of a variant name.
pub(crate) fn compose(root: &Path, file: &Path) -> Result<Composed, String> {
    let mut text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let wanted: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("// uses:"))
        .flat_map(|names| names.split(','))
        .map(|name| name.trim().to_owned())
        .collect();
    let mut preludes = Vec::new();
    for name in wanted {
        let path = root.join("shared").join(format!("{name}.wgsl"));
        let body = fs::read_to_string(&path).map_err(|e| {
            format!("{}: `// uses: {name}`: {}: {e}", file.display(), path.display())
        })?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        preludes.push(Prelude { name, first_line: text.lines().count() + 1 });
        text.push_str(&body);
    }
    Ok(Composed { text, preludes })
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
fn place(file: &str, line: Option<usize>, preludes: &[Prelude]) -> String {
    let Some(line) = line else { return file.to_owned() };
    match preludes.iter().rev().find(|p| line >= p.first_line) {
        Some(p) => format!(
            "kernels/wgsl/shared/{}.wgsl:{} (used by {file})",
            p.name,
            line - p.first_line + 1
        ),
        None => format!("{file}:{line}"),
    }
}
