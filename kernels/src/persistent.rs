//! Joins several dispatches into a persistent kernel: entry points of linked texts become stages of
//! a single entry point, with a grid barrier between them.
//!
//! A stage keeps its code. Its overrides become constants, its buffers those of the joined text,
//! other declarations get a prefix, and code that its entry point does not reach is left out. A
//! workgroup takes the workgroups of a stage's grid that are its own number and every `groups`-th after
//! it. Workgroup arrays of one type share memory from stage to stage.
//!
//! Layers of a model that are alike are one loop: a layer a round, with a tensor of each layer at
//! its offset in one buffer. Where layers differ, a slot of the loop has several alternatives.
//!
//! A wait is bounded: where workgroups are missing, those that wait give up, and a word says so.

mod ahead;
mod prefetch;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write;

use crate::descriptor::{Constants, Grid};
use crate::reflect::{ReflectError, Reflection};
use crate::tokens::{Declaration, Token, declarations, tokens};
use prefetch::Prefetches;

/// A function of a linked text, and the text's specialisation.
#[derive(Clone, Debug)]
pub struct Code<'a> {
    /// Description for a comment.
    pub label: String,
    /// The linked text.
    pub text: &'a str,
    /// Naga's reflection of the text.
    pub reflection: &'a Reflection,
    /// Values of its overrides.
    pub constants: &'a Constants,
    /// The function: of a stage, its entry point.
    pub function: &'a str,
    /// The buffer behind each of its variables, as a number that stages share.
    pub buffers: BTreeMap<&'a str, usize>,
    /// Variables whose buffer holds a tensor a layer.
    pub stacked: BTreeMap<&'a str, Stacked>,
}

/// One dispatch that becomes a stage.
#[derive(Clone, Debug)]
pub struct FusedStage<'a> {
    /// Its entry point.
    pub code: Code<'a>,
    /// Workgroups of the dispatch.
    pub groups: u32,
    /// True if loads of its `weights` stay where the text has them ([`crate::Variant::pins_loads`]).
    pub pins_loads: bool,
    /// Variables that it loads ahead of its wait and writes ([`crate::Variant::refreshes`]).
    pub refreshes: &'static [&'static str],
    /// Bytes of weights, norms and other values that are given: of `weights`, and of small ones
    /// that a layer has of its own, waits prefetch.
    pub given: BTreeMap<&'a str, u64>,
    /// Variables that are no buffers: each element is made where it is read, by a function of its
    /// index ([`crate::FusedProducer`]).
    pub made: BTreeMap<&'a str, Code<'a>>,
}

/// Layout of the tensors of all layers in one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stacked {
    /// The layer whose tensor comes first.
    pub first: usize,
    /// Bytes from one to the next; of a stage's variable, elements.
    pub stride: u64,
}

impl Stacked {
    /// Offset of a layer's tensor in WGSL.
    fn of(self, layer: &str) -> String {
        match self.first {
            0 => format!("{layer} * {}u", self.stride),
            first => format!("({layer} - {first}u) * {}u", self.stride),
        }
    }
}

/// Work of a run between two waits.
#[derive(Debug)]
pub struct Slot<'a> {
    /// Alternative stages, each with its layers. Every layer has one.
    pub alternatives: Vec<(Vec<usize>, FusedStage<'a>)>,
}

impl<'a> Slot<'a> {
    /// A slot of a persistent kernel of one layer.
    pub fn of(stage: FusedStage<'a>) -> Self {
        Self { alternatives: vec![(vec![0], stage)] }
    }

    /// The alternative of most layers.
    fn usual(&self) -> usize {
        let layers = |alternative: &usize| self.alternatives[*alternative].0.len();
        (0..self.alternatives.len()).max_by_key(layers).unwrap_or(0)
    }
}

/// A joined text.
#[derive(Clone, Debug)]
pub struct Joined {
    /// WGSL with the entry point [`ENTRY`] and no overrides.
    pub text: String,
    /// Name of each variable and the number of its buffer. A buffer may have several variables, of
    /// different types.
    pub buffers: Vec<(String, usize)>,
    stages: Vec<JoinedStage>,
    /// True if it loops over layers.
    is_loop: bool,
}

