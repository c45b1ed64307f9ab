//! The recording in the interpreter of `lathe-sanitize`: what the device would run, one scalar at a
//! time, with every access watched.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use lathe_kernels::{Constants, persistent};
pub use lathe_sanitize::Options;
use lathe_sanitize::{Buffer, Finding, Program, line, run};
use serde::Serialize;

use super::{Batch, Execute, Stream};
use crate::error::{Error, Result};
use crate::gpu::poison;
use crate::plan::Code;
use crate::plan::recording::{Op, Part, Recording, Stack, TensorId, TensorInit, padded};

/// Runs a recording in the interpreter.
#[derive(Debug)]
pub struct Interpreter {
    /// The recording it executes.
    pub recording: Arc<Recording>,
    /// Faults so far, each with the operation that has it.
    pub found: Vec<Found>,
    blocks: Vec<Buffer>,
    options: Options,
    programs: HashMap<(*const Code, String), Arc<Program>>,
}

/// A fault of a kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Name of the fault, such as `race`.
    pub fault: &'static str,
    /// File of the access.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
    /// The call that leads there from another file: file and line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub called: Option<(String, usize)>,
    /// Variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// Element of the variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// One sentence.
    pub what: String,
    /// Workgroup of the first invocation that was seen.
    pub workgroup: [u32; 3],
    /// Its `local_invocation_index`.
    pub invocation: u32,
    /// The access that it collides with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Place>,
    /// Times that it was seen at these lines.
    pub times: u64,
}

/// An access.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    /// File.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Workgroup.
    pub workgroup: [u32; 3],
    /// `local_invocation_index`
    pub invocation: u32,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { fault, file, line, what, workgroup: [x, y, z], invocation, .. } = self;
        write!(f, "{file}:{line}: {}: ", fault.replace('_', " "))?;
        if let Some(name) = &self.variable {
            write!(f, "{name}")?;
            if let Some(index) = self.index {
                write!(f, "[{index}]")?;
            }
            write!(f, ": ")?;
        }
        write!(f, "{what}; invocation {invocation} of workgroup ({x}, {y}, {z})")?;
        if let Some(Place { file, line, workgroup: [x, y, z], invocation }) = &self.other {
            write!(
                f,
                " and invocation {invocation} of workgroup ({x}, {y}, {z}) at {file}:{line}"
            )?;
        }
        if let Some((file, line)) = &self.called {
            write!(f, "; called at {file}:{line}")?;
        }
        match self.times {
            1 => Ok(()),
            n => write!(f, "; seen {n} times"),
        }
    }
}

impl Interpreter {
    /// An executor with every tensor at its initial content. Activations have none.
    pub fn new(recording: Arc<Recording>, options: Options) -> Self {
        let blocks = recording.tensors.iter().map(|tensor| {
            let content = &tensor.content;
            let bytes = padded(content.device_bytes()) as usize;
            let mut block = match content {
                TensorInit::Activation { .. } => Buffer::unwritten(vec![poison(); bytes / 4]),
                TensorInit::Words(_) | TensorInit::Kv { .. } => Buffer::filled(vec![0; bytes / 4]),
                _ => Buffer::filled(vec![poison(); bytes / 4]),
            };
            content.initial(|at, data| write(&mut block, at, data));
            block
        });
        let blocks = blocks.collect();
        Self { recording, found: Vec::new(), blocks, options, programs: HashMap::new() }
    }

    /// Returns true if a kernel that ran has atomics: what they return depends on the order.
    pub fn has_atomics(&self) -> bool {
        self.programs.values().any(|program| program.has_atomics())
    }

    /// Content and padding of a tensor.
    pub fn block(&mut self, tensor: TensorId) -> &mut Buffer {
        &mut self.blocks[tensor.0]
    }

    /// Writes content from a byte on; multiples of 4.
    pub fn write(&mut self, tensor: TensorId, at: u64, data: &[u8]) {
        write(&mut self.blocks[tensor.0], at, data);
    }

    /// The content of a tensor.
    pub fn read(&self, tensor: TensorId) -> Vec<u8> {
        let mut bytes: Vec<u8> = bytemuck::cast_slice(&self.blocks[tensor.0].words).to_vec();
        bytes.truncate(self.recording.tensors[tensor.0].content.device_bytes() as usize);
        bytes
    }

