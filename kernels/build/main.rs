//! Validates every WGSL variant with naga and collects them for `include_str!`.
//!
//! A variant is one file `wgsl/<kernel>/<variant>.wgsl`. Preludes it names in a line
//! `// uses: a, b` are appended from `wgsl/shared/`, after the variant, so that line numbers of
//! the variant stay what its author sees. A parse or validation error fails the build with naga's
//! annotated source.

mod wgsl;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=wgsl");
    println!("cargo::rerun-if-changed=build");
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
            let checked =
                wgsl::read(root, &file).and_then(|c| wgsl::validate(&file, &c).map(|()| c.text));
            let text = match checked {
                Ok(text) => text,
                Err(message) => {
                    eprintln!("{message}");
                    broken += 1;
                    continue;
                }
            };
            let target = out.join(format!("{kernel}.{variant}.wgsl"));
            fs::write(&target, text).expect("writing to OUT_DIR");
            writeln!(
                table,
                "    Source {{ kernel: {kernel:?}, variant: {variant:?}, file: {:?}, text: include_str!({:?}) }},",
                file.display().to_string(),
                target.display().to_string(),
            )
            .expect("writing to a String");
        }
    }
    table.push_str("];\npub(crate) static PRELUDES: &[(&str, &str)] = &[\n");
    for file in sorted(&root.join("shared")) {
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        writeln!(table, "    ({:?}, {text:?}),", stem(&file)).expect("writing to a String");
    }
    table.push_str("];\n");
    fs::write(out.join("sources.rs"), table).expect("writing to OUT_DIR");
    if broken > 0 {
        eprintln!("{broken} WGSL file(s) do not validate");
        std::process::exit(1);
    }
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
