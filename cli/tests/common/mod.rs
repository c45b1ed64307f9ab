//! Shared parts of the tests: the device and its executors, the `lathe` command, and the goldens.
#![allow(dead_code, reason = "each test target uses its own part")]

use std::cell::Cell;
use std::ffi::OsString;
use std::ops::{ControlFlow, Deref};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lathe_harness::decode::{DecodeGraph, Decoder, Model, Prompts, Sampling, Script};
use lathe_harness::error::{Error, Result};
use lathe_harness::execute::{Batch, CpuExecutor, Execute, GpuExecutor, Stream};
use lathe_harness::gpu::{Checks, Gpu, Pipelines, Policy};
use lathe_harness::model::synth::{SynthSpec, write_synth};
use lathe_harness::plan::recording::{Part, Recording, TensorId};
use lathe_kernels::{Kernel, Problem};
use serde_json::Value;

/// A device with its compiled pipelines: tests whose steps have an operation in common compile it
/// once.
#[derive(Clone)]
pub(crate) struct Device {
    gpu: Arc<Gpu>,
    pipelines: Pipelines,
}

impl Device {
    fn open() -> Result<Self> {
        Gpu::open(None, Checks::Files).map(|gpu| Arc::new(gpu).into())
    }
}

impl From<Arc<Gpu>> for Device {
    fn from(gpu: Arc<Gpu>) -> Self {
        Self { gpu, pipelines: Pipelines::default() }
    }
}

impl Deref for Device {
    type Target = Arc<Gpu>;

    fn deref(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}

/// The device, or `None` with a word on stderr where there is none. With `LATHE_REQUIRE_GPU=1`,
/// which `./x test` sets, a missing adapter fails: skipped is not passed.
pub(crate) fn gpu() -> Option<Device> {
    static GPU: OnceLock<Option<Device>> = OnceLock::new();
    GPU.get_or_init(|| match Device::open() {
        Ok(device) => Some(device),
        Err(e) if std::env::var("LATHE_REQUIRE_GPU").is_ok_and(|v| v == "1") => {
            panic!("LATHE_REQUIRE_GPU=1: {e}")
        }
        Err(e) => {
            eprintln!("UNAVAILABLE, not tested: {e}");
            None
        }
    })
    .clone()
}

/// Devices whose tests have ended.
static FREE: Mutex<Vec<Device>> = Mutex::new(Vec::new());

/// A device that no other test uses meanwhile.
pub(crate) struct OwnDevice(Option<Device>);

impl Deref for OwnDevice {
    type Target = Device;

    fn deref(&self) -> &Device {
        self.0.as_ref().unwrap()
    }
}

impl Drop for OwnDevice {
    fn drop(&mut self) {
        // What a test that failed has left is nobody's to use.
        let sound = !std::thread::panicking() && self.check_faults().is_ok();
        let free = self.0.take().filter(|device| sound && device.wait(None).is_ok());
        FREE.lock().unwrap_or_else(PoisonError::into_inner).extend(free);
    }
}

/// A device of one's own, for tests that compile much and time nothing: a software adapter compiles
/// on one core, and not before a dispatch, so a shared device would keep the others idle.
pub(crate) fn own_gpu() -> Option<OwnDevice> {
    gpu()?;
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    Some(OwnDevice(Some(free.unwrap_or_else(|| Device::open().unwrap()))))
}

/// A device on which nothing was allocated yet.
pub(crate) fn new_gpu() -> Option<Device> {
    gpu()?;
    Some(Device::open().unwrap())
}

/// Lock for one test at a time on the shared device.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn executor(device: &Device, recording: &Arc<Recording>, policy: Policy) -> GpuExecutor {
    let (gpu, recording) = (Arc::clone(&device.gpu), Arc::clone(recording));
    GpuExecutor::new(gpu, &device.pipelines, recording, policy, &mut |_, _| {}).unwrap()
}

/// An executor that detects reads and writes beyond its tensors.
pub(crate) fn on_gpu(device: &Device, graph: &DecodeGraph) -> GpuExecutor {
    executor(device, &graph.recording, Policy::Guarded)
}

