//! Execution of a dispatch.

mod access;
mod columns;
mod control;
mod fiber;
mod mask;
mod matrix;
mod memory;
mod shadow;
mod subgroup;
mod taint;

pub(crate) use columns::is_known;

use std::collections::HashMap;
use std::ops::Range;

use naga::BuiltIn;

use crate::Error;
use crate::code::{FRAME, Memory, Op, Reg, What};
use crate::finding::{Fault, Finding, Findings, Invocation, Key};
use crate::lower::{BufferUse, Program};
use mask::{MOST_LANES, Mask};
pub use memory::Buffer;
use memory::Region;
use shadow::Touch;
use taint::UNWRITTEN;

/// Settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Invocations of a subgroup: a power of two from 1 to 128.
    pub width: u32,
    /// Draws the order of workgroups and of invocations.
    pub seed: u64,
    /// Rounds of one loop after which it counts as endless.
    pub rounds: u32,
    /// Finds the subgroup operations that outputs depend on: of a kernel whose results are right
    /// at some widths alone.
    pub traces: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { width: 32, seed: 0, rounds: 1 << 20, traces: false }
    }
}

/// SplitMix64.
#[derive(Clone, Debug)]
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }

    fn shuffled(&mut self, n: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (0..n).collect();
        for i in (1..all.len()).rev() {
            let j = self.below(i + 1);
            all.swap(i, j);
        }
        all
    }
}

/// Entry of the stack of control flow.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Lanes that wait: for `else`, or for a later case.
    waiting: Mask,
    /// Lanes that are done with the statement and go on after it.
    done: Mask,
    /// Lanes that go on at `continuing`, or fall into the next case.
    next: Mask,
    rounds: u32,
}

const FRESH: Frame =
    Frame { waiting: Mask::EMPTY, done: Mask::EMPTY, next: Mask::EMPTY, rounds: 0 };

/// State of a workgroup.
#[derive(Debug, Default)]
struct Group {
    number: u32,
    id: [u32; 3],
    columns: Vec<Vec<u32>>,
    /// Undefined values that columns and cells carry.
    taints: Vec<taint::Taint>,
    has_taints: bool,
    pc: usize,
    active: Mask,
    frames: Vec<Frame>,
    /// Lanes that run together until the next barrier, and the others.
    lanes: Range<usize>,
    is_waiting: bool,
    others: Vec<fiber::Fiber>,
    region: Region,
    /// Barriers passed: of workgroup memory, of storage, and of either.
    workgroup_time: u32,
    storage_time: u32,
    epoch: u32,
    /// It has read an atomic since its last turn.
    has_polled: bool,
    /// `subgroupBarrier`s passed, by subgroup.
    steps: Vec<u32>,
    /// Order of the lanes' writes.
    order: Vec<u32>,
    /// Releases that this workgroup has acquired: through a fence, through any barrier, and those
    /// that wait for one.
    clock: Vec<u32>,
    coherent: Vec<u32>,
    acquired: Vec<u32>,
}

/// A dispatch while it runs.
#[derive(Debug)]
struct Machine<'a> {
    program: &'a Program,
    options: Options,
    grid: [u32; 3],
    lanes: usize,
    full: Mask,
    constants: Vec<Vec<u32>>,
    buffers: Vec<Region>,
    /// Place of the content of each: a buffer and the first byte.
    targets: Vec<(usize, u32)>,
    findings: Findings,
    suspects: taint::Suspects,
    /// Reads that a later write overtook, by location: of an earlier run of the same dispatch.
    overtaken: Overtaken,
    is_repeated: bool,
    rng: Rng,
    /// Clocks that atomics on a location of a buffer have released.
    releases: HashMap<(usize, u32), Vec<u32>>,
    /// Counts what other workgroups may be waiting for.
    progress: u64,
    /// Rounds of all loops so far.
    rounds: u64,
}

/// Faults of reads, by memory, location and access.
type Overtaken = HashMap<(Memory, u32, Touch), (Key, Finding)>;

/// Reasons that a workgroup stops running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Passed a barrier.
    Barrier,
    /// Ran many rounds of a loop.
    Rounds,
    /// At the end.
    Done,
    /// A loop does not end, and so the dispatch will not.
    GivenUp,
}

/// Bytes of the registers of all workgroups that run at the same time.
const MOST_BYTES: usize = 1 << 29;
/// Bytes of notes on the accesses to writable buffers.
const MOST_SHADOW: usize = 1 << 31;
/// Rounds of a loop after which another workgroup runs.
const TURN: u32 = 256;
/// Rounds of all loops of a dispatch.
const MOST_ROUNDS: u64 = 1 << 27;
/// Turns without progress after which workgroups wait for ever.
const PATIENCE: usize = 1024;

