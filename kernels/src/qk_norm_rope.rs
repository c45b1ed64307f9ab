//! QK-norm and rotary position embedding (Su et al., arXiv 2104.09864) on Q and K in place.

use crate::descriptor::*;
use crate::shape::Shape;
use crate::shared::*;

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
    params: &[GROUP, kv_heads(5), HEAD_DIM, QK_NORM, STYLE, EPS, BASE, FACTORS, seen(512, 2000)],
    bindings: &[
        STATE,
        Binding::in_out("qkv", Elem::F32, qkv_len),
        Binding::input("q_norm", Elem::F32, |s| s.dim("HEAD_DIM")),
        Binding::input("k_norm", Elem::F32, |s| s.dim("HEAD_DIM")),
        ROPE,
    ],
    variants: &[
        variant("naive", &[]),
        variant("workgroup", WORKGROUPS),
        variant("subgroup", WORKGROUPS),
    ],
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