/// Names of a stage in a joined text.
#[derive(Clone, Debug)]
struct JoinedStage {
    /// Its place in the order of stages.
    slot: usize,
    label: String,
    /// Its entry point.
    function: String,
    /// Pairs of names of its shared variables: its own, and the joined one.
    names: Vec<(String, String)>,
    /// Elements of a variable's tensors of layers in its buffer, by the stage's own name.
    offsets: HashMap<String, Stacked>,
    refreshes: &'static [&'static str],
}

impl Joined {
    /// Naga's reflection of the text.
    ///
    /// # Errors
    /// naga refuses it, or a stage breaks the rule of runs: ahead of its wait it touches what
    /// others may be writing or reading, or not every invocation waits, once.
    pub fn reflected(&self) -> Result<Reflection, ReflectError> {
        let reflection = Reflection::of(&self.text, "a persistent kernel of operations")?;
        ahead::check(self, &reflection).map_err(ReflectError::Link)?;
        Ok(reflection)
    }
}

/// The entry point of a joined text.
pub const ENTRY: &str = "main";
/// Function that a text calls before it first needs an earlier stage's output.
const AWAIT: &str = "await_input";
/// Variable of the words with which workgroups wait: the first counts waits that gave up.
pub const ARRIVALS: &str = "grid_arrivals";
/// Words between two counters, so that none shares a cache line.
const STRIDE: usize = 32;
/// Stages of the longest run, or of a layer of it: each has a word to wait with.
pub const MAX_BARRIERS: usize = 63;
/// Words after [`ARRIVALS`], zero at first. Persistent kernels of one grid may share them: each
/// dispatch adds as many arrivals to a counter as there are workgroups.
pub const ARRIVAL_WORDS: usize = STRIDE * (MAX_BARRIERS + 1);

/// Index of the counter at which workgroups wait for the stages before a place. The first place has
/// one only in a loop; word 0 records a time-out.
fn counter(slot: usize, slots: usize) -> usize {
    STRIDE * if slot == 0 { slots } else { slot }
}

/// Joins the stages of a run, in order: `places` of each of `layers`.
///
/// # Errors
/// A stage has another workgroup size than the grid, no such entry point, a buffer that is not
/// named or that cannot hold a tensor a layer, or takes what only a dispatch of its own has; a
/// layer has no way; or there are too many.
pub fn join(slots: &[Slot<'_>], layers: usize, grid: Grid) -> Result<Joined, ReflectError> {
    let fault = |reason: String| ReflectError::Link(reason);
    if !grid.groups.is_power_of_two() {
        return Err(fault(format!("a run of {} workgroups: no power of two", grid.groups)));
    }
    if slots.len() > MAX_BARRIERS {
        return Err(fault(format!("{} stages: at most {MAX_BARRIERS}", slots.len())));
    }
    // What a place does in one layer and in the next is parted by the waits of the others.
    if layers > 1 && slots.len() < 2 {
        return Err(fault("a loop over layers of one stage".into()));
    }
    for (i, slot) in slots.iter().enumerate() {
        let of = |layer: usize| {
            slot.alternatives
                .iter()
                .filter(move |alternative| alternative.0.contains(&layer))
                .count()
        };
        if let Some(layer) = (0..layers).find(|layer| of(*layer) != 1) {
            return Err(fault(format!("place {i} has {} ways in layer {layer}", of(layer))));
        }
    }
    let stages = || slots.iter().flat_map(|slot| &slot.alternatives).map(|(_, stage)| stage);
    let mut written = BTreeSet::new();
    for stage in stages() {
        let code = &stage.code;
        let Some(entry) = code.reflection.entry(code.function) else { continue };
        let names = entry.writes.iter().map(|i| code.reflection.buffers[*i].name.as_str());
        written.extend(names.filter_map(|name| code.buffers.get(name)));
    }
    let pins_loads = stages().filter(|stage| stage.pins_loads);
    let pins_loads =
        pins_loads.filter_map(|stage| stage.code.buffers.get("weights").copied()).collect();
    let prefetches = Prefetches::plan(slots, layers, grid, &written);
    let mut whole =
        Whole { written, pins_loads, prefetches, slots: slots.len(), layers, ..Whole::default() };
    let mut main = String::new();
    for (i, slot) in slots.iter().enumerate() {
        if i > 0 || layers > 1 {
            let _ = writeln!(main, "    grid_arrive({}u);", counter(i, slots.len()));
        }
        let usual = slot.usual();
        let mut last = String::new();
        for (alternative, (those, stage)) in slot.alternatives.iter().enumerate() {
            let Code { label, reflection, constants, function, .. } = &stage.code;
            let (_, invocations) = reflection.workgroup(function, constants)?;
            if invocations != grid.invocations {
                return Err(fault(format!(
                    "{label}: workgroups of {invocations} among those of {}",
                    grid.invocations
                )));
            }
            let code = whole.stage(i, stage, grid).map_err(fault)?;
            if alternative == usual {
                last = code;
                continue;
            }
            let those: Vec<_> = those.iter().map(|layer| format!("layer == {layer}u")).collect();
            let _ = write!(main, "    if ({}) {{\n{code}    }} else ", those.join(" || "));
        }
        match slot.alternatives.len() {
            1 => main.push_str(&last),
            _ => {
                let _ = writeln!(main, "{{\n{last}    }}");
            }
        }
    }
    Ok(whole.finish(grid, &main))
}

/// State that stages share while they are joined.
#[derive(Default)]
struct Whole {
    written: BTreeSet<usize>,
    /// Weights whose loads stay where they are.
    pins_loads: BTreeSet<usize>,
    directives: BTreeSet<String>,
    /// Type and buffer of each variable.
    bindings: Vec<(String, usize)>,
    /// Element type and number of a shared workgroup array: the lengths that stages want.
    pool: BTreeMap<(String, usize), Vec<String>>,
    declarations: String,
    stages: Vec<JoinedStage>,
    prefetches: Prefetches,
    slots: usize,
    layers: usize,
}

/// New names of a text.
#[derive(Default)]
struct Names<'a> {
    of: HashMap<&'a str, String>,
    /// Offset of an array in its buffer, in WGSL.
    offsets: HashMap<&'a str, String>,
    /// Variables that are functions now: an index becomes an argument.
    made: HashSet<&'a str>,
}