/// Runs a dispatch of `grid` workgroups over buffers in order of [`Program::buffers`] and returns
/// the faults in the order in which they were met.
///
/// # Errors
/// Buffers that do not fit the program, a workgroup that is too large, a width that is no power of
/// two.
pub fn run(
    program: &Program,
    grid: [u32; 3],
    buffers: &mut [&mut Buffer],
    options: Options,
) -> Result<Vec<Finding>, Error> {
    let lanes = program.lanes();
    if lanes == 0 || lanes > MOST_LANES {
        return Err(Error::Dispatch(format!("workgroups of {lanes} invocations")));
    }
    if !options.width.is_power_of_two() || options.width > 128 {
        return Err(Error::Dispatch(format!("subgroups of {} invocations", options.width)));
    }
    if buffers.len() != program.buffers.len() {
        let (given, uses) = (buffers.len(), program.buffers.len());
        return Err(Error::Dispatch(format!("{given} buffers for a kernel that uses {uses}")));
    }
    for (of, buffer) in program.buffers.iter().zip(buffers.iter()) {
        let (least, bytes) = (of.least_bytes, buffer.bytes);
        let (whole, first) = match buffer.part_of {
            Some((whole, first)) => (buffers.get(whole).map_or(0, |b| b.words.len()), first),
            None => (buffer.words.len(), 0),
        };
        if bytes < least || u64::from(first) + u64::from(bytes) > 4 * whole as u64 {
            return Err(Error::Dispatch(format!(
                "`{}` is bound to {bytes} bytes and needs {least}",
                of.name
            )));
        }
    }
    let locations = (0..buffers.len()).map(|i| {
        let (uses, words) = (uses(program, buffers, i), buffers[i].words.len());
        let halves = uses.iter().any(|of| of.halves);
        if uses.iter().any(|of| of.writable) { words << u32::from(halves) } else { 0 }
    });
    let bytes = locations.sum::<usize>() * shadow::LOCATION_BYTES;
    if bytes > MOST_SHADOW {
        let (mib, most) = (bytes >> 20, MOST_SHADOW >> 20);
        return Err(Error::Unsupported(format!(
            "that many writable buffers: notes on their accesses take {mib} MiB, {most} are allowed"
        )));
    }
    // What a second run begins with.
    let before: Vec<_> = (0..buffers.len())
        .map(|i| uses(program, buffers, i).iter().any(|of| of.writable).then(|| buffers[i].clone()))
        .collect();
    let (findings, overtaken) = run_once(program, grid, buffers, options, None)?;
    let is_endless = findings.iter().any(|finding| finding.fault == Fault::NoProgress);
    if overtaken.is_empty() || is_endless {
        return Ok(findings);
    }
    // A write follows a read that nothing orders with it. Again, knowing which reads those are:
    // they are faults if somebody uses what they have read.
    for (buffer, before) in buffers.iter_mut().zip(before) {
        if let Some(before) = before {
            **buffer = before;
        }
    }
    run_once(program, grid, buffers, options, Some(overtaken)).map(|(findings, _)| findings)
}

/// Uses of a buffer: its own, and those of its parts.
fn uses<'p>(program: &'p Program, buffers: &[&mut Buffer], at: usize) -> Vec<&'p BufferUse> {
    let parts = program.buffers.iter().zip(buffers);
    let parts = parts.filter(|(_, part)| part.part_of.is_some_and(|(of, _)| of == at));
    std::iter::once(&program.buffers[at]).chain(parts.map(|(of, _)| of)).collect()
}

fn run_once(
    program: &Program,
    grid: [u32; 3],
    buffers: &mut [&mut Buffer],
    options: Options,
    overtaken: Option<Overtaken>,
) -> Result<(Vec<Finding>, Overtaken), Error> {
    let lanes = program.lanes();
    let uses: Vec<_> = (0..buffers.len()).map(|i| uses(program, buffers, i)).collect();
    let targets = buffers.iter().enumerate().map(|(i, buffer)| buffer.part_of.unwrap_or((i, 0)));
    let targets = targets.collect();
    let bound = uses.iter().zip(buffers.iter_mut()).map(|(of, buffer)| {
        let lent = std::mem::take(&mut **buffer);
        Region::of_buffer(of, lent, program.is_synchronised)
    });
    let mut machine = Machine {
        program,
        options,
        grid,
        lanes: lanes as usize,
        full: Mask::first(lanes),
        constants: program.constants.iter().map(|bits| vec![*bits; lanes as usize]).collect(),
        buffers: bound.collect(),
        targets,
        findings: Findings::default(),
        suspects: taint::Suspects::default(),
        is_repeated: overtaken.is_some(),
        overtaken: overtaken.unwrap_or_default(),
        rng: Rng(options.seed),
        releases: HashMap::new(),
        progress: 0,
        rounds: 0,
    };
    let done = machine.dispatch();
    for (buffer, region) in buffers.iter_mut().zip(machine.buffers) {
        **buffer = region.buffer;
    }
    done?;
    Ok((machine.findings.all, machine.overtaken))
}

