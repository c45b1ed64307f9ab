//! The generated part of an operation's page, from its declaration and the heads of its WGSL files.

use std::collections::BTreeSet;

use lathe_harness::plan::backend_text::generous;
use lathe_kernels::{
    Capabilities, CooperativeMatrix, Elem, Kernel, KernelBinding, KernelVariant, MatrixScalar,
    Packing, Param, ParamKind, Problem, Role, Tolerance, reflection, source,
};

use crate::markdown::{code, codes, digits, list, paragraph, plain, small};
use crate::measured::Measurements;

/// Every generated section of the page.
pub(crate) fn page(kernel: &Kernel, measurements: &Measurements) -> String {
    let sections = [
        ("Bindings", bindings(kernel)),
        ("Parameters", parameters(kernel)),
        ("Variants", list(kernel.variants.iter().map(|v| variant(kernel, v)))),
        ("Tolerance", tolerance(kernel)),
        ("Measured", measurements.winners(kernel)),
    ];
    sections.map(|(title, text)| format!("## {title}\n\n{text}")).join("\n")
}

fn problems(kernel: &Kernel) -> Vec<Problem> {
    kernel.bench().into_iter().chain(kernel.cases()).collect()
}

/// Lengths are expressions over `p`, the parameters, and `s`, the state of a step.
fn bindings(kernel: &Kernel) -> String {
    let item = |binding: &KernelBinding| {
        let role = match binding.role {
            Role::Input => "input",
            Role::Output => "output",
            Role::InOut => "in-out",
            Role::Scratch => "scratch",
            Role::Counter => "counter, zero before and after",
        };
        let count = binding.len.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let elements = stored(kernel, binding);
        format!("{}: {role}; {} elements ({elements})", code(binding.name), code(&count))
    };
    list(kernel.bindings.iter().map(item))
}

/// Types of a binding's elements over all problems that are checked or benchmarked.
fn stored(kernel: &Kernel, binding: &KernelBinding) -> String {
    let kind = |elem: Elem| match elem {
        Elem::F32 => ("", 0, "f32"),
        Elem::U32 => ("", 0, "u32"),
        Elem::Floats(format) => ("", format.code(), format.name()),
        Elem::Kv(vectors) => ("KV cache: ", vectors.format.code(), vectors.format.name()),
        Elem::Weights(rows) => ("weight rows: ", rows.format.code(), rows.format.name()),
        Elem::Rope(_) => ("(cos, sin): ", 0, "f32"),
    };
    let kinds: BTreeSet<_> =
        problems(kernel).iter().map(|problem| kind(binding.elem(problem))).collect();
    let holds = kinds.first().map_or("", |(holds, ..)| holds);
    holds.to_owned() + &kinds.iter().map(|(.., name)| *name).collect::<Vec<_>>().join(", ")
}

fn parameters(kernel: &Kernel) -> String {
    let values = |param: &Param| match param.kind {
        ParamKind::Dim { max, .. } => format!("from 1; sweeps draw up to {max}"),
        ParamKind::Start { max } => format!("from 0; sweeps draw up to {max}"),
        ParamKind::OneOf(set) => set.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
        ParamKind::Float { low, high, .. } => format!("sweeps draw {low} to {high}"),
        ParamKind::Choice { set, .. } => codes(set.all().iter().map(|(name, _)| *name)),
    };
    let item = |param: &Param, of: &str| {
        format!("{}: {} ({of}{})", code(param.name), plain(param.doc), values(param))
    };
    let params = kernel.params.iter().map(|param| item(param, ""));
    list(params.chain(kernel.state.iter().map(|param| item(param, "state, not compiled in; "))))
}

/// A variant in a sentence, with its requirements. The head of its file has the idea and its
/// source, `lathe tune` the constants.
fn variant(kernel: &Kernel, variant: &KernelVariant) -> String {
    let mut text = format!("{}: {}.", code(variant.name), plain(&heading(kernel, variant)));
    let facts = [
        ("Needs", needs(kernel, variant).join(", ")),
        ("Does not run where", refusals(kernel, variant).join("; ")),
    ];
    for (name, fact) in facts.iter().filter(|(_, fact)| !fact.is_empty()) {
        text.push_str(&format!(" {name} {fact}."));
    }
    match variant.stages.len() {
        1 => text,
        dispatches => format!("{text} {dispatches} dispatches."),
    }
}

