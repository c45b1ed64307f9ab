//! A broken shader must fail the build readably: file, line, what is wrong, naga's annotated
//! source.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "the build script uses the rest")]
#[path = "../build/wgsl.rs"]
mod wgsl;

use std::fs;
use std::path::{Path, PathBuf};

/// A crate with one operation, `demo`.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn write(&self, file: &str, text: &str) -> &Self {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn tree(&self) -> wgsl::Tree {
        wgsl::Tree::read(&self.0)
    }

    /// The text of `demo/naive`.
    fn text(&self) -> Result<String, String> {
        let tree = self.tree();
        let naive = tree.variants.iter().find(|v| v.variant == "naive").unwrap();
        let linked = tree.link(naive)?;
        wgsl::validate(&tree.shown(&naive.path), &linked).map(|()| linked.text)
    }

    fn error(&self) -> String {
        self.text().unwrap_err()
    }

    fn meanings(&self) -> Vec<String> {
        wgsl::meanings(&self.tree().all().unwrap())
    }
}

/// A variant with lines before its entry point, whose body is given.
fn variant(lines: &str, body: &str) -> String {
    format!(
        "{lines}@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1) fn main() {{
    {body}
}}
"
    )
}

#[test]
fn imports_are_transitive_and_each_module_comes_once() {
    let folder = Folder::new("transitive");
    folder
        .write("wgsl/one.wgsl", "fn one() -> f32 { return 1.0; }\n")
        .write("wgsl/deep/two.wgsl", "// import: one\nfn two() -> f32 { return 2.0 * one(); }\n")
        .write(
            "ops/demo/naive.wgsl",
            &variant("// import: one, deep/two\n", "y[0] = one() + two();"),
        );
    let text = folder.text().unwrap();
    assert_eq!(text.matches("fn one").count(), 1, "{text}");
    assert!(text.starts_with("// with: one, deep/two\n"), "{text}");
    // What is linked can be linked again.
    folder.write("ops/demo/naive.wgsl", &text);
    assert_eq!(folder.text().unwrap(), text);
}

#[test]
fn modules_of_an_operation_lie_below_it() {
    let folder = Folder::new("parts");
    folder
        .write("ops/demo/parts/one.wgsl", "fn one() -> f32 { return 1.0; }\n")
        .write("ops/demo/naive.wgsl", &variant("// import: demo/parts/one\n", "y[0] = one();"))
        .write("ops/demo/mod.rs", "");
    folder.text().unwrap();
    let tree = folder.tree();
    assert_eq!(tree.variants.len(), 1);
    assert_eq!(
        (tree.variants[0].operation.as_str(), tree.variants[0].variant.as_str()),
        ("demo", "naive")
    );
    assert_eq!(tree.declarations, [(folder.0.join("ops/demo"), true)]);
}

#[test]
fn names_of_codes_need_no_import() {
    let folder = Folder::new("codes");
    let text = variant("override WEIGHT: u32;\n", "if (WEIGHT == Q6_K) { y[0] = 1.0; }");
    folder.write("ops/demo/naive.wgsl", &text);
    let text = folder.text().unwrap();
    assert!(text.ends_with("const Q6_K: u32 = 10u;\n"), "{text}");
    assert_eq!(text.matches("const").count(), 1, "{text}");
}

#[test]
fn an_error_of_parsing_or_of_types_names_file_and_line_and_shows_the_source() {
    for (name, body) in [("parse", "y[0] = 1.0 +;"), ("type", "y[0] = 1u;")] {
        let folder = Folder::new(name);
        let error = folder.write("ops/demo/naive.wgsl", &variant("", body)).error();
        assert!(error.starts_with("kernels/ops/demo/naive.wgsl:3"), "{error}");
        assert!(error.contains(body), "{error}");
    }
}

#[test]
fn an_error_in_a_module_names_the_module_and_its_own_line() {
    let folder = Folder::new("module");
    folder
        .write("wgsl/good.wgsl", "fn good() -> f32 { return 1.0; }\n")
        .write("wgsl/bad.wgsl", "// a comment\nfn bad() -> f32 { return 1u; }\n")
        .write("ops/demo/naive.wgsl", &variant("// import: good, bad\n", "y[0] = bad() + good();"));
    let error = folder.error();
    assert!(error.starts_with("kernels/wgsl/bad.wgsl:2 (linked into kernels/ops/demo/"), "{error}");
    assert!(error.contains("return 1u"), "{error}");
}

