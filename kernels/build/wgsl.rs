//! Linking and validating WGSL; shared by the build script and its test.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "../src/codes.rs"]
#[allow(dead_code, unreachable_pub, reason = "only the constants are of use here")]
mod codes;
#[path = "../src/link.rs"]
mod link;
#[path = "../src/tokens.rs"]
#[allow(dead_code, reason = "a test of texts uses the rest")]
mod tokens;

pub(crate) use link::{Linked, Module};

/// A file `<operation>/<variant>.wgsl`.
pub(crate) struct VariantFile {
    pub(crate) operation: String,
    pub(crate) variant: String,
    pub(crate) path: PathBuf,
}

/// All WGSL of a crate: operations are folders below `ops/` that hold `naive.wgsl`, and their
/// files are variants. Every other file is a module, which imports name by its path below `ops/`
/// or `wgsl/`.
pub(crate) struct Tree {
    pub(crate) variants: Vec<VariantFile>,
    pub(crate) modules: BTreeMap<String, PathBuf>,
    /// Folders below `ops/` with a `mod.rs`, and whether they are operations.
    pub(crate) declarations: Vec<(PathBuf, bool)>,
    root: PathBuf,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> Self {
        let mut tree = Self {
            variants: Vec::new(),
            modules: BTreeMap::new(),
            declarations: Vec::new(),
            root: root.to_owned(),
        };
        for base in ["ops", "wgsl"] {
            tree.walk(&root.join(base), &root.join(base));
        }
        tree.variants.sort_by(|a, b| (&a.operation, &a.variant).cmp(&(&b.operation, &b.variant)));
        tree.declarations.sort_by(|a, b| a.0.file_name().cmp(&b.0.file_name()));
        tree
    }

    fn walk(&mut self, base: &Path, folder: &Path) {
        let is_operation = folder.join("naive.wgsl").is_file();
        if folder.join("mod.rs").is_file() {
            self.declarations.push((folder.to_owned(), is_operation));
        }
        for path in sorted(folder) {
            if path.is_dir() {
                self.walk(base, &path);
            } else if path.extension().is_some_and(|e| e == "wgsl") {
                if is_operation {
                    let (operation, variant) = (stem(folder), stem(&path));
                    self.variants.push(VariantFile { operation, variant, path });
                } else {
                    let name = path.strip_prefix(base).unwrap_or(&path).with_extension("");
                    self.modules.insert(slashes(&name), path);
                }
            }
        }
    }

    /// Path of a file as messages have it.
    pub(crate) fn shown(&self, path: &Path) -> String {
        format!("kernels/{}", slashes(path.strip_prefix(&self.root).unwrap_or(path)))
    }

    pub(crate) fn module(&self, name: &str) -> Option<Result<Module, String>> {
        let path = self.modules.get(name)?;
        Some(self.text(path).and_then(|text| Module::new(name, &self.shown(path), &text)))
    }

    pub(crate) fn text(&self, path: &Path) -> Result<String, String> {
        fs::read_to_string(path).map_err(|e| format!("{}: {e}", self.shown(path)))
    }

    /// Links a variant; a name that a text takes from a module it does not import is an error.
    pub(crate) fn link(&self, path: &Path) -> Result<Linked, String> {
        let name = slashes(path.strip_prefix(self.root.join("ops")).unwrap_or(path));
        let name = name.trim_end_matches(".wgsl");
        let linked =
            link::link(name, &self.shown(path), &self.text(path)?, &|name| self.module(name))?;
        for module in &linked.modules {
            stated(module, &linked)?;
        }
        Ok(linked)
    }

    /// Every text by itself.
    pub(crate) fn all(&self) -> Result<Vec<(Module, bool)>, String> {
        let mut all = Vec::new();
        for name in self.modules.keys() {
            all.extend(self.module(name).transpose()?.map(|m| (m, true)));
        }
        for v in &self.variants {
            let name = format!("{}/{}", v.operation, v.variant);
            all.push((Module::new(&name, &self.shown(&v.path), &self.text(&v.path)?)?, false));
        }
        Ok(all)
    }
}

