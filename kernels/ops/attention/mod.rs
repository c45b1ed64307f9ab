//! Shared parts of the operations on the heads of a layer: their parameters as traits, their bindings.

use crate::declare::*;

pub mod geometry;

/// Parameters that say which heads a layer has.
pub trait Heads {
    /// KV heads.
    fn kv_heads(&self) -> usize;
    /// Query heads of each KV head.
    fn q_per_kv(&self) -> usize;
    /// Elements of a head.
    fn head_dim(&self) -> usize;

    /// Query heads.
    fn q_heads(&self) -> usize {
        self.kv_heads() * self.q_per_kv()
    }

    /// Heads of the QKV product: query, key and value heads.
    fn qkv_heads(&self) -> usize {
        self.q_heads() + 2 * self.kv_heads()
    }

    /// Elements of a token's query heads.
    fn q_elements(&self) -> usize {
        self.q_heads() * self.head_dim()
    }

    /// Elements of a token's key heads, and of its value heads.
    fn k_elements(&self) -> usize {
        self.kv_heads() * self.head_dim()
    }
}

/// Parameters of a cache of keys and one of values, each (kv_heads, kv_size, head_dim).
pub trait Cache: Heads {
    /// Slots.
    fn kv_size(&self) -> usize;
    /// Storage.
    fn kv_format(&self) -> KvFormat;

    /// Storage of a slot's vector in one head of a cache.
    fn vectors(&self) -> KvVectors {
        KvVectors { format: self.kv_format(), head_dim: self.head_dim() }
    }

    /// Bytes of such a vector, with its scales.
    fn vector_bytes(&self) -> usize {
        self.vectors().bytes()
    }

    /// Chunks that hold its values ([`KvFormat::chunk_values`]).
    fn value_chunks(&self) -> usize {
        self.head_dim().div_ceil(self.kv_format().chunk_values())
    }

    /// Fours of values in a chunk.
    fn chunk_fours(&self) -> usize {
        self.kv_format().chunk_values() / 4
    }

    /// Slots that attention reads after `n_kv` tokens.
    fn slots(&self, n_kv: usize) -> usize {
        n_kv.min(self.kv_size())
    }

    /// Vectors of a cache that lie in some slots, of all KV heads.
    fn vectors_in(&self, slots: impl Iterator<Item = usize> + Clone) -> Vec<usize> {
        let first = (0..self.kv_heads()).map(|head| head * self.kv_size());
        first.flat_map(|first| slots.clone().map(move |slot| first + slot)).collect()
    }

    /// Most splits of a KV head the scratch memory has room for; `splits()` in parts/split.wgsl.
    fn most_splits(&self) -> usize {
        512usize.div_ceil(self.kv_heads()).min(self.kv_size().div_ceil(8))
    }
}

/// Implements [`Heads`] for a struct of parameters by its fields of the same names. With `of all
/// sequences` its KV heads are `kv_heads` times the field `sequences`.
macro_rules! has_heads {
    ($params:ty $(, of all $sequences:ident)?) => {
        impl $crate::attention::Heads for $params {
            fn kv_heads(&self) -> usize {
                self.kv_heads $(* self.$sequences)?
            }
            fn q_per_kv(&self) -> usize {
                self.q_per_kv
            }
            fn head_dim(&self) -> usize {
                self.head_dim
            }
        }
    };
}

/// Implements [`Heads`] and [`Cache`] for a struct of parameters in the same way.
macro_rules! has_cache {
    ($params:ty $(, of all $sequences:ident)?) => {
        $crate::attention::has_heads!($params $(, of all $sequences)?);

        impl $crate::attention::Cache for $params {
            fn kv_size(&self) -> usize {
                self.kv_size
            }
            fn kv_format(&self) -> $crate::codes::KvFormat {
                self.kv_format
            }
        }
    };
}

pub(crate) use {has_cache, has_heads};

/// Length of the QKV product of a token.
pub const fn qkv_len<P: Heads>() -> Len<P> {
    len!(p => p.qkv_heads() * p.head_dim())
}

/// The QKV product of a token, only read.
pub const fn qkv<P: Heads>() -> Binding<P> {
    Binding::input("qkv", &f32s, qkv_len())
}

/// A norm's weight for the heads of one kind.
pub const fn head_norm<P: Heads>(name: &'static str) -> Binding<P> {
    Binding::input(name, &f32s, len!(p => p.head_dim()))
}

const fn cache_len<P: Cache>() -> Len<P> {
    len!(p => p.kv_heads() * p.kv_size() * p.head_dim())
}

/// A cache that is only read.
pub const fn read_cache<P: Cache>(name: &'static str) -> Binding<P> {
    Binding::input(name, &|p: &P, _| Elem::Kv(p.vectors()), cache_len()).drawn(&|_| Draw::Cache)
}

/// A cache that gets the current token's heads.
pub const fn appended_cache<P: Cache>(name: &'static str) -> Binding<P> {
    Binding::in_out(name, &|p: &P, _| Elem::Kv(p.vectors()), cache_len()).drawn(&|_| Draw::Cache)
}

/// Scores of every slot, of the naive variants.
pub const fn scores<P: Cache>() -> Binding<P> {
    Binding::scratch("scores", &f32s, len!(p => p.q_heads() * p.kv_size()))
}

/// Largest score and sum of weights of every head in every split.
pub const fn tops<P: Cache>() -> Binding<P> {
    Binding::scratch("tops", &f32s, len!(p => 2 * p.q_heads() * p.most_splits()))
}

/// PV product of every head in every split.
pub const fn partials<P: Cache>() -> Binding<P> {
    Binding::scratch("partials", &f32s, len!(p => p.q_heads() * p.most_splits() * p.head_dim()))
}