/// Choices of a run, and the logits of each of its steps.
pub(crate) fn observed(
    graph: &DecodeGraph,
    executor: &mut dyn Execute,
    script: &Script,
) -> (Vec<u32>, Vec<f32>) {
    let mut logits = Vec::new();
    let run = Decoder::new(graph, executor).observe(script, &mut |step| {
        logits.extend_from_slice(step.logits);
        Ok(())
    });
    (run.unwrap().generated, logits)
}

/// A file of the repository as an argument of a command.
pub(crate) fn repository(file: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file).display().to_string()
}

/// `lathe` with arguments and without the choices that its user stored, in a folder.
pub(crate) fn command_in(folder: impl AsRef<Path>, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lathe"));
    command.args(args).current_dir(folder).env_remove("LATHE_TUNED");
    command
}

pub(crate) fn command(args: &[&str]) -> Command {
    command_in(".", args)
}

pub(crate) fn lathe_in(folder: impl AsRef<Path>, args: &[&str]) -> Output {
    command_in(folder, args).output().unwrap()
}

/// Commands and options that start the program again, and names of files that are compiled in a
/// process of their own.
fn needs_a_process(arg: &str) -> bool {
    let starts = ["tune", "--processes", "--beside", "--manifest"];
    starts.contains(&arg) || arg.ends_with(".wgsl") || arg.ends_with(".toml")
}

/// Runs a command in this process where it can, as starting one costs more than most commands do.
pub(crate) fn lathe(args: &[&str]) -> Output {
    /// Stack of a program's main thread.
    const STACK: usize = 8 << 20;
    let has_choices = std::env::var_os("LATHE_TUNED").is_some();
    if has_choices || args.iter().any(|arg| needs_a_process(arg)) {
        return command(args).output().unwrap();
    }
    let words: Vec<OsString> = std::iter::once(&"lathe").chain(args).map(OsString::from).collect();
    let run = std::thread::Builder::new().stack_size(STACK).spawn(move || lathe_cli::run(&words));
    let finished = run.unwrap().join().unwrap_or_else(|_| panic!("{args:?} panicked"));
    let status = exit_status(finished.code);
    Output { status, stdout: finished.stdout, stderr: finished.stderr }
}

#[cfg(unix)]
fn exit_status(code: u8) -> ExitStatus {
    std::os::unix::process::ExitStatusExt::from_raw(i32::from(code) << 8)
}

#[cfg(windows)]
fn exit_status(code: u8) -> ExitStatus {
    std::os::windows::process::ExitStatusExt::from_raw(code.into())
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("killed: {output:?}"))
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Output of a command: stdout, then stderr.
pub(crate) fn said(output: &Output) -> String {
    stdout(output) + &stderr(output)
}

/// stdout as exactly one JSON document with a schema version, however the command ended.
#[track_caller]
pub(crate) fn json(output: &Output) -> Value {
    let value: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(output)));
    assert_eq!(value["schema_version"], 1);
    value
}

/// The document of a command that ended well.
#[track_caller]
pub(crate) fn document(output: &Output) -> Value {
    assert_eq!(code(output), 0, "{}", stderr(output));
    json(output)
}

/// Checks a command's exit code and returns its stderr.
#[track_caller]
pub(crate) fn ended(output: &Output, expected: i32) -> String {
    assert_eq!(code(output), expected, "{}", said(output));
    stderr(output)
}

/// A command ended with this exit code, and these words are among what it said on stderr.
#[track_caller]
pub(crate) fn assert_ends(output: &Output, expected: i32, words: &str) {
    assert_eq!(code(output), expected, "not `{words}`, but: {}", said(output));
    assert!(stderr(output).contains(words), "`{words}` is not in: {}", stderr(output));
}

/// Checks that a command ended well and returns its stdout.
#[track_caller]
pub(crate) fn printed(output: &Output) -> String {
    ended(output, 0);
    stdout(output)
}

