//! What the tests that need a device share.
#![allow(dead_code, reason = "each test target uses its own part")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lathe_harness::gpu::{Checks, Gpu};

/// The device, or `None` with a word on stderr where there is none. With `LATHE_REQUIRE_GPU=1`,
/// which `./x test` sets, a missing adapter fails: skipped is not passed.
pub(crate) fn gpu() -> Option<Arc<Gpu>> {
    static GPU: OnceLock<Option<Arc<Gpu>>> = OnceLock::new();
    GPU.get_or_init(|| match Gpu::open(None, Checks::Off) {
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

/// One test at a time on the device: a software adapter already uses every core.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file below `tests/goldens`.
pub(crate) fn golden(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(file)
}
