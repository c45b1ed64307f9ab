//! The page of one operation.

use std::collections::BTreeSet;
use std::fmt::Write;

use lathe_kernels::{
    Capabilities, Constants, CooperativeMatrix, Elem, Kernel, KernelBinding, KernelVariant,
    MatrixScalar, Packing, Param, ParamKind, Problem, Role, State, Tolerance,
};

use super::head;
use super::markdown::{code, dash, digits, plain, relink, small, table};
use super::measured::{Measurements, tables};

/// What the page of an operation is made of.
pub struct Page<'a> {
    /// The operation.
    pub kernel: &'static Kernel,
    /// The hand-written part.
    pub text: &'a str,
    /// Where that lies, from the root of the repository: its links begin there.
    pub text_path: &'a str,
    /// Whether some model's step or chunk may select it; see `decode::graph::operations`.
    pub in_decode: bool,
    /// What was measured.
    pub measurements: &'a Measurements,
}

/// Folder of the pages, from the root of the repository.
const FOLDER: &str = "docs/kernels";

/// An adapter that runs all variants: what the columns of a page are worked out for.
fn adapter() -> Capabilities {
    let cooperative = |size| CooperativeMatrix {
        m: size,
        n: size,
        k: size,
        inputs: MatrixScalar::F16,
        sums: MatrixScalar::F32,
    };
    Capabilities {
        subgroup: Some((32, 32)),
        f16: true,
        workgroup_memory: 48 << 10,
        invocations: 1024,
        binding_bytes: 4 << 30,
        storage_buffers: 16,
        cooperative_matrices: vec![cooperative(8), cooperative(16)],
        ..Capabilities::minimal()
    }
}

impl Page<'_> {
    /// Path of the page, from the root of the repository.
    pub fn path(&self) -> String {
        path_of(self.kernel.name)
    }

    /// The page.
    pub fn markdown(&self) -> String {
        let kernel = self.kernel;
        let folder = self.text_path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut page = head(self.text_path);
        page.push_str(relink(self.text, folder, FOLDER, place).trim_end());
        let used = match self.in_decode {
            true => "A decode step or a chunk of a prompt may select it.",
            false => {
                "No decode step selects it: it is a workbench operation, for checks, benchmarks \
                 and recordings of your own."
            }
        };
        let _ = write!(page, "\n\n## Used by\n\n{used}\n");
        let sections = [
            ("Bindings", bindings(kernel)),
            ("Parameters", parameters(kernel)),
            ("Variants", variants(kernel)),
            ("Preference", preference(kernel)),
            ("Tolerance", tolerance(kernel)),
            ("Measured", tables(kernel, self.measurements)),
        ];
        for (title, text) in sections {
            let _ = write!(page, "\n## {title}\n\n{text}");
        }
        page
    }
}

fn path_of(name: &str) -> String {
    format!("{FOLDER}/{name}.md")
}

/// Where readers find a file: of a hand-written part, the whole page.
fn place(path: &str) -> String {
    match path.strip_prefix("kernels/ops/").and_then(|p| p.strip_suffix("/page.md")) {
        Some(folder) => path_of(folder.rsplit('/').next().unwrap_or(folder)),
        None => path.to_owned(),
    }
}

fn bindings(kernel: &Kernel) -> String {
    let default = kernel.default_problem();
    let rows: Vec<_> = kernel
        .bindings
        .iter()
        .map(|binding| {
            vec![
                index_of(kernel, binding),
                code(binding.name),
                role(binding.role).to_owned(),
                code(&elements(kernel, binding.len_text)),
                binding.len(&default).to_string(),
                stored(kernel, binding),
            ]
        })
        .collect();
    let titles = "># | name | role | elements | >at the first shape | element";
    let own = kernel.bindings.iter().any(|b| b.role.is_own());
    let note = match own {
        true => {
            "\nScratch and counters are the invocation's own; a variant binds those it names. A \
             counter is zero before and after.\n"
        }
        false => "",
    };
    format!("{}{note}", table(titles, &rows))
}

