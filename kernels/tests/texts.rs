//! A move of WGSL between files, or a new name, must not change what a device compiles: every
//! variant's text stays equal to a recorded one but for names and comments.
//!
//! `LATHE_BLESS=1 cargo test --release --locked -p lathe-kernels --test texts` records what there
//! is now.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "the linker uses the rest")]
#[path = "../src/tokens.rs"]
mod tokens;

#[allow(dead_code, unreachable_pub, reason = "only the constants are of use here")]
#[path = "../src/codes.rs"]
mod codes;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

use lathe_kernels::Kernel;
use tokens::{Declaration, Token, declarations};

/// FNV-1a, as of a plan's fingerprint.
fn fnv(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

fn hash(source: &lathe_kernels::Source) -> String {
    let kernel = lathe_kernels::kernel(source.kernel).unwrap();
    format!("{:016x}", fnv(canonical(source.text, kernel).bytes()))
}

/// What the device compiles of a text, the same for all texts that differ only in comments, in the
/// order of declarations, in unused ones, in names of its own, and in whether a code or a type has
/// a name.
/// Names of bindings, overrides and entry points stay: the host knows them. An override has the
/// name it had first.
fn canonical(text: &str, kernel: &Kernel) -> String {
    let tokens = tokens::tokens(text);
    let all = declarations(&tokens);
    let codes: HashMap<String, String> = codes::code_constants()
        .into_iter()
        .map(|(name, code)| (name, format!("{code}u")))
        .collect();
    let is_code = |d: &Declaration<'_>| {
        let value = tokens[d.tokens.clone()].iter().rev().nth(1).map(|t| t.text);
        d.kind == "const" && codes.get(d.name).map(String::as_str) == value
    };
    let mut canon = Canon {
        tokens: &tokens,
        known: all
            .iter()
            .filter(|d| !is_code(d) && d.kind != "alias")
            .map(|d| (d.name, d))
            .collect(),
        aliases: all
            .iter()
            .filter(|d| d.kind == "alias")
            .map(|d| (d.name, d.tokens.start + 3..d.tokens.end - 1))
            .collect(),
        codes: all.iter().filter(|d| is_code(d)).map(|d| (d.name, codes[d.name].clone())).collect(),
        members: members(&tokens, &all),
        names: HashMap::new(),
        member_names: HashMap::new(),
        done: HashSet::new(),
        out: String::new(),
        kernel,
    };
    let mut roots: Vec<&Declaration<'_>> =
        all.iter().filter(|d| d.is_entry || d.is_binding || d.kind == "override").collect();
    roots.sort_by_key(|d| (!d.is_entry, !d.is_binding, canon.host_name(d)));
    let directives = all.iter().filter(|d| d.name.is_empty());
    for d in directives.chain(roots) {
        canon.visit(d);
    }
    canon.out
}

/// Names of all struct members.
fn members<'a>(tokens: &[Token<'a>], all: &[Declaration<'a>]) -> HashSet<&'a str> {
    let structs = all.iter().filter(|d| d.kind == "struct");
    structs
        .flat_map(|d| tokens[d.tokens.clone()].windows(2))
        .filter(|pair| pair[1].text == ":")
        .map(|pair| pair[0].text)
        .collect()
}

struct Canon<'t, 'a> {
    tokens: &'t [Token<'a>],
    known: HashMap<&'a str, &'t Declaration<'a>>,
    /// Where what an alias stands for is.
    aliases: HashMap<&'a str, std::ops::Range<usize>>,
    codes: HashMap<&'a str, String>,
    members: HashSet<&'a str>,
    names: HashMap<&'a str, String>,
    member_names: HashMap<&'a str, String>,
    done: HashSet<usize>,
    out: String,
    kernel: &'t Kernel,
}

impl<'a> Canon<'_, 'a> {
    /// How the host knows a declaration.
    fn host_name(&self, d: &Declaration<'a>) -> &'a str {
        if d.kind == "override" { self.kernel.first_name(d.name) } else { d.name }
    }

    fn without_aliases(&self, range: std::ops::Range<usize>) -> Vec<Token<'a>> {
        let mut tokens = Vec::new();
        for token in &self.tokens[range] {
            match self.aliases.get(token.text) {
                Some(range) => tokens.extend(self.without_aliases(range.clone())),
                None => tokens.push(*token),
            }
        }
        tokens
    }

    /// Writes a declaration, then those it names, in the order in which it names them.
    fn visit(&mut self, d: &Declaration<'a>) {
        if !self.done.insert(d.tokens.start) {
            return;
        }
        let mut locals: HashMap<&'a str, String> = HashMap::new();
        let mut named = Vec::new();
        let tokens = self.without_aliases(d.tokens.clone());
        let text = |i: usize| tokens.get(i).map_or("", |t| t.text);
        let mut line = String::new();
        let mut in_body = false;
        for (i, token) in tokens.iter().enumerate() {
            let (word, before) = (token.text, if i > 0 { text(i - 1) } else { "" });
            // A comma before a closing bracket says nothing.
            if word == "," && matches!(text(i + 1), ")" | "}" | ">") {
                continue;
            }
            in_body |= word == "{";
            let declares = (!in_body && text(i + 1) == ":")
                || (matches!(before, "let" | "var" | "const") && d.kind == "fn");
            let shown = if !token.is_word() || before == "@" {
                word.to_owned()
            } else if before == "." || (d.kind == "struct" && text(i + 1) == ":") {
                if self.members.contains(word) {
                    let fresh = format!("m{}", self.member_names.len());
                    self.member_names.entry(word).or_insert(fresh).clone()
                } else {
                    word.to_owned()
                }
            } else if d.kind == "fn" && word != d.name && declares {
                let fresh = format!("l{}", locals.len());
                locals.entry(word).or_insert(fresh).clone()
            } else if let Some(local) = locals.get(word) {
                local.clone()
            } else if let Some(code) = self.codes.get(word) {
                code.clone()
            } else if let Some(other) = self.known.get(word).copied() {
                named.push(other);
                if other.is_entry || other.is_binding || other.kind == "override" {
                    self.host_name(other).to_owned()
                } else {
                    let fresh = format!("g{}", self.names.len());
                    self.names.entry(word).or_insert(fresh).clone()
                }
            } else {
                word.to_owned()
            };
            let _ = write!(line, "{shown} ");
        }
        self.out.push_str(&line);
        self.out.push('\n');
        for other in named {
            self.visit(other);
        }
    }
}

