//! Parts of records for tests.

use super::*;

/// Environment of a run.
pub fn environment() -> Environment {
    Environment {
        date: "2026-11-20T16:00:00Z".into(),
        commit: Some("0123abc".into()),
        dirty: Some(false),
        lathe: "0.1.0".into(),
        wgpu: "30.0.1".into(),
        os: "linux x86_64".into(),
        adapter: "Example GPU".into(),
        driver: "1.2.3".into(),
        backend: "vulkan".into(),
        runtime_checks: "off".into(),
        timestamp_quantum_ns: Some(32.0),
        copy_gb_s: Some(4000.0),
        read_gb_s: Some(4200.0),
        canary_drift: Some(0.003),
        ..Environment::default()
    }
}
