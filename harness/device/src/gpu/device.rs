//! One opened device. Nothing here panics on a GPU fault: uncaptured errors and device loss are
//! collected and turned into [`Error`]s at the next wait. A device that the application made keeps
//! its own callbacks; there every call that could fail is made inside an error scope.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use lathe_kernels::{Capabilities, CooperativeMatrix, Grid, Mask};
use lathe_record::AdapterSummary;
use wgpu::BufferUsages;

use super::adapter;
use crate::error::{Error, Result};
use crate::plan::tuned::Platform;

/// Choice of shaders that carry wgpu's run-time checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Checks {
    /// Users' files only: built-in ones are validated, and bounds clamps cost 2-3x in scalar loops.
    #[default]
    Files,
    /// All.
    Everywhere,
    /// None: the user vouches for their files.
    Nowhere,
}

impl Checks {
    /// Returns true if shaders carry the checks.
    pub(crate) fn cover(self, built_in: bool) -> bool {
        match self {
            Checks::Files => !built_in,
            Checks::Everywhere => true,
            Checks::Nowhere => false,
        }
    }

    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            Checks::Files => "off",
            Checks::Everywhere => "on",
            Checks::Nowhere => "nowhere",
        }
    }
}

/// Errors seen outside any error scope.
#[derive(Debug, Default)]
struct Faults {
    uncaptured: Vec<String>,
    lost: Option<String>,
}

/// Device memory in use, at one moment or at its peak; none where the back end does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes of all buffers, counted by wgpu's allocator: tensors, staging, read-backs.
    pub allocated: Option<u64>,
    /// Bytes as the driver counts them ([`Budget::used`](super::Budget::used)), including blocks of
    /// up to 256 MiB that the allocator has reserved in advance.
    pub used: Option<u64>,
}

impl MemoryUse {
    pub(super) fn max(self, other: Self) -> Self {
        // None is less than any count.
        let (allocated, used) = (self.allocated, self.used);
        Self { allocated: allocated.max(other.allocated), used: used.max(other.used) }
    }
}

/// Uploads in flight. Staging memory is freed when its submission ends, so the amount in flight is
/// bounded: the device copies one upload while the host fills the next.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    /// Bytes written since the last submission.
    pub(super) pending: u64,
    pub(super) submitted: VecDeque<wgpu::SubmissionIndex>,
}

/// An opened device with its queue.
#[derive(Debug)]
pub struct Gpu {
    /// wgpu's device.
    pub device: wgpu::Device,
    /// wgpu's queue.
    pub queue: wgpu::Queue,
    /// Summary of the adapter.
    pub adapter: AdapterSummary,
    /// Features and limits that kernels may rely on.
    pub caps: Capabilities,
    /// Run-time checks of the shaders compiled here.
    pub checks: Checks,
    /// Nanoseconds per timestamp tick.
    pub timestamp_period: f64,
    /// Longest time of one submission before the device counts as hung.
    pub timeout: Duration,
    /// Maximum number of bytes of device memory held together; without it, the device's memory. It
    /// bounds the predicted size ([`Gpu::admit`]), so that several processes can share a device.
    pub memory_limit: Option<u64>,
    /// The most memory in use so far.
    pub(super) peak: Mutex<MemoryUse>,
    /// Uploads in flight.
    pub(super) uploads: Mutex<Uploads>,
    /// Grid whose workgroups can wait for each other, once tested.
    pub(super) grid: Mutex<Option<std::result::Result<Grid, String>>>,
    /// Buffer of poison that unwritten outputs are copied from.
    pub(super) poison: OnceLock<wgpu::Buffer>,
    /// True if the application made the device; it then receives uncaptured errors and device loss
    /// itself.
    is_foreign: bool,
    faults: Arc<Mutex<Faults>>,
}