/// The comment that heads a variant's file, without the slashes.
fn header(kernel: &Kernel, variant: &KernelVariant) -> impl Iterator<Item = &'static str> {
    let text = source(kernel.name, variant.name).map_or("", |source| source.text);
    text.lines().map_while(|line| line.strip_prefix("//")).map(str::trim)
}

/// The file's first line, a description of the variant.
fn heading(kernel: &Kernel, variant: &KernelVariant) -> String {
    let first = header(kernel, variant).next().unwrap_or_default();
    let of = format!("{}/{}: ", kernel.name, variant.name);
    first.strip_prefix(of.as_str()).unwrap_or(first).trim_end_matches('.').to_owned()
}

/// An adapter that runs every variant.
fn adapter() -> Capabilities {
    let cooperative = |size| CooperativeMatrix {
        m: size,
        n: size,
        k: size,
        inputs: MatrixScalar::F16,
        sums: MatrixScalar::F32,
    };
    Capabilities {
        workgroup_memory: 48 << 10,
        binding_bytes: 4 << 30,
        cooperative_matrices: vec![cooperative(8), cooperative(16)],
        ..generous()
    }
}

fn needs(kernel: &Kernel, variant: &KernelVariant) -> Vec<String> {
    let mut needs = Vec::new();
    if let Some(reflection) = reflection(kernel.name, variant.name) {
        needs.extend(reflection.needs_subgroup.then(|| "subgroups".to_owned()));
        needs.extend(reflection.needs_f16.then(|| "f16".to_owned()));
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

/// Bytes of workgroup memory that the largest stage takes for a problem that the variant can run.
fn workgroup_memory(kernel: &Kernel, variant: &KernelVariant, problem: &Problem) -> Option<u32> {
    let caps = adapter();
    if variant.unsupported(&problem.shape, &caps).is_some() {
        return None;
    }
    let reflection = reflection(kernel.name, variant.name)?;
    let given = problem.shape.iter().chain(variant.constants(&problem.shape, &caps));
    let constants = reflection.constants(given).ok()?;
    let stages = variant.stages.iter();
    stages.filter_map(|s| reflection.workgroup(s.entry, &constants).ok()).map(|(m, _)| m).max()
}

/// Reasons why a variant refuses some checked problems, without values: `N is no multiple of 8`.
fn refusals(kernel: &Kernel, variant: &KernelVariant) -> Vec<String> {
    let caps = adapter();
    let mut seen = BTreeSet::new();
    let mut reasons = Vec::new();
    for problem in problems(kernel) {
        let Some(reason) = variant.unsupported(&problem.shape, &caps) else { continue };
        let words = reason.split(' ').map(|word| match word.split_once('=') {
            Some((name, value)) if kernel.param(name).is_some() => {
                let is_value = |c: char| c.is_alphanumeric() || "._-".contains(c);
                format!("{name}{}", value.trim_start_matches(is_value))
            }
            _ => word.to_owned(),
        });
        let reason = words.collect::<Vec<_>>().join(" ");
        if seen.insert(reason.replace(|c: char| c.is_ascii_digit(), "")) {
            reasons.push(plain(&reason));
        }
    }
    reasons
}

fn tolerance(kernel: &Kernel) -> String {
    let problem = kernel.default_problem();
    let item = |name: String, t: &Tolerance| {
        let bounds = match t.k == 0.0 && t.rounding == 0.0 && t.nmse == 0.0 {
            true => "exact".to_owned(),
            false => {
                let k = if t.k.fract() == 0.0 { t.k.to_string() } else { digits(t.k) };
                format!("k {k}, rounding {}, NMSE {}", small(t.rounding), small(t.nmse))
            }
        };
        format!("{name}: {bounds}; {}.", plain(t.reason.trim_end_matches('.')))
    };
    let own: Vec<_> = kernel.variants.iter().filter(|v| v.has_own_tolerance()).collect();
    let others = if own.is_empty() { "all variants" } else { "all others" };
    let others = item(others.into(), &kernel.tolerance(None, &problem));
    let own = own.iter().map(|v| item(code(v.name), &kernel.tolerance(Some(v), &problem)));
    let intro = format!(
        "At {} ([meaning](../testing.md#the-comparison)):",
        code(&kernel.show(&problem).replace(',', " "))
    );
    format!("{}\n{}", paragraph(&intro), list(std::iter::once(others).chain(own)))
}
