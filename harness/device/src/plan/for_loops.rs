//! Loops in naga's WGSL as the `for` statements that Tint knows to end.
//!
//! Browsers guard every loop that might not end, and a guarded loop is not unrolled: an array that
//! it indexes then lies in memory, not in registers. Tint trusts one form alone (its
//! `loop_analysis.cc`): a variable of a `for` that grows by one and is compared with a value that
//! does not change. naga writes `loop`, whatever the source has.
//!
//! Text is edited by its lines: naga writes a statement per line, four spaces per level, and gives
//! each variable of a function a name of its own.

use std::collections::{HashMap, HashSet};

/// Words that are no names of values, and functions without memory.
const NEUTRAL: [&str; 10] =
    ["u32", "i32", "f32", "vec2", "vec3", "vec4", "min", "max", "select", "bitcast"];

/// Calls that other invocations or memory have a part in.
const IMPURE: [&str; 6] = ["subgroup", "quad", "atomic", "Barrier", "workgroupUniformLoad", "ptr<"];

/// Rewrites naga's loops.
pub(super) fn with_for_loops(text: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let module = Names::of(&lines);
    let mut end = lines.len();
    for begin in (0..lines.len()).rev() {
        if lines[begin].starts_with('}') {
            end = begin;
        }
        if lines[begin].trim_start() == "loop {" {
            let head = (0..begin).rev().find(|at| lines[*at].starts_with("fn ")).unwrap_or(0);
            let added = Loop { lines: &lines, module: &module, head, begin, end }.rewritten();
            if let Some((range, new)) = added {
                end = end + new.len() - range.len();
                lines.splice(range, new);
            }
        }
    }
    lines.join("\n") + "\n"
}

/// Module-scope names.
struct Names {
    constants: HashSet<String>,
    /// Functions whose value depends on their arguments alone.
    pure: HashSet<String>,
}

impl Names {
    fn of(lines: &[String]) -> Self {
        let named = |keyword: &str| -> HashSet<String> {
            let with = lines.iter().filter(|line| line.starts_with(keyword));
            let names = with.filter_map(|line| words(line.split(':').next()?).last());
            names.map(str::to_owned).collect()
        };
        let (constants, variables) = (named("const "), named("var<"));
        let mut bodies: HashMap<&str, Vec<&str>> = HashMap::new();
        let mut current = None;
        for line in lines {
            if line.starts_with("fn ") {
                current = words(line).nth(1);
            }
            if let Some(name) = current {
                bodies.entry(name).or_default().push(line);
            }
            if line.starts_with('}') {
                current = None;
            }
        }
        // A function is impure of itself, or by what it calls.
        let reads = |line: &&str| {
            IMPURE.iter().any(|word| line.contains(word))
                || words(line).any(|w| variables.contains(w))
        };
        let of_itself = bodies.iter().filter(|(_, body)| body.iter().any(reads));
        let mut impure: HashSet<&str> = of_itself.map(|(name, _)| *name).collect();
        loop {
            let calls = |body: &[&str]| {
                body.iter().skip(1).any(|line| words(line).any(|word| impure.contains(word)))
            };
            let more = bodies.iter().filter(|(name, body)| !impure.contains(*name) && calls(body));
            let more: Vec<&str> = more.map(|(name, _)| *name).collect();
            if more.is_empty() {
                break;
            }
            impure.extend(more);
        }
        let pure = bodies.keys().filter(|name| !impure.contains(*name));
        Self { constants, pure: pure.map(|name| (*name).to_owned()).collect() }
    }
}

/// A `loop` of a function, and what follows it up to the function's end.
struct Loop<'a> {
    lines: &'a [String],
    module: &'a Names,
    head: usize,
    begin: usize,
    end: usize,
}

/// Parts of a loop `for (; index < bound; index += step)`.
struct Counted<'a> {
    index: &'a str,
    bound: String,
    step: &'a str,
    /// Lines of the condition that compute what does not change.
    hoisted: Vec<String>,
    /// Other lines of the condition: loads of the index.
    loads: Vec<&'a str>,
    /// Length of the condition, to its closing brace.
    condition: usize,
}