/// Bytes of a text in which `\n` and `\xff` stand for bytes.
pub(crate) fn escaped(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap().replace("\\n", "\n").into_bytes();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend(part[2..].replace("\\n", "\n").bytes());
    }
    bytes
}

/// A folder for one test, whose files are named as arguments of a command.
pub(crate) struct Folder(tempfile::TempDir);

impl Default for Folder {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.join(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        self.0.path()
    }
}

/// The kernel's default problem with the parameters and the state that `text` names.
pub(crate) fn problem(kernel: &Kernel, text: &str) -> Problem {
    kernel.parse_over(&kernel.default_problem(), text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// A file below `tests/goldens`.
pub(crate) fn golden(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(file)
}

/// A file below `tests/goldens`, as an argument of a command.
pub(crate) fn golden_name(file: &str) -> String {
    golden(file).display().to_string()
}

/// Goldens of every architecture, dense and quantised.
pub(crate) const GOLDENS: [&str; 6] = [
    "gemma3-tiny-f16",
    "llama-tiny-f16",
    "qwen3-tiny-bf16",
    "gemma3-tiny-q4km",
    "llama-tiny-q4km",
    "qwen3-tiny-q80",
];

/// Goldens of further models of these families, as folders: goldens/make.py.
pub(crate) const FOLDERS: [&str; 8] = [
    "gemma3-tiny-linear",
    "llama-tiny-linear",
    "qwen3-tiny-yarn",
    "llama-tiny-yarn",
    "mistral-tiny",
    "mistral-tiny-window",
    "llama-tiny-narrow",
    "qwen2-tiny",
];

/// A context of them in which heads and attention are one kernel. Tests of the same one compile the
/// same texts once.
pub(crate) const LONGER: usize = 136;

/// A golden's file; its folder where it has none.
pub(crate) fn model(name: &str) -> Model {
    let file = golden(&format!("{name}.gguf"));
    Model::open(if file.exists() { file } else { golden(name) }).unwrap()
}

/// A synthetic checkpoint.
pub(crate) fn synthetic(spec: &SynthSpec) -> Model {
    let folder = Folder::new();
    let path = folder.join("synthetic.gguf");
    write_synth(spec, &path, &mut |_, _| {}).unwrap();
    Model::open(&path).unwrap()
}

/// Draws bent by nothing but a temperature.
pub(crate) const fn warm(temperature: f32) -> Sampling {
    Sampling { temperature, top_k: 0, top_p: 1.0, repeat_penalty: 1.0, repeat_last_n: 0 }
}

pub(crate) fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// A golden with the tokens and logits that transformers gives it.
pub(crate) struct Golden {
    pub(crate) prompt: Vec<u32>,
    pub(crate) greedy: Vec<u32>,
    /// Logits after each token of both.
    pub(crate) logits: Vec<f32>,
    pub(crate) model: Model,
}

impl Golden {
    pub(crate) fn load(name: &str) -> Self {
        let file = |end: &str| golden(&format!("{name}.{end}"));
        Self::of(&file("json"), &file("logits.f32"), "", model(name))
    }

    /// A case of a file of cases.
    pub(crate) fn of(json: &Path, logits: &Path, case: &str, model: Model) -> Self {
        let text = std::fs::read_to_string(json).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        let ids = |key: &str| ids(json.pointer(&format!("{case}/{key}")).unwrap());
        let logits = bytemuck::pod_collect_to_vec(&std::fs::read(logits).unwrap());
        Self { prompt: ids("prompt"), greedy: ids("greedy"), logits, model }
    }

    /// Prompt and the golden's own greedy tokens, all fed.
    pub(crate) fn forced(&self) -> Script {
        Script { forced: self.greedy.clone(), prompts: Prompts::TokenByToken, ..self.free(1) }
    }

    /// The prompt, and as many greedy choices as the golden has.
    pub(crate) fn free(&self, steps_per_submit: usize) -> Script {
        Script {
            prompt: self.prompt.clone(),
            generate: self.greedy.len(),
            steps_per_submit: Some(steps_per_submit),
            ..Script::default()
        }
    }
}

pub(crate) fn nmse(expected: &[f32], got: &[f32]) -> f64 {
    assert_eq!(expected.len(), got.len());
    let [a, b] = [expected, got].map(|values| values.iter().map(|v| f64::from(*v)));
    lathe_reference::nmse(a, b)
}

pub(crate) fn on_cpu(graph: &DecodeGraph) -> CpuExecutor {
    CpuExecutor::new(Arc::clone(&graph.recording))
}

/// A planted fault of an executor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    Nothing,
    /// A token that is heard while the run goes on is another than the one in memory.
    Heard,
    /// A chosen token is another, heard and in memory alike.
    Chosen,
    /// The host's tokens do not stay.
    Given,
    /// Logits are off.
    Logits,
    /// A reset that forgets the step state.
    Reset,
    /// Waits give up after so many submissions.
    Waits(usize),
}

impl Fault {
    fn submit(fault: &Cell<Self>) -> Result<()> {
        if let Self::Waits(left) = fault.get() {
            let gave_up = || Error::GridBarrier { adapter: "a test".into(), waits: 1 };
            fault.set(Self::Waits(left.checked_sub(1).ok_or_else(gave_up)?));
        }
        Ok(())
    }
}

/// A device with a fault that comes and goes.
pub(crate) struct Faulty<'a> {
    pub(crate) inner: &'a mut dyn Execute,
    pub(crate) fault: Rc<Cell<Fault>>,
    pub(crate) graph: &'a DecodeGraph,
    /// Number of tokens that the host gives.
    pub(crate) given: usize,
}

