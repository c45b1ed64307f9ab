//! A broken shader must fail the build readably: file, line, what is wrong, naga's annotated
//! source.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "the build script uses the rest")]
#[path = "../build/wgsl.rs"]
mod wgsl;

use std::fs;
use std::path::{Path, PathBuf};

/// A crate of WGSL files.
struct Folder(PathBuf);

impl Folder {
    /// A folder of a name of its own with files; those without a folder lie in `wgsl/`.
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        let folder = Self(path);
        files.iter().for_each(|(file, text)| folder.write(file, text));
        folder
    }

    fn write(&self, file: &str, text: &str) {
        let base = if file.starts_with("ops/") { "" } else { "wgsl" };
        let path = self.0.join(base).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn tree(&self) -> wgsl::Tree {
        wgsl::Tree::read(&self.0)
    }

    /// The text of the operation's first variant.
    fn text(&self) -> Result<String, String> {
        let tree = self.tree();
        let linked = tree.link(&tree.variants[0])?;
        wgsl::validate(&tree.shown(&tree.variants[0].path), &linked).map(|()| linked.text)
    }

    fn meanings(&self) -> Vec<String> {
        wgsl::meanings(&self.tree().all().unwrap())
    }
}

const NAIVE: &str = "ops/demo/naive.wgsl";

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

const ONE: (&str, &str) = ("one.wgsl", "fn one() -> f32 { return 1.0; }\n");

/// A module that imports `one` and requires a function and a size.
const TWICE: (&str, &str) = (
    "twice.wgsl",
    "// import: one\n// requires: fn scale(by: f32) -> f32\n// requires: override N: u32\n
fn twice() -> f32 { return scale(f32(N)) * one(); }\n",
);

#[test]
fn imports_are_transitive_and_each_module_comes_once() {
    let two = "// import: one\nfn two() -> f32 { return 2.0 * one(); }\n";
    let naive = variant("// import: one, deep/two\n", "y[0] = one() + two();");
    let folder = Folder::new("transitive", &[ONE, ("deep/two.wgsl", two), (NAIVE, &naive)]);
    let text = folder.text().unwrap();
    assert_eq!(text.matches("fn one").count(), 1, "{text}");
    assert!(text.starts_with("// with: one, deep/two\n"), "{text}");
    // What is linked can be linked again.
    folder.write(NAIVE, &text);
    assert_eq!(folder.text().unwrap(), text);
}

#[test]
fn modules_of_an_operation_lie_below_it() {
    let naive = variant("// import: demo/parts/one\n", "y[0] = one();");
    let files = [("ops/demo/parts/one.wgsl", ONE.1), (NAIVE, &naive), ("ops/demo/mod.rs", "")];
    let folder = Folder::new("parts", &files);
    folder.text().unwrap();
    let tree = folder.tree();
    let names: Vec<_> = tree.variants.iter().map(|v| (&*v.operation, &*v.variant)).collect();
    assert_eq!(names, [("demo", "naive")]);
    assert_eq!(tree.declarations, [(folder.0.join("ops/demo"), true)]);
}

#[test]
fn names_of_codes_need_no_import() {
    let text = variant("override WEIGHT: u32;\n", "if (WEIGHT == Q6_K) { y[0] = 1.0; }");
    let text = Folder::new("codes", &[(NAIVE, &text)]).text().unwrap();
    assert!(text.ends_with("const Q6_K: u32 = 10u;\n"), "{text}");
    assert_eq!(text.matches("const").count(), 1, "{text}");
}