#[test]
fn a_missing_import_is_named() {
    let folder = Folder::new("missing");
    folder.write("ops/demo/naive.wgsl", &variant("\n// import: nowhere\n", ""));
    let error = "kernels/ops/demo/naive.wgsl:2: `// import: nowhere`: there is no such module";
    assert_eq!(folder.error(), error);
}

#[test]
fn modules_that_import_each_other_are_named() {
    let folder = Folder::new("cycle");
    folder
        .write("wgsl/a.wgsl", "// import: b\nfn a() -> f32 { return b(); }\n")
        .write("wgsl/b.wgsl", "\n// import: a\nfn b() -> f32 { return a(); }\n")
        .write("ops/demo/naive.wgsl", &variant("// import: a\n", "y[0] = a();"));
    assert_eq!(folder.error(), "kernels/wgsl/b.wgsl:2: modules import each other: a -> b -> a");
}

const TWICE: &str =
    "// import: one\n// requires: fn scale(by: f32) -> f32\n// requires: override N: u32\n
fn twice() -> f32 { return scale(f32(N)) * one(); }\n";

fn requiring(name: &str, lines: &str) -> Folder {
    let folder = Folder::new(name);
    folder
        .write("wgsl/one.wgsl", "fn one() -> f32 { return 1.0; }\n")
        .write("wgsl/twice.wgsl", TWICE)
        .write(
            "ops/demo/naive.wgsl",
            &variant(&format!("// import: twice\n{lines}"), "y[0] = twice();"),
        );
    folder
}

#[test]
fn a_requirement_is_met_by_a_definition_with_its_signature() {
    let lines = "override N: u32 = 3u;\nfn scale(factor: f32) -> f32 { return 2.0 * factor; }\n";
    requiring("met", lines).text().unwrap();
    // A constant stands for an override.
    requiring("constant", &lines.replace("override", "const")).text().unwrap();
}

#[test]
fn an_unmet_requirement_names_what_is_missing() {
    let error = requiring("unmet", "override N: u32;\n").error();
    assert_eq!(
        error,
        "kernels/wgsl/twice.wgsl:2: twice requires `fn scale(f32) -> f32`, and nothing that is linked \
         into demo/naive defines `scale`"
    );
}

#[test]
fn a_wrong_signature_names_both() {
    let lines = "override N: u32;\nfn scale(by: u32) -> f32 { return f32(by); }\n";
    assert_eq!(
        requiring("signature", lines).error(),
        "kernels/wgsl/twice.wgsl:2: twice requires `fn scale(f32) -> f32`, and demo/naive links \
         `fn scale(u32) -> f32` of kernels/ops/demo/naive.wgsl:3"
    );
    let lines = "override N: i32;\nfn scale(by: f32) -> f32 { return by; }\n";
    let error = requiring("override", lines).error();
    assert!(error.contains("requires `override N: u32`"), "{error}");
}

#[test]
fn a_name_that_is_neither_imported_nor_required_is_an_error() {
    let folder =
        requiring("unstated", "override N: u32;\nfn scale(by: f32) -> f32 { return one(); }\n");
    assert_eq!(
        folder.error(),
        "kernels/ops/demo/naive.wgsl:3: uses `one` of one and neither imports nor requires it"
    );
    let lines = "// import: one\noverride N: u32;\nfn scale(by: f32) -> f32 { return by; }\n";
    let error = requiring("unused", lines).error();
    assert_eq!(error, "kernels/ops/demo/naive.wgsl:2: imports one and uses nothing of it");
    let lines = "// import: one\n// import: one\noverride N: u32;\nfn scale(by: f32) -> f32 { return one(); }\n";
    let error = requiring("again", lines).error();
    assert_eq!(error, "kernels/ops/demo/naive.wgsl:3: imports one twice");
}

#[test]
fn two_definitions_of_a_name_are_an_error() {
    let lines = "override N: u32;\nfn scale(by: f32) -> f32 { return by; }\nfn one() -> f32 { return 1.0; }\n";
    assert_eq!(
        requiring("twice", lines).error(),
        "kernels/wgsl/one.wgsl:1: `one` is defined here and in kernels/ops/demo/naive.wgsl:4, and both \
         are linked into demo/naive"
    );
}

