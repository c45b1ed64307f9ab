//! A prompt by operation: `decode --profile-prompt`.

use lathe_harness::decode::profile::{PromptProfile, prompt};

use super::profile::verified;
use super::*;

/// Runs at full speed whose times to the first token are shown.
const RUNS: usize = 7;

pub(super) fn profile(
    global: &Global,
    opts: &Opts,
    loaded: &Loaded,
    options: &RunOptions,
) -> Result<()> {
    let gpu = Arc::new(global.open()?);
    let graph = loaded.graph(Some(&gpu), options.positions())?;
    let mut executor = on_device(global, &gpu, &Pipelines::default(), &graph)?;
    let profile = prompt(&graph, &mut executor, options, RUNS, opts.verified(options))?;
    global.print(&profile, || print(&profile));
    Ok(())
}

fn print(profile: &PromptProfile) {
    let all: f64 = profile.by_op.iter().map(|op| op.ms).sum();
    let header = ["operation", "variant", "ms", "%", "µs each", "TFLOP/s", "GB/s"];
    let mut t = table::table(&header, &[2, 3, 4, 5, 6]);
    for op in &profile.by_op {
        let variant = op.kernel.split_once('/').map_or(&*op.kernel, |(_, variant)| variant);
        t.add_row(vec![
            format!("{} ×{}", op.op, op.count),
            variant.to_owned(),
            format!("{:.3}", op.ms),
            format!("{:.1}", 100.0 * op.ms / all),
            format!("{:.1}", 1e3 * op.ms / op.count as f64),
            format!("{:.1}", op.flops / op.ms / 1e9),
            format!("{:.0}", op.bytes / op.ms / 1e6),
        ]);
    }
    out::table(t);
    let ttft = stats::summarise(&profile.ttft_ms).median;
    outln!(
        "{} tokens: {all:.3} ms as the sum of operations timed one by one; first token after {ttft:.3} \
         ms at full speed (median of {}), {:.0} tok/s; {}",
        profile.tokens,
        profile.ttft_ms.len(),
        profile.tokens as f64 / ttft * 1e3,
        verified(profile.verified),
    );
}