/// `@binding` of a variable, where all variants that have it agree.
fn index_of(kernel: &Kernel, binding: &KernelBinding) -> String {
    let mut found = BTreeSet::new();
    for variant in &kernel.variants {
        if let Some(reflection) = lathe_kernels::reflection(kernel.name, variant.name) {
            let buffers = reflection.buffers.iter().filter(|b| b.name == binding.name);
            found.extend(buffers.map(|b| b.binding));
        }
    }
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(index), None) => index.to_string(),
        _ => "–".into(),
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Input => "input",
        Role::Output => "output",
        Role::InOut => "in-out",
        Role::Scratch => "scratch",
        Role::Counter => "counter",
    }
}

/// The text of a length in terms of the parameters: `p.rows * p.k` as `ROWS · K`.
fn elements(kernel: &Kernel, text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut out, mut rest) = (String::new(), text.as_str());
    while let Some(first) = rest.chars().next() {
        let end = match is_word(first) {
            true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (token, tail) = rest.split_at(end);
        let field = match token {
            "p" | "s" if !out.ends_with(is_word) => tail.strip_prefix('.'),
            _ => None,
        };
        rest = match (field, token, param_named(kernel, token)) {
            (Some(field), ..) => field,
            (_, "*", _) => {
                out.push('·');
                tail
            }
            // A method may say more than the parameter of its name.
            (_, _, Some(name)) if !tail.starts_with('(') => {
                out.push_str(name);
                tail
            }
            _ => {
                out.push_str(token);
                tail
            }
        };
    }
    out
}

fn param_named(kernel: &Kernel, field: &str) -> Option<&'static str> {
    let name = match field {
        "n_kv" => State::N_KV.to_owned(),
        "prompt_len" => State::PROMPT_LEN.to_owned(),
        field if field.starts_with(char::is_lowercase) => field.to_uppercase(),
        _ => return None,
    };
    kernel.param(&name).map(|p| p.name)
}

/// What the elements of a binding are, over all problems that are checked or benchmarked.
fn stored(kernel: &Kernel, binding: &KernelBinding) -> String {
    let kinds: BTreeSet<_> =
        problems(kernel).iter().map(|problem| kind(&binding.elem(problem))).collect();
    let what = kinds.first().map_or("", |(what, ..)| what);
    let formats: Vec<_> = kinds.iter().map(|(.., format)| *format).collect();
    format!("{what}{}", formats.join(", "))
}

/// What holds such elements, and the code and name of their format.
fn kind(elem: &Elem) -> (&'static str, u32, &'static str) {
    match elem {
        Elem::F32 => ("", 0, "f32"),
        Elem::U32 => ("", 0, "u32"),
        Elem::Floats(format) => ("", format.code(), format.name()),
        Elem::Kv(vectors) => ("KV cache: ", vectors.format.code(), vectors.format.name()),
        Elem::Weights(m) => ("weight rows: ", m.format.code(), m.format.name()),
        Elem::Rope(_) => ("(cos, sin): ", 0, "f32"),
    }
}

fn problems(kernel: &Kernel) -> Vec<Problem> {
    kernel.bench().into_iter().chain(kernel.cases()).collect()
}

fn parameters(kernel: &Kernel) -> String {
    let row = |param: &Param, state: bool| {
        let values = match state {
            true => format!("state, not compiled in; {}", values(param)),
            false => values(param),
        };
        vec![code(param.name), plain(param.doc), values]
    };
    let params = kernel.params.iter().map(|p| row(p, false));
    let rows: Vec<_> = params.chain(kernel.state.iter().map(|p| row(p, true))).collect();
    table("name | meaning | values", &rows)
}

fn values(param: &Param) -> String {
    match param.kind {
        ParamKind::Dim { max, .. } => format!("1 and up; sweeps draw up to {max}"),
        ParamKind::Start { max } => format!("0 and up; sweeps draw up to {max}"),
        ParamKind::OneOf(set) => set.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
        ParamKind::Float { low, high, .. } => format!("sweeps draw {low} to {high}"),
        ParamKind::Choice { set, .. } => {
            set.all().iter().map(|(name, _)| code(name)).collect::<Vec<_>>().join(", ")
        }
    }
}

