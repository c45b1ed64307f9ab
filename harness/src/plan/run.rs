//! Runs: operations in order that one dispatch does, as phases between which all its workgroups
//! wait for each other. The operations stay what they are: the CPU executor, the judge and the
//! profiler see them one by one.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use lathe_kernels::phases::{self, Grid, Joined, Phase};
use lathe_kernels::{Capabilities, Constants, ReflectError, Reflection};

use crate::plan::recording::{Content, Op, Recording, TensorId};

/// Sectors that an invocation may prefetch at a wait: each is a line of WGSL.
const MOST_PREFETCH: u32 = 64;

/// Which steps have runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runs {
    /// A run a layer where the adapter has passed the test of waiting workgroups.
    #[default]
    Auto,
    /// None: a dispatch a stage.
    Off,
    /// A run a layer on this grid, tested or not.
    Of(Grid),
    /// As `Auto` on an adapter that passed with this grid, whether it did or not: for tests of what
    /// follows where workgroups then wait in vain. On the command line `auto:GRID`.
    #[doc(hidden)]
    Assumed(Grid),
}

impl Runs {
    /// Whether nobody chose the grid, so that a step without runs may take its place.
    pub fn is_auto(self) -> bool {
        matches!(self, Runs::Auto | Runs::Assumed(_))
    }
}

impl FromStr for Runs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let grid = |text: &str| {
            let (groups, rest) = text.split_once('x')?;
            let (invocations, prefetch) = rest.split_once('+').unwrap_or((rest, "0"));
            let (groups, invocations) = (groups.parse().ok()?, invocations.parse().ok()?);
            let prefetch = prefetch.parse().ok().filter(|loads| *loads <= MOST_PREFETCH)?;
            let is_grid = u32::is_power_of_two(groups) && invocations > 0;
            is_grid.then_some(Grid { groups, invocations, prefetch })
        };
        let of = |text: &str| match text.strip_prefix("auto:") {
            Some(text) => grid(text).map(Runs::Assumed),
            None => grid(text).map(Runs::Of),
        };
        match text {
            "auto" => Ok(Runs::Auto),
            "off" => Ok(Runs::Off),
            _ => of(text).ok_or_else(|| {
                format!(
                    "`{text}` is none of auto, off and WORKGROUPSxINVOCATIONS with a power of two \
                     of workgroups, such as 128x512"
                )
            }),
        }
    }
}

impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Runs::Auto => f.write_str("auto"),
            Runs::Off => f.write_str("off"),
            Runs::Of(grid) => write!(f, "{grid}"),
            Runs::Assumed(grid) => write!(f, "auto:{grid}"),
        }
    }
}

/// Operations of a step that one dispatch does.
#[derive(Clone, Debug)]
pub struct Run {
    /// Which of the step's.
    pub ops: Range<usize>,
    /// Dispatches that they would be apart.
    pub phases: usize,
    /// Its workgroups.
    pub grid: Grid,
    /// WGSL, with what naga says of it. Equal runs share it.
    pub text: Arc<RunText>,
    /// Tensor of each variable.
    pub tensors: Vec<(String, TensorId)>,
}

impl Run {
    /// The words with which its workgroups wait.
    pub fn arrivals(&self) -> TensorId {
        self.tensor(phases::ARRIVALS)
    }

    /// The tensor of a variable. Panics when there is none: runs bind all that they name.
    pub fn tensor(&self, variable: &str) -> TensorId {
        let found = self.tensors.iter().find(|(name, _)| name == variable);
        found.map_or_else(|| panic!("nothing bound to {variable}"), |(_, tensor)| *tensor)
    }
}

/// A joined text.
#[derive(Debug)]
pub struct RunText {
    /// WGSL.
    pub text: String,
    /// What naga says of it.
    pub reflection: Reflection,
}

/// What the words are called with which the workgroups of a grid wait.
fn arrivals_name(grid: Grid) -> String {
    format!("run.arrivals.{}", grid.groups)
}

/// Whether each of an operation's dispatches can be a phase on a grid.
fn is_phase(op: &Op, grid: Grid) -> bool {
    let fits = |entry: &str| {
        let workgroup = op.plan.reflection.workgroup(entry, &op.plan.constants);
        workgroup.is_ok_and(|(_, invocations)| invocations == grid.invocations)
    };
    let linear = |groups: [u32; 3]| groups[1] == 1 && groups[2] == 1;
    op.plan.trusted
        && op.own.is_empty()
        && op.plan.stages.iter().all(|stage| linear(stage.groups) && fits(&stage.entry))
}