/// Each fault of a text: its lines before the entry point, the entry point's body, and the
/// beginning of the message, of a path below `kernels/`.
#[test]
fn errors_name_file_and_line_and_what_is_wrong() {
    let modules = [
        ONE,
        TWICE,
        ("bad.wgsl", "// a comment\nfn bad() -> f32 { return 1u; }\n"),
        ("a.wgsl", "// import: b\nfn a() -> f32 { return b(); }\n"),
        ("b.wgsl", "\n// import: a\nfn b() -> f32 { return a(); }\n"),
    ];
    let scale = "fn scale(by: f32) -> f32 { return by; }\n";
    let requiring = |lines: &str| format!("// import: twice\n{lines}");
    let complete = |lines: &str| requiring(&format!("{lines}override N: u32;\n{scale}"));
    let uses_one = scale.replace("by;", "one();");
    for (lines, body, says) in [
        ("", "y[0] = 1.0 +;", "ops/demo/naive.wgsl:3"),
        ("", "y[0] = 1u;", "ops/demo/naive.wgsl:3"),
        (
            "// import: one, bad\n",
            "y[0] = bad() + one();",
            "wgsl/bad.wgsl:2 (linked into kernels/ops/demo/",
        ),
        (
            "\n// import: nowhere\n",
            "",
            "ops/demo/naive.wgsl:2: `// import: nowhere`: there is no such module",
        ),
        ("// import: a\n", "y[0] = a();", "wgsl/b.wgsl:2: modules import each other: a -> b -> a"),
        (
            &*requiring("override N: u32;\n"),
            "y[0] = twice();",
            "wgsl/twice.wgsl:2: twice requires `fn scale(f32) -> f32`, and nothing that is linked \
             into demo/naive defines `scale`",
        ),
        (
            &requiring("override N: u32;\nfn scale(by: u32) -> f32 { return f32(by); }\n"),
            "y[0] = twice();",
            "wgsl/twice.wgsl:2: twice requires `fn scale(f32) -> f32`, and demo/naive links \
             `fn scale(u32) -> f32` of kernels/ops/demo/naive.wgsl:3",
        ),
        (
            &requiring(&format!("override N: i32;\n{scale}")),
            "y[0] = twice();",
            "wgsl/twice.wgsl:3: twice requires `override N: u32`, and demo/naive links \
             `override N: i32` of kernels/ops/demo/naive.wgsl:2",
        ),
        (
            &requiring(&format!("override N: u32;\n{uses_one}")),
            "y[0] = twice();",
            "ops/demo/naive.wgsl:3: uses `one` of one and neither imports nor requires it",
        ),
        (
            &complete("// import: one\n"),
            "y[0] = twice();",
            "ops/demo/naive.wgsl:2: imports one and uses nothing of it",
        ),
        (
            &complete("// import: one\n// import: one\n"),
            "y[0] = twice() + one();",
            "ops/demo/naive.wgsl:3: imports one twice",
        ),
        (
            &complete("fn one() -> f32 { return 1.0; }\n"),
            "y[0] = twice();",
            "wgsl/one.wgsl:1: `one` is defined here and in kernels/ops/demo/naive.wgsl:2, and both \
             are linked into demo/naive",
        ),
    ] {
        let text = variant(lines, body);
        let folder = Folder::new("faults", &[&modules[..], &[(NAIVE, &text)]].concat());
        let error = folder.text().unwrap_err();
        assert!(error.starts_with(&format!("kernels/{says}")), "{says}\n{error}");
        // naga shows the source.
        let source = if says.contains("bad.wgsl") { "return 1u" } else { body };
        assert!(error.contains(source) || error.lines().count() == 1, "{error}");
    }
}

#[test]
fn a_barrier_that_some_invocations_do_not_reach_fails_with_file_line_and_reason() {
    let module = ("sync.wgsl", "fn sync(i: u32) {\n    if (i < 2u) { workgroupBarrier(); }\n}\n");
    let naive = "// import: sync
@compute @workgroup_size(4) fn main(@builtin(local_invocation_index) lane: u32) {
    sync(lane);
}
";
    let error = Folder::new("barrier", &[module, (NAIVE, naive)]).text().unwrap_err();
    let begin = "kernels/wgsl/sync.wgsl:2 (linked into kernels/ops/demo/naive.wgsl)\n\
                 `workgroupBarrier` must be called from uniform control flow";
    assert!(error.starts_with(begin), "{error}");
    assert!(error.contains("naive.wgsl:3: parameter `i` of `sync` may differ"), "{error}");
    assert!(error.ends_with("`lane` is local_invocation_index, which differs in a workgroup"));
}

