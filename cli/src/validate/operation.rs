//! `lathe validate FILE.toml`: a mapping with an operation of the user's own. Its section and its
//! golden file are read, and each dispatch is written by every back end with the overrides that it
//! has at the shapes of the file.

use std::path::Path;

use lathe_harness::error::{Error, Result};
use lathe_harness::plan::backend_text;
use lathe_harness::plan::user::{Operation, UserKernel};
use lathe_harness::plan::{Plan, PlanError};

use super::{EntryLine, Opts, entry_line, needs_of, print_entries};
use crate::{Global, out};

pub(super) fn run(global: &Global, opts: &Opts, path: &Path) -> Result<()> {
    let shown = path.display().to_string();
    if opts.page.is_some() {
        return Err(Error::Usage(format!("--page goes with a WGSL file; {shown} is none")));
    }
    let operation = Operation::read(path).map_err(PlanError::into_usage)?;
    let file = UserKernel::of(path, &operation).map_err(PlanError::into_usage)?;
    let kernel = operation.kernel;
    let (mut lines, mut needs, mut shapes) = (Vec::new(), Vec::new(), 0);
    let mut unavailable = Vec::new();
    for problem in kernel.cases() {
        let text = kernel.show(&problem);
        let plan = match file.plan(&kernel.variants[0], &problem, &backend_text::generous()) {
            Ok(plan) => plan,
            Err(PlanError::Unavailable(reason)) => {
                unavailable.push(format!("{text}: {reason}"));
                continue;
            }
            Err(e) => return Err(e.into_usage()),
        };
        shapes += 1;
        add(&plan, &text, &mut lines, &mut needs);
    }
    let failed = lines.iter().filter(|line| !line.errors.is_empty()).count();
    let golden = &operation.golden;
    if global.json {
        out::json(&serde_json::json!({
            "file": shown, "operation": kernel.name, "shapes": shapes, "needs": needs,
            "golden": { "hash": golden.hash(), "cases": golden.cases() },
            "unavailable": unavailable, "entries": lines,
        }));
    } else {
        print_entries(&lines, &needs, &shown);
        for line in &unavailable {
            outln!("unavailable {line}");
        }
        outln!(
            "{}: {shapes} of {} shapes; golden file {}, {} cases",
            kernel.name,
            kernel.cases().len(),
            golden.hash(),
            golden.cases()
        );
    }
    match (failed, shapes) {
        (0, 0) => Err(Error::CheckFailed(format!("{shown}: takes no shape of its golden file"))),
        (0, _) => Ok(()),
        (n, _) => {
            Err(Error::CheckFailed(format!("{shown}: entry points that do not validate: {n}")))
        }
    }
}

/// The dispatches of a plan, with what is wrong with them at this shape.
fn add(plan: &Plan, shape: &str, lines: &mut Vec<EntryLine>, needs: &mut Vec<&'static str>) {
    for stage in &plan.stages {
        let code = plan.code(stage);
        for need in needs_of(code.reflection) {
            if !needs.contains(&need) {
                needs.push(need);
            }
        }
        let Some(entry) = code.reflection.entry(&stage.entry) else { continue };
        let line = entry_line(code.reflection, entry, code.constants);
        let errors = line.errors.iter().map(|error| format!("{shape}: {error}")).collect();
        match lines.iter_mut().find(|known| known.entry == line.entry) {
            Some(known) => known.errors.extend::<Vec<_>>(errors),
            None => lines.push(EntryLine { errors, ..line }),
        }
    }
}