/// Makes the operations of each layer of a recording's step a run, as far as they follow each other
/// and can be phases. What needs more buffers or workgroup memory than the adapter has stays apart.
///
/// # Errors
/// Phases cannot be joined, one breaks the rule of runs ([`Joined::reflected`]), or naga refuses
/// what comes of it.
pub fn add_runs(
    recording: &mut Recording,
    grid: Grid,
    caps: &Capabilities,
) -> Result<(), ReflectError> {
    let can: Vec<bool> = recording.ops.iter().map(|op| is_phase(op, grid)).collect();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (i, op) in recording.ops.iter().enumerate() {
        let layer = op.label.layer;
        if layer.is_none() || !can[i] {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.end == i && recording.ops[last.start].label.layer == layer => {
                last.end += 1;
            }
            _ => ranges.push(i..i + 1),
        }
    }
    let dispatches = |range: &Range<usize>| -> usize {
        recording.ops[range.clone()].iter().map(|op| op.plan.stages.len()).sum()
    };
    ranges.retain(|range| (2..=phases::MOST_WAITS + 1).contains(&dispatches(range)));
    if ranges.is_empty() {
        return Ok(());
    }
    let mut arrivals = None;
    let mut texts: HashMap<String, Arc<RunText>> = HashMap::new();
    for range in ranges {
        let (joined, bound) = joined(recording, range.clone(), grid)?;
        let text = match texts.get(&joined.text) {
            Some(text) => Arc::clone(text),
            None => {
                let reflection = joined.reflected()?;
                let text = Arc::new(RunText { text: joined.text.clone(), reflection });
                texts.insert(joined.text, Arc::clone(&text));
                text
            }
        };
        if let Some(reason) = too_large(&text.reflection, caps)? {
            tracing::info!("{} stays apart: a run {reason}", recording.ops[range.start].label);
            continue;
        }
        let mut tensors: Vec<(String, TensorId)> =
            joined.buffers.into_iter().map(|(name, buffer)| (name, bound[buffer])).collect();
        let arrivals = *arrivals.get_or_insert_with(|| {
            recording.tensor(arrivals_name(grid), Content::Counter(phases::ARRIVAL_WORDS))
        });
        tensors.push((phases::ARRIVALS.to_owned(), arrivals));
        let phases = recording.ops[range.clone()].iter().map(|op| op.plan.stages.len()).sum();
        recording.runs.push(Run { ops: range, phases, grid, text, tensors });
    }
    Ok(())
}

/// What a joined text needs that an adapter does not have.
fn too_large(text: &Reflection, caps: &Capabilities) -> Result<Option<String>, ReflectError> {
    let (memory, _) = text.workgroup(phases::ENTRY, &Constants::new())?;
    let buffers = text.buffers.len();
    Ok(match (memory, buffers) {
        (memory, _) if memory > caps.workgroup_memory => Some(format!(
            "needs {memory} bytes of workgroup memory, the adapter has {}",
            caps.workgroup_memory
        )),
        (_, buffers) if buffers > caps.storage_buffers as usize => Some(format!(
            "needs {buffers} storage buffers, the adapter has {}",
            caps.storage_buffers
        )),
        _ => None,
    })
}

/// The text of some operations, and the tensors that its buffers are.
fn joined(
    recording: &Recording,
    ops: Range<usize>,
    grid: Grid,
) -> Result<(Joined, Vec<TensorId>), ReflectError> {
    let mut bound: Vec<TensorId> = Vec::new();
    let mut list = Vec::new();
    let bytes = |op: &Op| {
        let weights = op.bindings.iter().find(|(name, _)| *name == "weights");
        weights.map_or(0, |(_, tensor)| recording.tensors[tensor.0].content.device_bytes())
    };
    for op in &recording.ops[ops] {
        let mut buffers = BTreeMap::new();
        for buffer in &op.plan.reflection.buffers {
            let own = op.plan.binding(&buffer.name);
            let tensor = op.tensor(own);
            let at = bound.iter().position(|t| *t == tensor).unwrap_or_else(|| {
                bound.push(tensor);
                bound.len() - 1
            });
            buffers.insert(buffer.name.as_str(), at);
        }
        for stage in &op.plan.stages {
            list.push(Phase {
                label: format!("{}, {}/{}", op.label.op, op.plan.kernel.name, op.plan.variant),
                text: &op.plan.text,
                reflection: &op.plan.reflection,
                constants: &op.plan.constants,
                entry: &stage.entry,
                groups: stage.groups[0],
                buffers: buffers.clone(),
                early: op.plan.declared.early,
                renews: op.plan.declared.renews,
                weight_bytes: bytes(op),
            });
        }
    }
    Ok((phases::join(&list, grid)?, bound))
}
