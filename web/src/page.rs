//! The files of an export: the plan beside the page and its modules, or one page with all of it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use lathe_device::error::{Error, Result};
use lathe_record::files;

use crate::io;
use crate::pool::Data;

/// The modules in an order in which each comes after those it imports.
const MODULES: [(&str, &str); 7] = [
    ("engine.js", include_str!("../engine.js")),
    ("check.js", include_str!("../check.js")),
    ("bench.js", include_str!("../bench.js")),
    ("tokenizer.js", include_str!("../tokenizer.js")),
    ("decode.js", include_str!("../decode.js")),
    ("record.js", include_str!("../record.js")),
    ("page.js", include_str!("../page.js")),
];
const PAGE: &str = include_str!("../index.html");
const NODE: &str = include_str!("../node.mjs");

/// The element of the page that loads its modules.
const SCRIPT: &str = r#"<script type="module" src="page.js"></script>"#;

/// Largest plan that a single page holds: browsers limit a text to 512 MiB, of which base64 takes
/// four bytes for three.
const MOST_SINGLE: u64 = 300 << 20;

/// The single page, and the page and data beside the modules.
const SINGLE: &str = "lathe.html";
const FOLDER: [&str; 5] = ["index.html", "node.mjs", "package.json", "plan.json", "plan.bin"];

/// Fails if a file of an export is in the folder already.
pub(crate) fn vacant(folder: &Path, single: bool) -> Result<()> {
    let modules = MODULES.iter().map(|(name, _)| *name).chain(FOLDER);
    let names: Vec<&str> = if single { vec![SINGLE] } else { modules.collect() };
    match names.iter().map(|name| folder.join(name)).find(|path| path.exists()) {
        Some(path) => {
            Err(Error::Usage(format!("{} exists; an export overwrites nothing", path.display())))
        }
        None => Ok(()),
    }
}

/// Writes the files, and returns the page's path.
pub(crate) fn write(folder: &Path, plan: &str, data: Data, single: bool) -> Result<PathBuf> {
    if single {
        return write_single(&folder.join(SINGLE), plan, data);
    }
    let put = |name: &str, text: &str| {
        let path = folder.join(name);
        files::write_new(&path, text.as_bytes()).map_err(io(&path))?;
        Ok::<_, Error>(path)
    };
    for (name, text) in MODULES {
        put(name, text)?;
    }
    let [page, node, package, json, bin] = FOLDER;
    put(node, NODE)?;
    // Without it Node takes the modules for scripts.
    put(package, "{ \"private\": true, \"type\": \"module\" }\n")?;
    put(json, plan)?;
    data.keep(&folder.join(bin))?;
    put(page, PAGE)
}

fn write_single(path: &Path, plan: &str, data: Data) -> Result<PathBuf> {
    let bytes = data.bytes() + plan.len() as u64;
    if bytes > MOST_SINGLE {
        return Err(Error::Usage(format!(
            "the plan has {} MiB, a single page holds {}: leave out --single, or export less",
            bytes >> 20,
            MOST_SINGLE >> 20
        )));
    }
    let (before, after) = PAGE.split_once(SCRIPT).expect("the page loads its modules");
    let mut out = BufWriter::new(File::create_new(path).map_err(io(path))?);
    let put = |out: &mut BufWriter<File>, texts: &[&str]| {
        texts.iter().try_for_each(|text| out.write_all(text.as_bytes())).map_err(io(path))
    };
    // Within a script `</` could end it; in JSON's strings `<\/` is the same.
    let plan = plan.replace("</", "<\\/");
    put(&mut out, &[before, r#"<script type="application/json" id="plan">"#, &plan])?;
    put(&mut out, &["</script>\n<script type=\"text/plain\" id=\"data\">"])?;
    data.base64(&mut out)?;
    put(&mut out, &["</script>\n<script type=\"module\">\n", &joined(), "</script>", after])?;
    out.flush().map_err(io(path))?;
    Ok(path.to_owned())
}

/// All modules as one, without imports and exports: their names differ.
fn joined() -> String {
    let lines = MODULES.iter().flat_map(|(_, text)| text.lines());
    let kept = lines.filter(|line| !line.starts_with("import "));
    kept.flat_map(|line| [line.strip_prefix("export ").unwrap_or(line), "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_joined_in_the_order_of_their_imports() {
        assert_eq!(PAGE.matches(SCRIPT).count(), 1);
        for (at, (name, text)) in MODULES.iter().enumerate() {
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                assert!(line.ends_with(';'), "{name}: an import is one line: {line}");
                let from = line.split('\'').nth(1).unwrap_or_default().trim_start_matches("./");
                let known = MODULES[..at].iter().any(|(before, _)| *before == from);
                assert!(known, "{name} imports {from}, which comes later");
            }
            assert!(!text.contains("</script"), "{name} would end its element");
        }
        let joined = joined();
        assert!(!joined.lines().any(|l| l.starts_with("import ") || l.starts_with("export ")));
        // A name at the top of two modules would be one too many.
        let mut names: Vec<&str> = Vec::new();
        for line in joined.lines() {
            let rest = ["const ", "let ", "function ", "async function ", "class "];
            let Some(rest) = rest.iter().find_map(|key| line.strip_prefix(key)) else { continue };
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '$');
            names.push(&rest[..end.unwrap_or(rest.len())]);
        }
        names.sort_unstable();
        names.retain(|name| !name.is_empty());
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        assert_eq!(twice, None);
    }
}
