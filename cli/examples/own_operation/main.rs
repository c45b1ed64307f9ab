//! An operation that Lathe does not have: declared, with its WGSL and its reference, and checked.
//!
//! Without arguments it checks itself. With arguments it is the `lathe` command, which knows the
//! operation as it knows its own:
//!
//! ```text
//! cargo run --release --example own_operation -- check scale
//! cargo run --release --example own_operation -- bench scale --shape N=65536
//! ```

use std::process::ExitCode;
use std::sync::Arc;

use lathe_harness::execute::oracle::{Inputs, Oracle, Outcomes};
use lathe_harness::gpu::{Checks, Gpu};
use lathe_harness::judge::check::{Request, Verdict, sweep};
use lathe_harness::plan::target::Target;
use lathe_kernels::descriptor::*;
use lathe_kernels::param::{dim, float};
use lathe_kernels::{Text, len};

lathe_kernels::params! {
    /// Parameters of `scale`: fields here, overrides in WGSL, `N=…,BY=…` on the command line.
    pub(crate) struct Scale {
        n: usize = dim("N", "elements", 64, 3000),
        by: f32 = float("BY", "factor", 0.5, 2.0),
    }
}

static SCALE: Declaration<Scale> = Declaration {
    name: "scale",
    summary: "y = BY x",
    fuses: None,
    state: &[],
    bindings: &[
        Binding::input("x", &f32s, len!(p => p.n)),
        Binding::output("y", &f32s, len!(p => p.n)),
    ],
    variants: &[Variant {
        name: "naive",
        stages: &[Stage { entry: "main", grid: &|p, c| p.n.div_ceil(c["WG"] as usize) }],
        tunables: WORKGROUPS,
        ..Variant::PLAIN
    }],
    prefer: &|_| &["naive"],
    cost: &|p, _| Cost { bytes: 8.0 * p.n as f64, flops: p.n as f64 },
    tolerance: &|_, _| Tolerance::new(1.0, 1e-13, "one rounded product"),
    cases: "N=1|63|64|65,BY=0.5",
    bench: "N=4096,BY=1.5",
};

/// The operation's definition in f64: each value with the magnitude that scales its rounding bound.
impl Oracle for Scale {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let by = f64::from(self.by);
        let scaled = inputs.f32s("x").iter().map(|x| by * f64::from(*x));
        inputs.real("y", scaled.map(|y| (y, y.abs())).collect())
    }
}

fn main() -> ExitCode {
    let text = Text { variant: "naive", file: "scale.wgsl", wgsl: include_str!("scale.wgsl") };
    // Before anything looks at the kernels there are. Without its oracle this would not compile.
    if let Err(e) = lathe_harness::register(&SCALE, &[text]) {
        eprintln!("{e}");
        return ExitCode::FAILURE;
    }
    if std::env::args().len() > 1 {
        return lathe_cli::main();
    }
    match check_it() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(e.exit_code())
        }
    }
}

/// Checks the operation like `lathe check scale --cases 4`.
fn check_it() -> lathe_harness::Result<()> {
    let gpu = Arc::new(Gpu::open(None, Checks::default())?);
    let targets = [Target::one("scale")?];
    let request = Request { targets: &targets, shape: None, random: 4, seed: 42, fail_fast: true };
    let another = || Gpu::open(None, Checks::default());
    let report = sweep(&gpu, &request, &another, &|_, _| {})?;
    for case in &report.cases {
        println!("{} {}: {:?}", case.kernel, case.shape, case.verdict);
        if !matches!(case.verdict, Verdict::Passed { .. }) {
            return Err(lathe_harness::Error::CheckFailed(case.reproducer(gpu.checks)));
        }
    }
    Ok(())
}