/// A text with its declarations by name.
struct Parsed<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    declared: HashMap<&'a str, Declaration<'a>>,
    /// Names in the order of the text.
    order: Vec<&'a str>,
}

impl<'a> Parsed<'a> {
    fn new(text: &'a str) -> Self {
        let tokens = tokens(text);
        let found = declarations(&tokens);
        let order: Vec<_> = found.iter().map(|d| d.name).filter(|n| !n.is_empty()).collect();
        let declared = found.into_iter().filter(|d| !d.name.is_empty());
        Self { text, declared: declared.map(|d| (d.name, d)).collect(), order, tokens }
    }

    fn tokens(&self, d: &Declaration<'_>) -> &[Token<'a>] {
        &self.tokens[d.tokens.clone()]
    }

    /// Everything that a declaration's code names, and what that names.
    fn reached(&self, entry: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut left = vec![entry];
        while let Some(name) = left.pop() {
            let Some(d) = self.declared.get(name) else { continue };
            if reached.insert(d.name) {
                let tokens = self.tokens(d);
                let is_struct = d.kind == "struct";
                let words = (0..tokens.len()).filter(|i| tokens[*i].is_word());
                let names = words.filter(|i| !is_member(tokens, *i, is_struct));
                left.extend(names.map(|i| tokens[i].text));
            }
        }
        reached
    }

