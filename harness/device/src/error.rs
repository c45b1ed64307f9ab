//! The harness's one error type and the exit codes it stands for.

use std::path::PathBuf;

use lathe_kernels::{ReflectError, RegisterError, ShapeError};
use lathe_model::{ModelError, ModelErrorKind};

/// Anything that ends a command early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line asks for something that does not exist or contradicts itself.
    #[error("{0}")]
    Usage(String),
    /// No adapter, or none of the name asked for.
    #[error("no adapter: {0}")]
    NoAdapter(String),
    /// The adapter lacks something that was explicitly asked for.
    #[error("{what} is unavailable on {adapter}: {reason}")]
    Unavailable {
        /// Kernel and variant, or a feature.
        what: String,
        /// Adapter name.
        adapter: String,
        /// The reason.
        reason: String,
    },
    /// The device was lost or a submission did not end in time.
    #[error("device {adapter}: {reason}")]
    DeviceLost {
        /// Adapter name.
        adapter: String,
        /// The fault that was seen.
        reason: String,
    },
    /// Workgroups of one dispatch did not run at the same time, so a grid barrier timed out.
    #[error(
        "{adapter}: workgroups of a persistent kernel of operations waited in vain for others ({waits} of them); \
         --persistent off gives every operation a dispatch of its own"
    )]
    GridBarrier {
        /// Adapter name.
        adapter: String,
        /// Waits at a grid barrier that timed out.
        waits: u32,
    },
    /// wgpu or the driver refused an operation.
    #[error("{adapter} refused {what}: {reason}")]
    Gpu {
        /// Adapter name.
        adapter: String,
        /// The operation that was attempted.
        what: String,
        /// The validation or driver message.
        reason: String,
    },
    /// A model with its context does not fit the device; nothing was allocated.
    #[error(transparent)]
    Memory(Box<TooLittleMemory>),
    /// The model file cannot be used.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model file is sound but needs something the decoder does not have.
    #[error("{}: {reason}", path.display())]
    Undecodable {
        /// The file.
        path: PathBuf,
        /// The tensor or setting, and the reason.
        reason: String,
    },
    /// Records that cannot be read, written or compared.
    #[error(transparent)]
    Record(#[from] lathe_record::Error),
    /// A `--shape` that is none.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A WGSL source that naga or the kernel contract refuses.
    #[error(transparent)]
    Reflect(#[from] ReflectError),
    /// An operation or a variant of another crate that cannot be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The operation has no reference to be checked against.
    #[error(
        "kernel {kernel} has no reference: it was registered with lathe_kernels alone; lathe_harness \
         has a `register` that takes one"
    )]
    NoReference {
        /// Kernel.
        kernel: &'static str,
    },
    /// A correctness check failed.
    #[error("{0}")]
    CheckFailed(String),
    /// Processes that this one started failed; each has said why.
    #[error("{reason}")]
    Child {
        /// The worst of their exit codes.
        code: u8,
        /// The processes, and how each ended.
        reason: String,
    },
    /// A measurement does not tell either way.
    #[error("inconclusive: {0}")]
    Inconclusive(String),
    /// Reading or writing a file other than the model.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A model or recording that does not fit the device's memory.
#[derive(Debug, thiserror::Error)]
#[error(
    "{adapter} has too little memory: {} predicted ({parts}), {} {whose}; what takes less: {advice}",
    mib(*predicted), mib(*available)
)]
pub struct TooLittleMemory {
    /// Adapter name.
    pub adapter: String,
    /// Bytes that would have to be allocated.
    pub predicted: u64,
    /// Bytes available to it.
    pub available: u64,
    /// Source of the available bytes: free on the device, or left by a limit.
    pub whose: String,
    /// Breakdown of the predicted bytes.
    pub parts: String,
    /// Advice: settings that need less memory.
    pub advice: String,
}

/// One unit for both numbers: they may lie close together.
fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

impl Error {
    /// Attaches a file's path to the system's error; for `map_err`.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Error::Io { path: path.into(), source }
    }

    /// The process exit code (see docs/architecture.md).
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::CheckFailed(_) => 1,
            Error::Child { code, .. } => *code,
            Error::Inconclusive(_) => 6,
            Error::Usage(_)
            | Error::Shape(_)
            | Error::Reflect(_)
            | Error::Register(_)
            | Error::NoReference { .. }
            | Error::Io { .. }
            | Error::Record(_)
            | Error::Model(ModelError {
                kind: ModelErrorKind::Exists | ModelErrorKind::Output { .. },
                ..
            }) => 2,
            Error::NoAdapter(_) | Error::Unavailable { .. } | Error::Memory(_) => 3,
            Error::DeviceLost { .. } | Error::Gpu { .. } | Error::GridBarrier { .. } => 4,
            Error::Model(_) | Error::Undecodable { .. } => 5,
        }
    }
}

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Proposes known names similar to a mistyped one, or lists all known names.
pub fn meant(name: &str, known: &[&str]) -> String {
    /// Least similarity, from 0 to 1, at which a known name is proposed.
    const ALIKE: f64 = 0.75;
    let alike = |known: &&str| strsim::normalized_damerau_levenshtein(name, known);
    let mut near: Vec<_> = known.iter().filter(|known| alike(known) >= ALIKE).collect();
    near.sort_by(|a, b| alike(b).total_cmp(&alike(a)));
    let near: Vec<_> = near.iter().take(3).map(|name| format!("`{name}`")).collect();
    match near.is_empty() {
        false => format!("did you mean {}?", near.join(" or ")),
        true => format!("there are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::meant;

    #[test]
    fn a_name_that_is_near_is_offered_and_others_are_listed() {
        let known = ["gemv", "gemv_q", "rope"];
        assert_eq!(meant("gemmv", &known), "did you mean `gemv`?");
        assert_eq!(meant("gemvq", &known), "did you mean `gemv_q` or `gemv`?");
        assert_eq!(meant("softmax", &known), "there are gemv, gemv_q, rope");
    }
}