#[test]
fn a_requirement_is_met_by_a_definition_with_its_signature() {
    let lines = "// import: twice\noverride N: u32 = 3u;\n\
                 fn scale(factor: f32) -> f32 { return 2.0 * factor; }\n";
    // A constant stands for an override.
    for lines in [lines, &lines.replace("override", "const")] {
        let text = variant(lines, "y[0] = twice();");
        Folder::new("met", &[ONE, TWICE, (NAIVE, &text)]).text().unwrap();
    }
}

#[test]
fn a_name_has_one_meaning_even_where_texts_are_never_linked_together() {
    let naive = variant("// import: a\n", "y[0] = sum(1.0);");
    let a = ("a.wgsl", "fn sum(x: f32) -> f32 { return x; }\n");
    let b = ("b.wgsl", "\nfn sum(x: u32) -> u32 { return x; }\n");
    let folder = Folder::new("meanings", &[a, b, (NAIVE, &naive)]);
    folder.text().unwrap();
    let two = "kernels/wgsl/b.wgsl:2: `fn sum(u32) -> u32` has another meaning in \
               kernels/wgsl/a.wgsl:1: `fn sum(f32) -> f32`; a name that two files define, which no \
               module requires, needs another name in one of them";
    assert_eq!(folder.meanings(), [two]);
    // What a module requires has many definitions, which agree.
    folder.write("b.wgsl", "fn sum(value: f32) -> f32 { return 2.0 * value; }\n");
    let requires = "// requires: fn sum(x: f32) -> f32\nfn two() -> f32 { return sum(2.0); }\n";
    folder.write("c.wgsl", requires);
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

const DECLARED: &str = "//   y[r] = w[r] * x[0]
override N: u32;
override WG: u32 = 64u;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG) fn main() { y[N] = w[N] * x[0]; }
";

/// A composed variant whose schedule requires `lines` in addition.
fn composed(name: &str, lines: &str) -> Result<String, String> {
    let each = format!(
        "{lines}// requires: override N: u32\n// requires: fn x_one() -> f32\n\
         // requires: fn w_at(i: u32) -> f32\n// requires: fn store(i: u32, v: f32)\n\
         @compute @workgroup_size(1)\nfn main() {{ store(N, w_at(N) * x_one()); }}\n"
    );
    let plain = "// requires: var x: array<f32>\nfn x_one() -> f32 { return x[0]; }\n";
    let dense = "// requires: var w: array<f32>\nfn w_at(i: u32) -> f32 { return w[i]; }\n";
    let stage = "// entry: first\n// requires: var y: array<f32>\n// requires: var own: array<f32>\n\
                 fn store(i: u32, v: f32) { y[i] = v; own[i] = v; }\n";
    let folder = Folder::new(
        name,
        &[
            ("ops/matvec/demo/naive.wgsl", DECLARED),
            ("ops/matvec/demo/mod.rs", DECLARATION),
            ("ops/matvec/prologue/plain.wgsl", plain),
            ("ops/matvec/rows/dense.wgsl", dense),
            ("ops/matvec/schedule/each.wgsl", &each),
            ("ops/matvec/epilogue/stage.wgsl", stage),
        ],
    );
    let names: Vec<_> = folder.tree().variants.into_iter().map(|v| v.variant).collect();
    assert_eq!(names, ["fast", "naive"]);
    folder.text()
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
    // What is no parameter of the operation a composed variant must define.
    let error = composed("undefined", "// requires: override WG: u32\n").unwrap_err();
    assert!(error.contains("requires `override WG: u32`, and nothing"), "{error}");
}
