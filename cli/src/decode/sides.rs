//! Decode for `ab` and `tune`: two selections against each other, and every shape a file needs.

use lathe_harness::data::rng::Rng;
use lathe_harness::data::steady::steady;
use lathe_harness::decode::session;
use lathe_harness::measure::GpuWatch;
use lathe_harness::plan::run::Runs;

use super::*;

/// Whole decode steps of two selections against each other, microseconds a step, and what
/// was verified of them.
pub(crate) fn ab(
    gpu: &Arc<Gpu>,
    model: &Path,
    sides: [&str; 2],
    options: &AbOptions,
    verify: bool,
) -> Result<(ab::Outcome, Option<Verified>)> {
    const STEPS: usize = 32;
    let run = RunOptions {
        prompt: vec![1, 2, 3, 4],
        generate: STEPS + 1,
        steps_per_submit: Some(8),
        ..Default::default()
    };
    let built = |side: &str| -> Result<DecodeGraph> {
        // Variants are compared as dispatches of their own.
        let mut runs = Runs::Off;
        let (hints, quantise) = match side.split_once('=') {
            Some(("runs", text)) => {
                runs = text.parse().map_err(|e| Error::Usage(format!("{side}: {e}")))?;
                (Hints::new(), None)
            }
            Some(("weights", "as_stored")) => (Hints::new(), None),
            Some(("weights", ty)) => {
                let ty = weight_type(ty).map_err(|e| Error::Usage(format!("{side}: {e}")))?;
                (Hints::new(), Some(ty))
            }
            _ => (parse_hints(&[side.to_owned()])?, None),
        };
        let model = Model::open_with(model, &LoadOptions { quantise })?;
        let (context, store) = (run.positions(), None);
        let options = SessionOptions { context, hints, store, runs, ..SessionOptions::default() };
        model.graph(Some(gpu), &options)
    };
    // Each side has pipelines of its own, and a coin says which is compiled and laid out first.
    let mut b_first = Rng::fresh().below(2) == 1;
    let [first, second] = if b_first { [sides[1], sides[0]] } else { sides };
    let (mut first, mut second) = (built(first)?, built(second)?);
    // Unless one has more layers in a buffer: then the other, of dispatches a stage, finds its
    // tensors there.
    let together = |graph: &DecodeGraph| {
        graph.recording.stacks.iter().map(|stack| stack.tensors.len()).max().unwrap_or(0)
    };
    if together(&first) < together(&second) {
        (first, second, b_first) = (second, first, !b_first);
    }
    let executor = GpuExecutor::new(
        Arc::clone(gpu),
        &Pipelines::default(),
        Arc::clone(&first.recording),
        Policy::Plain,
        &mut |_, _| {},
    )?;
    let other =
        executor.sharing(&Pipelines::default(), Arc::clone(&second.recording), Policy::Plain)?;
    let ((graph_a, executor_a), (graph_b, executor_b)) = match b_first {
        true => ((second, other), (first, executor)),
        false => ((first, executor), (second, other)),
    };
    // Checked before it is timed, and every timed run against what was checked.
    let verified = |graph: DecodeGraph, mut executor: GpuExecutor| -> Result<_> {
        let prefix = match verify {
            true => Some(Prefix::verify(&graph, &mut executor, &run, VERIFIED)?),
            false => None,
        };
        Ok((graph, executor, prefix))
    };
    let (mut a, mut b) = (verified(graph_a, executor_a)?, verified(graph_b, executor_b)?);
    type Side = (DecodeGraph, GpuExecutor, Option<Prefix>);
    let time = |(graph, executor, prefix): &mut Side| -> Result<f64> {
        let run = session::run(graph, executor, &run, &mut |_| {})?;
        if let Some(prefix) = prefix {
            prefix.check(&run.generated)?;
        }
        let wall: Duration = run.steps.iter().sum();
        Ok(wall.as_secs_f64() * 1e6 / run.steps.len().max(1) as f64)
    };
    steady(&gpu.adapter, &mut || -> Result<f64> { Ok(time(&mut a)? + time(&mut b)?) })?;
    let mut watch = GpuWatch::new(gpu)?;
    let mut side = |is_a, _| time(if is_a { &mut a } else { &mut b });
    let outcome = ab::run(options, &mut watch, &mut side)?;
    // Both sides share the caches: one more run of each, and its end.
    for side in [&mut a, &mut b] {
        if side.2.is_some() {
            time(side)?;
        }
        if let (graph, executor, Some(prefix)) = side {
            prefix.check_end(graph, executor, run.prompt.len())?;
        }
    }
    let verified = [a, b].into_iter().filter_map(|(.., prefix)| Some(prefix?.verified));
    Ok((outcome, verified.reduce(Verified::worse)))
}

/// Every kernel and compiled-in shape that decoding a file needs, each once, with the state of the
/// kernel's first benchmark.
pub(crate) fn problems(
    model: &Path,
    caps: &Capabilities,
) -> Result<Vec<(&'static Kernel, Problem)>> {
    let Model { file, config, weights, .. } = Model::open(model)?;
    let options = GraphOptions::of_step(512);
    let graph = graph::build(&file.path, &config, &weights, caps, &options)?;
    let mut problems: Vec<(&'static Kernel, Problem)> = Vec::new();
    for op in &graph.recording.ops {
        let kernel = op.kernel();
        let known = problems.iter().any(|(k, problem)| {
            k.name == kernel.name && kernel.key(&problem.shape) == kernel.key(&op.shape)
        });
        if !known {
            let state = kernel.default_problem().state;
            problems.push((kernel, Problem { shape: op.shape.clone(), state }));
        }
    }
    Ok(problems)
}