/// What a text uses it defines, imports or requires, and it uses what it imports.
fn stated(module: &Module, linked: &Linked) -> Result<(), String> {
    let imports: Vec<_> = module.imports().collect();
    let wanted: HashSet<&str> = linked
        .modules
        .iter()
        .flat_map(|m| m.requirements.iter().map(|r| r.name.as_str()))
        .collect();
    for (name, line) in &module.free {
        let definer = linked.modules.iter().find(|m| m.definition(name).is_some());
        let Some(definer) = definer else { continue };
        let is_stated = module.requirements.iter().any(|r| r.name == *name)
            || imports.iter().any(|(import, _)| *import == definer.name);
        if !is_stated {
            return Err(format!(
                "{}:{line}: uses `{name}` of {} and neither imports nor requires it",
                module.path, definer.name
            ));
        }
    }
    for (import, line) in imports {
        let Some(other) = linked.modules.iter().find(|m| m.name == import) else { continue };
        let serves =
            |name: &str| module.free.iter().any(|(free, _)| free == name) || wanted.contains(name);
        if !other.definitions.iter().any(|d| serves(&d.name) || d.is_entry) {
            return Err(format!("{}:{line}: imports {import} and uses nothing of it", module.path));
        }
    }
    for wanted in &module.requirements {
        let is_used = module.free.iter().any(|(name, _)| *name == wanted.name)
            || module.requirements.iter().any(|r| r.mentions(&wanted.name));
        if !is_used {
            return Err(format!(
                "{}:{}: requires `{}` and does not use it",
                module.path, wanted.line, wanted.name
            ));
        }
    }
    Ok(())
}

/// One name has one meaning: what a module defines nothing else defines, unless a module requires
/// it and all definitions agree. Overrides are the host's names; entry points and the buffers of
/// variants are met by no module but by requirement.
pub(crate) fn meanings(all: &[(Module, bool)]) -> Vec<String> {
    let required: HashSet<&str> =
        all.iter().flat_map(|(m, _)| m.requirements.iter().map(|r| r.name.as_str())).collect();
    let mut places: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for (module, is_module) in all {
        for d in module.definitions.iter().filter(|d| !d.is_entry) {
            places.entry(&d.name).or_default().push((module, *is_module, d));
        }
    }
    let mut errors = Vec::new();
    for (name, places) in places {
        let Some(first) = places.iter().find(|(_, is_module, _)| *is_module) else { continue };
        for other in &places {
            if std::ptr::eq(other.2, first.2) {
                continue;
            }
            let overrides = first.2.kind == "override" && other.2.kind == "override";
            let shared = overrides || required.contains(name);
            if shared && other.2.agrees(first.2) {
                continue;
            }
            let why = if shared { "with another signature" } else { "which no module requires" };
            errors.push(format!(
                "{}:{}: `{}` has another meaning in {}:{}: `{}`; a name that two files define, \
                 {why}, needs another name in one of them",
                other.0.path,
                other.2.line,
                other.2.shown(),
                first.0.path,
                first.2.line,
                first.2.shown(),
            ));
        }
    }
    errors
}

/// Parses and validates; the error begins with `file:line` and holds naga's annotated source.
pub(crate) fn validate(shown: &str, linked: &Linked) -> Result<(), String> {
    let text = &linked.text;
    let module = naga::front::wgsl::parse_str(text).map_err(|e| {
        let line = e.location(text).map(|l| l.line_number as usize);
        format!("{}\n{}", place(shown, line, linked), e.emit_to_string_with_path(text, shown))
    })?;
    naga::valid::Validator::new(
        naga::valid::ValidationFlags::all(),
        naga::valid::Capabilities::all(),
    )
    .validate(&module)
    .map(|_| ())
    .map_err(|e| {
        let line = e.location(text).map(|l| l.line_number as usize);
        format!("{}\n{}", place(shown, line, linked), e.emit_to_string_with_path(text, shown))
    })
}

/// `file:line` of an error, in the module's own numbering when it lies in one.
fn place(file: &str, line: Option<usize>, linked: &Linked) -> String {
    let Some(line) = line else { return file.to_owned() };
    match linked.parts.iter().rev().find(|(_, _, first)| line >= *first) {
        Some((_, path, first)) => format!("{path}:{} (linked into {file})", line - first + 1),
        None => format!("{file}:{line}"),
    }
}

/// What a folder holds, in order; nothing where there is no folder.
fn sorted(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut entries: Vec<_> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
    entries.sort();
    entries
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn slashes(path: &Path) -> String {
    path.to_string_lossy().replace('\\', "/")
}