fn variants(kernel: &Kernel) -> String {
    let rows: Vec<_> = kernel
        .variants
        .iter()
        .map(|variant| {
            vec![
                code(variant.name),
                plain(&heading(kernel, variant)),
                dash(needs(kernel, variant).join(", ")),
                dash(refusals(kernel, variant).join("; ")),
                dash(tunables(variant)),
                dispatches(kernel, variant),
            ]
        })
        .collect();
    let titles = "variant | idea | needs | does not run where | tunables | dispatches";
    let mut text = table(titles, &rows);
    let ideas = kernel.variants.iter().filter_map(|v| Some((v.name, idea(kernel, v)?)));
    for (i, (name, idea)) in ideas.enumerate() {
        let _ = writeln!(text, "{}- `{name}`: {}", if i == 0 { "\n" } else { "" }, plain(&idea));
    }
    text
}

/// The comment that heads a variant's file, without the slashes.
fn header(kernel: &Kernel, variant: &KernelVariant) -> impl Iterator<Item = &'static str> {
    let text = lathe_kernels::source(kernel.name, variant.name).map_or("", |s| s.text);
    text.lines().map_while(|line| line.strip_prefix("//")).map(str::trim)
}

/// What a variant is, in its file's first line.
fn heading(kernel: &Kernel, variant: &KernelVariant) -> String {
    let first = header(kernel, variant).next().unwrap_or_default();
    let of = format!("{}/{}: ", kernel.name, variant.name);
    first.strip_prefix(of.as_str()).unwrap_or(first).trim_end_matches('.').to_owned()
}

/// The paragraph `Idea:` of that comment.
fn idea(kernel: &Kernel, variant: &KernelVariant) -> Option<String> {
    let mut lines = header(kernel, variant);
    let first = lines.find_map(|line| line.strip_prefix("Idea: "))?;
    let ends = |line: &&str| {
        let label = line.split_once(':').map_or("", |(label, _)| label);
        line.is_empty() || ["uses", "with", "Source", "Needs"].contains(&label)
    };
    let rest = lines.take_while(|line| !ends(line));
    Some(std::iter::once(first).chain(rest).collect::<Vec<_>>().join(" "))
}

fn needs(kernel: &Kernel, variant: &KernelVariant) -> Vec<String> {
    let mut needs = Vec::new();
    if let Some(reflection) = lathe_kernels::reflection(kernel.name, variant.name) {
        if reflection.needs_subgroup {
            needs.push("subgroups".into());
        }
        if reflection.needs_f16 {
            needs.push("f16".into());
        }
        let matrices = reflection.needs_cooperative_matrix.iter();
        needs.extend(matrices.map(|m| format!("cooperative matrices {m}")));
    }
    if variant.packing != Packing::Blocks {
        needs.push(format!("rows packed as {}", code(variant.packing.name())));
    }
    let memory = kernel.bench().iter().filter_map(|p| workgroup_memory(kernel, variant, p)).max();
    if let Some(memory) = memory.filter(|m| *m > Capabilities::minimal().workgroup_memory) {
        needs.push(format!("{} KiB of workgroup memory", memory.div_ceil(1 << 10)));
    }
    needs
}

/// All overrides of a variant for a problem it can run.
fn constants(kernel: &Kernel, variant: &KernelVariant, problem: &Problem) -> Option<Constants> {
    let caps = adapter();
    if variant.unsupported(&problem.shape, &caps).is_some() {
        return None;
    }
    let reflection = lathe_kernels::reflection(kernel.name, variant.name)?;
    let given = problem.shape.iter().chain(variant.constants(&problem.shape, &caps));
    reflection.constants(given).ok()
}

fn workgroup_memory(kernel: &Kernel, variant: &KernelVariant, problem: &Problem) -> Option<u32> {
    let constants = constants(kernel, variant, problem)?;
    let reflection = lathe_kernels::reflection(kernel.name, variant.name)?;
    let stages = variant.stages.iter();
    stages.filter_map(|s| reflection.workgroup(s.entry, &constants).ok()).map(|(m, _)| m).max()
}