    /// Runs an entry point over the tensors that `bound` names for its variables.
    fn dispatch(
        &mut self,
        what: &str,
        (code, constants, entry): (&Arc<Code>, &Constants, &str),
        groups: [u32; 3],
        bound: &dyn Fn(&str) -> Stack,
    ) -> Result<()> {
        let refuse = |e| match e {
            lathe_sanitize::Error::Unsupported(_) => Error::Unavailable {
                what: what.to_owned(),
                adapter: "the interpreter".to_owned(),
                reason: e.to_string(),
            },
            lathe_sanitize::Error::Dispatch(_) => Error::CheckFailed(format!("{what}: {e}")),
        };
        let key = (Arc::as_ptr(code), entry.to_owned());
        let program = match self.programs.get(&key) {
            Some(known) => Arc::clone(known),
            None => {
                let (module, info) = code.reflection.resolved(entry, constants)?;
                let program = Arc::new(Program::of(&module, &info, entry).map_err(refuse)?);
                self.programs.insert(key, Arc::clone(&program));
                program
            }
        };
        let stacks: Vec<Stack> = program.buffers().iter().map(|b| bound(&b.name)).collect();
        // A tensor may be bound twice to be read: on its own, and with those of other layers.
        let shares = |i: usize| {
            let of = |tensor| stacks.iter().filter(|other| other.tensors.contains(tensor)).count();
            stacks[i].tensors.iter().any(|tensor| of(tensor) > 1)
        };
        let mut taken: Vec<Buffer> = Vec::with_capacity(stacks.len());
        for (i, (stack, buffer)) in stacks.iter().zip(program.buffers()).enumerate() {
            if buffer.writable && shares(i) {
                let what = format!("{what}: `{}` is written and bound twice", buffer.name);
                return Err(Error::CheckFailed(what));
            }
            taken.push(self.lend(stack, shares(i)));
        }
        let mut buffers: Vec<&mut Buffer> = taken.iter_mut().collect();
        let found = run(&program, groups, &mut buffers, self.options).map_err(refuse);
        for (i, (stack, buffer)) in stacks.iter().zip(taken).enumerate() {
            if !shares(i) {
                self.give_back(stack, buffer);
            }
        }
        for finding in found? {
            let found = placed(code, what, finding);
            let same = |known: &Found| {
                (known.fault, &known.file, known.line) == (found.fault, &found.file, found.line)
            };
            match self.found.iter_mut().find(|known| same(known)) {
                Some(known) => known.times += found.times,
                None => self.found.push(found),
            }
        }
        Ok(())
    }

    /// The memory of a tensor, or of tensors one after another; a copy where others need it too.
    fn lend(&mut self, stack: &Stack, copies: bool) -> Buffer {
        let first = self.block(stack.tensors[0]);
        let mut lent = match copies {
            true => first.clone(),
            false => std::mem::replace(first, Buffer::filled(Vec::new())),
        };
        if stack.is_shared() {
            let words = stack.stride as usize / 4;
            let count = stack.tensors.len();
            lent.words.resize(words * count, poison());
            lent.bytes = 4 * lent.words.len() as u32;
            if let Some(written) = &mut lent.written {
                written.resize(2 * lent.words.len(), false);
            }
            for (i, tensor) in stack.tensors.iter().enumerate().skip(1) {
                let block = &self.blocks[tensor.0];
                lent.words[i * words..][..block.words.len()].copy_from_slice(&block.words);
                if let (Some(all), Some(own)) = (&mut lent.written, &block.written) {
                    all[2 * i * words..][..own.len()].copy_from_slice(own);
                }
            }
        }
        lent
    }

    fn give_back(&mut self, stack: &Stack, mut lent: Buffer) {
        if stack.is_shared() {
            let words = stack.stride as usize / 4;
            for (i, tensor) in stack.tensors.iter().enumerate().skip(1) {
                let block = &mut self.blocks[tensor.0];
                let len = block.words.len();
                block.words.copy_from_slice(&lent.words[i * words..][..len]);
                if let (Some(all), Some(own)) = (&lent.written, &mut block.written) {
                    own.copy_from_slice(&all[2 * i * words..][..2 * len]);
                }
            }
            let first = &self.recording.tensors[stack.tensors[0].0].content;
            lent.words.truncate(padded(first.device_bytes()) as usize / 4);
            lent.bytes = 4 * lent.words.len() as u32;
            if let Some(written) = &mut lent.written {
                written.truncate(2 * lent.words.len());
            }
        }
        *self.block(stack.tensors[0]) = lent;
    }

    fn run_stages(&mut self, op: &Op) -> Result<()> {
        for stage in &op.plan.stages {
            let code = &stage.code;
            let bound =
                |name: &str| Stack { tensors: vec![op.tensor(code.binding(name))], stride: 0 };
            let entry = (code, &code.constants, stage.entry.as_str());
            let source = lathe_kernels::source(op.plan.kernel.name, &op.plan.variant);
            let file = match (&code.file, source) {
                (Some(file), _) => file.clone(),
                (None, Some(source)) if op.plan.built_in => format!("kernels/{}", source.file),
                (None, Some(source)) => source.file.to_owned(),
                (None, None) => op.plan.variant.clone(),
            };
            self.dispatch(&file, entry, stage.groups, &bound)?;
        }
        Ok(())
    }

