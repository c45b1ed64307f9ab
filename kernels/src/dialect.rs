//! WGSL that some engines take and others do not, found in a text without parsing it: a text that
//! only browsers take does not parse here.
//!
//! Engines are those of September 2026: Tint is Chrome's compiler; naga is wgpu's and Firefox's.

use crate::tokens::{Declaration, Token, declarations, tokens};

/// Something in a text that not all engines take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lint {
    /// Line, from 1.
    pub line: usize,
    /// The engine that refuses or misreads it, or that alone takes it.
    pub engine: &'static str,
    /// The construct, and what the engine does with it.
    pub what: String,
}

/// Directive that turns off the requirement of subgroup uniformity.
const DIAGNOSTIC_OFF: [&str; 6] = ["diagnostic", "(", "off", ",", "subgroup_uniformity", ")"];

/// Names in directives that naga refuses although it has, or ignores, what they enable.
const UNKNOWN_TO_NAGA: [&str; 4] =
    ["subgroups", "subgroup_size_control", "subgroup_id", "subgroup_uniformity"];

/// The text as naga reads it: names of directives that it refuses without need are blanked. Every
/// other byte keeps its place.
pub fn for_naga(text: &str) -> String {
    let tokens = tokens(text);
    let mut blanked = text.as_bytes().to_vec();
    for d in directives(&tokens) {
        let own = &tokens[d.tokens.clone()];
        let names: Vec<_> = own[1..].iter().filter(|token| token.is_word()).collect();
        let is_unknown = |token: &&&Token<'_>| UNKNOWN_TO_NAGA.contains(&token.text);
        let mut blank = |token: &Token<'_>| blanked[token.at..][..token.text.len()].fill(b' ');
        if names.iter().filter(is_unknown).count() == names.len() && !names.is_empty() {
            own.iter().for_each(&mut blank);
            continue;
        }
        for (i, token) in own.iter().enumerate().skip(1) {
            if UNKNOWN_TO_NAGA.contains(&token.text) {
                blank(token);
                // The comma behind, or before the last name.
                let comma = own.get(i + 1).filter(|next| next.text == ",").unwrap_or(&own[i - 1]);
                if comma.text == "," {
                    blank(comma);
                }
            }
        }
    }
    // Only whole tokens were replaced, by as many blanks.
    String::from_utf8(blanked).unwrap_or_else(|_| text.to_owned())
}

/// Returns true if the text turns off the requirement of subgroup uniformity.
pub fn allows_subgroup_divergence(text: &str) -> bool {
    let tokens = tokens(text);
    tokens.windows(DIAGNOSTIC_OFF.len()).any(|w| w.iter().map(|t| t.text).eq(DIAGNOSTIC_OFF))
}

fn directives<'a>(tokens: &[Token<'a>]) -> impl Iterator<Item = Declaration<'a>> {
    let all = declarations(tokens).into_iter();
    all.filter(|d| matches!(d.kind, "enable" | "requires") && !d.tokens.is_empty())
}

/// Returns what not all engines take, in the order of lines.
pub fn lints(text: &str) -> Vec<Lint> {
    let tokens = tokens(text);
    let word = |i: usize| tokens.get(i).map_or("", |token| token.text);
    let is_declared = |name: &str| {
        directives(&tokens).any(|d| tokens[d.tokens.clone()].iter().any(|t| t.text == name))
    };
    let own: Vec<_> = declarations(&tokens);
    let is_own = |name: &str| own.iter().any(|d| d.name == name);
    let parameters: Vec<_> =
        own.iter().filter(|d| d.kind == "fn").map(|d| d.tokens.clone()).collect();
    let is_parameter = |i: usize| {
        let before_body = |range: &std::ops::Range<usize>| {
            range.contains(&i) && !tokens[range.start..i].iter().any(|t| t.text == "{")
        };
        parameters.iter().any(before_body)
    };
    let (has_subgroups, has_ids) = (is_declared("subgroups"), is_declared("subgroup_id"));
    let mut found: Vec<Lint> = Vec::new();
    let mut add = |line: usize, engine: &'static str, what: String| {
        // One is enough of what a directive mends.
        if !what.contains("enable subgroups") || !found.iter().any(|lint| lint.what == what) {
            found.push(Lint { line, engine, what });
        }
    };
    for (i, token) in tokens.iter().enumerate() {
        let (line, before, after) = (token.line, if i > 0 { word(i - 1) } else { "" }, word(i + 1));
        let is_builtin = before == "(" && i > 1 && word(i - 2) == "builtin";
        let is_call = after == "(" && before != "fn" && !is_own(token.text);
        match token.text {
            "bitcast" if after == "<" && is_f16_vector(&tokens[i + 2..]) => {
                let what = "`bitcast` to a vector of f16, which it reads as a scalar; \
                            `unpack2x16float` is the same";
                add(line, "Firefox, wgpu", what.into());
            }
            name @ ("subgroup_id" | "num_subgroups") if is_builtin && !has_ids => {
                let what = format!(
                    "`{name}` is a language feature of its own, which not all have; \
                     `requires subgroup_id;` says so in the error"
                );
                add(line, "browsers", what);
            }
            "coherent" if before == "@" => {
                add(line, "browsers", "`@coherent` is wgpu's; WGSL has no such attribute".into());
            }
            "subgroup_size" if before == "@" => {
                let what = "`@subgroup_size` is Chrome's alone, behind \
                            `enable subgroup_size_control;`";
                add(line, "Firefox, Safari, wgpu", what.into());
            }
            "ptr" if after == "<" && is_parameter(i) => {
                let space = word(i + 2);
                if matches!(space, "storage" | "uniform" | "workgroup") {
                    let what =
                        format!("a parameter that points to {space} memory; pass an index instead");
                    add(line, "Firefox, wgpu", what);
                }
            }
            name @ ("i64" | "u64" | "f64") if !is_own(name) => {
                add(line, "browsers", format!("`{name}` is wgpu's; WGSL has no such type"));
            }
            "subgroupBarrier" if is_call => {
                let what = "`subgroupBarrier` is wgpu's; `workgroupBarrier` is WGSL's";
                add(line, "browsers", what.into());
            }
            name if name.starts_with("coop_mat") && after == "<" && !is_own(name) => {
                let what = "cooperative matrices are wgpu's; Chrome's experiment has other names";
                add(line, "browsers", what.into());
            }
            name if !has_subgroups && is_subgroup_name(name) && (is_call || is_builtin) => {
                let what = "subgroup operations want `enable subgroups;`, without which only wgpu \
                            takes them";
                add(line, "Chrome, Safari", what.into());
            }
            number if number.starts_with(|c: char| c.is_ascii_digit()) => {
                let sign = matches!(after, "+" | "-") && number.ends_with(['e', 'E']);
                let whole = match sign {
                    true => format!("{number}{after}{}", word(i + 2)),
                    false => number.to_owned(),
                };
                if let Some(limit) = out_of_range(&whole) {
                    let what =
                        format!("`{whole}` is beyond the largest {limit}, which Tint refuses");
                    add(line, "Chrome", what);
                }
            }
            _ => {}
        }
    }
    found.sort_by_key(|lint| lint.line);
    found
}

