//! The generated part of an operation's page, from its declaration and the heads of its WGSL files.

use std::collections::BTreeSet;

use lathe_harness::plan::backend_text::generous;
use lathe_kernels::{
    Capabilities, CooperativeMatrix, Elem, Format, Kernel, KernelBinding, KernelVariant,
    MatrixScalar, Packing, Param, ParamKind, Problem, Role, Tolerance, reflection, source,
};

use crate::markdown::{code, codes, digits, list, paragraph, plain, small};
use crate::measured::Measurements;

/// Every generated section of the page.
pub(crate) fn page(kernel: &Kernel, measurements: &Measurements) -> String {
    let sections = [
        ("Bindings and parameters", format!("{}\n{}", bindings(kernel), parameters(kernel))),
        ("Variants", list(kernel.variants.iter().map(|v| variant(kernel, v)))),
        ("Tolerance", tolerance(kernel)),
        ("Measured", measurements.winners(kernel)),
    ];
    let sections = sections.iter().filter(|(_, text)| !text.is_empty());
    sections.map(|(title, text)| format!("## {title}\n\n{text}")).collect::<Vec<_>>().join("\n")
}

fn problems(kernel: &Kernel) -> Vec<Problem> {
    kernel.bench().into_iter().chain(kernel.cases()).collect()
}

/// A paragraph of all bindings. The declaration has their lengths.
fn bindings(kernel: &Kernel) -> String {
    let one = |binding: &KernelBinding| {
        let role = match binding.role {
            Role::Input => "input",
            Role::Output => "output",
            Role::InOut => "in-out",
            Role::Scratch => "scratch",
            Role::Counter => "counter, zero before and after",
        };
        format!("{} ({role}: {})", code(binding.name), stored(kernel, binding))
    };
    let all: Vec<String> = kernel.bindings.iter().map(one).collect();
    let spread: Vec<&str> = kernel.bindings.iter().filter(|b| b.spreads).map(|b| b.name).collect();
    let shows = match spread.is_empty() {
        true => String::new(),
        false => format!(
            " A NaN or an infinity in {} shows in every output that depends on it \
             ([what that means](../testing.md#values-that-are-not-finite)).",
            codes(spread)
        ),
    };
    paragraph(&format!("Bindings: {}.{shows}", all.join(", ")))
}

/// Types of a binding's elements over all problems that are checked or benchmarked.
fn stored(kernel: &Kernel, binding: &KernelBinding) -> String {
    let kind = |elem: Elem| match elem {
        Elem::F32 => ("", 0, "f32"),
        Elem::U32 => ("", 0, "u32"),
        Elem::Floats(format) => ("", format.code(), format.name()),
        Elem::Kv(vectors) => ("KV cache in ", vectors.format.code(), vectors.format.name()),
        Elem::Weights(rows) => ("weight rows in ", rows.format.code(), rows.format.name()),
        Elem::Rope(_) => ("(cos, sin) in ", 0, "f32"),
    };
    let kinds: BTreeSet<_> =
        problems(kernel).iter().map(|problem| kind(binding.elem(problem))).collect();
    let holds = kinds.first().map_or("", |(holds, ..)| holds);
    holds.to_owned() + &formats(&kinds.iter().map(|(.., name)| *name).collect::<Vec<_>>())
}

/// Names of formats; those of weights in a word where they are all there.
fn formats(names: &[&str]) -> String {
    let are = |formats: &[Format]| names.iter().copied().eq(formats.iter().map(|f| f.name()));
    match names {
        _ if are(Format::ALL) => "every format".into(),
        _ if are(Format::QUANTISED) => "every quantised format".into(),
        names => names.join(", "),
    }
}

fn parameters(kernel: &Kernel) -> String {
    let item = |param: &Param| {
        let values = match param.kind {
            ParamKind::Dim { .. } | ParamKind::Start { .. } | ParamKind::Float { .. } => {
                String::new()
            }
            ParamKind::OneOf(set) => set.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
            ParamKind::Choice { set, .. } => {
                formats(&set.all().iter().map(|(name, _)| *name).collect::<Vec<_>>())
            }
        };
        let values = if values.is_empty() { values } else { format!(" ({values})") };
        format!("{}: {}{values}", code(param.name), plain(param.doc))
    };
    list(kernel.params.iter().chain(kernel.state).map(item))
}

/// A variant in a sentence, with its requirements. The head of its file has the idea and its
/// source, `lathe tune` the constants.
fn variant(kernel: &Kernel, variant: &KernelVariant) -> String {
    let mut text = format!("{}: {}.", code(variant.name), plain(&heading(kernel, variant)));
    let needs = needs(kernel, variant);
    if !needs.is_empty() {
        text.push_str(&format!(" Needs {}.", needs.join(", ")));
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

/// Tolerances at the first benchmark shape, each with the variants that share it.
fn tolerance(kernel: &Kernel) -> String {
    let problem = kernel.default_problem();
    let bounds = |t: &Tolerance| {
        let bounds = match t.k == 0.0 && t.rounding == 0.0 && t.nmse == 0.0 {
            true => "exact".to_owned(),
            false => {
                let k = if t.k.fract() == 0.0 { t.k.to_string() } else { digits(t.k) };
                format!("k {k}, rounding {}, NMSE {}", small(t.rounding), small(t.nmse))
            }
        };
        format!("{bounds}; {}.", plain(t.reason.trim_end_matches('.')))
    };
    let mut own: Vec<(String, Vec<&str>)> = Vec::new();
    for variant in kernel.variants.iter().filter(|v| v.has_own_tolerance()) {
        let bounds = bounds(&kernel.tolerance(Some(variant), &problem));
        match own.iter_mut().find(|(known, _)| *known == bounds) {
            Some((_, names)) => names.push(variant.name),
            None => own.push((bounds, vec![variant.name])),
        }
    }
    let others = if own.is_empty() { "All variants" } else { "All others" };
    let others = format!("{others}: {}", bounds(&kernel.tolerance(None, &problem)));
    let own = own.into_iter().map(|(bounds, names)| format!("{}: {bounds}", codes(names)));
    list(std::iter::once(others).chain(own))
}