#[test]
fn a_name_has_one_meaning_even_where_texts_are_never_linked_together() {
    let folder = Folder::new("meanings");
    folder
        .write("wgsl/a.wgsl", "fn sum(x: f32) -> f32 { return x; }\n")
        .write("wgsl/b.wgsl", "\nfn sum(x: u32) -> u32 { return x; }\n")
        .write("ops/demo/naive.wgsl", &variant("// import: a\n", "y[0] = sum(1.0);"));
    folder.text().unwrap();
    assert_eq!(
        folder.meanings(),
        [
            "kernels/wgsl/b.wgsl:2: `fn sum(u32) -> u32` has another meaning in kernels/wgsl/a.wgsl:1: \
          `fn sum(f32) -> f32`; a name that two files define, which no module requires, needs another \
          name in one of them"
        ]
    );
    // What a module requires has many definitions, which agree.
    folder.write("wgsl/b.wgsl", "fn sum(value: f32) -> f32 { return 2.0 * value; }\n").write(
        "wgsl/c.wgsl",
        "// requires: fn sum(x: f32) -> f32\nfn two() -> f32 { return sum(2.0); }\n",
    );
    assert!(folder.meanings().is_empty(), "{:?}", folder.meanings());
    folder.write("ops/demo/other.wgsl", "fn sum() {}\n");
    assert_eq!(folder.meanings().len(), 1, "{:?}", folder.meanings());
    assert!(folder.meanings()[0].contains("with another signature"), "{:?}", folder.meanings());
}

const DECLARATION: &str = "static OPERATION: Declaration = [
    // demo/slow: no text: it has no import.
    Variant::SLOW,
    // demo/fast: one invocation a row.
    //
    // Idea: none.
    // import: prologue/plain, rows/dense
    // import: schedule/each, epilogue/stage
    Variant { name: \"fast\", ..Schedule::EACH },
];
";

const NAIVE: &str = "//   y[r] = w[r] * x[0]
override N: u32;
override WG: u32 = 64u;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG) fn main() { y[N] = w[N] * x[0]; }
";

/// A composed variant whose schedule requires `lines` in addition.
fn composed(name: &str, lines: &str) -> Result<String, String> {
    let folder = Folder::new(name);
    let each = format!(
        "{lines}// requires: override N: u32\n// requires: fn x_one() -> f32\n\
         // requires: fn w_at(i: u32) -> f32\n// requires: fn store(i: u32, v: f32)\n\
         @compute @workgroup_size(1)\nfn main() {{ store(N, w_at(N) * x_one()); }}\n"
    );
    folder
        .write("ops/matvec/demo/naive.wgsl", NAIVE)
        .write("ops/matvec/demo/mod.rs", DECLARATION)
        .write(
            "ops/matvec/prologue/plain.wgsl",
            "// requires: var x: array<f32>\nfn x_one() -> f32 { return x[0]; }\n",
        )
        .write(
            "ops/matvec/rows/dense.wgsl",
            "// requires: var w: array<f32>\nfn w_at(i: u32) -> f32 { return w[i]; }\n",
        )
        .write("ops/matvec/schedule/each.wgsl", &each)
        .write(
            "ops/matvec/epilogue/stage.wgsl",
            "// entry: first\n// requires: var y: array<f32>\n// requires: var own: array<f32>\n\
             fn store(i: u32, v: f32) { y[i] = v; own[i] = v; }\n",
        );
    let tree = folder.tree();
    let names: Vec<_> = tree.variants.iter().map(|v| v.variant.as_str()).collect();
    assert_eq!(names, ["fast", "naive"]);
    let fast = &tree.variants[0];
    let linked = tree.link(fast)?;
    wgsl::validate("demo/fast", &linked).map(|()| linked.text)
}

#[test]
fn a_composed_variant_has_the_buffers_and_parameters_that_its_modules_require() {
    let text = composed("composed", "").unwrap();
    let head = "// demo/fast: one invocation a row.
//
//   y[r] = w[r] * x[0]
//
// Idea: none.
// with: matvec/prologue/plain, matvec/rows/dense
// with: matvec/schedule/each, matvec/epilogue/stage
override N: u32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> own: array<f32>;
";
    assert!(text.starts_with(head), "{text}");
    // The epilogue names the entry point.
    assert!(text.contains("fn first()"), "{text}");
}

#[test]
fn what_is_no_parameter_of_the_operation_a_composed_variant_must_define() {
    let error = composed("undefined", "// requires: override WG: u32\n").unwrap_err();
    assert!(error.contains("requires `override WG: u32`, and nothing"), "{error}");
}
