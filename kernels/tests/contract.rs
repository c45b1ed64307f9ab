//! Required parts of every kernel. A new kernel fails here, by name, until its pieces are in place.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use lathe_kernels::reflect::{Default, Reflection};
use lathe_kernels::{
    Capabilities, Elem, Kernel, KernelVariant, KvFormat, Problem, Role, kernel, kernels,
    reflection, sources,
};

fn problems(kernel: &Kernel) -> Vec<Problem> {
    let mut problems = kernel.bench();
    problems.extend(kernel.cases());
    let mut n = 0u32;
    for _ in 0..50 {
        problems.push(kernel.draw(&mut |below| {
            n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (n >> 8) % below
        }));
    }
    problems
}

/// Every variant with its kernel and reflection.
fn variants() -> impl Iterator<Item = (&'static Kernel, &'static KernelVariant, Arc<Reflection>)> {
    let all = kernels().iter().flat_map(|k| k.variants.iter().map(move |v| (k, v)));
    all.map(|(k, v)| {
        let text = reflection(k.name, v.name);
        (k, v, text.unwrap_or_else(|| panic!("{}: no file {}.wgsl", k.name, v.name)))
    })
}

fn generous() -> Capabilities {
    Capabilities {
        subgroup: Some((4, 64)),
        f16: true,
        workgroup_memory: 32 << 10,
        invocations: 1024,
        ..Capabilities::minimal()
    }
}

#[test]
fn every_piece_of_a_kernel_exists_under_its_name() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let names: BTreeSet<_> = kernels().iter().map(|k| k.name).collect();
    assert_eq!(names.len(), kernels().len());
    for name in names {
        assert_eq!(kernel(name).unwrap().name, name);
        // Quantised kernels compute what the dense ones do, over other rows.
        let oracle = name.strip_suffix("_q").unwrap_or(name);
        for file in [format!("reference/src/{oracle}.rs"), format!("docs/kernels/{name}.md")] {
            assert!(workspace.join(&file).is_file(), "missing: {file}");
        }
    }
    assert_eq!(variants().count(), sources().len());
    for s in sources() {
        let listed = kernel(s.kernel).and_then(|k| k.variant(s.variant));
        assert!(listed.is_some(), "{} belongs to no variant in the registry", s.file);
    }
}

#[test]
fn headers_name_the_variant_and_its_idea() {
    for s in sources() {
        let head = format!("// {}/{}: ", s.kernel, s.variant);
        assert!(s.text.starts_with(&head), "{} does not begin with {head:?}", s.file);
        let comments = s.text.lines().take_while(|l| l.starts_with("//")).count();
        assert!(comments >= 3, "{}: the header lacks formula or idea", s.file);
    }
}

#[test]
fn naive_comes_first_and_something_runs_everywhere() {
    let minimal = Capabilities::minimal();
    for k in kernels() {
        assert_eq!(k.variants[0].name, "naive", "{}", k.name);
        for problem in problems(k) {
            let runs = k.prefer(&problem.shape).iter().any(|name| {
                let v = k.variant(name).unwrap_or_else(|| panic!("{}: no {name}", k.name));
                let r = reflection(k.name, name).unwrap();
                let lacks = v.unsupported(&problem.shape, &minimal);
                !r.needs_subgroup && !r.needs_f16 && lacks.is_none()
            });
            let shown = k.show(&problem);
            assert!(runs, "{}: nothing preferred runs {shown} without features", k.name);
        }
    }
}

#[test]
fn counters_are_atomic_words() {
    for k in kernels() {
        for b in k.bindings.iter().filter(|b| b.role == Role::Counter) {
            for problem in problems(k) {
                assert_eq!(b.elem(&problem), Elem::U32, "{}: {}", k.name, b.name);
            }
            let declared = format!("var<storage, read_write> {}: array<atomic<u32>>;", b.name);
            let own = sources().iter().filter(|s| s.kernel == k.name);
            let named = format!("> {}: ", b.name);
            let users: Vec<_> = own.filter(|s| s.text.contains(&named)).collect();
            assert!(!users.is_empty(), "{}: no variant has `{declared}`", k.name);
            for s in users {
                assert!(s.text.contains(&declared), "{}: declare `{declared}`", s.file);
            }
        }
    }
}

