//! Layers that are one dispatch, phase by phase: `decode --profile-phases`.

use lathe_harness::decode::profile::{PhaseProfile, phases};
use lathe_harness::measure::peaks;

use super::profile::verified;
use super::*;

/// Runs of the whole step, and as many without each phase.
const ROUNDS: usize = 5;

pub(super) fn profile(
    global: &Global,
    opts: &Opts,
    loaded: &Loaded,
    options: &RunOptions,
) -> Result<()> {
    if loaded.options.sampling.is_some() {
        return Err(Error::Usage(
            "--profile-phases times greedy steps: how long a draw takes depends on the logits, and \
             a step without a phase has others"
                .into(),
        ));
    }
    let gpu = Arc::new(global.open()?);
    if !gpu.adapter.timestamps {
        return Err(Error::Unavailable {
            what: "--profile-phases".into(),
            adapter: gpu.adapter.name.clone(),
            reason: "it has no timestamps".into(),
        });
    }
    let graph = loaded.graph(Some(&gpu), options.positions())?;
    if graph.recording.runs.is_empty() {
        return Err(Error::Usage(format!(
            "no layers of this step are one dispatch (--runs {}); `decode -v` says why",
            loaded.options.runs
        )));
    }
    let gb_s = match peaks(&gpu)? {
        Some(ceilings) => ceilings.bandwidth_gb_s(),
        None => copy_bandwidth(&gpu)?,
    };
    let mut executor = on_device(global, &gpu, &Pipelines::default(), &graph)?;
    let profile = phases(&graph, &mut executor, options, gb_s, ROUNDS, opts.verified(options))?;
    global.print(&profile, || {
        print(&profile);
        if gpu.adapter.software {
            outln!("A software adapter: these times say nothing about a GPU.");
        }
    });
    Ok(())
}

fn print(profile: &PhaseProfile) {
    let header = ["phase", "variant", "ms", "%", "floor ms", "lost ms", "µs a layer"];
    let mut t = table::table(&header, &[2, 3, 4, 5, 6]);
    let number = |ms: Option<f64>| ms.map_or_else(|| "-".into(), |ms| format!("{ms:.4}"));
    for phase in &profile.by_phase {
        let variant = phase.kernel.split_once('/').map_or(&*phase.kernel, |(_, variant)| variant);
        let stage = match phase.stage {
            0 => String::new(),
            stage => format!(", dispatch {}", stage + 1),
        };
        t.add_row(vec![
            format!("{}{stage} ×{}", phase.op, phase.count),
            variant.to_owned(),
            format!("{:.4}", phase.ms),
            format!("{:.1}", 100.0 * phase.ms / profile.ms_per_token),
            number(phase.floor_ms),
            number(Some(phase.ms - phase.floor_ms.unwrap_or(0.0))),
            format!("{:.2}", 1e3 * phase.ms / phase.count as f64),
        ]);
    }
    out::table(t);
    outln!(
        "{:.4} ms of GPU time a token (median of {ROUNDS}). A phase's are those by which a step \
         without it and its wait is shorter; they do not add up. Floors at {} tokens; {}",
        profile.ms_per_token,
        profile.n_kv,
        verified(profile.verified),
    );
}
