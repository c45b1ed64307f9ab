//! Persistent kernels (runs): consecutive operations in one dispatch, as stages with grid barriers
//! between them. The operations remain in the recording: the CPU executor, the judge and the
//! profiler see them one by one.

mod layers;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use lathe_kernels::persistent;
use lathe_kernels::{Capabilities, Grid, ReflectError, Reflection};
use layers::Layers;

use crate::plan::recording::{Op, PersistentKernel, Recording, Stack, TensorId, TensorInit};
use crate::plan::{Code, limits};

/// Maximum number of sectors that an invocation may prefetch at a grid barrier: each is a line of
/// WGSL.
const MOST_PREFETCH: u32 = 64;

/// Choice of persistent kernels for a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistent {
    /// Layers are persistent kernels if the adapter has passed the test of the grid barrier.
    #[default]
    Auto,
    /// No persistent kernels: one dispatch per stage.
    Off,
    /// Persistent kernels on this grid, tested or not.
    Of(Grid),
    /// Like `Auto`, but skips the adapter test and assumes this grid passed. Tests use it to
    /// provoke a barrier time-out. On the command line `auto:GRID`.
    #[doc(hidden)]
    Assumed(Grid),
}

impl Persistent {
    /// Returns true if the user did not choose the grid, so that a step without persistent kernels
    /// may replace it.
    pub fn is_auto(self) -> bool {
        matches!(self, Persistent::Auto | Persistent::Assumed(_))
    }
}

impl FromStr for Persistent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let grid = |text: &str| {
            let (groups, rest) = text.split_once('x')?;
            let (rest, layers) = match rest.split_once('/') {
                Some((rest, layers)) => (rest, layers.parse().ok().filter(|n| *n > 0)?),
                None => (rest, u32::MAX),
            };
            let (invocations, prefetch) = rest.split_once('+').unwrap_or((rest, "0"));
            let (groups, invocations) = (groups.parse().ok()?, invocations.parse().ok()?);
            let prefetch = prefetch.parse().ok().filter(|loads| *loads <= MOST_PREFETCH)?;
            let is_grid = u32::is_power_of_two(groups) && invocations > 0;
            is_grid.then_some(Grid { groups, invocations, prefetch, layers })
        };
        let of = |text: &str| match text.strip_prefix("auto:") {
            Some(text) => grid(text).map(Persistent::Assumed),
            None => grid(text).map(Persistent::Of),
        };
        match text {
            "auto" => Ok(Persistent::Auto),
            "off" => Ok(Persistent::Off),
            _ => of(text).ok_or_else(|| {
                format!(
                    "`{text}` is none of auto, off and WORKGROUPSxINVOCATIONS[+SECTORS][/LAYERS] \
                     with a power of two of workgroups and at most {MOST_PREFETCH} sectors, such as \
                     128x256+3"
                )
            }),
        }
    }
}

impl fmt::Display for Persistent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Persistent::Auto => f.write_str("auto"),
            Persistent::Off => f.write_str("off"),
            Persistent::Of(grid) => write!(f, "{grid}"),
            Persistent::Assumed(grid) => write!(f, "auto:{grid}"),
        }
    }
}

/// Name of the grid barrier's counters.
fn arrivals_name(grid: Grid) -> String {
    format!("persistent.arrivals.{}", grid.groups)
}

/// Returns true if each of an operation's dispatches can be a stage on a grid.
fn is_stage(op: &Op, grid: Grid) -> bool {
    let fits = |entry: &str| {
        let workgroup = op.plan.code.reflection.workgroup(entry, &op.plan.code.constants);
        workgroup.is_ok_and(|(_, invocations)| invocations == grid.invocations)
    };
    let linear = |groups: [u32; 3]| groups[1] == 1 && groups[2] == 1;
    op.plan.built_in
        && op.own.is_empty()
        && op.plan.stages.iter().all(|stage| linear(stage.groups) && fits(&stage.entry))
}

