//! Decode for `ab` and `tune`: two selections against each other, and every shape a file needs.

use super::*;

/// Whole decode steps of two selections against each other, microseconds a step.
pub(in crate::cli) fn ab(
    gpu: &Arc<Gpu>,
    model: &Path,
    sides: [&str; 2],
    options: &AbOptions,
) -> Result<(Comparison, Vec<Block>)> {
    const STEPS: usize = 32;
    let run = RunOptions {
        prompt: vec![1, 2, 3, 4],
        generate: STEPS + 1,
        steps_per_submit: 8,
        ..Default::default()
    };
    let built = |side: &str| -> Result<DecodeGraph> {
        let (hints, quantise) = match side.split_once('=') {
            Some(("weights", "as_stored")) => (Hints::new(), None),
            Some(("weights", ty)) => {
                let ty = weight_type(ty).map_err(|e| Error::Usage(format!("{side}: {e}")))?;
                (Hints::new(), Some(ty))
            }
            _ => (parse_hints(&[side.to_owned()])?, None),
        };
        let model = Model::open_with(model, &LoadOptions { quantise })?;
        let (context, store) = (run.positions(), None);
        let options = SessionOptions { context, hints, store, ..SessionOptions::default() };
        model.graph(Some(gpu), &options)
    };
    // Checked before it is timed.
    let verified = |graph: &DecodeGraph, executor: &mut GpuExecutor| -> Result<()> {
        let first = RunOptions { prompt: run.prompt[..2].to_vec(), generate: 2, ..run.clone() };
        let mut reference = CpuExecutor::new(Arc::clone(&graph.recording));
        let mut verifier =
            Verifier::new(graph, &mut reference, &first, session::logits_limit(graph), 3)?;
        session::run_observed(graph, executor, &first, &mut |s| verifier.compare(s)).map(|_| ())
    };
    let pipelines = Pipelines::default();
    let (graph_a, graph_b) = (built(sides[0])?, built(sides[1])?);
    let mut executor_a = GpuExecutor::new(
        Arc::clone(gpu),
        &pipelines,
        Arc::clone(&graph_a.recording),
        Policy::Plain,
        &mut |_, _| {},
    )?;
    let mut executor_b =
        executor_a.sharing(&pipelines, Arc::clone(&graph_b.recording), Policy::Plain)?;
    verified(&graph_a, &mut executor_a)?;
    verified(&graph_b, &mut executor_b)?;
    let (mut a, mut b) = ((graph_a, executor_a), (graph_b, executor_b));
    let time = |(graph, executor): &mut (DecodeGraph, GpuExecutor)| -> Result<f64> {
        let run = session::run(graph, executor, &run, &mut |_| {})?;
        let wall: Duration = run.steps.iter().sum();
        Ok(wall.as_secs_f64() * 1e6 / run.steps.len().max(1) as f64)
    };
    steady(&gpu.adapter, &mut || Ok(time(&mut a)? + time(&mut b)?))?;
    ab::run(options, &mut |is_a, _| time(if is_a { &mut a } else { &mut b }))
}

/// Every kernel and compiled-in shape that decoding a file needs, each once, with the state of the
/// kernel's first benchmark.
pub(in crate::cli) fn problems(
    model: &Path,
    caps: &Capabilities,
) -> Result<Vec<(&'static Kernel, Problem)>> {
    let Model { file, config, weights, .. } = Model::open(model)?;
    let options = GraphOptions {
        context: 512,
        kv: FloatFormat::F16,
        acts: FloatFormat::F32,
        chunks: Chunks::NONE,
        sequences: 1,
        sampling: None,
        hints: Hints::new(),
        tuned: None,
    };
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
