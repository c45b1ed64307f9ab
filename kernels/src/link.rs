//! Linking of WGSL: comments of a text name the modules it uses and its requirements.
//!
//! ```text
//! // import: grid, reduce/tree
//! // requires: fn x_four(col: u32, i: u32) -> vec4<f32>
//! // requires: override ROWS, K: u32
//! // requires: var y: array<u32>
//! // requires: type Partial
//! ```
//!
//! Imports are transitive, and their order says nothing. A requirement is met by exactly one
//! definition with its signature, in whatever text: the one that imports the module, or another
//! module. A constant may stand for an override, and a type may be any. Names of codes
//! ([`codes::wgsl_constants`](super::codes)) need no import.
//!
//! Used by the build script for built-in variants and at run time for a user's own file.

use std::collections::{HashMap, HashSet};

use super::codes::wgsl_constants;
use super::tokens::{Declaration, Token, declarations, tokens};

const IMPORT: &str = "// import:";
const REQUIRES: &str = "// requires:";

/// A text with its imports, requirements and definitions.
pub(crate) struct Module {
    /// Name in imports; of a text that none imports, its name in messages.
    pub(crate) name: String,
    /// File in messages.
    pub(crate) path: String,
    pub(crate) text: String,
    imports: Vec<(String, usize)>,
    pub(crate) requirements: Vec<Definition>,
    pub(crate) definitions: Vec<Definition>,
    /// Names it uses and does not define, with the line of the first use.
    pub(crate) free: Vec<(String, usize)>,
}

/// A name at a text's top level, or one that it requires.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) signature: String,
    pub(crate) line: usize,
    pub(crate) is_entry: bool,
}

impl Definition {
    fn of(d: &Declaration<'_>) -> Self {
        Self {
            kind: d.kind.to_owned(),
            name: d.name.to_owned(),
            signature: d.signature.clone(),
            line: d.line,
            is_entry: d.is_entry,
        }
    }

    /// Both are a value, a function, a variable or a type, with the same signature where that
    /// matters to a user of the name.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        let class = |kind: &str| match kind {
            "const" | "override" => 0,
            "fn" => 1,
            "var" => 2,
            _ => 3,
        };
        let (a, b) = (class(&self.kind), class(&other.kind));
        a == b && (a == 3 || self.signature == other.signature)
    }

    /// A type is in the signature.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        tokens(&self.signature).iter().any(|t| t.text == name)
    }

    pub(crate) fn shown(&self) -> String {
        match self.kind.as_str() {
            "struct" | "alias" | "type" => format!("type {}", self.name),
            kind => format!("{kind} {}{}", self.name, self.signature),
        }
    }
}

/// A linked text.
pub(crate) struct Linked {
    pub(crate) text: String,
    /// File and first line of every module in the text.
    pub(crate) parts: Vec<(String, usize)>,
    /// The text itself, then the modules.
    pub(crate) modules: Vec<Module>,
}

impl Module {
    pub(crate) fn new(name: &str, path: &str, text: &str) -> Result<Self, String> {
        let (mut imports, mut requirements) = (Vec::new(), Vec::new());
        for (i, line) in text.lines().enumerate() {
            let line_number = i + 1;
            if let Some(names) = line.strip_prefix(IMPORT) {
                imports.extend(names.split(',').map(|n| (n.trim().to_owned(), line_number)));
            } else if let Some(wanted) = line.strip_prefix(REQUIRES) {
                requirements.extend(required(wanted, path, line_number)?);
            }
        }
        let tokens = tokens(text);
        let found = declarations(&tokens);
        let definitions = found.iter().filter(|d| !d.name.is_empty()).map(Definition::of).collect();
        let free = free(&tokens, &found);
        Ok(Self {
            name: name.to_owned(),
            path: path.to_owned(),
            text: text.to_owned(),
            imports,
            requirements,
            definitions,
            free,
        })
    }

    pub(crate) fn imports(&self) -> impl Iterator<Item = (&str, usize)> {
        self.imports.iter().map(|(name, line)| (name.as_str(), *line))
    }