impl Execute for Faulty<'_> {
    fn recording(&self) -> &Arc<Recording> {
        self.inner.recording()
    }

    fn apart(&self) -> Result<Option<Box<dyn Execute>>> {
        self.inner.apart()
    }

    fn run_op(&mut self, part: Part, op: usize) -> Result<()> {
        self.inner.run_op(part, op)
    }

    fn write_words(&mut self, tensor: TensorId, at: usize, words: &[u32]) -> Result<()> {
        self.inner.write_words(tensor, at, words)
    }

    fn clear(&mut self, tensor: TensorId) -> Result<()> {
        match self.fault.get() {
            Fault::Reset if tensor == self.graph.state => Ok(()),
            _ => self.inner.clear(tensor),
        }
    }

    fn prepare(&mut self, parts: &[Part]) -> Result<()> {
        self.inner.prepare(parts)
    }

    fn run(&mut self, parts: &[Part]) -> Result<()> {
        Fault::submit(&self.fault)?;
        self.inner.run(parts)
    }

    fn stream(
        &mut self,
        stream: &Stream,
        on: &mut dyn FnMut(Batch) -> ControlFlow<()>,
    ) -> Result<()> {
        let (fault, mut submitted) = (&self.fault, Ok(()));
        self.inner.stream(stream, &mut |mut batch| {
            submitted = Fault::submit(fault);
            if submitted.is_err() {
                return ControlFlow::Break(());
            }
            if matches!(fault.get(), Fault::Heard | Fault::Chosen) {
                batch.words.iter_mut().take(1).for_each(|word| *word ^= 1);
            }
            on(batch)
        })?;
        submitted
    }

    fn read_words(&mut self, tensor: TensorId) -> Result<Vec<u32>> {
        let mut words = self.inner.read_words(tensor)?;
        match self.fault.get() {
            Fault::Chosen if tensor == self.graph.tokens => {
                words[self.given..].iter_mut().for_each(|token| *token ^= 1);
            }
            Fault::Given if tensor == self.graph.tokens => words[0] ^= 1,
            _ => {}
        }
        Ok(words)
    }

    fn read_f32(&mut self, tensor: TensorId) -> Result<Vec<f32>> {
        let mut values = self.inner.read_f32(tensor)?;
        if self.fault.get() == Fault::Logits {
            values[5] += 0.5;
        }
        Ok(values)
    }
}
