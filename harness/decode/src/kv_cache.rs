//! The KV cache of one layer, full or a ring over the sliding window.

use lathe_device::error::Result;
use lathe_device::execute::Execute;
use lathe_device::plan::recording::TensorId;
use lathe_kernels::StateWord;

/// Keys and values of one layer: (kv_heads, capacity, head_dim) each.
#[derive(Clone, Copy, Debug)]
pub struct KvCache {
    /// Layer.
    pub layer: usize,
    /// Keys, rotated.
    pub k: TensorId,
    /// Values.
    pub v: TensorId,
    /// Slots; the context for a full cache, the window for a ring.
    pub capacity: usize,
    /// Old tokens are overwritten once `capacity` have been seen.
    pub sliding: bool,
}

/// Forgets everything: cleared caches and a step state that has seen no token.
///
/// How many tokens a cache has seen is not kept beside each cache, where one of them could be
/// forgotten (a sliding-window cache that kept its count once made every timed run start at the
/// warm-up's context length); it is the one position counter in the step state.
pub fn reset(
    executor: &mut dyn Execute,
    caches: &[KvCache],
    state: TensorId,
    given: u32,
) -> Result<()> {
    for cache in caches {
        executor.clear(cache.k)?;
        executor.clear(cache.v)?;
    }
    executor.clear(state)?;
    executor.write_words(state, StateWord::PromptLen as usize, &[given])
}