    pub(crate) fn definition(&self, name: &str) -> Option<&Definition> {
        self.definitions.iter().find(|d| d.name == name)
    }
}

/// Reads a line of requirements: a function, or names of one kind and type.
fn required(wanted: &str, path: &str, line: usize) -> Result<Vec<Definition>, String> {
    let wanted = wanted.trim();
    let (kind, rest) = wanted.split_once(' ').unwrap_or((wanted, ""));
    let (names, of) = rest.split_at(rest.find(':').unwrap_or(rest.len()));
    // A body and a semicolon make declarations of it.
    let text: String = match kind {
        "fn" => format!("{wanted} {{}}"),
        "type" => names.split(',').map(|name| format!("alias {name} = any;")).collect(),
        _ => names.split(',').map(|name| format!("{kind} {name}{of};")).collect(),
    };
    let tokens = tokens(&text);
    let found = declarations(&tokens);
    match found.iter().all(|one| !one.name.is_empty()) && !found.is_empty() {
        true => Ok(found.iter().map(|one| Definition { line, ..Definition::of(one) }).collect()),
        false => {
            Err(format!("{path}:{line}: `{REQUIRES} {wanted}`: not understood; write as {FORMS}"))
        }
    }
}

const FORMS: &str = "`fn f(a: u32) -> f32`, `override M, N: u32`, `const C: f32`, `var v: array<u32>` \
                     or `type T`";

/// Names that a text uses and does not define, except members, attributes and local declarations.
fn free(tokens: &[Token<'_>], declarations: &[Declaration<'_>]) -> Vec<(String, usize)> {
    let own: HashSet<&str> = declarations.iter().map(|d| d.name).collect();
    let mut found: Vec<(String, usize)> = Vec::new();
    let mut seen = HashSet::new();
    for d in declarations {
        // Parameters, then one set a block.
        let mut scopes = vec![HashSet::new()];
        let tokens = &tokens[d.tokens.clone()];
        for (i, token) in tokens.iter().enumerate() {
            let before = if i > 0 { tokens[i - 1].text } else { "" };
            let after = tokens.get(i + 1).map_or("", |t| t.text);
            match token.text {
                "{" => scopes.push(HashSet::new()),
                "}" if scopes.len() > 1 => {
                    scopes.pop();
                }
                _ => {}
            }
            if !token.is_word() || matches!(before, "@" | ".") {
                continue;
            }
            if d.kind == "struct" && after == ":" {
                continue;
            }
            if d.kind == "fn" {
                // Of a `case` a colon declares nothing.
                let is_parameter = scopes.len() == 1 && after == ":";
                if is_parameter || matches!(before, "let" | "var" | "const") {
                    if let Some(scope) = scopes.last_mut() {
                        scope.insert(token.text);
                    }
                    continue;
                }
                if scopes.iter().any(|s| s.contains(token.text)) {
                    continue;
                }
            }
            if !own.contains(token.text) && seen.insert(token.text) {
                found.push((token.text.to_owned(), token.line));
            }
        }
    }
    found
}

/// Links a text with its imports. The text comes first, so that its line numbers stay; its imports
/// become `// with:`, so that linking again adds nothing. `find` gives a module.
pub(crate) fn link(
    name: &str,
    path: &str,
    text: &str,
    find: &dyn Fn(&str) -> Option<Result<Module, String>>,
) -> Result<Linked, String> {
    let modules = gather(name, path, text, find)?;
    let defined = definitions(&modules)?;
    for module in &modules {
        for wanted in &module.requirements {
            meet(wanted, module, name, &defined, &modules)?;
        }
    }
    Ok(joined(modules, &defined))
}