impl Gpu {
    /// Adapter, wgpu version and checks that a tuned choice is valid for.
    pub fn platform(&self) -> Platform<'_> {
        let (wgpu, runtime_checks) = (super::WGPU_VERSION, self.checks.name());
        Platform { adapter: &self.adapter, wgpu, runtime_checks }
    }

    /// Opens the adapter of a name or index (default: the first real GPU, else software) with all
    /// of its limits and features that kernels use.
    pub fn open(wanted: Option<&str>, checks: Checks) -> Result<Self> {
        Self::masked(wanted, checks, &Mask::default())
    }

    /// Opens an adapter as [`Gpu::open`] does, without the features that are masked, so that it
    /// stands for a poorer one. The driver's name in records then names the mask.
    pub fn masked(wanted: Option<&str>, checks: Checks, mask: &Mask) -> Result<Self> {
        let from_env = std::env::var("LATHE_ADAPTER").ok().filter(|v| !v.is_empty());
        let wanted = wanted.or(from_env.as_deref());
        let instance = adapter::instance(mask.strict_webgpu);
        let (mut summary, adapter) = adapter::choose(adapter::enumerate(&instance), wanted)?;
        let features = adapter.features() - adapter::hidden(mask);
        let mut limits = adapter.limits();
        if mask.strict_webgpu {
            limits = wgpu::Limits::default();
        }
        if !mask.is_empty() {
            summary = adapter::offered(summary.index, &adapter, features, &limits);
            summary.driver += &format!(", {mask}");
        }
        let useful = wgpu::Features::SUBGROUP
            | wgpu::Features::SHADER_F16
            | wgpu::Features::TIMESTAMP_QUERY
            | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS
            | wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES
            | wgpu::Features::MEMORY_DECORATION_COHERENT
            | wgpu::Features::SUBGROUP_BARRIER
            | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        let required_features = features & useful;
        let matrices = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        let experimental_features = match required_features.contains(matrices) {
            // SAFETY: cooperative matrices are asked for only in this project's own sources, which
            // stay inside their tiles, and in a user's file that names them; no other experimental
            // feature is requested.
            true => unsafe { wgpu::ExperimentalFeatures::enabled() },
            false => wgpu::ExperimentalFeatures::disabled(),
        };
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("lathe"),
            required_features,
            experimental_features,
            required_limits: limits,
            memory_hints: wgpu::MemoryHints::Performance,
            ..Default::default()
        };
        let (device, queue) =
            pollster::block_on(adapter.request_device(&descriptor)).map_err(|e| Error::Gpu {
                adapter: summary.name.clone(),
                what: "a device".into(),
                reason: e.to_string(),
            })?;
        let faults = Arc::new(Mutex::new(Faults::default()));
        let sink = Arc::clone(&faults);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            let mut faults = sink.lock().unwrap_or_else(PoisonError::into_inner);
            faults.uncaptured.push(error.to_string());
        }));
        let sink = Arc::clone(&faults);
        device.set_device_lost_callback(move |reason, message| {
            let mut faults = sink.lock().unwrap_or_else(PoisonError::into_inner);
            faults.lost = Some(format!("lost ({reason:?}): {message}"));
        });
        let matrices = adapter::cooperative_matrices(&adapter, required_features);
        let mut gpu = Self::over(device, queue, summary, matrices, checks);
        gpu.caps.mask = mask.clone();
        Ok(Self { faults, ..gpu })
    }

    /// Uses a device that the application has made. Kernels may rely on the features and limits it
    /// was opened with, not on those of its adapter. A variant that needs more is refused as on an
    /// adapter without them.
    ///
    /// The device stays the application's: its error callbacks are not replaced and receive no
    /// error caused here. Waiting polls it, which also runs callbacks that the application waits
    /// for. Users' files and registered variants carry wgpu's run-time checks; see [`Gpu::checks`].
    ///
    /// # Errors
    /// The device is another adapter's, or cannot run compute shaders at all.
    pub fn from_wgpu(
        adapter: &wgpu::Adapter,
        device: wgpu::Device,
        queue: wgpu::Queue,
    ) -> Result<Self> {
        let (features, limits) = (device.features(), device.limits());
        let summary = adapter::offered(0, adapter, features, &limits);
        let unavailable = |what: &str, reason: String| {
            let (what, adapter) = (what.to_owned(), summary.name.clone());
            Err(Error::Unavailable { what, adapter, reason })
        };
        let (info, own) = (device.adapter_info(), adapter.get_info());
        if (&info.name, info.backend, info.device) != (&own.name, own.backend, own.device) {
            return unavailable("the device", format!("it was made by {}", info.name));
        }
        let flags = adapter.get_downlevel_capabilities().flags;
        if !flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS) {
            return unavailable("compute", "the adapter has no compute shaders".into());
        }
        for (name, value) in [
            ("max_compute_workgroups_per_dimension", limits.max_compute_workgroups_per_dimension),
            ("max_compute_invocations_per_workgroup", limits.max_compute_invocations_per_workgroup),
            ("max_storage_buffers_per_shader_stage", limits.max_storage_buffers_per_shader_stage),
        ] {
            if value == 0 {
                let reason = format!("the device was opened with {name} = 0");
                return unavailable("compute", reason);
            }
        }
        let matrices = adapter::cooperative_matrices(adapter, features);
        let gpu = Self::over(device, queue, summary, matrices, Checks::default());
        Ok(Self { is_foreign: true, ..gpu })
    }

    fn over(
        device: wgpu::Device,
        queue: wgpu::Queue,
        adapter: AdapterSummary,
        cooperative_matrices: Vec<CooperativeMatrix>,
        checks: Checks,
    ) -> Self {
        let caps = Capabilities {
            subgroup: adapter.subgroup_size.map(|[min, max]| (min, max)),
            f16: adapter.f16,
            workgroup_memory: adapter.workgroup_memory,
            invocations: adapter.invocations,
            // Tensors that lie in one buffer are bound together.
            binding_bytes: adapter.max_binding_bytes.min(adapter.max_buffer_bytes),
            storage_buffers: adapter.storage_buffers,
            bind_groups: device.limits().max_bind_groups,
            grid_dimension: device.limits().max_compute_workgroups_per_dimension,
            cooperative_matrices,
            web: false,
            mask: Mask::default(),
        };
        let timestamp_period = f64::from(queue.get_timestamp_period());
        let timeout = Duration::from_secs(if adapter.software { 600 } else { 60 });
        Self {
            device,
            queue,
            adapter,
            caps,
            checks,
            timestamp_period,
            timeout,
            memory_limit: None,
            peak: Mutex::default(),
            uploads: Mutex::default(),
            grid: Mutex::default(),
            poison: OnceLock::new(),
            is_foreign: false,
            faults: Arc::default(),
        }
    }

    /// The error for an operation that the device or its driver refused.
    pub(crate) fn refused(&self, what: &str, reason: String) -> Error {
        Error::Gpu { adapter: self.adapter.name.clone(), what: what.to_owned(), reason }
    }

    /// The error for something that the adapter lacks.
    pub(crate) fn unavailable(&self, what: impl Into<String>, reason: impl Into<String>) -> Error {
        let adapter = self.adapter.name.clone();
        Error::Unavailable { what: what.into(), adapter, reason: reason.into() }
    }

    /// Fails if anything has gone wrong since the last call.
    pub fn check_faults(&self) -> Result<()> {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = faults.lost.clone() {
            return Err(Error::DeviceLost { adapter: self.adapter.name.clone(), reason });
        }
        if faults.uncaptured.is_empty() {
            return Ok(());
        }
        let reason = std::mem::take(&mut faults.uncaptured).join("; ");
        Err(self.refused("an operation", reason))
    }

    /// Waits for a submission (the latest without one), no longer than [`Gpu::timeout`].
    pub fn wait(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<()> {
        let poll =
            wgpu::PollType::Wait { submission_index: submission, timeout: Some(self.timeout) };
        let polled = self.device.poll(poll);
        self.check_faults()?;
        polled.map(|_| ()).map_err(|e| Error::DeviceLost {
            adapter: self.adapter.name.clone(),
            reason: format!("a submission did not end within {:?}: {e}", self.timeout),
        })
    }

    /// Runs `create` and turns any validation, memory or internal error into an [`Error`].
    pub fn scoped<T>(&self, what: &str, create: impl FnOnce(&wgpu::Device) -> T) -> Result<T> {
        let filters = [
            wgpu::ErrorFilter::Validation,
            wgpu::ErrorFilter::OutOfMemory,
            wgpu::ErrorFilter::Internal,
        ];
        let guards: Vec<_> = filters.into_iter().map(|f| self.device.push_error_scope(f)).collect();
        let made = create(&self.device);
        let mut failure = None;
        for guard in guards.into_iter().rev() {
            if let Some(error) = pollster::block_on(guard.pop()) {
                failure.get_or_insert(error.to_string());
            }
        }
        match failure {
            None => Ok(made),
            Some(reason) => Err(self.refused(what, reason)),
        }
    }

    /// Runs `commands`; their errors show at the next check for faults. On a device of the
    /// application's they are returned here, so that its callbacks do not receive them.
    pub(crate) fn caught<T>(&self, commands: impl FnOnce() -> T) -> Result<T> {
        match self.is_foreign {
            true => self.scoped("an operation", |_| commands()),
            false => Ok(commands()),
        }
    }

    /// Submits the commands that `record` encodes.
    pub(crate) fn submit(
        &self,
        record: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> wgpu::SubmissionIndex {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        record(&mut encoder);
        self.queue.submit([encoder.finish()])
    }

    /// A buffer that the host can map and read.
    pub(crate) fn staging(&self, what: &str, bytes: u64) -> Result<wgpu::Buffer> {
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        self.scoped(what, |device| create(device, what, bytes, usage))
    }

    /// Copies bytes of a buffer back to the host.
    pub fn read(&self, buffer: &wgpu::Buffer, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        let staging = self.staging("a staging buffer", bytes)?;
        let submission = self.caught(|| {
            let submission = self.submit(|encoder| {
                encoder.copy_buffer_to_buffer(buffer, offset, &staging, 0, bytes);
            });
            staging.map_async(wgpu::MapMode::Read, .., |_| {});
            submission
        })?;
        self.wait(Some(submission))?;
        self.mapped(&staging)
    }

    /// The bytes of a buffer whose mapping has completed.
    pub fn mapped(&self, staging: &wgpu::Buffer) -> Result<Vec<u8>> {
        let view = staging.slice(..).get_mapped_range();
        let view = view.map_err(|e| self.refused("a read-back", e.to_string()))?;
        let bytes = view.to_vec();
        drop(view);
        staging.unmap();
        Ok(bytes)
    }
}

/// A buffer that is not mapped.
pub(super) fn create(
    device: &wgpu::Device,
    label: &str,
    size: u64,
    usage: BufferUsages,
) -> wgpu::Buffer {
    let label = Some(label);
    device.create_buffer(&wgpu::BufferDescriptor { label, size, usage, mapped_at_creation: false })
}