    /// The declarations of all that, in the order of the text.
    fn kept(&self, entry: &'a str) -> Vec<&Declaration<'a>> {
        let reached = self.reached(entry);
        let kept = self.order.iter().filter(|name| reached.contains(*name));
        kept.map(|name| &self.declared[name]).collect()
    }

    /// The source of some tokens with names replaced. `members` are a struct's own.
    fn renamed(&self, tokens: &[Token<'a>], names: &Names<'_>, members: bool) -> String {
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else {
            return String::new();
        };
        let mut out = String::new();
        let mut at = first.at;
        // What closes the brackets around an index.
        let mut open: Vec<&str> = Vec::new();
        // Of the name before: what opens its index and closes it.
        let mut index = None;
        for (i, token) in tokens.iter().enumerate() {
            let end = token.at + token.text.len();
            let brackets = match token.text {
                "[" => {
                    let (opens, closes) = index.take().unwrap_or(("[".to_owned(), "]"));
                    open.push(closes);
                    Some(opens)
                }
                "]" => open.pop().map(str::to_owned),
                _ => None,
            };
            if let Some(bracket) = brackets {
                let _ = write!(out, "{}{bracket}", &self.text[at..token.at]);
                at = end;
            }
            let is_member = is_member(tokens, i, members);
            if let Some(name) = names.of.get(token.text).filter(|_| !is_member) {
                out.push_str(&self.text[at..token.at]);
                out.push_str(name);
                at = end;
                index = match names.offsets.get(token.text) {
                    Some(offset) => Some((format!("[{offset} + ("), ")]")),
                    None => names.made.contains(token.text).then(|| ("(".to_owned(), ")")),
                };
            }
        }
        out.push_str(&self.text[at..last.at + last.text.len()]);
        out
    }
}

/// Returns true if a word names a member of a struct, or an attribute, and nothing declared at the
/// top. `declared` are a struct's own.
fn is_member(tokens: &[Token<'_>], i: usize, declared: bool) -> bool {
    let before = i.checked_sub(1).map_or("", |i| tokens[i].text);
    let after = tokens.get(i + 1).map_or("", |t| t.text);
    before == "." || before == "@" || (declared && after == ":")
}

/// Returns true if code names something only to take an element of it.
fn only_indexed(tokens: &[Token<'_>], name: &str) -> bool {
    let mut named = (0..tokens.len()).filter(|i| tokens[*i].text == name);
    named.all(|i| is_member(tokens, i, false) || tokens.get(i + 1).is_some_and(|t| t.text == "["))
}

impl Code<'_> {
    /// Places of a variable's tensors in elements, if the layers' elements lie on each other's.
    fn offset(&self, name: &str, stacked: Stacked) -> Option<Stacked> {
        let element = u64::from(self.reflection.element(name)?.1);
        let stride = stacked.stride / element;
        stacked.stride.is_multiple_of(element).then_some(Stacked { stride, ..stacked })
    }
}

/// The address space of a variable, where its declaration names one.
fn space<'a>(parsed: &Parsed<'a>, d: &Declaration<'a>) -> &'a str {
    parsed.tokens(d).get(2).map_or("", |t| t.text)
}

fn is_workgroup(parsed: &Parsed<'_>, d: &Declaration<'_>) -> bool {
    d.kind == "var" && space(parsed, d) == "workgroup"
}

/// Tokens of a declaration after its `=`, without the semicolon.
fn value_of<'t, 'a>(tokens: &'t [Token<'a>]) -> Option<&'t [Token<'a>]> {
    let at = tokens.iter().position(|t| t.text == "=")?;
    Some(&tokens[at + 1..tokens.len() - 1])
}

/// Tokens between a declaration's `:` and its `=` or end.
fn type_of<'t, 'a>(tokens: &'t [Token<'a>], name: &str) -> &'t [Token<'a>] {
    let at = tokens.iter().position(|t| t.text == name).map_or(0, |i| i + 2);
    let end = tokens.iter().position(|t| t.text == "=").unwrap_or(tokens.len() - 1);
    tokens.get(at..end).unwrap_or_default()
}

