//! A broken shader must fail the build readably: file, line, naga's annotated source.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../build/wgsl.rs"]
mod wgsl;

use std::fs;
use std::path::{Path, PathBuf};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("shared")).unwrap();
        fs::create_dir_all(path.join("demo")).unwrap();
        Self(path)
    }

    fn write(&self, file: &str, text: &str) -> PathBuf {
        let path = self.0.join(file);
        fs::write(&path, text).unwrap();
        path
    }

    fn outcome(&self, file: &Path) -> Result<(), String> {
        wgsl::read(&self.0, file).and_then(|c| wgsl::validate(file, &c))
    }
}

const HEAD: &str = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n";

#[test]
fn a_sound_variant_with_a_prelude_passes() {
    let folder = Folder::new("sound");
    folder.write("shared/one.wgsl", "fn one() -> f32 { return 1.0; }\n");
    let text =
        format!("// uses: one\n{HEAD}@compute @workgroup_size(1) fn main() {{ y[0] = one(); }}\n");
    let file = folder.write("demo/naive.wgsl", &text);
    folder.outcome(&file).unwrap();
}

#[test]
fn a_parse_error_names_file_and_line_and_shows_the_source() {
    let folder = Folder::new("parse");
    let text = format!("{HEAD}@compute @workgroup_size(1) fn main() {{\n    y[0] = 1.0 +;\n}}\n");
    let file = folder.write("demo/naive.wgsl", &text);
    let error = folder.outcome(&file).unwrap_err();
    assert!(error.contains("demo/naive.wgsl:3"), "{error}");
    assert!(error.contains("y[0] = 1.0 +;"), "{error}");
}

#[test]
fn a_type_error_names_file_and_line_and_shows_the_source() {
    let folder = Folder::new("type");
    let text = format!("{HEAD}@compute @workgroup_size(1) fn main() {{\n    y[0] = 1u;\n}}\n");
    let file = folder.write("demo/naive.wgsl", &text);
    let error = folder.outcome(&file).unwrap_err();
    assert!(error.contains("demo/naive.wgsl:3"), "{error}");
    assert!(error.contains("y[0] = 1u;"), "{error}");
}

#[test]
fn an_error_in_a_prelude_names_the_prelude_and_its_own_line() {
    let folder = Folder::new("prelude");
    folder.write("shared/bad.wgsl", "// a comment\nfn bad() -> f32 { return 1u; }\n");
    let text =
        format!("// uses: bad\n{HEAD}@compute @workgroup_size(1) fn main() {{ y[0] = bad(); }}\n");
    let file = folder.write("demo/naive.wgsl", &text);
    let error = folder.outcome(&file).unwrap_err();
    assert!(error.contains("wgsl/shared/bad.wgsl:2"), "{error}");
    assert!(error.contains("return 1u"), "{error}");
}

#[test]
fn a_missing_prelude_is_named() {
    let folder = Folder::new("missing");
    let file = folder.write("demo/naive.wgsl", "// uses: nowhere\n");
    let error = folder.outcome(&file).unwrap_err();
    assert!(error.contains("nowhere"), "{error}");
}
