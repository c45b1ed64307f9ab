//! Where and with what a run takes place.

use std::time::SystemTime;

use crate::data::record::Environment;
use crate::gpu::{Gpu, WGPU_VERSION};

/// The environment of a run on `gpu`, as far as it is known before anything is measured.
pub fn environment(gpu: &Gpu) -> Environment {
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Environment {
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        commit: known(env!("LATHE_COMMIT")),
        dirty: known(env!("LATHE_DIRTY")).map(|d| d == "true"),
        lathe: env!("CARGO_PKG_VERSION").into(),
        wgpu: WGPU_VERSION.into(),
        os: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        adapter: gpu.adapter.name.clone(),
        driver: gpu.adapter.driver.clone(),
        backend: gpu.adapter.backend.clone(),
        software: gpu.adapter.software,
        runtime_checks: gpu.checks.name().into(),
        timestamp_quantum_ns: None,
        copy_gb_s: None,
        read_gb_s: None,
        canary_drift: None,
        command: None,
    }
}
