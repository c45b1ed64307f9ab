//! The corpus of the fuzz target `gguf` is made of the cases of this test.

use std::path::{Path, PathBuf};

/// Small seeds fuzz faster; larger cases are tests only.
const LARGEST: usize = 4096;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/gguf")
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let rejected = crate::index::all().into_iter().map(|(name, (bytes, _))| (name, bytes));
    let mut seeds: Vec<_> = rejected.chain(crate::accepted::all()).collect();
    seeds.extend(crate::config::seeds());
    seeds.retain(|(_, bytes)| bytes.len() <= LARGEST);
    seeds
}

#[test]
fn committed_corpus_is_that_of_the_cases() {
    for (name, bytes) in seeds() {
        let committed = std::fs::read(folder().join(name)).unwrap_or_default();
        assert!(committed == bytes, "{name} differs; run the ignored test write_corpus");
    }
}

#[test]
#[ignore = "writes fuzz/corpus/gguf"]
fn write_corpus() {
    std::fs::create_dir_all(folder()).unwrap();
    for (name, bytes) in seeds() {
        std::fs::write(folder().join(name), bytes).unwrap();
    }
}
