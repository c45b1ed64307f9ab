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

/// A model in a file of this name.
pub fn model(file: &str) -> MeasuredModel {
    MeasuredModel {
        model_filename: file.into(),
        model_type: "gemma3 1.0B BF16".into(),
        model_size: 1_999_619_072,
        model_n_params: 999_809_536,
    }
}

/// Verified, with a small error.
pub const VERIFIED: Verified =
    Verified { positions: 8, worst_nmse: 1e-12, limit: 1e-5, ties: 0, end_nmse: None };

/// A test of [`model`] without its figures.
pub fn generation_test(file: &str) -> GenerationTest {
    GenerationTest {
        model: model(file),
        type_k: "f16".into(),
        type_v: "f16".into(),
        activations: "f32".into(),
        sequences: 1,
        of: Decoded { verified: Some(VERIFIED), ..Decoded::default() },
        ..GenerationTest::default()
    }
}

/// A suite of [`model`] by each of these names, all with the same results.
pub fn suite<const N: usize>(files: &[&str], configs: [(&str, SuiteConfig); N]) -> Suite {
    let configs: BTreeMap<_, _> = configs.map(|(name, config)| (name.to_owned(), config)).into();
    let models = files.iter().map(|file| SuiteModel {
        model: model(file),
        kv: "f16".into(),
        activations: "f32".into(),
        configs: configs.clone(),
    });
    Suite {
        tier: "standard".into(),
        prompts: "seed 42".into(),
        seed: 42,
        warm_ups: 2,
        repetitions: 3,
        steps_per_submit: 8,
        models: models.collect(),
    }
}
