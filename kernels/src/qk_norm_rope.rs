//! QK-norm and rotary position embedding (Su et al., arXiv 2104.09864) on Q and K in place.

use crate::descriptor::*;
use crate::layout::STATE_WORDS;
use crate::shape::{Param, ParamKind, Shape};

fn shape(group: u32, kv_heads: u32, head_dim: u32, norm: u32, style: u32, seen: u32) -> Shape {
    Shape::new(&[
        ("GROUP", f64::from(group)),
        ("KV_HEADS", f64::from(kv_heads)),
        ("HEAD_DIM", f64::from(head_dim)),
        ("NORM", f64::from(norm)),
        ("STYLE", f64::from(style)),
        ("EPS", f64::from(1e-6f32)),
        ("BASE", 10_000.0),
        ("FACTORS", 0.0),
        ("SEEN", f64::from(seen)),
    ])
}

fn qkv_len(s: &Shape) -> usize {
    s.dim("KV_HEADS") * (s.dim("GROUP") + 2) * s.dim("HEAD_DIM")
}

const WIDTHS: &[(&str, &[f64])] = &[("WG", &[32.0, 64.0, 128.0, 256.0])];

const fn variant(
    name: &'static str,
    tunables: &'static [(&'static str, &'static [f64])],
) -> Variant {
    Variant {
        name,
        stages: &[Stage { entry: "main", grid: |s, _| s.dim("KV_HEADS") * (s.dim("GROUP") + 1) }],
        tunables,
        ..PLAIN
    }
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "qk_norm_rope",
    summary: "per-head RMSNorm (optional) and rotary embedding of Q and K, in place",
    params: &[
        Param {
            name: "GROUP",
            doc: "query heads per KV head",
            kind: ParamKind::Dim { tile: 2, max: 5 },
        },
        Param { name: "KV_HEADS", doc: "KV heads", kind: ParamKind::Dim { tile: 2, max: 5 } },
        Param {
            name: "HEAD_DIM",
            doc: "elements of a head",
            kind: ParamKind::OneOf(&[32, 64, 80, 96, 128, 256]),
        },
        Param {
            name: "NORM",
            doc: "normalise each head first",
            kind: ParamKind::Choice(&["none", "rms"]),
        },
        Param {
            name: "STYLE",
            doc: "pairs that turn together: (2i, 2i+1) or (i, i + HEAD_DIM/2)",
            kind: ParamKind::Choice(&["interleaved", "neox"]),
        },
        Param {
            name: "EPS",
            doc: "added to the mean square",
            kind: ParamKind::Float { low: 1e-6, high: 1e-3 },
        },
        Param {
            name: "BASE",
            doc: "base of the frequencies (in the rope table)",
            kind: ParamKind::Float { low: 1e4, high: 1e6 },
        },
        Param {
            name: "FACTORS",
            doc: "frequency divisors, Llama 3's rope_freqs (in the rope table)",
            kind: ParamKind::Choice(&["none", "llama3"]),
        },
        Param {
            name: "SEEN",
            doc: "tokens seen, the current one included (tests only; decode keeps it on the GPU)",
            kind: ParamKind::Dim { tile: 512, max: 2000 },
        },
    ],
    bindings: &[
        Binding { name: "state", role: Role::Input, elem: Elem::U32, len: |_| STATE_WORDS },
        Binding { name: "qkv", role: Role::InOut, elem: Elem::F32, len: qkv_len },
        Binding { name: "q_norm", role: Role::Input, elem: Elem::F32, len: |s| s.dim("HEAD_DIM") },
        Binding { name: "k_norm", role: Role::Input, elem: Elem::F32, len: |s| s.dim("HEAD_DIM") },
        Binding {
            name: "rope",
            role: Role::Input,
            elem: Elem::Rope,
            len: |s| s.dim("SEEN") * s.dim("HEAD_DIM"),
        },
    ],
    variants: &[variant("naive", &[]), variant("workgroup", WIDTHS), variant("subgroup", WIDTHS)],
    prefer: |_| &["subgroup", "workgroup", "naive"],
    cost: |s| {
        let elements = s.float("KV_HEADS") * (s.float("GROUP") + 1.0) * s.float("HEAD_DIM");
        Cost { bytes: 8.0 * elements + 12.0 * s.float("HEAD_DIM"), flops: 7.0 * elements }
    },
    tolerance: |s| Tolerance {
        k: 8.0 + s.float("HEAD_DIM").sqrt(),
        rounding: 0.0,
        nmse: 1e-11,
        reason: "as rms_norm, then two products with table entries rounded once",
    },
    cases: || {
        vec![
            shape(4, 1, 256, 1, 1, 511),
            shape(4, 8, 64, 0, 0, 129),
            shape(2, 8, 128, 1, 1, 30_000),
            shape(1, 1, 32, 0, 1, 1),
            shape(4, 8, 64, 0, 0, 8192).with("BASE", 500_000.0).with("FACTORS", 1.0),
        ]
    },
    bench: || {
        vec![shape(4, 1, 256, 1, 1, 128), shape(4, 8, 64, 0, 0, 128), shape(2, 8, 128, 1, 1, 128)]
    },
};