impl Loop<'_> {
    fn rewritten(&self) -> Option<(std::ops::Range<usize>, Vec<String>)> {
        let (lines, begin) = (self.lines, self.begin);
        let indent = &lines[begin][..lines[begin].len() - "loop {".len()];
        let inner = format!("{indent}    ");
        let close =
            begin + lines[begin..].iter().position(|line| *line == format!("{indent}}}"))?;
        let opens = format!("{inner}continuing {{");
        let at = (begin..close).find(|at| lines[*at] == opens);
        let body = &lines[begin + 1..at.unwrap_or(close)];
        let continuing = at.map_or(&[][..], |at| &lines[at + 1..close - 1]);
        if let Some(counted) = self.counted(body, continuing, close)
            && let Some((from, start)) = self.start(counted.index, indent)
        {
            return Some((from..close + 1, self.trusted(&counted, &start, body, indent)));
        }
        if continues(body) {
            return None;
        }
        // More turns than any loop takes.
        let turn = format!("turnFor{begin}");
        let mut new = vec![format!(
            "{indent}for (var {turn}: u32 = 0u; {turn} < 4294967295u; {turn} = {turn} + 1u) {{"
        )];
        new.extend_from_slice(body);
        for line in continuing {
            let line = line.strip_prefix("    ").unwrap_or(line);
            match line.trim_start().strip_prefix("break if ").and_then(|l| l.strip_suffix(';')) {
                Some(condition) => new.push(format!("{inner}if ({condition}) {{ break; }}")),
                None => new.push(line.to_owned()),
            }
        }
        new.push(format!("{indent}}}"));
        Some((begin..close + 1, new))
    }

    /// The parts of a loop that counts upwards; none of another.
    fn counted<'b>(
        &self,
        body: &'b [String],
        continuing: &'b [String],
        close: usize,
    ) -> Option<Counted<'b>> {
        let [load, store] = continuing else { return None };
        let (loaded, index) =
            load.trim().strip_prefix("let ")?.strip_suffix(';')?.split_once(" = ")?;
        let sum = store.trim().strip_prefix(index)?.strip_prefix(" = (")?.strip_suffix(");")?;
        let step = sum.strip_prefix(loaded)?.strip_prefix(" + ")?;
        let is_fixed = self.is_fixed(step, &HashSet::new());
        if !self.variable(index)?.ends_with(": u32") || !is_fixed || step == "0u" {
            return None;
        }
        // Nothing else changes it, and nothing reads it later.
        let assigns = |name: &str, line: &String| {
            let line = line.trim_start();
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with([' ', '.', '[']))
                || line.contains(&format!("(&{name}"))
        };
        let later = &self.lines[close..self.end];
        if body.iter().any(|line| assigns(index, line))
            || later.iter().any(|line| words(line).any(|word| word == index))
        {
            return None;
        }
        let condition = body.iter().position(|line| line.trim_start().starts_with("if "))?;
        let rest: Vec<_> =
            body.get(condition + 1..condition + 4)?.iter().map(|l| l.trim()).collect();
        if rest != ["} else {", "break;", "}"] {
            return None;
        }
        let (mut hoisted, mut loads, mut known) = (Vec::new(), Vec::new(), HashSet::new());
        for line in &body[..condition] {
            let (name, value) =
                line.trim().strip_prefix("let ")?.strip_suffix(';')?.split_once(" = ")?;
            let is_variable = self.variable(value).is_some();
            if value == index {
                loads.push(name);
            } else if (is_variable && !body.iter().any(|line| assigns(value, line)))
                || (!is_variable && self.is_fixed(value, &known))
            {
                hoisted.push(line[4..].to_owned());
                known.insert(name);
            } else {
                return None;
            }
        }
        let compared = body[condition].trim().strip_prefix("if (")?.strip_suffix(") {")?;
        let (left, bound) = match compared.split_once(" <= ") {
            Some((left, last)) => (left, format!("({last} + 1u)")),
            None => compared.split_once(" < ").map(|(left, bound)| (left, bound.to_owned()))?,
        };
        let is_plain = loads.contains(&left) && !bound.contains(['<', '>', '&', '|']);
        (is_plain && self.is_fixed(&bound, &known)).then(|| Counted {
            index,
            bound,
            step,
            hoisted,
            loads: lines_of(&body[..condition], index),
            condition: condition + 4,
        })
    }

    /// Declaration of a variable of the function.
    fn variable(&self, name: &str) -> Option<&str> {
        let lines = self.lines[self.head..self.begin].iter();
        let mut of_function = lines.filter_map(|line| line.strip_prefix("    var "));
        let own = of_function.find(|line| words(line).next() == Some(name))?;
        Some(own.split([';', '=']).next()?.trim_end())
    }

    /// True of an expression of values that stay: numbers, constants, parameters, and what was
    /// named before the loop or is `known`.
    fn is_fixed(&self, expression: &str, known: &HashSet<&str>) -> bool {
        let before = &self.lines[self.head..self.begin];
        let parameters = before[0].split(": ").filter_map(|part| words(part).last());
        let lets = before.iter().filter_map(|line| line.trim_start().strip_prefix("let "));
        let lets = lets.filter_map(|line| words(line).next());
        let named: HashSet<&str> = parameters.chain(lets).collect();
        let mut at = 0;
        let mut fixed = |word: &str| {
            let begin = at + expression[at..].find(word).unwrap_or(0);
            at = begin + word.len();
            let is_member = expression[..begin].ends_with('.');
            match expression[at..].starts_with(['(', '<']) {
                true => NEUTRAL.contains(&word) || self.module.pure.contains(word),
                false => {
                    is_member
                        || is_number(word)
                        || NEUTRAL.contains(&word)
                        || self.module.constants.contains(word)
                        || known.contains(word)
                        || named.contains(word)
                }
            }
        };
        !expression.contains("(*") && words(expression).all(&mut fixed)
    }

    /// First line of the loop with its index's initialisation, and the value that it begins with.
    /// None where the index goes on from an earlier loop.
    fn start(&self, index: &str, indent: &str) -> Option<(usize, String)> {
        let before = self.begin - 1;
        let assigned = self.lines[before].trim_start().strip_prefix(index);
        if let Some(value) = assigned.and_then(|line| line.strip_prefix(" = ")?.strip_suffix(';')) {
            return Some((before, value.to_owned()));
        }
        let depths = (4..indent.len()).step_by(4).map(|depth| " ".repeat(depth));
        // Lines that enclose it: the last ones of each lesser depth.
        let mut enclosing = depths.filter_map(|indent| {
            let at_depth = |line: &&String| {
                line.len() > indent.len()
                    && line.starts_with(&indent)
                    && !line[indent.len()..].starts_with(' ')
            };
            self.lines[self.head..self.begin].iter().rev().find(at_depth)
        });
        let is_repeated = enclosing.any(|line| {
            line.trim_start().starts_with("loop {") || line.trim_start().starts_with("for (")
        });
        (!is_repeated).then(|| (self.begin, index.to_owned()))
    }

    /// The loop as a `for` over a variable of its own, which counts turns where steps exceed one.
    fn trusted(
        &self,
        counted: &Counted<'_>,
        start: &str,
        body: &[String],
        indent: &str,
    ) -> Vec<String> {
        let Counted { index, bound, step, hoisted, loads, condition } = counted;
        let (mut own, mut new) = (format!("{index}For{}", self.begin), hoisted.clone());
        let mut named = |name: String, value: String| {
            new.push(format!("{indent}let {name} = {value};"));
            name
        };
        let (mut begin, mut end, mut first) = (start.to_owned(), bound.clone(), None);
        if *step != "1u" {
            // It names the value that the body sees.
            let from = named(format!("{own}From"), begin);
            end = format!("(((max({bound}, {from}) - {from}) + ({step} - 1u)) / {step})");
            begin = "0u".to_owned();
            let turn = format!("{own}Turn");
            first = Some(format!("{indent}    let {own} = ({from} + ({turn} * {step}));"));
            own = turn;
        }
        if words(&end).count() > 1 {
            end = named(format!("{index}For{}End", self.begin), end);
        }
        new.push(format!(
            "{indent}for (var {own}: u32 = {begin}; {own} < {end}; {own} = {own} + 1u) {{"
        ));
        new.extend(first);
        let seen = format!("{index}For{}", self.begin);
        let kept = loads.iter().copied().chain(body[*condition..].iter().map(String::as_str));
        new.extend(kept.map(|line| renamed(line, index, &seen)));
        new.push(format!("{indent}}}"));
        new
    }
}