impl Whole {
    /// Declares a stage. Returns its part of the entry point.
    fn stage(&mut self, slot: usize, stage: &FusedStage<'_>, grid: Grid) -> Result<String, String> {
        let FusedStage { code, groups, .. } = stage;
        let Code { label, .. } = code;
        let parsed = Parsed::new(code.text);
        let Some(entry) = parsed.declared.get(code.function).filter(|d| d.is_entry) else {
            return Err(format!("{label}: no entry point {}", code.function));
        };
        let number = self.stages.len();
        let _ = writeln!(self.declarations, "\n// Stage {number}: {label}.");
        let mut made = BTreeMap::new();
        for (i, (variable, code)) in stage.made.iter().enumerate() {
            made.insert(*variable, self.made(code, &format!("p{number}m{i}_"))?);
        }
        let prefix = prefix(number);
        let kept = parsed.kept(code.function);
        let (names, offsets) = self.names(&parsed, &kept, code, &prefix, &made)?;
        let is_shared = |d: &Declaration<'_>| !names.of[d.name].starts_with(&prefix);
        let shared = kept.iter().filter(|d| d.kind == "var" && is_shared(d));
        let shared = shared.filter(|d| !names.made.contains(d.name));
        self.stages.push(JoinedStage {
            slot,
            label: label.clone(),
            function: names.of[code.function].clone(),
            names: shared.map(|d| (d.name.to_owned(), names.of[d.name].clone())).collect(),
            offsets,
            refreshes: stage.refreshes,
        });
        let has_wait = slot > 0 || self.layers > 1;
        let counter = counter(slot, self.slots);
        let wait = format!("{}grid_await({counter}u);", self.prefetches.call(slot));
        let awaits_inside =
            has_wait && kept.iter().any(|d| d.name == AWAIT) && *groups <= grid.groups;
        let mut resets = String::new();
        let mut main = String::new();
        for d in kept {
            match d.kind {
                "var" if d.is_binding || (is_workgroup(&parsed, d) && is_shared(d)) => {}
                "fn" if d.is_entry => {
                    let (text, arguments) = self.entry(&parsed, entry, &names, stage)?;
                    let _ = writeln!(self.declarations, "{text}");
                    let call = format!("{}({arguments});", names.of[d.name]);
                    let _ = writeln!(main, "    // {label}");
                    if has_wait && !awaits_inside {
                        let _ = writeln!(main, "    {wait}");
                    }
                    // A loop only where it goes round: others stay straight code.
                    let begin = match *groups {
                        many if many > grid.groups => format!(
                            "for (var place = group; place < {many}u; place += GRID_GROUPS) {{\n        \
                             if (place >= GRID_GROUPS) {{ workgroupBarrier(); }}"
                        ),
                        all if all == grid.groups => "{\n        let place = group;".to_owned(),
                        few => format!("if (group < {few}u) {{\n        let place = group;"),
                    };
                    let idle = match awaits_inside && *groups < grid.groups {
                        true => format!(" else {{ {wait} }}"),
                        false => String::new(),
                    };
                    let _ = writeln!(
                        main,
                        "    {begin}\n        \
                         let grid_slot = vec3<u32>(place, 0u, 0u);\n        \
                         let grid_slots = vec3<u32>({groups}u, 1u, 1u);\n       {resets} {call}\n    }}{idle}"
                    );
                }
                "fn" if d.name == AWAIT => {
                    let body = if awaits_inside { wait.as_str() } else { "" };
                    let _ = writeln!(self.declarations, "fn {}() {{ {body} }}", names.of[d.name]);
                }
                _ => {
                    if d.kind == "var" && space(&parsed, d) == "private" {
                        let tokens = parsed.tokens(d);
                        let source = |tokens| parsed.renamed(tokens, &names, false);
                        let value = match value_of(tokens) {
                            Some(value) => source(value),
                            None => format!("{}()", source(type_of(tokens, d.name))),
                        };
                        let _ = write!(resets, " {} = {value};", names.of[d.name]);
                    }
                    self.declare(&parsed, d, code, &names)?;
                }
            }
        }
        Ok(main)
    }

    /// Declares a function that computes an element of a stage's input. Returns its name.
    fn made(&mut self, code: &Code<'_>, prefix: &str) -> Result<String, String> {
        let Code { label, function, .. } = code;
        let parsed = Parsed::new(code.text);
        if parsed.declared.get(function).is_none_or(|d| d.kind != "fn" || d.is_entry) {
            return Err(format!("{label}: no function {function}"));
        }
        let kept = parsed.kept(function);
        if let Some(d) = kept.iter().find(|d| d.kind == "var" && !d.is_binding || d.name == AWAIT) {
            return Err(format!("{label}: {function} takes {}, which is a stage's own", d.name));
        }
        let (names, _) = self.names(&parsed, &kept, code, prefix, &BTreeMap::new())?;
        for d in kept.into_iter().filter(|d| !d.is_binding) {
            self.declare(&parsed, d, code, &names)?;
        }
        Ok(names.of[function].clone())
    }