/// Name and hash of every text.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/texts.tsv");

/// Texts as they were before their files moved: name, hash, state of a plan's fingerprint.
const BEFORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/text_before.tsv");

#[test]
fn a_text_of_before_is_known_only_where_it_is_equal() {
    let mut equal = 0;
    for line in std::fs::read_to_string(BEFORE).unwrap().lines() {
        let fields: Vec<_> = line.split('\t').collect();
        let (kernel, variant) = fields[0].split_once('/').unwrap();
        let source = lathe_kernels::source(kernel, variant).unwrap();
        assert_eq!(hash(source), fields[1], "{}: its line must go", fields[0]);
        let state = lathe_kernels::text_state_before(kernel, variant);
        assert_eq!(state, u64::from_str_radix(fields[2], 16).ok(), "{}", fields[0]);
        equal += 1;
    }
    assert!(equal > 0);
    assert_eq!(lathe_kernels::text_state_before("gemv", "nowhere"), None);
}

#[test]
fn every_text_is_as_recorded_but_for_names() {
    let now: BTreeMap<String, String> = lathe_kernels::sources()
        .iter()
        .map(|s| (format!("{}/{}", s.kernel, s.variant), hash(s)))
        .collect();
    if std::env::var_os("LATHE_BLESS").is_some() {
        let lines = now.iter().map(|(name, hash)| format!("{name}\t{hash}\n"));
        std::fs::write(RECORDED, lines.collect::<String>()).unwrap();
        let before = std::fs::read_to_string(BEFORE).unwrap();
        let equal = before.lines().filter(|line| {
            let mut fields = line.split('\t');
            fields.next().and_then(|name| now.get(name)).map(String::as_str) == fields.next()
        });
        std::fs::write(BEFORE, equal.map(|l| format!("{l}\n")).collect::<String>()).unwrap();
        return;
    }
    let recorded = std::fs::read_to_string(RECORDED).unwrap();
    let recorded: BTreeMap<String, String> = recorded
        .lines()
        .filter_map(|l| l.split_once('\t'))
        .map(|(name, hash)| (name.to_owned(), hash.to_owned()))
        .collect();
    let names: std::collections::BTreeSet<_> = now.keys().chain(recorded.keys()).collect();
    let changed: Vec<_> = names.into_iter().filter(|n| now.get(*n) != recorded.get(*n)).collect();
    assert!(changed.is_empty(), "the text changed; if it should, LATHE_BLESS=1: {changed:#?}");
}

const TEXT: &str = "
    @group(0) @binding(0) var<storage, read_write> y: array<f32>;
    override K: u32 = 4u;
    struct Pair { low: f32, high: f32 }
    fn sum(p: Pair) -> f32 { let low = p.low; return low + p.high; }
    @compute @workgroup_size(1) fn main() { if (K == 8u) { y[0] = sum(Pair(1.0, 2.0)); } }";

#[test]
fn names_order_comments_and_named_codes_do_not_matter() {
    let other = "
    // The sum of a pair.
    const Q4_K: u32 = 8u;
    @compute @workgroup_size(1) fn main() { if (K == Q4_K) { y[0] = add(Two(1.0, 2.0,)); } }
    fn unused() -> u32 { return 1u; }
    fn add(two: Two) -> f32 { let first = two.a; return first + two.b; }
    alias Number = f32;
    struct Two { a: Number, b: f32, }
    override K: u32 = 4u;
    @group(0) @binding(0) var<storage, read_write> y: array<f32>;";
    assert_eq!(canonical(TEXT, gemv()), canonical(other, gemv()));
    let renamed = TEXT.replace("K:", "N_VECTORS:").replace("K ==", "N_VECTORS ==");
    let first = TEXT.replace("K:", "COLS:").replace("K ==", "COLS ==");
    assert_eq!(canonical(&renamed, gemv()), canonical(&first, gemv()));
}

fn gemv() -> &'static Kernel {
    lathe_kernels::kernel("gemv").unwrap()
}

#[test]
fn everything_else_matters() {
    for (from, to) in [
        ("K == 8u", "K == 9u"),
        ("override K", "override N"),
        ("= 4u", "= 5u"),
        ("y[0]", "y[1]"),
        ("low + p.high", "low + p.low"),
        ("binding(0)", "binding(1)"),
        ("fn main", "fn other"),
        ("Pair(1.0, 2.0)", "Pair(2.0, 1.0)"),
        ("low: f32, high: f32", "high: f32, low: f32"),
    ] {
        assert!(TEXT.contains(from), "{from}");
        let other = TEXT.replace(from, to);
        let other = if from == "override K" { other.replace("K ==", "N ==") } else { other };
        assert_ne!(canonical(TEXT, gemv()), canonical(&other, gemv()), "{from}");
    }
}