/// Lines that load a variable.
fn lines_of<'a>(lines: &'a [String], variable: &str) -> Vec<&'a str> {
    let load = format!(" = {variable};");
    lines.iter().map(String::as_str).filter(|line| line.ends_with(&load)).collect()
}

/// Returns true if a `continue` is of the loop with this body.
fn continues(body: &[String]) -> bool {
    let mut inner: Option<String> = None;
    for line in body {
        let text = line.trim_start();
        match &inner {
            Some(end) => {
                if line == end {
                    inner = None;
                }
            }
            None if text == "continue;" => return true,
            None if text == "loop {" || text.starts_with("for (") => {
                inner = Some(format!("{}}}", &line[..line.len() - text.len()]));
            }
            None => {}
        }
    }
    false
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
}

/// Names and numbers of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// A line with a name replaced, whole words only.
fn renamed(line: &str, from: &str, to: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let (mut out, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(from) {
        let (before, after) = (&rest[..at], &rest[at + from.len()..]);
        let is_whole = !before.ends_with(is_part) && !after.starts_with(is_part);
        out += before;
        // Members have the names of variables.
        out += if is_whole && !before.ends_with('.') { to } else { from };
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(body: &str) -> String {
        let text = format!(
            "override N: u32 = 9;\n@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n\
             fn two() -> u32 {{ return 2u; }}\nfn held() -> u32 {{ return x[0]; }}\n\
             @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) lid: u32) {{ {body} }}"
        );
        let module = naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{e}"));
        let validate = |module: &naga::Module| {
            use naga::valid::{Capabilities, ValidationFlags, Validator};
            Validator::new(ValidationFlags::all(), Capabilities::all()).validate(module)
        };
        let info = validate(&module).unwrap_or_else(|e| panic!("{e:?}"));
        let flags = naga::back::wgsl::WriterFlags::empty();
        let (module, info) = naga::back::pipeline_constants::process_overrides(
            &module,
            &info,
            None,
            &Default::default(),
        )
        .unwrap_or_else(|e| panic!("{e}"));
        let text =
            naga::back::wgsl::write_string(&module, &info, flags).unwrap_or_else(|e| panic!("{e}"));
        let text = with_for_loops(&text);
        let again = naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        validate(&again).unwrap_or_else(|e| panic!("{e:?}: {text}"));
        text
    }

    #[test]
    fn a_counted_loop_has_a_variable_of_its_own() {
        let text = written("for (var i = 0u; i < N * two(); i++) { x[i] = i; }");
        assert!(text.contains("for (var iFor"), "{text}");
        assert!(!text.contains("loop {") && !text.contains("turnFor"), "{text}");
        // Nested, with an index that begins anew.
        let text =
            written("for (var i = 0u; i < 3; i++) { for (var j = i; j < lid; j++) { x[j] = i; } }");
        assert!(text.contains("for (var iFor") && text.contains("for (var jFor"), "{text}");
        assert!(!text.contains("loop {") && !text.contains("turnFor"), "{text}");
        let text = written("for (var i = lid; i < 144u; i += 32u) { x[i] = i; }");
        assert!(text.contains("- iFor") && text.contains("(32u - 1u)) / 32u)"), "{text}");
        assert!(text.contains("From + (iFor") && !text.contains("turnFor"), "{text}");
    }

    #[test]
    fn other_loops_count_their_turns() {
        // The bound is memory; the index is changed within; the loop has another form.
        for body in [
            "for (var i = 0u; i < held(); i++) { x[i + 1u] = i; }",
            "for (var i = 0u; i < 9u; i++) { if (x[i] == 1u) { i += 2u; } }",
            "var i = lid; while (x[i] > 3u) { i = x[i]; } x[0] = i;",
            "var i = 0u; loop { x[i] = i; continuing { i += 1u; break if i > 4u; } }",
            // The inner index goes on from turn to turn.
            "var i = 0u; for (var j = 0u; j < x[2]; j++) { loop { if (i < 5u) { } else { break; } x[i] = i; continuing { i += 1u; } } }",
        ] {
            let text = written(body);
            assert!(text.contains("4294967295u") && !text.contains("loop {"), "{text}");
        }
        // What `continue` would skip stays where it is.
        let text = written(
            "for (var i = 0u; i < x[1]; i += 2u) { if (x[i] == 0u) { continue; } x[i] = 7u; }",
        );
        assert!(text.contains("loop {"), "{text}");
    }
}
