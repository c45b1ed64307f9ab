//! What the tests that need a device share.
#![allow(dead_code, reason = "each test target uses its own part")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lathe_harness::gpu::{Checks, Gpu};
use lathe_kernels::{Kernel, Problem};

/// The device, or `None` with a word on stderr where there is none. With `LATHE_REQUIRE_GPU=1`,
/// which `./x test` sets, a missing adapter fails: skipped is not passed.
pub(crate) fn gpu() -> Option<Arc<Gpu>> {
    static GPU: OnceLock<Option<Arc<Gpu>>> = OnceLock::new();
    GPU.get_or_init(|| match Gpu::open(None, Checks::Files) {
        Ok(gpu) => Some(Arc::new(gpu)),
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

/// A device that no other test uses, for those that compile much and time nothing: a software
/// adapter compiles on one core, and not before a dispatch, so a shared device would keep the
/// others idle.
pub(crate) fn own_gpu() -> Option<Arc<Gpu>> {
    gpu()?;
    Some(Arc::new(Gpu::open(None, Checks::Files).unwrap()))
}

/// One test at a time on the shared device.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kernel's default problem with the parameters and the state that `text` names.
pub(crate) fn problem(kernel: &Kernel, text: &str) -> Problem {
    kernel.parse_over(&kernel.default_problem(), text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// A file below `tests/goldens`.
pub(crate) fn golden(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(file)
}
