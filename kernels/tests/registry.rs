//! Refusals of the registry, and lookup of registered kernels. One test, since a program registers
//! once, before it looks.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lathe_kernels::descriptor::*;
use lathe_kernels::param::{Param, State, dim};
use lathe_kernels::residual_add::{self, ResidualAdd};
use lathe_kernels::{Params, Text, kernel, len, register, register_variants};

lathe_kernels::params! {
    /// Parameters of `twice`.
    struct Twice {
        n: usize = dim("N", "elements", 64, 100),
    }
}

lathe_kernels::params! {
    /// Parameters that would hide a word of the state.
    struct Hiding {
        n_kv: usize = dim(State::N_KV, "tokens", 64, 100),
    }
}

const HIDING: Declaration<Hiding> = Declaration {
    name: "hiding",
    summary: "",
    fuses: None,
    state: &[],
    bindings: &[Binding::output("y", &f32s, len!(p => p.n_kv))],
    variants: &[],
    prefer: &|_| &[],
    cost: &|_, _| Cost { bytes: 0.0, flops: 0.0 },
    tolerance: &|_, _| Tolerance::exact(""),
    cases: "",
    bench: "",
};

const NO_WORD: Param = dim("LAYER", "no word of the state", 4, 9).param;

const VARIANT: Variant<Twice> = Variant {
    name: "naive",
    stages: &[Stage { entry: "main", grid: &|p, c| p.n.div_ceil(c["WG"] as usize) }],
    ..Variant::PLAIN
};

const TWICE: Declaration<Twice> = Declaration {
    name: "twice",
    summary: "y = 2 x",
    fuses: None,
    state: &[],
    bindings: &[
        Binding::input("x", &f32s, len!(p => p.n)),
        Binding::output("y", &f32s, len!(p => p.n)),
    ],
    variants: &[VARIANT],
    prefer: &|_| &["naive"],
    cost: &|p, _| Cost { bytes: 8.0 * p.n as f64, flops: p.n as f64 },
    tolerance: &|_, _| Tolerance::new(1.0, 1e-13, "one product"),
    cases: "",
    bench: "N=8",
};

const FUSION: Fusion<Twice> = Fusion {
    of: &["residual_add"],
    against: &|_| None,
    against_stage: &|_| None,
    pays_with: &|_, _| true,
};

const WGSL: &str = "\
// import: grid
override N: u32;
override WG: u32 = 64u;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * WG + lid;
    if (i < N) { y[i] = 2.0 * x[i]; }
}
";

fn text(wgsl: &str) -> Text {
    Text { variant: "naive", file: "src/twice.wgsl", wgsl: wgsl.to_owned().leak() }
}

fn refused<P: Params>(declaration: Declaration<P>, texts: &[Text]) -> String {
    register(Box::leak(Box::new(declaration)), texts).unwrap_err().to_string()
}

#[test]
fn what_fits_is_there_and_what_does_not_is_refused_with_its_place() {
    let good = text(WGSL);
    for (declaration, wrong) in [
        (Declaration { name: "gemv", ..TWICE }, "kernel gemv exists already; give yours another"),
        (
            Declaration { name: "my kernel", ..TWICE },
            "kernel my kernel: the name is not lower-case",
        ),
        (Declaration { variants: &[], ..TWICE }, "kernel twice: it has no variant"),
        (Declaration { variants: &[VARIANT, VARIANT], ..TWICE }, "two variants `naive`"),
        (Declaration { prefer: &|_| &["fast"], ..TWICE }, "`prefer` names `fast`, which is no"),
        (Declaration { bench: "", ..TWICE }, "`bench` names no problem"),
        (Declaration { bindings: &[], ..TWICE }, "no binding is an output"),
        (
            Declaration { state: &[NO_WORD], ..TWICE },
            "the state has no word `LAYER`; it has N_KV, PROMPT_LEN",
        ),
        (Declaration { fuses: Some(FUSION), ..TWICE }, "kernel twice: `fuses` must be None"),
    ] {
        let error = refused(declaration, &[good]);
        assert!(error.contains(wrong), "{error}");
    }
    let error = refused(HIDING, &[]);
    assert_eq!(error, "kernel hiding: `N_KV` is a word of the state, no parameter");
    let other = Text { variant: "fast", ..good };
    for (texts, wrong) in [
        (&[][..], "kernel twice: variant `naive` has no text"),
        (&[good, good], "two texts for variant `naive`"),
        (&[good, other], "src/twice.wgsl is the text of `fast`, which is no variant here"),
    ] {
        let error = refused(TWICE, texts);
        assert!(error.contains(wrong), "{error}");
    }
    for (from, to, wrong) in [
        ("import: grid", "import: gird", "src/twice.wgsl:1: `// import: gird`"),
        ("2.0 * x[i]", "2.0 * z[i]", "src/twice.wgsl:13:"),
        ("fn main", "fn other", "src/twice.wgsl: twice/naive: has no entry point `main`"),
        (
            "var<storage, read> x",
            "var<storage, read_write> x",
            "`x` must be declared var<storage, read>",
        ),
        ("override N: u32;", "override N: u32;\noverride M: u32;", "override `M` has neither"),
    ] {
        let error = refused(TWICE, &[text(&WGSL.replacen(from, to, 1))]);
        assert!(error.contains(wrong), "{error}");
    }

    static OWN: Declaration<Twice> = TWICE;
    register(&OWN, &[good]).unwrap();
    let error = register(&OWN, &[good]).unwrap_err().to_string();
    assert!(error.contains("kernel twice exists already"), "{error}");

    // A variant beside those of a built-in operation.
    let (place, file) = ("mine", "src/mine.wgsl");
    let naive = &residual_add::OPERATION.variants[0];
    static MINE: std::sync::OnceLock<[Variant<ResidualAdd>; 1]> = std::sync::OnceLock::new();
    let mine =
        MINE.get_or_init(|| [Variant { name: "mine", stages: naive.stages, ..Variant::PLAIN }]);
    let wgsl = include_str!("../ops/residual_add/naive.wgsl");
    let texts = [Text { variant: place, file, wgsl }];
    register_variants(&residual_add::OPERATION, mine, &texts).unwrap();
    let error = register_variants(&residual_add::OPERATION, mine, &texts).unwrap_err().to_string();
    assert_eq!(error, "residual_add/mine exists already; give yours another name");
    static UNKNOWN: Declaration<Twice> = Declaration { name: "thrice", ..TWICE };
    let error = register_variants(&UNKNOWN, UNKNOWN.variants, &[good]).unwrap_err().to_string();
    assert_eq!(error, "no kernel thrice of these parameters to add variants to");

    // The first look closes the registry.
    let twice = kernel("twice").unwrap();
    assert_eq!(twice.show(&twice.default_problem()), "N=8");
    assert!(lathe_kernels::kernels().iter().any(|k| k.name == "twice"));
    let source = lathe_kernels::source("twice", "naive").unwrap();
    assert!(!source.is_built_in() && source.text.contains("fn group_index"));
    assert!(lathe_kernels::reflection("twice", "naive").unwrap().entry("main").is_some());
    assert!(lathe_kernels::source("residual_add", "naive").unwrap().is_built_in());
    let residual_add = kernel("residual_add").unwrap();
    assert!(residual_add.variant("mine").is_some());
    assert!(lathe_kernels::reflection("residual_add", "mine").is_some());
    static LATE: Declaration<Twice> = Declaration { name: "late", ..TWICE };
    let error = register(&LATE, &[good]).unwrap_err().to_string();
    assert!(
        error.starts_with("kernel late comes too late: kernels were looked up before"),
        "{error}"
    );
}