/// Joins operations of consecutive layers into persistent kernels. Each covers as many layers as
/// the grid allows, as have the same operations, and as the adapter's bindings can hold. Operations
/// that cannot be stages, or need something that the adapter lacks, stay separate.
///
/// # Errors
/// Stages cannot be joined, one breaks a rule of persistent kernels (`Joined::reflected`), or naga
/// refuses the joined text.
pub fn add(recording: &mut Recording, grid: Grid, caps: &Capabilities) -> Result<(), ReflectError> {
    let mut left: &[Range<usize>] = &layers_of(recording, grid);
    let mut arrivals = None;
    let mut texts = HashMap::new();
    while !left.is_empty() {
        let (count, found) = most_layers(recording, left, grid, caps, &mut texts)?;
        let (first, ops) = (left[0].clone(), left[0].start..left[count - 1].end);
        left = &left[count..];
        let Some((buffers, names, code)) = found else { continue };
        for op in first.clone().filter(|op| first.contains(&(op + 1))) {
            if layers::fused_producer(recording, op).is_some() {
                let [made, reader] = [op, op + 1].map(|op| recording.ops[op].label);
                tracing::info!("{reader} makes what it reads of {made}, whose last stage is none");
            }
        }
        let arrivals = *arrivals.get_or_insert_with(|| {
            recording.tensor(arrivals_name(grid), TensorInit::Counter(persistent::ARRIVAL_WORDS))
        });
        let bound = bound(names, &buffers, arrivals);
        recording.stacks.extend(buffers.into_iter().filter(Stack::is_shared));
        let stages = dispatches(recording, &ops);
        recording.persistent.push(PersistentKernel {
            ops,
            layers: count,
            stages,
            grid,
            code,
            bound,
            arrivals,
        });
    }
    Ok(())
}

/// Target of each variable, given the numbers of their buffers.
fn bound(
    names: Vec<(String, usize)>,
    buffers: &[Stack],
    arrivals: TensorId,
) -> Vec<(String, Stack)> {
    let bound = names.into_iter().map(|(name, i)| (name, buffers[i].clone()));
    bound.chain([(persistent::ARRIVALS.to_owned(), Stack::one(arrivals))]).collect()
}

/// A step without one of its stages.
#[derive(Clone, Debug)]
pub struct LeftOut {
    /// The operations whose stage is left out, one per layer that has it.
    pub ops: Vec<usize>,
    /// Index of its dispatch in each of them.
    pub stage: usize,
    /// The recording without it. It computes something else and serves timing alone.
    pub recording: Arc<Recording>,
}