#[test]
fn every_shape_gives_every_override_a_value_and_every_stage_a_grid() {
    for (k, v, r) in variants() {
        for (name, values) in v.tunables().unwrap() {
            let known = r.overrides.iter().any(|(o, d)| *o == name && *d != Default::Required);
            assert!(known, "{}/{}: {name} is no override with a default", k.name, v.name);
            assert!(!values.is_empty());
        }
        for problem in problems(k) {
            let (shape, at) = (&problem.shape, format!("{}/{}: {problem:?}", k.name, v.name));
            assert!(k.params.iter().all(|p| shape.get(p.name).is_some()), "{at}");
            if v.unsupported(shape, &generous()).is_some() {
                continue;
            }
            let tuned = v.constants(shape, &generous());
            for (name, _) in &tuned {
                assert!(r.has_override(name), "{at} lacks {name}");
            }
            let constants = r.constants(shape.iter().chain(tuned)).unwrap();
            let groups = v.stages.iter().map(|s| (s.grid)(shape, &constants));
            assert!(groups.sum::<usize>() > 0, "{at}: no work");
            for stage in v.stages {
                let (memory, invocations) = r.workgroup(stage.entry, &constants).unwrap();
                // Without the branches that the shape rules out it is the same, or needs less.
                let (module, info) = r.resolved(stage.entry, &constants).unwrap();
                let [entry] = &module.entry_points[..] else { panic!("{at}") };
                let globals = module.global_variables.iter().filter(|(global, v)| {
                    v.space == naga::AddressSpace::WorkGroup
                        && !info.get_entry_point(0)[*global].is_empty()
                });
                let bytes = globals.map(|(_, v)| module.types[v.ty].inner.size(module.to_ctx()));
                assert!(bytes.sum::<u32>() <= memory, "{at}");
                assert_eq!(entry.workgroup_size.iter().product::<u32>(), invocations);
            }
        }
    }
}

#[test]
fn problems_survive_printing_and_have_costs_and_tolerances() {
    for k in kernels() {
        for problem in problems(k) {
            let shown = k.show(&problem);
            let back = k.parse_over(&Problem::default(), &shown).unwrap();
            assert_eq!(k.show(&back), shown, "{}", k.name);
            assert!(k.cost(&problem).bytes > 0.0, "{}: {shown} moves nothing", k.name);
            for v in k.variants {
                let t = k.tolerance(Some(v), &problem);
                let at = format!("{}/{} {shown}: {t:?}", k.name, v.name);
                // What is less exact by design says why, and nothing selects it by itself.
                let preferred = k.prefer(&problem.shape).contains(&v.name);
                let free = v.has_own_tolerance() && !preferred;
                // A quant of the new key or value may be its neighbour.
                let quants = problem.shape.get("KV_FORMAT") == Some(KvFormat::Q8_0.code().into());
                let (nmse, bound) = match (free, quants) {
                    (true, _) => (5e-3, 0.02),
                    (_, true) => (2e-4, 1e-3),
                    _ => (1e-5, 1e-3),
                };
                assert!(!t.reason.is_empty() && t.nmse <= nmse, "{at}");
                // A wrong element must not hide: the bound stays far below the terms' size.
                assert!(t.k * f64::from(f32::EPSILON) <= bound, "{at}");
                // The cure that a decode names where operands overflow.
                let has_room = |name: &&str| !k.tolerance(k.variant(name), &problem).f16_range;
                assert!(!t.f16_range || k.prefer(&problem.shape).iter().any(has_room), "{at}");
            }
        }
    }
}

#[test]
fn matrix_units_are_read_from_the_source() {
    let needs = |variant| {
        let r = reflection("matmul", variant).unwrap();
        r.needs_cooperative_matrix.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(needs("cooperative_matrix"), ["16x16x16 f16 to f32"]);
    assert_eq!(needs("cooperative_matrix_8"), ["8x8x8 f16 to f32"]);
    assert!(needs("register_tiled").is_empty());
}

#[test]
fn a_users_text_links_the_same_modules() {
    let text = "// import: grid\nfn f() -> u32 { return group_index(vec3<u32>(), vec3<u32>()); }\n";
    let linked = lathe_kernels::link(text, "mine.wgsl").unwrap();
    assert!(linked.contains("fn group_index"), "{linked}");
    // One that is not there is answered with its neighbours, or with where modules lie.
    for (import, there_are) in [
        ("format/dens", "there are format/dense, format/eight, format/floats,"),
        ("gird", "there are grid, attention/parts/…, dequant/parts/…,"),
        ("rows/dense16", "there are attention/parts/…, dequant/parts/…,"),
    ] {
        let text = format!("// import: {import}\n");
        let unknown = lathe_kernels::link(&text, "mine.wgsl").unwrap_err().to_string();
        assert!(unknown.starts_with(&format!("mine.wgsl:1: `// import: {import}`")), "{unknown}");
        assert!(unknown.contains(there_are) && unknown.len() < 400, "{unknown}");
    }
}

#[test]
fn a_brief_shape_means_the_same() {
    for kernel in kernels() {
        for problem in kernel.bench().into_iter().chain(kernel.cases()) {
            let brief = kernel.show_brief(&problem);
            let read = kernel.parse_over(&kernel.default_problem(), &brief);
            assert_eq!(read.as_ref(), Ok(&problem), "{} {brief}, as --shape", kernel.name);
            let full = kernel.show(&problem);
            assert_eq!(kernel.parse_complete(&full), read, "{} {full}, as a record", kernel.name);
            assert_eq!(kernel.brief(&full), brief);
        }
    }
    let gemv = lathe_kernels::kernel("gemv").unwrap();
    assert_eq!(gemv.show_brief(&gemv.default_problem()), "ROWS=1152,K=1152,WEIGHT=bf16");
    assert_eq!(gemv.brief("nonsense"), "nonsense");
}