impl Machine<'_> {
    fn dispatch(&mut self) -> Result<(), Error> {
        let count = self.grid.iter().try_fold(1u32, |product, n| product.checked_mul(*n));
        let count = count.ok_or_else(|| Error::Dispatch(format!("a grid of {:?}", self.grid)))?;
        let mut waiting = self.rng.shuffled(count);
        let each = 4 * self.lanes * self.program.registers as usize + 1;
        // Workgroups that atomics cannot order need not run at the same time.
        let most = if self.program.is_synchronised { (MOST_BYTES / each).max(1) } else { 1 };
        let mut running: Vec<Group> = Vec::new();
        let (mut still, mut seen) = (0, self.progress);
        loop {
            while running.len() < most
                && let Some(number) = waiting.pop()
            {
                running.push(self.group(number, count, Vec::new()));
            }
            if running.is_empty() {
                return Ok(());
            }
            let at = self.rng.below(running.len());
            match self.run_group(&mut running[at])? {
                Stop::Done => {
                    let done = running.swap_remove(at);
                    self.progress += 1;
                    if let Some(number) = waiting.pop() {
                        running.push(self.group(number, count, done.columns));
                    }
                }
                Stop::Barrier => self.progress += 1,
                Stop::Rounds => {}
                Stop::GivenUp => return Ok(()),
            }
            still = if self.progress == seen { still + 1 } else { 0 };
            seen = self.progress;
            if still > PATIENCE * running.len() {
                let stuck = &running[self.rng.below(running.len())];
                let what = match waiting.len() {
                    0 => "no workgroup makes progress: each waits in a loop".to_owned(),
                    n => format!(
                        "no workgroup makes progress: each waits in a loop, and {n} workgroups \
                         have not begun"
                    ),
                };
                self.find(stuck, Fault::NoProgress, None, what);
                return Ok(());
            }
        }
    }

    /// A workgroup that has not begun; `columns` are those of one that is done, or none.
    fn group(&mut self, number: u32, count: u32, mut columns: Vec<Vec<u32>>) -> Group {
        let program = self.program;
        columns.resize(program.registers as usize, vec![0; self.lanes]);
        let clocks = vec![0; if program.is_synchronised { count as usize } else { 0 }];
        let [x, y, _] = self.grid;
        let mut group = Group {
            number,
            id: [number % x, number / x % y, number / x / y],
            taints: vec![None; columns.len()],
            columns,
            active: self.full,
            lanes: 0..self.lanes,
            region: Region::of_workgroup(program.cells as usize),
            steps: vec![0; self.lanes.div_ceil(self.options.width as usize)],
            clock: clocks.clone(),
            coherent: clocks.clone(),
            acquired: clocks,
            ..Group::default()
        };
        for (first, count) in &program.undefined {
            for column in *first..first + count {
                group.columns[(column - FRAME) as usize].fill(0);
                group.set_taint(column, Some(vec![UNWRITTEN; self.lanes]));
            }
        }
        self.split(&mut group);
        let [sx, sy, _] = self.program.size;
        let width = self.options.width;
        for (builtin, first) in &self.program.inputs {
            let columns = &mut group.columns[(first - FRAME) as usize..];
            for lane in 0..self.lanes as u32 {
                let local = [lane % sx, lane / sx % sy, lane / sx / sy];
                let values = match builtin {
                    BuiltIn::LocalInvocationId => local,
                    BuiltIn::LocalInvocationIndex => [lane; 3],
                    BuiltIn::WorkGroupId => group.id,
                    BuiltIn::WorkGroupSize => self.program.size,
                    BuiltIn::NumWorkGroups => self.grid,
                    BuiltIn::NumSubgroups => [(self.lanes as u32).div_ceil(width); 3],
                    BuiltIn::SubgroupId => [lane / width; 3],
                    BuiltIn::SubgroupSize => [width; 3],
                    BuiltIn::SubgroupInvocationId => [lane % width; 3],
                    _ => [0, 1, 2].map(|i| group.id[i] * self.program.size[i] + local[i]),
                };
                let count = match builtin {
                    BuiltIn::LocalInvocationId
                    | BuiltIn::WorkGroupId
                    | BuiltIn::WorkGroupSize
                    | BuiltIn::NumWorkGroups
                    | BuiltIn::GlobalInvocationId => 3,
                    _ => 1,
                };
                for (column, value) in columns.iter_mut().zip(values).take(count) {
                    column[lane as usize] = value;
                }
            }
        }
        group
    }

    fn column<'g>(&'g self, group: &'g Group, at: Reg) -> &'g [u32] {
        match at.checked_sub(FRAME) {
            Some(at) => &group.columns[at as usize],
            None => &self.constants[at as usize],
        }
    }

    fn take(group: &mut Group, at: Reg) -> Vec<u32> {
        std::mem::take(&mut group.columns[(at - FRAME) as usize])
    }

    fn put(group: &mut Group, at: Reg, column: Vec<u32>) {
        group.columns[(at - FRAME) as usize] = column;
    }

    fn at(&self, pc: usize) -> u32 {
        self.program.places[pc].0
    }

    /// Bytes of the calls that lead to an instruction, innermost first.
    fn calls(&self, pc: usize) -> Vec<u32> {
        let mut call = self.program.places[pc].1;
        let outer = || {
            let (at, outer) = self.program.calls[std::mem::replace(&mut call, 0) as usize];
            call = outer;
            at
        };
        std::iter::repeat_with(outer).take_while(|at| *at > 0).collect()
    }

    fn invocation(group: &Group, lane: usize) -> Invocation {
        Invocation { workgroup: group.id, local: lane as u32 }
    }

    /// A fault of no variable at the current instruction.
    fn bare(&self, group: &Group, fault: Fault, lane: usize, what: String) -> (Key, Finding) {
        let (at, by) = (self.at(group.pc), Self::invocation(group, lane));
        let (variable, index, other) = (None, None, None);
        let calls = self.calls(group.pc);
        let finding = Finding { fault, at, calls, variable, index, by, other, what, times: 1 };
        ((fault, at, 0), finding)
    }

    fn find(&mut self, group: &Group, fault: Fault, lane: Option<usize>, what: String) {
        let lane = lane.or_else(|| group.active.lowest()).unwrap_or_default();
        let (key, finding) = self.bare(group, fault, lane, what);
        self.findings.add(key, || finding);
    }

    /// Runs a workgroup until another may run.
    fn run_group(&mut self, group: &mut Group) -> Result<Stop, Error> {
        let program = self.program;
        loop {
            let pc = group.pc;
            let op = &program.code[pc];
            if fiber::ends(op, group) && self.meet(group) {
                continue;
            }
            let lanes = group.lanes.clone();
            let mut stop = None;
            match *op {
                Op::Do { what, kind, to, of } => {
                    let mut column = Self::take(group, to);
                    let from = of.map(|at| &self.column(group, at)[lanes.clone()]);
                    columns::apply(what, kind, &mut column[lanes], from);
                    Self::put(group, to, column);
                    match what {
                        What::Select => group.spread_choice(self, to, of),
                        _ => group.spread(to, &of),
                    }
                    self.check(group, what, kind, to, of);
                }
                Op::Set(to, from) => {
                    group.spread_active(to, from);
                    let mut column = Self::take(group, to);
                    let from = self.column(group, from);
                    if group.active == self.full {
                        column.copy_from_slice(from);
                    } else {
                        group.active.each(|lane| column[lane] = from[lane]);
                    }
                    Self::put(group, to, column);
                }
                Op::Gather { .. }
                | Op::Index { .. }
                | Op::ArrayLength { .. }
                | Op::Load { .. }
                | Op::Store { .. }
                | Op::Atomic { .. }
                | Op::Uniform { .. } => self.memory(group, op),
                Op::Fold { .. } | Op::Ballot { .. } | Op::Move { .. } => self.subgroup(group, op),
                Op::MatrixLoad(..) | Op::MatrixStore(..) | Op::MatrixMulAdd(_) => {
                    self.matrix(group, op);
                }
                _ => stop = self.control(group, op),
            }
            // Control flow sets the place of the next instruction relative to the one after it.
            group.pc += 1;
            if let Some(stop) = stop {
                if stop == Stop::Rounds {
                    group.switch();
                }
                return Ok(stop);
            }
        }
    }
}