/// Identity of a stage across layers: its operation's role, its number among the layer's operations
/// of that role, and the index of its dispatch.
type StageKey = (&'static str, usize, usize);

/// One step per stage, in which all layers of the persistent kernels lack that stage. Kernels of
/// fewer than three stages keep them.
///
/// # Errors
/// naga refuses the text without the stage.
pub fn without_each_stage(
    recording: &Recording,
    caps: &Capabilities,
) -> Result<Vec<LeftOut>, ReflectError> {
    // Its tensors are no part of a stack yet, so that they become the same ones again.
    let bare = Recording { persistent: Vec::new(), stacks: Vec::new(), ..recording.clone() };
    let layers_of =
        |kernel: &PersistentKernel| -> Result<(Layers<'_>, Vec<StageKey>), ReflectError> {
            let each = ranges_of(&bare, &kernel.ops);
            let layers = Layers::new(&bare, &each, caps).map_err(ReflectError::Link)?;
            let name = |op: usize| bare.ops[op].label.op;
            let key = |&(op, stage): &(usize, usize)| {
                let same = (each[0].start..op).filter(|other| name(*other) == name(op));
                (name(op), same.count(), stage)
            };
            let keys = layers.first_layer().iter().map(key).collect();
            Ok((layers, keys))
        };
    // In the order of most layers.
    let mut kernels: Vec<&PersistentKernel> = recording.persistent.iter().collect();
    kernels.sort_by_key(|kernel| std::cmp::Reverse(kernel.layers));
    let mut keys: Vec<StageKey> = Vec::new();
    for kernel in kernels {
        let own = layers_of(kernel)?.1;
        let new = own.iter().filter(|key| own.len() > 2 && !keys.contains(key));
        let new: Vec<_> = new.copied().collect();
        keys.extend(new);
    }
    let mut left_out = Vec::new();
    for key in keys {
        let (mut ops, mut without) = (Vec::new(), recording.clone());
        for (kernel, full) in without.persistent.iter_mut().zip(&recording.persistent) {
            let (mut layers, own) = layers_of(full)?;
            let slot = own.iter().position(|own| *own == key).filter(|_| own.len() > 2);
            let Some(slot) = slot else { continue };
            ops.extend(layers.leave_out(slot).iter().map(|(op, _)| op));
            let joined = layers.join(full.grid)?;
            // No rule of runs: nobody looks at what comes of it.
            let reflection = Reflection::of(&joined.text, "a run without one of its stages")?;
            // The layers are those of the recording, so its stacks have every tensor they name.
            kernel.bound = bound(joined.buffers, &layers.buffers, full.arrivals);
            kernel.code = Arc::new(Code::new(joined.text, Arc::new(reflection)));
        }
        left_out.push(LeftOut { ops, stage: key.2, recording: Arc::new(without) });
    }
    Ok(left_out)
}

/// The operations in the range, as one range per layer.
fn ranges_of(recording: &Recording, ops: &Range<usize>) -> Vec<Range<usize>> {
    let same = |a: &Op, b: &Op| a.label.layer == b.label.layer;
    let mut from = ops.start;
    let chunks = recording.ops[ops.clone()].chunk_by(same).map(|chunk| {
        from += chunk.len();
        from - chunk.len()..from
    });
    chunks.collect()
}

/// Dispatches of operations that are not joined.
fn dispatches(recording: &Recording, ops: &Range<usize>) -> usize {
    recording.ops[ops.clone()].iter().map(|op| op.plan.stages.len()).sum()
}

/// The operations of each layer that can be stages, as ranges of consecutive operations.
fn layers_of(recording: &Recording, grid: Grid) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (i, op) in recording.ops.iter().enumerate() {
        let layer = op.label.layer;
        if layer.is_none() || !is_stage(op, grid) {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.end == i && recording.ops[last.start].label.layer == layer => {
                last.end += 1;
            }
            _ => ranges.push(i..i + 1),
        }
    }
    ranges.retain(|range| (2..=persistent::MAX_BARRIERS).contains(&dispatches(recording, range)));
    ranges
}

/// A persistent kernel: its buffers, its variables with the numbers of their buffers, its text.
type Found = (Vec<Stack>, Vec<(String, usize)>, Arc<Code>);

/// The largest number of leading layers that fit one persistent kernel, and that kernel; none where
/// a single layer is too much for the adapter.
fn most_layers(
    recording: &Recording,
    left: &[Range<usize>],
    grid: Grid,
    caps: &Capabilities,
    texts: &mut HashMap<String, Arc<Code>>,
) -> Result<(usize, Option<Found>), ReflectError> {
    let together = left.windows(2).take_while(|two| two[0].end == two[1].start).count() + 1;
    let first = recording.ops[left[0].start].label;
    for count in (1..=together.min(grid.layers as usize)).rev() {
        let layers = match Layers::new(recording, &left[..count], caps) {
            Ok(layers) => layers,
            Err(reason) => {
                tracing::info!(
                    "{count} layers from {first} on are not one persistent kernel: {reason}"
                );
                continue;
            }
        };
        let joined = layers.join(grid)?;
        let code = match texts.get(&joined.text) {
            Some(known) => Arc::clone(known),
            None => {
                let reflection = Arc::new(joined.reflected()?);
                let code = Arc::new(Code::new(joined.text.clone(), reflection));
                texts.insert(joined.text, Arc::clone(&code));
                code
            }
        };
        let workgroup = code.reflection.workgroup(persistent::ENTRY, &code.constants)?;
        let lacking = limits::lacking(&code.reflection, persistent::ENTRY, workgroup, caps);
        match lacking.first() {
            None => return Ok((count, Some((layers.buffers, joined.buffers, code)))),
            Some(reason) => {
                tracing::info!(
                    "{count} layers from {first} on are not one persistent kernel: it {reason}"
                );
            }
        }
    }
    Ok((1, None))
}