    /// Renames of a function's text, and offsets of a layer's tensors: variables of the joined
    /// text, or functions that compute their elements.
    fn names<'a>(
        &mut self,
        parsed: &Parsed<'a>,
        kept: &[&Declaration<'a>],
        code: &Code<'a>,
        prefix: &str,
        made: &BTreeMap<&'a str, String>,
    ) -> Result<(Names<'a>, HashMap<String, Stacked>), String> {
        let Code { label, .. } = code;
        for d in declarations(&parsed.tokens).iter().filter(|d| d.name.is_empty()) {
            if matches!(d.kind, "enable" | "requires") {
                let tokens = parsed.tokens(d);
                self.directives.insert(parsed.renamed(tokens, &Names::default(), false));
            }
        }
        let own = kept.iter().map(|d| (d.name, format!("{prefix}{}", d.name)));
        let mut names = Names { of: own.collect(), ..Names::default() };
        let only_indexed = |name: &str| {
            let mut others = kept.iter().filter(|other| other.name != name);
            others.all(|other| only_indexed(parsed.tokens(other), name))
        };
        let mut offsets = HashMap::new();
        // Buffers and shared memory first: what follows uses their names.
        for d in kept.iter().filter(|d| d.kind == "var" && d.is_binding) {
            if let Some(function) = made.get(d.name) {
                if !only_indexed(d.name) {
                    return Err(format!("{label}: {} is not only read by elements", d.name));
                }
                names.of.insert(d.name, function.clone());
                names.made.insert(d.name);
                continue;
            }
            let buffer = code.buffers.get(d.name);
            let buffer = *buffer.ok_or_else(|| format!("{label}: {} is not bound", d.name))?;
            let tokens = parsed.tokens(d);
            if tokens.iter().any(|t| t.text == "uniform") {
                return Err(format!("{label}: {} is a uniform", d.name));
            }
            let ty = parsed.renamed(type_of(tokens, d.name), &names, false);
            let known = self.bindings.iter().position(|b| b.0 == ty && b.1 == buffer);
            let at = known.unwrap_or_else(|| {
                self.bindings.push((ty, buffer));
                self.bindings.len() - 1
            });
            names.of.insert(d.name, variable(at));
            if let Some(stacked) = code.stacked.get(d.name) {
                let offset = code.offset(d.name, *stacked).filter(|_| only_indexed(d.name));
                let offset = offset.ok_or_else(|| {
                    format!("{label}: {} cannot have a tensor a layer in one buffer", d.name)
                })?;
                names.offsets.insert(d.name, offset.of("grid_layer"));
                offsets.insert(d.name.to_owned(), offset);
            }
        }
        let mut slots: HashMap<String, usize> = HashMap::new();
        for d in kept.iter().filter(|d| is_workgroup(parsed, d)) {
            let ty = type_of(parsed.tokens(d), d.name);
            let Some((element, length)) = self.pooled(parsed, ty, &names) else { continue };
            let slot = slots.entry(element.clone()).or_default();
            names.of.insert(d.name, shared(&element, *slot));
            self.pool.entry((element, *slot)).or_default().push(length);
            *slot += 1;
        }
        Ok((names, offsets))
    }

    /// Writes a declaration under its new name. An override becomes a constant.
    fn declare(
        &mut self,
        parsed: &Parsed<'_>,
        d: &Declaration<'_>,
        code: &Code<'_>,
        names: &Names<'_>,
    ) -> Result<(), String> {
        let Code { label, constants, .. } = code;
        let tokens = parsed.tokens(d);
        let source = |tokens| parsed.renamed(tokens, names, d.kind == "struct");
        if d.kind != "override" {
            let _ = writeln!(self.declarations, "{}", source(tokens));
            return Ok(());
        }
        let ty = type_of(tokens, d.name).first().map_or("", |t| t.text);
        let value = match constants.get(d.name) {
            Some(value) => {
                literal(ty, *value).ok_or_else(|| format!("{label}: {} is a {ty}", d.name))?
            }
            None => value_of(tokens)
                .map(source)
                .ok_or_else(|| format!("{label}: {} has no value", d.name))?,
        };
        let of = if ty.is_empty() || ty == "=" { String::new() } else { format!(": {ty}") };
        let _ = writeln!(self.declarations, "const {}{of} = {value};", names.of[d.name]);
        Ok(())
    }

