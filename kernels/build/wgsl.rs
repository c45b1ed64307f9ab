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
    /// Rust files that may declare parameters.
    rust: Vec<PathBuf>,
    root: PathBuf,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> Self {
        let mut tree = Self {
            variants: Vec::new(),
            modules: BTreeMap::new(),
            declarations: Vec::new(),
            rust: vec![root.join("src/shared.rs")],
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
            } else if path.extension().is_some_and(|e| e == "rs") {
                self.rust.push(path);
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
    pub(crate) fn link(&self, v: &VariantText) -> Result<Linked, String> {
        let name = format!("{}/{}", v.operation, v.variant);
        let Some(header) = &v.composed else {
            let (shown, text) = (self.shown(&v.path), self.text(&v.path)?);
            let linked = link::link(&name, &shown, &text, &|module| self.module(module))?;
            return self.stated(linked, false);
        };
        let shown = format!("{} ({})", self.shown(&v.path), v.variant);
        let mut text = self.with_full_names(header, &v.path);
        let entry = self.entry(&text)?;
        let find = |module: &str| match &entry {
            Some(entry) => self.renamed(module, entry),
            None => self.module(module),
        };
        let modules = link::gather(&name, &shown, &text, &find)?;
        text.push_str(&declared(&modules, &self.naive(&v.path)?));
        self.stated(link::link(&name, &shown, &text, &find)?, true)
    }

    fn stated(&self, linked: Linked, is_composed: bool) -> Result<Linked, String> {
        for (i, module) in linked.modules.iter().enumerate() {
            stated(module, &linked, i == 0 && is_composed)?;
        }
        Ok(linked)
    }

    /// A header whose imports name modules from the top: of those of its own family it names them
    /// from beside the operation's folder.
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

    /// The linked text of the `naive.wgsl` beside a declaration: it says what buffers and parameters the
    /// operation has.
    fn naive(&self, declaration: &Path) -> Result<String, String> {
        let path = declaration.with_file_name("naive.wgsl");
        let text = self.text(&path)?;
        let find = |module: &str| self.module(module);
        link::link("naive", &self.shown(&path), &text, &find).map(|linked| linked.text)
    }

    /// Parameters that declarations call a choice: WGSL has their codes.
    pub(crate) fn choices(&self) -> Result<HashSet<String>, String> {
        let mut found = HashSet::new();
        for path in &self.rust {
            let text = self.text(path)?;
            for call in tokens::tokens(&text).windows(4) {
                if matches!(call[0].text, "choice" | "mostly")
                    && [call[1].text, call[2].text] == ["(", "\""]
                {
                    found.insert(call[3].text.to_owned());
                }
            }
        }
        Ok(found)
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

/// Declarations of what the modules of a composed variant require and none defines: parameters and buffers of
/// the operation, as its naive variant has them. A buffer that it lacks is memory of the schedule's
/// own.
fn declared(modules: &[Module], naive: &str) -> String {
    let tokens = tokens::tokens(naive);
    let naive = tokens::declarations(&tokens);
    let is_defined = |name: &str| modules.iter().any(|m| m.definition(name).is_some());
    let mut wanted: Vec<&link::Definition> =
        modules.iter().flat_map(|m| &m.requirements).filter(|r| !is_defined(&r.name)).collect();
    wanted.sort_by(|a, b| a.name.cmp(&b.name));
    wanted.dedup_by(|a, b| a.name == b.name);
    let mut text = String::new();
    let mut buffers = Vec::new();
    for r in wanted {
        let found = naive.iter().find(|d| d.name == r.name);
        match r.kind.as_str() {
            "var" => {
                let number = found.and_then(|d| binding(&tokens, d));
                let access = found.map_or("read_write", |d| access(&tokens, d));
                buffers.push((number, access, r));
            }
            // With a value of its own in naive it is no parameter.
            "override" if found.is_some_and(|d| !words(&tokens, d).any(|t| t == "=")) => {
                text.push_str(&format!("override {}{};\n", r.name, r.signature));
            }
            _ => {}
        }
    }
    buffers.sort_by_key(|(number, ..)| number.unwrap_or(u32::MAX));
    let mut numbers = naive.iter().filter_map(|d| binding(&tokens, d)).max().map_or(0, |n| n + 1)..;
    for (number, access, r) in buffers {
        let number = number.or_else(|| numbers.next()).unwrap_or_default();
        let (name, of) = (&r.name, &r.signature);
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

/// What a text uses it defines, imports or requires, and it uses what it imports; a composed
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

/// A code has a name, so that only `codes.rs` knows its number: an override that is a code stands
/// beside no number and in no arithmetic.
pub(crate) fn numbered(all: &[(Module, bool)], choices: &HashSet<String>) -> Vec<String> {
    let mut errors = Vec::new();
    for (module, _) in all {
        let tokens = tokens::tokens(&module.text);
        let text = |i: usize| tokens.get(i).map_or("", |t| t.text);
        for (i, token) in tokens.iter().enumerate().filter(|(_, t)| choices.contains(t.text)) {
            let before = reckons(tokens[..i].iter().rev().map(|t| t.text), "=!<>+-*/%&|^");
            let after = reckons(tokens[i + 1..].iter().map(|t| t.text), "=!<>+-*/%&|^,");
            let declares = i > 0 && matches!(text(i - 1), "override" | "const");
            let has_number = declares && text(i + 3) == "=" && is_number(text(i + 4));
            let switches = text(i + 1) == "{" && text(i + 2) == "case" && is_number(text(i + 3));
            if before || after || has_number || switches {
                let line = module.text.lines().nth(token.line - 1).unwrap_or_default();
                errors.push(format!(
                    "{}:{}: `{}` is a code: name what it is compared with (src/codes.rs) and use \
                     it in no arithmetic: `{}`",
                    module.path,
                    token.line,
                    token.text,
                    line.trim()
                ));
            }
        }
    }
    errors
}

/// Whether the operator that a side of a name begins with is arithmetic, or a number follows it.
fn reckons<'a>(mut side: impl Iterator<Item = &'a str>, operators: &str) -> bool {
    let mut operator = String::new();
    let operand = side.find(|t| {
        let is_operator = operators.contains(*t);
        if is_operator {
            operator.push_str(t);
        }
        !is_operator
    });
    match operator.as_str() {
        "" | "&&" | "||" => false,
        shift if shift.contains("<<") || shift.contains(">>") => true,
        comparison if comparison.chars().all(|c| "=!<>,".contains(c)) => {
            operand.is_some_and(is_number)
        }
        _ => true,
    }
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
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
        .map(|_| ())
        .map_err(|e| fault(e.location(text), e.emit_to_string_with_path(text, shown)))
}

/// `file:line` of an error, in the module's own numbering when it lies in one.
fn place(file: &str, line: Option<usize>, linked: &Linked) -> String {
    let Some(line) = line else { return file.to_owned() };
    match linked.parts.iter().rev().find(|(_, first)| line >= *first) {
        Some((path, first)) => format!("{path}:{} (linked into {file})", line - first + 1),
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