fn is_subgroup_name(name: &str) -> bool {
    let behind = |prefix| name.strip_prefix(prefix).and_then(|rest: &str| rest.chars().next());
    behind("subgroup").or(behind("quad")).is_some_and(char::is_uppercase)
        || matches!(
            name,
            "subgroup_size" | "subgroup_invocation_id" | "subgroup_id" | "num_subgroups"
        )
}

/// Returns true if the type that tokens begin with is a vector of f16.
fn is_f16_vector(tokens: &[Token<'_>]) -> bool {
    let word = |i: usize| tokens.get(i).map_or("", |token| token.text);
    let is_vector = matches!(word(0), "vec2" | "vec3" | "vec4");
    matches!(word(0), "vec2h" | "vec4h") || (is_vector && word(1) == "<" && word(2) == "f16")
}

/// The type whose largest number a decimal literal exceeds.
fn out_of_range(literal: &str) -> Option<&'static str> {
    if literal.starts_with("0x") || literal.starts_with("0X") {
        return None;
    }
    let (number, largest, of) = match literal.strip_suffix('f') {
        Some(number) => (number, f64::from(f32::MAX), "f32"),
        None => match literal.strip_suffix('h') {
            Some(number) => (number, 65504.0, "f16"),
            // Without a suffix it becomes f32 at the latest where it is used; integers do not.
            None if literal.contains(['.', 'e', 'E']) => (literal, f64::from(f32::MAX), "f32"),
            None => return None,
        },
    };
    number.parse::<f64>().ok().filter(|value| value.abs() > largest).map(|_| of)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines and the beginnings of what is found.
    fn found(text: &str) -> Vec<(usize, String)> {
        let short = |lint: Lint| {
            (
                lint.line,
                lint.what.split(['`', ' ']).find(|w| !w.is_empty()).unwrap_or("").to_owned(),
            )
        };
        lints(text).into_iter().map(short).collect()
    }

    #[test]
    fn directives_that_naga_refuses_are_blanked_where_they_are() {
        let pairs = [
            ("enable subgroups;\nfn a() {}", "                 \nfn a() {}"),
            ("enable f16, subgroups;", "enable f16           ;"),
            ("enable subgroups, f16;", "enable            f16;"),
            ("requires subgroup_id , subgroup_uniformity;", "                     "),
            ("// enable subgroups;\nenable f16;", "// enable subgroups;\nenable f16;"),
            ("enable subgroups", ""),
            ("enable;", "enable;"),
        ];
        for (text, expected) in pairs {
            let own = for_naga(text);
            assert_eq!(own.len(), text.len(), "{text}");
            assert_eq!(own.trim_end(), expected.trim_end(), "{text}");
        }
    }

    #[test]
    fn the_diagnostic_is_found_as_written() {
        assert!(allows_subgroup_divergence("diagnostic ( off , subgroup_uniformity ) ;"));
        assert!(!allows_subgroup_divergence("// diagnostic(off, subgroup_uniformity);"));
        assert!(!allows_subgroup_divergence("diagnostic(error, subgroup_uniformity);"));
    }

    #[test]
    fn numbers_beyond_the_largest_are_found_and_others_are_not() {
        assert_eq!(found("const a = 3.4028234663852886e38f;\nconst b = 0x1.fffffep+127f;"), []);
        assert_eq!(found("const a = 340282350000000000000000000000000000000f;").len(), 1);
        assert_eq!(found("const a = 1e-50; const b = 4000000000u; const c = 65504h;"), []);
        assert_eq!(found("\nconst a = 1e+39; const b = 65520h;").len(), 2);
    }

    #[test]
    fn own_names_are_no_constructs() {
        let text = "fn subgroupAdder(n: u32) -> u32 { return n; }\n\
                    fn subgroupBarrier() {}\nfn a() { subgroupBarrier(); }\n\
                    fn b() { let p: ptr<function, u32> = &x; }";
        assert_eq!(found(text), []);
        let mended = "enable subgroups;\nrequires subgroup_id;\n\
                      fn a(@builtin(subgroup_id) i: u32) { _ = subgroupAdd(i); }";
        assert_eq!(found(mended), []);
        assert_eq!(found(&mended.replace("enable subgroups;", "")).len(), 1);
    }
}