/// A text, then its imports, each module after those that it imports itself.
pub(crate) fn gather(
    name: &str,
    path: &str,
    text: &str,
    find: &dyn Fn(&str) -> Option<Result<Module, String>>,
) -> Result<Vec<Module>, String> {
    let mut modules = vec![Module::new(name, path, text)?];
    let imports = modules[0].imports.clone();
    let mut trail = vec![name.to_owned()];
    for (import, line) in imports {
        add(&import, (path, line), &mut modules, &mut trail, find)?;
    }
    // naga 30 wants the types of constants before arrays that overrides size, so that no order of
    // imports may bring them the other way round.
    let holds_arrays = |m: &Module| m.definitions.iter().any(|d| d.kind == "var");
    modules[1..].sort_by_key(holds_arrays);
    Ok(modules)
}

/// Adds a module after those that it imports.
fn add(
    name: &str,
    from: (&str, usize),
    modules: &mut Vec<Module>,
    trail: &mut Vec<String>,
    find: &dyn Fn(&str) -> Option<Result<Module, String>>,
) -> Result<(), String> {
    let (path, line) = from;
    if trail.iter().skip(1).any(|n| n == name) {
        let from = trail.iter().position(|n| n == name).unwrap_or_default();
        let circle = trail[from..].join(" -> ");
        return Err(format!("{path}:{line}: modules import each other: {circle} -> {name}"));
    }
    if modules.iter().skip(1).any(|m| m.name == name) {
        return Ok(());
    }
    let module = find(name)
        .ok_or_else(|| format!("{path}:{line}: `{IMPORT} {name}`: there is no such module"))??;
    let (path, imports) = (module.path.clone(), module.imports.clone());
    trail.push(name.to_owned());
    for (import, line) in imports {
        add(&import, (&path, line), modules, trail, find)?;
    }
    trail.pop();
    modules.push(module);
    Ok(())
}

/// Maps each name to the text that defines it; a name that two texts define is an error.
fn definitions(modules: &[Module]) -> Result<HashMap<String, usize>, String> {
    let mut defined: HashMap<String, usize> = HashMap::new();
    for (i, module) in modules.iter().enumerate() {
        for d in &module.definitions {
            let Some(other) = defined.insert(d.name.clone(), i) else { continue };
            let other = &modules[other];
            let line = other.definition(&d.name).map_or(0, |d| d.line);
            return Err(format!(
                "{}:{}: `{}` is defined here and in {}:{line}, and both are linked into {}",
                module.path, d.line, d.name, other.path, modules[0].name
            ));
        }
    }
    Ok(defined)
}

fn meet(
    wanted: &Definition,
    module: &Module,
    linked: &str,
    defined: &HashMap<String, usize>,
    modules: &[Module],
) -> Result<(), String> {
    let at = format!("{}:{}", module.path, wanted.line);
    let shown = wanted.shown();
    let Some(found) = defined.get(&wanted.name) else {
        return Err(format!(
            "{at}: {} requires `{shown}`, and nothing that is linked into {linked} defines `{}`",
            module.name, wanted.name
        ));
    };
    let other = &modules[*found];
    let Some(found) = other.definition(&wanted.name) else { return Ok(()) };
    if found.agrees(wanted) {
        return Ok(());
    }
    Err(format!(
        "{at}: {} requires `{shown}`, and {linked} links `{}` of {}:{}",
        module.name,
        found.shown(),
        other.path,
        found.line
    ))
}

fn joined(modules: Vec<Module>, defined: &HashMap<String, usize>) -> Linked {
    let mut lines = Vec::new();
    let mut parts = Vec::new();
    for (i, module) in modules.iter().enumerate() {
        if i > 0 {
            lines.push(format!("// {}", module.path));
            parts.push((module.path.clone(), lines.len() + 1));
        }
        lines.extend(module.text.lines().map(|line| match line.strip_prefix(IMPORT) {
            Some(names) => format!("// with:{names}"),
            None => line.to_owned(),
        }));
    }
    let used: HashSet<&str> =
        modules.iter().flat_map(|m| &m.free).map(|(name, _)| name.as_str()).collect();
    for (name, code) in wgsl_constants() {
        if used.contains(name.as_str()) && !defined.contains_key(&name) {
            lines.push(format!("const {name}: u32 = {code}u;"));
        }
    }
    Linked { text: lines.join("\n") + "\n", parts, modules }
}