    /// Runs the operations of a part, with its persistent kernels where there are any.
    fn run_part(&mut self, part: Part) -> Result<()> {
        let recording = Arc::clone(&self.recording);
        let ops = recording.part(part);
        let whole = matches!(part, Part::Steps(_));
        let mut index = 0;
        while let Some(op) = ops.get(index) {
            let kernel = recording.persistent.iter().find(|kernel| kernel.ops.start == index);
            let Some(kernel) = kernel.filter(|_| whole) else {
                self.run_stages(op)?;
                index += 1;
                continue;
            };
            let none = Constants::new();
            let entry = (&kernel.code, &none, persistent::ENTRY);
            let bound = |name: &str| kernel.bound(name).clone();
            self.dispatch("the persistent kernel", entry, [kernel.grid.groups, 1, 1], &bound)?;
            let waits = self.blocks[kernel.arrivals.0].words[0];
            if waits > 0 {
                return Err(Error::GridBarrier { adapter: "the interpreter".into(), waits });
            }
            index = kernel.ops.end;
        }
        Ok(())
    }
}

fn write(block: &mut Buffer, at: u64, data: &[u8]) {
    let first = at as usize / 4;
    for (word, bytes) in block.words[first..].iter_mut().zip(data.chunks(4)) {
        let mut all = word.to_le_bytes();
        all[..bytes.len()].copy_from_slice(bytes);
        *word = u32::from_le_bytes(all);
    }
    if let Some(written) = &mut block.written {
        written[at as usize / 2..(at as usize + data.len()).div_ceil(2)].fill(true);
    }
}

/// A finding in terms of files and lines.
fn placed(code: &Code, name: &str, finding: Finding) -> Found {
    let place = |at: u32| {
        let (file, line) = lathe_kernels::place(&code.text, name, line(&code.text, at) as usize);
        (file.to_owned(), line)
    };
    let (file, line) = place(finding.at);
    let called = finding.calls.iter().map(|at| place(*at)).find(|(other, _)| *other != file);
    let other = finding.other.map(|other| {
        let (file, line) = place(other.at);
        Place { file, line, workgroup: other.by.workgroup, invocation: other.by.local }
    });
    Found {
        fault: finding.fault.name(),
        file,
        line,
        called,
        variable: finding.variable,
        index: finding.index,
        what: finding.what,
        workgroup: finding.by.workgroup,
        invocation: finding.by.local,
        other,
        times: finding.times,
    }
}

impl Execute for Interpreter {
    fn recording(&self) -> &Arc<Recording> {
        &self.recording
    }

    fn apart(&self) -> Result<Option<Box<dyn Execute>>> {
        Ok(None)
    }

    fn run_op(&mut self, part: Part, op: usize) -> Result<()> {
        let recording = Arc::clone(&self.recording);
        self.run_stages(&recording.part(part)[op])
    }

    fn write_words(&mut self, tensor: TensorId, at: usize, words: &[u32]) -> Result<()> {
        self.write(tensor, 4 * at as u64, bytemuck::cast_slice(words));
        Ok(())
    }

    fn clear(&mut self, tensor: TensorId) -> Result<()> {
        let block = &mut self.blocks[tensor.0];
        block.words.fill(0);
        if let Some(written) = &mut block.written {
            written.fill(true);
        }
        Ok(())
    }

    fn prepare(&mut self, _parts: &[Part]) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, parts: &[Part]) -> Result<()> {
        for part in parts {
            for _ in 0..part.times() {
                self.run_part(*part)?;
            }
        }
        Ok(())
    }

    fn stream(
        &mut self,
        stream: &Stream,
        on: &mut dyn FnMut(Batch) -> ControlFlow<()>,
    ) -> Result<()> {
        let begun = Instant::now();
        for submission in &stream.submissions {
            self.run(&submission.parts)?;
            let words = self.blocks[stream.words.0].words[submission.words.clone()].to_vec();
            let at = begun.elapsed();
            if on(Batch { words, steps: submission.steps(), at, gpu: None }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_words(&mut self, tensor: TensorId) -> Result<Vec<u32>> {
        Ok(bytemuck::pod_collect_to_vec(&self.read(tensor)))
    }

    fn read_f32(&mut self, tensor: TensorId) -> Result<Vec<f32>> {
        Ok(self.recording.tensors[tensor.0].content.values(&self.read(tensor)))
    }
}
