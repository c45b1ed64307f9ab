//! Linking and validating WGSL; shared by the build script and its test.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use naga::valid::{Capabilities, ValidationFlags, Validator};

#[path = "../src/codes.rs"]
#[allow(dead_code, unreachable_pub, reason = "only the constants are of use here")]
mod codes;
#[path = "../src/link.rs"]
mod link;
#[path = "../src/tokens.rs"]
#[allow(dead_code, reason = "a test of texts uses the rest")]
mod tokens;
#[path = "../src/uniformity/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library uses the rest")]
mod uniformity;

pub(crate) use link::{Linked, Module};
use tokens::{Declaration, Token};

/// A file `<operation>/<variant>.wgsl`, or a comment in `<operation>/mod.rs`.
pub(crate) struct VariantText {
    pub(crate) operation: String,
    pub(crate) variant: String,
    pub(crate) path: PathBuf,
    /// The comment: the variant's header and its imports.
    composed: Option<String>,
}

/// All WGSL of a crate: operations are folders below `ops/` that hold `naive.wgsl`; their files are
/// variants. So are the comments above a variant's declaration that begin with its name and have
/// an import: `// gemv/vec2: …`, for variants that are made of modules alone. Every other file is
/// a module, which imports name by its path below `ops/` or `wgsl/`.
pub(crate) struct Tree {
    pub(crate) variants: Vec<VariantText>,
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
        let declaration = folder.join("mod.rs");
        if declaration.is_file() {
            self.declarations.push((folder.to_owned(), is_operation));
        }
        if is_operation {
            let operation = stem(folder);
            let text = fs::read_to_string(&declaration).unwrap_or_default();
            for (variant, text) in composed(&operation, &text) {
                let (operation, path) = (operation.clone(), declaration.clone());
                self.variants.push(VariantText { operation, variant, path, composed: Some(text) });
            }
        }
        for path in sorted(folder) {
            if path.is_dir() {
                self.walk(base, &path);
            } else if path.extension().is_some_and(|e| e == "wgsl") {
                if is_operation {
                    let (operation, variant) = (stem(folder), stem(&path));
                    self.variants.push(VariantText { operation, variant, path, composed: None });
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
    /// Parameters and buffers that the operation's `naive.wgsl` declares need no declaration.
    pub(crate) fn link(&self, v: &VariantText) -> Result<Linked, String> {
        let name = format!("{}/{}", v.operation, v.variant);
        let (mut shown, is_naive) = (self.shown(&v.path), v.variant == "naive");
        let naive = if is_naive { String::new() } else { self.naive(&v.path)? };
        let (mut text, mut entry) = (String::new(), None);
        match &v.composed {
            None => text.push_str(&self.text(&v.path)?),
            Some(header) => {
                shown += &format!(" ({})", v.variant);
                text = with_formula(&self.with_full_names(header, &v.path), &naive);
                entry = self.entry(&text)?;
            }
        }
        let find = |module: &str| match &entry {
            Some(entry) => self.renamed(module, entry),
            None => self.module(module),
        };
        if !is_naive {
            let modules = link::gather(&name, &shown, &text, &find)?;
            text.push_str(&declared(&modules, &naive));
        }
        let linked = link::link(&name, &shown, &text, &find)?;
        for (i, module) in linked.modules.iter().enumerate() {
            stated(module, &linked, i == 0 && v.composed.is_some())?;
        }
        Ok(linked)
    }

    /// A header whose imports name modules from the top. Imports of the operation's own family are
    /// relative to the family's folder.
    fn with_full_names(&self, header: &str, declaration: &Path) -> String {
        let family = declaration.parent().and_then(Path::parent).map(stem).unwrap_or_default();
        let full = |name: &str| match format!("{family}/{}", name.trim()) {
            own if self.modules.contains_key(&own) => own,
            _ => name.trim().to_owned(),
        };
        let lines = header.lines().map(|line| match line.strip_prefix("// import:") {
            Some(names) => {
                let names: Vec<_> = names.split(',').map(full).collect();
                format!("// import: {}\n", names.join(", "))
            }
            None => format!("{line}\n"),
        });
        lines.collect()
    }

    /// The name that an imported epilogue with stages of its own gives to the entry point `main` of
    /// schedules: `// entry: NAME`.
    fn entry(&self, text: &str) -> Result<Option<String>, String> {
        let imports = text.lines().filter_map(|line| line.strip_prefix("// import: "));
        for path in imports.flat_map(|names| names.split(", ")).filter_map(|n| self.modules.get(n))
        {
            let module = self.text(path)?;
            if let Some(entry) = module.lines().find_map(|line| line.strip_prefix("// entry: ")) {
                return Ok(Some(entry.to_owned()));
            }
        }
        Ok(None)
    }

    /// A module with another name for its entry point.
    fn renamed(&self, name: &str, entry: &str) -> Option<Result<Module, String>> {
        let path = self.modules.get(name)?;
        let text =
            self.text(path).map(|text| text.replace("\nfn main(", &format!("\nfn {entry}(")));
        Some(text.and_then(|text| Module::new(name, &self.shown(path), &text)))
    }

    /// The linked text of the operation's `naive.wgsl`, which declares its buffers and parameters.
    fn naive(&self, variant: &Path) -> Result<String, String> {
        let path = variant.with_file_name("naive.wgsl");
        if !path.is_file() {
            return Ok(String::new());
        }
        let text = self.text(&path)?;
        let find = |module: &str| self.module(module);
        link::link("naive", &self.shown(&path), &text, &find).map(|linked| linked.text)
    }

    /// Every text by itself.
    pub(crate) fn all(&self) -> Result<Vec<(Module, bool)>, String> {
        let mut all = Vec::new();
        for name in self.modules.keys() {
            all.extend(self.module(name).transpose()?.map(|m| (m, true)));
        }
        for v in self.variants.iter().filter(|v| v.composed.is_none()) {
            let name = format!("{}/{}", v.operation, v.variant);
            all.push((Module::new(&name, &self.shown(&v.path), &self.text(&v.path)?)?, false));
        }
        Ok(all)
    }
}

/// Name and text of each variant that a declaration has in a comment.
fn composed(operation: &str, declaration: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut lines = declaration.lines().map(str::trim).peekable();
    let title = format!("// {operation}/");
    while let Some(line) = lines.next() {
        let Some((variant, _)) = line.strip_prefix(&title).and_then(|l| l.split_once(": ")) else {
            continue;
        };
        // In WGSL the first sentence is one line.
        let mut text = line.to_owned();
        while let Some(line) = lines.next_if(|line| line.starts_with("// ")) {
            text.push_str(&line[2..]);
        }
        text.push('\n');
        while let Some(line) = lines.next_if(|line| line.starts_with("//")) {
            text.push_str(line);
            text.push('\n');
        }
        if text.contains("\n// import: ") {
            found.push((variant.to_owned(), text));
        }
    }
    found
}

/// A header with the formula of the naive variant's, if it has none of its own.
fn with_formula(header: &str, naive: &str) -> String {
    let formula = naive.lines().take_while(|line| line.starts_with("//"));
    let formula: String =
        formula.filter(|line| line.starts_with("//   ")).map(|line| format!("{line}\n")).collect();
    match header.split_once('\n') {
        Some((title, rest)) if !header.contains("\n//   ") => {
            format!("{title}\n//\n{formula}{rest}")
        }
        _ => header.to_owned(),
    }
}

/// Declarations of parameters and buffers that a text uses or its modules require and none defines,
/// as the naive variant has them. A buffer that it lacks is memory of the schedule's own.
fn declared(modules: &[Module], naive: &str) -> String {
    let tokens = tokens::tokens(naive);
    let naive = tokens::declarations(&tokens);
    let is_defined = |name: &str| modules.iter().any(|m| m.definition(name).is_some());
    // With a value of its own in naive an override is no parameter.
    let parameter = |name: &str| {
        let mut all = naive.iter().filter(|d| d.kind == "override");
        all.find(|d| d.name == name && !words(&tokens, d).any(|t| t == "="))
    };
    let buffer = |name: &str| naive.iter().find(|d| d.is_binding && d.name == name);
    let required = modules.iter().flat_map(|m| &m.requirements);
    let required = required.map(|r| (r.name.as_str(), r.kind.as_str(), r.signature.as_str()));
    let used = modules[0].free.iter().filter_map(|(name, _)| parameter(name).or(buffer(name)));
    let used = used.map(|d| (d.name, d.kind, d.signature.as_str()));
    let all: BTreeMap<_, _> = used.chain(required).map(|(name, k, s)| (name, (k, s))).collect();
    let mut text = String::new();
    let mut buffers = Vec::new();
    for (name, (kind, signature)) in all.into_iter().filter(|(name, _)| !is_defined(name)) {
        if kind == "var" {
            let (number, access) = match buffer(name) {
                Some(d) => (binding(&tokens, d), access(&tokens, d)),
                None => (None, "read_write"),
            };
            buffers.push((number, access, name, signature));
        } else if kind == "override" && parameter(name).is_some() {
            text.push_str(&format!("override {name}{signature};\n"));
        }
    }
    buffers.sort_by_key(|(number, ..)| number.unwrap_or(u32::MAX));
    let mut numbers = naive.iter().filter_map(|d| binding(&tokens, d)).max().map_or(0, |n| n + 1)..;
    for (number, access, name, of) in buffers {
        let number = number.or_else(|| numbers.next()).unwrap_or_default();
        text.push_str(&format!(
            "@group(0) @binding({number}) var<storage, {access}> {name}{of};\n"
        ));
    }
    text
}

fn words<'a>(tokens: &'a [Token<'a>], d: &Declaration<'_>) -> impl Iterator<Item = &'a str> {
    tokens[d.tokens.clone()].iter().map(|t| t.text)
}

/// `@binding` of a buffer.
fn binding(tokens: &[Token<'_>], d: &Declaration<'_>) -> Option<u32> {
    words(tokens, d).skip_while(|t| *t != "binding").nth(2)?.parse().ok()
}

fn access(tokens: &[Token<'_>], d: &Declaration<'_>) -> &'static str {
    if words(tokens, d).any(|t| t == "read_write") { "read_write" } else { "read" }
}

/// Checks that a text defines, imports or requires all it uses, and uses all it imports. A composed
/// variant, which only imports, names what its modules use.
fn stated(module: &Module, linked: &Linked, is_composed: bool) -> Result<(), String> {
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
    for (i, (import, line)) in imports.iter().enumerate() {
        if imports[..i].iter().any(|(earlier, _)| earlier == import) {
            return Err(format!("{}:{line}: imports {import} twice", module.path));
        }
        let Some(other) = linked.modules.iter().find(|m| m.name == *import) else { continue };
        let serves =
            |name: &str| module.free.iter().any(|(free, _)| free == name) || wanted.contains(name);
        let by_another = |m: &Module| m.imports().any(|(name, _)| name == *import);
        let is_used = other.definitions.iter().any(|d| serves(&d.name) || d.is_entry)
            || (is_composed && linked.modules[1..].iter().any(by_another));
        if !is_used {
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
    let fault = |at: Option<naga::SourceLocation>, source: String| {
        let line = at.map(|at| at.line_number as usize);
        format!("{}\n{source}", place(shown, line, linked))
    };
    let module = naga::front::wgsl::parse_str(text)
        .map_err(|e| fault(e.location(text), e.emit_to_string_with_path(text, shown)))?;
    Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|e| fault(e.location(text), e.emit_to_string_with_path(text, shown)))?;
    // No browser reads cooperative matrices.
    let is_matrix = |ty: &naga::Type| matches!(ty.inner, naga::TypeInner::CooperativeMatrix { .. });
    if module.types.iter().any(|(_, ty)| is_matrix(ty)) {
        return Ok(());
    }
    match uniformity::violations(&module).first() {
        None => Ok(()),
        Some(violation) => {
            let at = |span: naga::Span| span.is_defined().then(|| span.location(text));
            let chain = violation.because.iter().map(|(span, why)| {
                let line = at(*span).map(|at| place(shown, Some(at.line_number as usize), linked));
                format!("\n  {}{why}", line.map(|line| line + ": ").unwrap_or_default())
            });
            let why = format!("{}{}", violation.what, chain.collect::<String>());
            Err(fault(at(violation.at), why))
        }
    }
}

/// `file:line` of an error, in the module's own numbering when it lies in one.
fn place(file: &str, line: Option<usize>, linked: &Linked) -> String {
    let Some(line) = line else { return file.to_owned() };
    match linked.parts.iter().rev().find(|(_, first)| line >= *first) {
        Some((path, first)) => format!("{path}:{} (linked into {file})", line - first + 1),
        None => format!("{file}:{line}"),
    }
}

/// Entries of a folder, sorted; empty if there is no folder.
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