    /// Element type and length of an array that stages may share: one whose type is no stage's own.
    fn pooled(
        &self,
        parsed: &Parsed<'_>,
        ty: &[Token<'_>],
        names: &Names<'_>,
    ) -> Option<(String, String)> {
        if ty.first()?.text != "array" || ty.len() < 6 {
            return None;
        }
        // `array<T, N>`: the last comma of this depth parts them.
        let inside = &ty[2..ty.len() - 1];
        let mut depth = 0;
        let comma = inside.iter().position(|t| {
            match t.text {
                "<" | "(" => depth += 1,
                ">" | ")" => depth -= 1,
                _ => {}
            }
            depth == 0 && t.text == ","
        })?;
        let mut element: String = inside[..comma].iter().map(|t| t.text).collect();
        // An alias stands for what it names.
        while let Some(d) = parsed.declared.get(element.as_str()) {
            if d.kind != "alias" {
                return None;
            }
            element = value_of(parsed.tokens(d))?.iter().map(|t| t.text).collect();
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '<' || c == '>';
        let is_own = |name: &&str| element.split(['<', '>', ',']).any(|word| word == *name);
        if !element.chars().all(is_plain) || parsed.declared.keys().any(is_own) {
            return None;
        }
        let length: Vec<&str> = inside[comma + 1..].iter().map(|t| t.text).collect();
        let length = length.into_iter().filter(|t| *t != ",");
        let length = length.map(|t| names.of.get(t).cloned().unwrap_or_else(|| t.to_owned()));
        Some((element, length.collect::<Vec<_>>().join(" ")))
    }

    /// An entry point as a function, and the arguments that `main` gives it.
    fn entry(
        &self,
        parsed: &Parsed<'_>,
        entry: &Declaration<'_>,
        names: &Names<'_>,
        stage: &FusedStage<'_>,
    ) -> Result<(String, String), String> {
        let tokens = parsed.tokens(entry);
        let begin = tokens.iter().position(|t| t.text == "fn").unwrap_or(0);
        let open = tokens.iter().position(|t| t.text == "{").unwrap_or(tokens.len());
        let mut arguments = Vec::new();
        let mut parameters = Vec::new();
        // `@builtin(name) parameter: type`, apart by commas.
        for i in begin..open {
            if tokens[i].text != "@" {
                continue;
            }
            let (Some(builtin), Some(name)) = (tokens.get(i + 3), tokens.get(i + 5)) else {
                continue;
            };
            let ty = tokens[i + 7..open].iter().take_while(|t| !matches!(t.text, "@" | ")" | ","));
            let ty: String = ty.map(|t| t.text).collect();
            let name = names.of.get(name.text).cloned().unwrap_or_else(|| name.text.to_owned());
            parameters.push(format!("{name}: {ty}"));
            arguments.push(match builtin.text {
                "workgroup_id" => "grid_slot",
                "num_workgroups" => "grid_slots",
                "local_invocation_index" => "lid",
                "local_invocation_id" => "vec3<u32>(lid, 0u, 0u)",
                "global_invocation_id" => "vec3<u32>(place * GRID_INVOCATIONS + lid, 0u, 0u)",
                "subgroup_id" => "grid_subgroup",
                "num_subgroups" => "grid_subgroups",
                "subgroup_size" => "grid_size",
                "subgroup_invocation_id" => "grid_lane",
                other => return Err(format!("{}: reads {other}", stage.code.label)),
            });
        }
        let body = parsed.renamed(&tokens[open..], names, false);
        let text = format!("fn {}({}) {body}", names.of[entry.name], parameters.join(", "));
        Ok((text, arguments.join(", ")))
    }

    fn finish(self, grid: Grid, main: &str) -> Joined {
        let Grid { groups, invocations, .. } = grid;
        let mut text = String::new();
        for directive in &self.directives {
            let _ = writeln!(text, "{directive}");
        }
        let _ = writeln!(text, "const GRID_GROUPS: u32 = {groups}u;");
        let _ = writeln!(text, "const GRID_INVOCATIONS: u32 = {invocations}u;");
        let mut buffers = Vec::new();
        for (i, (ty, buffer)) in self.bindings.iter().enumerate() {
            // What one workgroup writes and another reads must not come from a cache of its own.
            // A load of what may be written is not moved behind a wait.
            let declared = if self.written.contains(buffer) {
                "@coherent var<storage, read_write>"
            } else if self.pins_loads.contains(buffer) {
                "var<storage, read_write>"
            } else {
                "var<storage, read>"
            };
            let name = variable(i);
            let _ = writeln!(text, "@group(0) @binding({i}) {declared} {name}: {ty};");
            buffers.push((name, *buffer));
        }
        let at = self.bindings.len();
        let _ = writeln!(
            text,
            "@group(0) @binding({at}) var<storage, read_write> {ARRIVALS}: array<atomic<u32>>;"
        );
        for ((element, slot), lengths) in &self.pool {
            let length =
                lengths.iter().skip(1).fold(lengths[0].clone(), |a, b| format!("max({a}, {b})"));
            let name = shared(element, *slot);
            let _ = writeln!(text, "var<workgroup> {name}: array<{element}, {length}>;");
        }
        text.push_str(GRID_BARRIER);
        self.prefetches.write(&mut text, &self.stages);
        text.push_str(&self.declarations);
        let mut parameters = String::new();
        for (name, builtin) in [
            ("grid_subgroup", "subgroup_id"),
            ("grid_subgroups", "num_subgroups"),
            ("grid_size", "subgroup_size"),
            ("grid_lane", "subgroup_invocation_id"),
        ] {
            if main.contains(name) {
                let _ = writeln!(parameters, "    @builtin({builtin}) {name}: u32,");
            }
        }
        let (begin, end) = self.prefetches.around();
        let is_loop = self.layers > 1;
        let round = match is_loop {
            true => {
                text.push_str("\nvar<private> grid_layer: u32;\n");
                let layers = self.layers;
                format!(
                    "    for (var layer = 0u; layer < {layers}u; layer++) {{\n    grid_layer = layer;\n{main}    }}\n"
                )
            }
            false => main.to_owned(),
        };
        let _ = write!(
            text,
            "\n@compute @workgroup_size(GRID_INVOCATIONS)\nfn {ENTRY}(\n    \
             @builtin(workgroup_id) grid_group: vec3<u32>,\n    \
             @builtin(local_invocation_index) lid: u32,\n{parameters}) {{\n    \
             let group = grid_group.x;\n    grid_lid = lid;\n{begin}{round}{end}}}\n"
        );
        Joined { text, buffers, stages: self.stages, is_loop }
    }
}

/// Code of the grid barrier. Every dispatch adds the number of workgroups to each counter, so that
/// the next multiple of it after one's own arrival is where all of this dispatch have arrived. A
/// wait that gave up goes on: its results are thrown away, and every later wait ends at once.
///
/// A barrier follows the wait, and no fence of storage: a fence waits for every load in flight, and
/// so for the weights that were loaded ahead. Data of other workgroups are read through `@coherent`
/// variables, past the caches that a fence would empty. WGSL does not promise that this is enough;
/// the test of a device (`Gpu::persistent_grid`) waits and reads the same way.
pub const GRID_BARRIER: &str = include_str!("persistent/grid_barrier.wgsl");

/// Prefix of the names of a stage's own declarations.
fn prefix(stage: usize) -> String {
    format!("p{stage}_")
}

fn variable(binding: usize) -> String {
    format!("grid_buffer_{binding}")
}

/// The name of a shared workgroup array.
fn shared(element: &str, slot: usize) -> String {
    let element: Vec<&str> = element.split(['<', '>']).filter(|w| !w.is_empty()).collect();
    format!("grid_{}_{slot}", element.join("_"))
}

/// A value of a type in WGSL.
fn literal(ty: &str, value: f64) -> Option<String> {
    Some(match ty {
        "u32" => format!("{}u", value as u32),
        "i32" => format!("{}i", value as i32),
        "f32" => format!("{:?}f", value as f32),
        "bool" => (value != 0.0).to_string(),
        _ => return None,
    })
}
