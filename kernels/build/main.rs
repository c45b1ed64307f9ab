//! Links and validates every WGSL variant and collects the texts for `include_str!`.
//!
//! A variant is a file in the folder of an operation's `naive.wgsl`, below `ops/`, or a comment of
//! the declaration there; other files below `ops/` and `wgsl/` are modules (see `wgsl.rs` and
//! `src/link.rs`). Imported text comes after the variant, so that line numbers of the variant stay
//! those its author sees. An import that fails, a requirement that is not met, a name with two
//! meanings, a parse or validation error, and a barrier in control flow that is not uniform fail the
//! build with file and line.

mod wgsl;

use std::fs;
use std::path::PathBuf;

use wgsl::Tree;

fn main() {
    let sources =
        ["src/link.rs", "src/tokens.rs", "src/codes.rs", "src/shared.rs", "src/uniformity"];
    for path in ["ops", "wgsl", "build"].into_iter().chain(sources) {
        println!("cargo::rerun-if-changed={path}");
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let tree = Tree::read(&root);
    let mut broken = match tree.all() {
        Ok(all) => wgsl::meanings(&all),
        Err(error) => vec![error],
    };
    let mut table = String::from("pub(crate) static SOURCES: &[Source] = &[\n");
    for v in &tree.variants {
        let shown = tree.shown(&v.path);
        let linked =
            tree.link(v).and_then(|linked| wgsl::validate(&shown, &linked).map(|()| linked.text));
        let text = match linked {
            Ok(text) => text,
            Err(message) => {
                broken.push(message);
                continue;
            }
        };
        let target = out.join(format!("{}.{}.wgsl", v.operation, v.variant));
        fs::write(&target, text).expect("writing to OUT_DIR");
        let (operation, variant) = (&v.operation, &v.variant);
        let (file, target) = (shown.trim_start_matches("kernels/"), target.display().to_string());
        table.push_str(&format!(
            "    Source {{ kernel: {operation:?}, variant: {variant:?}, file: {file:?}, \
             text: include_str!({target:?}) }},\n"
        ));
    }
    table.push_str("];\npub(crate) static MODULES: &[(&str, &str, &str)] = &[\n");
    for (name, path) in &tree.modules {
        let text = tree.text(path).unwrap_or_else(|e| panic!("{e}"));
        table.push_str(&format!("    ({name:?}, {:?}, {text:?}),\n", tree.shown(path)));
    }
    table.push_str("];\n");
    fs::write(out.join("sources.rs"), table).expect("writing to OUT_DIR");
    fs::write(out.join("operations.rs"), operations(&tree)).expect("writing to OUT_DIR");
    // One mistake in a module is found in every variant that links it.
    broken.sort();
    broken.dedup();
    if !broken.is_empty() {
        eprintln!("{}\n{} WGSL file(s) do not build", broken.join("\n"), broken.len());
        std::process::exit(1);
    }
}

/// A module for every declaration below `ops/`, flat, and a macro that hands the names of all
/// operations with a declaration to another macro.
fn operations(tree: &Tree) -> String {
    let mut text = String::new();
    let mut names = Vec::new();
    for (folder, is_operation) in &tree.declarations {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let path = folder.join("mod.rs").display().to_string();
        text.push_str(&format!("#[path = {path:?}]\npub mod {name};\n"));
        if *is_operation {
            names.push(name);
        }
    }
    text + &format!(
        "/// Hands the names of all operations to a macro.\n#[macro_export]\n\
         macro_rules! for_each_operation {{\n    ($then:ident) => {{ $then! {{ {} }} }};\n}}\n",
        names.join(" ")
    )
}
