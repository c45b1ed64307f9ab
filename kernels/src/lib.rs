//! What runs on the GPU: the WGSL sources of every kernel and variant, and a descriptor for each
//! kernel (parameters, bindings, requirements, grid, cost, cases, tolerance).
//!
//! This crate knows naga, never wgpu: nothing here needs a device. `kernels/build.rs` has
//! validated every source before this crate exists.

use std::sync::{Arc, OnceLock};

pub mod adapter;
pub mod codes;
pub mod descriptor;
pub mod layout;
pub mod param;
pub mod reflect;
pub mod shared;

mod compose;

#[path = "../ops/argmax/mod.rs"]
pub mod argmax;
#[path = "../ops/attention/mod.rs"]
pub mod attention;
#[path = "../ops/attention/attention_append/mod.rs"]
pub mod attention_append;
#[path = "../ops/attention/attention_decode/mod.rs"]
pub mod attention_decode;
#[path = "../ops/attention/attention_prefill/mod.rs"]
pub mod attention_prefill;
#[path = "../ops/cast/mod.rs"]
pub mod cast;
#[path = "../ops/dequant/mod.rs"]
pub mod dequant;
#[path = "../ops/embed/mod.rs"]
pub mod embed;
#[path = "../ops/matvec/fused_ffn/mod.rs"]
pub mod fused_ffn;
#[path = "../ops/matvec/gemv/mod.rs"]
pub mod gemv;
#[path = "../ops/matvec/gemv_q/mod.rs"]
pub mod gemv_q;
#[path = "../ops/glu/mod.rs"]
pub mod glu;
#[path = "../ops/kv_append/mod.rs"]
pub mod kv_append;
#[path = "../ops/matvec/lm_head_argmax/mod.rs"]
pub mod lm_head_argmax;
#[path = "../ops/matvec/lm_head_topk/mod.rs"]
pub mod lm_head_topk;
#[path = "../ops/matmul/mod.rs"]
pub mod matmul;
#[path = "../ops/matvec/matmul_rmsnorm_fused/mod.rs"]
pub mod matmul_rmsnorm_fused;
#[path = "../ops/matvec/mod.rs"]
pub mod matvec;
#[path = "../ops/matvec/norm_gemv/mod.rs"]
pub mod norm_gemv;
#[path = "../ops/qk_norm_rope/mod.rs"]
pub mod qk_norm_rope;
#[path = "../ops/qkv_rope_append/mod.rs"]
pub mod qkv_rope_append;
#[path = "../ops/residual_add/mod.rs"]
pub mod residual_add;
#[path = "../ops/residual_rms_norm/mod.rs"]
pub mod residual_rms_norm;
#[path = "../ops/rms_norm/mod.rs"]
pub mod rms_norm;
#[path = "../ops/rope/mod.rs"]
pub mod rope;
#[path = "../ops/sample/mod.rs"]
pub mod sample;

pub use adapter::{Capabilities, CooperativeMatrix, MatrixScalar};
pub use codes::*;
pub use descriptor::{
    Binding, Case, Constants, Cost, Declaration, Draw, Elem, Kernel, KernelBinding, KernelVariant,
    Matrix, Role, Stage, Tolerance, Variant,
};
pub use layout::{RopeSpec, StateWord};
pub use param::{Param, ParamKind, Params, Problem, Shape, ShapeError, State};
pub use reflect::{ReflectError, Reflection};

/// One composed WGSL source: the variant's file followed by its preludes.
#[derive(Debug)]
pub struct Source {
    /// Kernel name, the folder below `wgsl/`.
    pub kernel: &'static str,
    /// Variant name, the file's stem.
    pub variant: &'static str,
    /// Path of the file inside the crate.
    pub file: &'static str,
    /// The WGSL handed to naga and to the device.
    pub text: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// Calls a macro with the names of all built-in operations.
#[macro_export]
macro_rules! for_each_operation {
    ($then:ident) => {
        $then! { argmax attention_append attention_decode attention_prefill cast dequant embed fused_ffn gemv gemv_q glu kv_append lm_head_argmax lm_head_topk matmul matmul_rmsnorm_fused norm_gemv qk_norm_rope qkv_rope_append residual_add residual_rms_norm rms_norm rope sample }
    };
}

macro_rules! erased {
    ($($name:ident)*) => {
        vec![$($name::OPERATION.erase()),*]
    };
}

/// Every built-in operation, by name.
pub fn kernels() -> &'static [Kernel] {
    static KERNELS: OnceLock<Vec<Kernel>> = OnceLock::new();
    KERNELS.get_or_init(|| for_each_operation!(erased))
}

/// Every composed source, sorted by kernel and variant.
pub fn sources() -> &'static [Source] {
    SOURCES
}

/// The composed source of one variant, if its file exists.
pub fn source(kernel: &str, variant: &str) -> Option<&'static Source> {
    SOURCES.iter().find(|s| s.kernel == kernel && s.variant == variant)
}

/// Appends the built-in preludes that `// uses:` lines of a WGSL text name, as the build script
/// does for built-in variants. `path` only names it in errors.
pub fn compose(text: &str, path: &str) -> Result<String, ReflectError> {
    let find = |name: &str| {
        PRELUDES.iter().find(|(known, _)| *known == name).map(|(_, body)| (*body).to_owned())
    };
    compose::compose(text, find).map(|(text, _)| text).map_err(|name| {
        let known: Vec<_> = PRELUDES.iter().map(|(known, _)| *known).collect();
        ReflectError::Prelude { path: path.to_owned(), name, known: known.join(", ") }
    })
}

/// What naga says of a built-in variant; parsed once. `None` when there is no such file.
pub fn reflection(kernel: &str, variant: &str) -> Option<Arc<Reflection>> {
    static CACHE: OnceLock<Vec<OnceLock<Arc<Reflection>>>> = OnceLock::new();
    let cache = CACHE.get_or_init(|| SOURCES.iter().map(|_| OnceLock::new()).collect());
    let index = SOURCES.iter().position(|s| s.kernel == kernel && s.variant == variant)?;
    let source = &SOURCES[index];
    Some(Arc::clone(cache[index].get_or_init(|| {
        let reflection = Reflection::of(source.text, source.file);
        Arc::new(reflection.expect("build.rs has validated every source"))
    })))
}

/// The operation of a name.
pub fn kernel(name: &str) -> Option<&'static Kernel> {
    kernels().iter().find(|k| k.name == name)
}
