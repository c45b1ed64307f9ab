//! CPU oracles for the kernels: the expected output of each, and the one comparator.
//!
//! Every operation is plain loops over `f32` inputs with `f64` arithmetic, written from its
//! formula and never from the shader. It returns an [`Expected`]: the values, and per element the
//! magnitude to which `f32` rounding errors are proportional, so that [`compare()`] can bound each
//! element by a reason instead of by a guess.
//!
//! ```
//! use lathe_reference::{Format, Tolerance, compare, gemv};
//!
//! let weights: Vec<u8> = [1.0f32, 2.0, 3.0, -4.0].iter().flat_map(|w| w.to_le_bytes()).collect();
//! let expected = gemv::gemv(Format::F32, &weights, 2, 2, &[10.0, 1.0]);
//! let tolerance = Tolerance { k: 2.0, rounding: 0.0, nmse: 1e-12 };
//! assert!(compare(&expected, &[12.0, 26.0], &tolerance).is_ok());
//! assert!(compare(&expected, &[12.0, 26.1], &tolerance).is_err());
//! ```
//!
//! Inputs are trusted: a shape that does not fit panics, and each function says when.

pub mod argmax;
pub mod attention_append;
pub mod attention_decode;
pub mod attention_prefill;
pub mod cast;
pub mod chunk_end;
pub mod compare;
pub mod dequant;
pub mod digits;
pub mod embed;
pub mod fused_ffn;
pub mod gemv;
pub mod glu;
pub mod kv_append;
pub mod kv_window;
pub mod lm_head_argmax;
pub mod lm_head_topk;
pub mod matmul;
pub mod matmul_rmsnorm_fused;
pub mod nll;
pub mod norm_gemv;
pub mod qk_norm_rope;
pub mod qkv_rope_append;
pub mod quant;
pub mod residual_add;
pub mod residual_norm_ffn;
pub mod residual_norm_gemv;
pub mod residual_rms_norm;
pub mod rms_norm;
pub mod rope;
pub mod sample;

pub use compare::{
    Agreement, Expected, Mismatch, Rule, Tolerance, Worst, compare, compare_exact, nmse,
};
pub use quant::Format;