/// Why a variant does not run some checked problems, without the values: `N is no multiple of 8`.
fn refusals(kernel: &Kernel, variant: &KernelVariant) -> Vec<String> {
    let caps = adapter();
    let mut seen = BTreeSet::new();
    let mut reasons = Vec::new();
    for problem in problems(kernel) {
        if let Some(reason) = variant.unsupported(&problem.shape, &caps) {
            let reason = without_values(kernel, &reason);
            if seen.insert(reason.replace(|c: char| c.is_ascii_digit(), "")) {
                reasons.push(plain(&reason));
            }
        }
    }
    reasons
}

/// A reason without `=VALUE`.
fn without_values(kernel: &Kernel, reason: &str) -> String {
    let words = reason.split(' ').map(|word| match word.split_once('=') {
        Some((name, value)) if kernel.param(name).is_some() => {
            let tail = value.trim_start_matches(|c: char| c.is_alphanumeric() || "._-".contains(c));
            format!("{name}{tail}")
        }
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn tunables(variant: &KernelVariant) -> String {
    let tunables = variant.tunables.iter().map(|(name, values)| {
        let values: Vec<_> = values.iter().map(f64::to_string).collect();
        format!("{} {}", code(name), values.join(", "))
    });
    tunables.collect::<Vec<_>>().join("; ")
}

/// Dispatches of a variant over the benchmarked shapes that it runs: some leave a stage out.
fn dispatches(kernel: &Kernel, variant: &KernelVariant) -> String {
    let counts: BTreeSet<usize> = kernel
        .bench()
        .iter()
        .filter_map(|problem| {
            let constants = constants(kernel, variant, problem)?;
            let runs = variant.stages.iter().filter(|s| s.grid(&problem.shape, &constants) > 0);
            Some(runs.count())
        })
        .collect();
    match (counts.first(), counts.last()) {
        (Some(low), Some(high)) if low != high => format!("{low} to {high}"),
        (Some(count), _) => count.to_string(),
        (None, _) => variant.stages.len().to_string(),
    }
}

fn preference(kernel: &Kernel) -> String {
    let order = |problem: &Problem| {
        let names = kernel.prefer(&problem.shape).iter().map(|name| code(name));
        names.collect::<Vec<_>>().join(", ")
    };
    let problems = kernel.bench();
    let first = order(&problems[0]);
    let intro =
        "The first that can run is selected, unless a hint or a tuned choice names another.";
    if problems.iter().all(|p| order(p) == first) {
        return format!("{intro} For the benchmarked shapes: {first}.\n");
    }
    let shapes = Shapes::of(kernel, &problems);
    let rows: Vec<_> = problems.iter().map(|p| vec![shapes.short(kernel, p), order(p)]).collect();
    format!("{intro}{}\n\n{}", shapes.common(), table("shape | order", &rows))
}

fn tolerance(kernel: &Kernel) -> String {
    let problem = kernel.default_problem();
    let row = |name: String, t: &Tolerance| {
        let exact = t.k == 0.0 && t.rounding == 0.0 && t.nmse == 0.0;
        let k = if t.k.fract() == 0.0 { t.k.to_string() } else { digits(t.k) };
        let nmse = if exact { "exact".into() } else { small(t.nmse) };
        vec![name, k, small(t.rounding), nmse, plain(t.reason)]
    };
    let own = kernel.variants.iter().filter(|v| v.has_own_tolerance());
    let own: Vec<_> =
        own.map(|v| row(code(v.name), &kernel.tolerance(Some(v), &problem))).collect();
    let all = if own.is_empty() { "all variants" } else { "all others" };
    let mut rows = vec![row(all.into(), &kernel.tolerance(None, &problem))];
    rows.extend(own);
    format!(
        "At {}; [testing](../testing.md#the-comparison) says what the columns bound.\n\n{}{}",
        code(&kernel.show(&problem)),
        table("variant | >k | >rounding | >NMSE | reason", &rows),
        stored_outputs(kernel)
    )
}

/// What the types of outputs are allowed, over all problems.
fn stored_outputs(kernel: &Kernel) -> String {
    let problems = problems(kernel);
    let mut rows = Vec::new();
    for output in kernel.bindings.iter().filter(|b| matches!(b.role, Role::Output | Role::InOut)) {
        for elem in problems.iter().map(|problem| output.elem(problem)) {
            let ((what, _, format), (rounding, nmse)) = (kind(&elem), elem.rounding());
            let stored = format!("{what}{format}");
            let row = vec![code(output.name), stored, small(rounding), small(nmse)];
            if (rounding, nmse) != (0.0, 0.0) && !rows.contains(&row) {
                rows.push(row);
            }
        }
    }
    match rows.is_empty() {
        true => String::new(),
        false => format!(
            "\nAn output that is stored like this has these at least:\n\n{}",
            table("output | stored as | >rounding | >NMSE", &rows)
        ),
    }
}

/// Shapes of a table: what all share is said once above it.
pub(super) struct Shapes {
    shared: Vec<String>,
}

impl Shapes {
    pub(super) fn of(kernel: &Kernel, problems: &[Problem]) -> Self {
        let shown: Vec<String> = problems.iter().map(|p| kernel.show(p)).collect();
        let in_all = |part: &&str| shown.iter().all(|other| other.split(',').any(|o| o == *part));
        // Of one shape everything is shared: it is shown whole instead.
        let differ = shown.windows(2).any(|pair| pair[0] != pair[1]);
        let parts = shown.iter().take(usize::from(differ)).flat_map(|first| first.split(','));
        Self { shared: parts.filter(in_all).map(str::to_owned).collect() }
    }

    /// ` All: …`, or nothing.
    pub(super) fn common(&self) -> String {
        match self.shared.is_empty() {
            true => String::new(),
            false => format!(" All shapes: {}.", code(&self.shared.join(","))),
        }
    }

    /// What a problem has of its own, as a cell.
    pub(super) fn short(&self, kernel: &Kernel, problem: &Problem) -> String {
        let shown = kernel.show(problem);
        let own = shown.split(',').filter(|part| !self.shared.iter().any(|s| s == part));
        let own = own.collect::<Vec<_>>().join(" ");
        if own.is_empty() { dash(own) } else { code(&own) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str) -> &'static Kernel {
        lathe_kernels::kernel(name).unwrap()
    }

    #[test]
    fn lengths_are_in_terms_of_parameters() {
        let rope = kernel("rope");
        let x = rope.binding("x").unwrap();
        assert_eq!(elements(rope, x.len_text), "(HEADS - 1) · stride() + HEAD_DIM");
        let embed = kernel("embed");
        assert_eq!(elements(embed, "s.n_kv\n    * p.vocab"), "N_KV · VOCAB");
        assert_eq!(elements(embed, "p.hidden * p.steps.len()"), "HIDDEN · steps.len()");
    }

    #[test]
    fn refusals_name_parameters_and_no_values() {
        let embed = kernel("embed");
        let variant = |name| embed.variant(name).unwrap();
        assert_eq!(refusals(embed, variant("vec4")), ["WEIGHT is quantised"]);
        let quantised = refusals(embed, variant("quantised"));
        assert_eq!(quantised, ["WEIGHT is dense", "HIDDEN is no multiple of 4"]);
        assert!(refusals(embed, variant("naive")).is_empty());
    }

    #[test]
    fn ideas_come_from_the_files() {
        let rope = kernel("rope");
        let naive = rope.variant("naive").unwrap();
        assert_eq!(heading(rope, naive), "one invocation a pair");
        assert!(idea(rope, naive).unwrap().contains("no second buffer"));
    }

    #[test]
    fn shared_parameters_are_said_once() {
        let cast = kernel("cast");
        let problems = cast.bench();
        let shapes = Shapes::of(cast, &problems);
        assert_eq!(shapes.common(), " All shapes: `N=67108864`.");
        assert_eq!(shapes.short(cast, &problems[0]), "`FROM=f32 TO=f16`");
        let one = Shapes::of(cast, &problems[..1]);
        assert_eq!(one.short(cast, &problems[0]), "`N=67108864 FROM=f32 TO=f16`");
    }
}
