//! Validates every WGSL variant with naga and collects them for `include_str!`.
//!
//! A variant is one file `wgsl/<kernel>/<variant>.wgsl`. Preludes it names in a line
//! `// uses: a, b` are appended from `wgsl/shared/`, after the variant, so that line numbers of
//! the variant stay what its author sees. A parse or validation error fails the build with naga's
//! annotated source.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

struct Prelude {
    name: String,
    first_line: usize,
}

fn main() {
    println!("cargo::rerun-if-changed=wgsl");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let root = Path::new("wgsl");
    let mut table = String::from("pub(crate) static SOURCES: &[Source] = &[\n");
    let mut broken = 0usize;
    for kernel in sorted(root) {
        if !kernel.is_dir() || stem(&kernel) == "shared" {
            continue;
        }
        for file in sorted(&kernel) {
            if file.extension().is_none_or(|e| e != "wgsl") {
                continue;
            }
            let (kernel, variant) = (stem(&kernel), stem(&file));
            let composed = match compose(root, &file) {
                Ok(composed) => composed,
                Err(message) => {
                    report(&message);
                    broken += 1;
                    continue;
                }
            };
            if let Err(message) = validate(&file, &composed.0, &composed.1) {
                report(&message);
                broken += 1;
            }
            let target = out.join(format!("{kernel}.{variant}.wgsl"));
            fs::write(&target, &composed.0).expect("writing to OUT_DIR");
            writeln!(
                table,
                "    Source {{ kernel: {kernel:?}, variant: {variant:?}, file: {:?}, text: include_str!({:?}) }},",
                file.display().to_string(),
                target.display().to_string(),
            )
            .expect("writing to a String");
        }
    }
    table.push_str("];\n");
    fs::write(out.join("sources.rs"), table).expect("writing to OUT_DIR");
    if broken > 0 {
        eprintln!("{broken} WGSL file(s) do not validate");
        std::process::exit(1);
    }
}

fn report(message: &str) {
    eprintln!("{message}");
}

fn sorted(dir: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|e| e.expect("directory entry").path())
        .collect();
    entries.sort();
    entries
}

fn stem(path: &Path) -> String {
    path.file_stem().expect("a named file").to_string_lossy().into_owned()
}

fn compose(root: &Path, file: &Path) -> Result<(String, Vec<Prelude>), String> {
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
    Ok((text, preludes))
}

fn validate(file: &Path, text: &str, preludes: &[Prelude]) -> Result<(), String> {
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
