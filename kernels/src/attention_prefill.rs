//! Attention of several consecutive tokens over a cache that already holds them: causal,
//! grouped-query, full or within a window.

use crate::attention_decode::{
    number, power_up_to, ragged, row_bytes, tiled_bytes, tiled_constants,
};
use crate::descriptor::*;
use crate::layout::act_bytes;
use crate::shape::{Param, Shape};
use crate::shared::*;

/// A prefill of `m` tokens that ends with position `context` - 1.
fn shape((group, kv_heads, head_dim): (u32, u32, u32), m: u32, context: u32) -> Shape {
    Shape::new(&[
        ("M", f64::from(m)),
        ("GROUP", f64::from(group)),
        ("KV_HEADS", f64::from(kv_heads)),
        ("HEAD_DIM", f64::from(head_dim)),
        ("CAPACITY", f64::from(context)),
        ("WINDOW", 0.0),
        ("ROW", 1.0),
        ("KV", 1.0),
        ("ACTS", 0.0),
        ("SCALE", f64::from(1.0 / (head_dim as f32).sqrt())),
        ("SEEN", f64::from(context - m + 1)),
    ])
}

const GEMMA: (u32, u32, u32) = (4, 1, 256);
const LLAMA: (u32, u32, u32) = (4, 8, 64);
const QWEN: (u32, u32, u32) = (2, 8, 128);

/// Rows of a KV head: query heads of all tokens.
fn rows(s: &Shape) -> usize {
    s.dim("M") * s.dim("GROUP")
}

/// Keys each token attends to, in order.
fn keys(s: &Shape) -> impl Iterator<Item = usize> {
    let (first, capacity) = (s.dim("SEEN") - 1, s.dim("CAPACITY"));
    let window = if s.dim("WINDOW") == 0 { usize::MAX } else { s.dim("WINDOW") };
    (0..s.dim("M")).map(move |i| ((first + i).min(capacity - 1) + 1).min(window))
}

pub(crate) static KERNEL: Kernel = Kernel {
    name: "attention_prefill",
    summary: "causal attention of M tokens over a cache that holds them, optionally in a window",
    params: &[
        Param::dim("M", "tokens", 16, 40),
        GROUP,
        kv_heads(3),
        HEAD_DIM,
        Param::dim(
            "CAPACITY",
            "slots of the cache; position t lies in slot t, and nothing wraps",
            64,
            200,
        ),
        Param::start("WINDOW", "tokens a query sees, itself included; 0: all", 70),
        Param::choice(
            "ROW",
            "what lies in a row of q: query heads, or query, key and value heads",
            &["q", "qkv"],
        ),
        KV,
        ACTS_OUT,
        SCALE,
        Param::dim(
            "SEEN",
            "tokens seen with the first query (tests only; the position is on the GPU)",
            32,
            120,
        ),
    ],
    bindings: &[
        STATE,
        Binding::input("q", Elem::F32, |s| {
            let others = if s.dim("ROW") == 1 { 2 * s.dim("KV_HEADS") } else { 0 };
            s.dim("M") * (heads(s) + others) * s.dim("HEAD_DIM")
        }),
        Binding::input("k_cache", Elem::Kv, cache_len),
        Binding::input("v_cache", Elem::Kv, cache_len),
        Binding::output("y", Elem::Act, |s| s.dim("M") * heads(s) * s.dim("HEAD_DIM")),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| {
                    let pieces = s.dim("HEAD_DIM").div_ceil(16);
                    (s.dim("M") * heads(s) * pieces).div_ceil(c["WG"] as usize)
                },
            }],
            tunables: WORKGROUPS,
            refuses: |s, _| {
                let odd = !s.dim("HEAD_DIM").is_multiple_of(2);
                odd.then(|| format!("HEAD_DIM={} is odd", s.dim("HEAD_DIM")))
            },
            ..PLAIN
        },
        Variant {
            name: "tiled",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| s.dim("KV_HEADS") * rows(s).div_ceil(c["ROWS"] as usize),
            }],
            constants: |s, caps| {
                // Rows whose chunks fill a workgroup, and a tile that leaves room for them.
                let chunks = row_bytes(s).div_ceil(16);
                let room = caps.workgroup_memory.min(16 << 10) as usize;
                let wg = |rows: usize| (rows * chunks).next_power_of_two().max(64);
                let fits = |rows: &usize| tiled_bytes(s, *rows, wg(*rows), 4, 8) <= room;
                let most = power_up_to(256 / chunks.max(1)).min(rows(s).next_power_of_two()).min(8);
                let rows = [8, 4, 2].into_iter().filter(|r| *r <= most).find(fits).unwrap_or(1);
                tiled_constants(s, rows, 64, 32, room)
            },
            tunables: &[("TILE", &[4.0, 8.0, 16.0])],
            refuses: |s, _| ragged(s),
            ..PLAIN
        },
        Variant {
            name: "flash",
            stages: &[Stage {
                entry: "main",
                grid: |s, c| s.dim("KV_HEADS") * rows(s).div_ceil(16 * c["ROWS_EACH"] as usize),
            }],
            constants: |s, caps| {
                // Larger blocks do more with what they load, as long as there are enough of them.
                let blocks = |each: usize| s.dim("KV_HEADS") * rows(s).div_ceil(16 * each);
                // A tile of values, and per row a slice of the query, weights and tops.
                let bytes = |each: usize| 16 * (1024 + 16 * each * (9 + 17 + 4));
                let fits = |each: &usize| {
                    blocks(*each) >= 128 && bytes(*each) <= caps.workgroup_memory as usize
                };
                vec![("ROWS_EACH", number([4, 2].into_iter().find(fits).unwrap_or(1)))]
            },
            tunables: &[("ROWS_EACH", &[1.0, 2.0, 4.0])],
            refuses: |s, _| {
                ragged(s).or_else(|| {
                    let d = s.dim("HEAD_DIM");
                    (d > 256).then(|| format!("HEAD_DIM={d} exceeds 256"))
                })
            },
            ..PLAIN
        },
    ],
    prefer: |s| {
        // Measured on 132 processors: `flash` takes 64 keys at a time, more than a few tokens at
        // the start of a sequence have (at the end of a long one they lose 4 to 11 % with
        // `tiled`); and with heads of 256 it takes longer a key, up to 64 blocks of rows.
        let blocks = s.dim("KV_HEADS") * rows(s).div_ceil(16);
        match s.dim("M") <= 32 || (s.dim("HEAD_DIM") > 128 && blocks <= 64) {
            true => &["tiled", "flash", "naive"],
            false => &["flash", "tiled", "naive"],
        }
    },
    cost: |s| {
        let most = keys(s).max().unwrap_or(0);
        // With a window, what the first query sees, and one key more for each further query.
        let slots = (most + s.dim("M") - 1).min(s.dim("CAPACITY")).min(s.dim("SEEN") + s.dim("M"));
        let cache = 2.0 * number(slots * s.dim("KV_HEADS") * row_bytes(s));
        let query = number(heads(s) * s.dim("HEAD_DIM"));
        Cost {
            bytes: cache + (4.0 + act_bytes(s)) * s.float("M") * query,
            flops: 4.0 * number(keys(s).sum()) * query,
        }
    },
    tolerance: |s| Tolerance {
        k: 16.0 + s.float("HEAD_DIM").sqrt() + number(keys(s).max().unwrap_or(0)).sqrt(),
        rounding: 0.0,
        nmse: 1e-9,
        reason: "as attention_decode: score errors act through exp on every weight (in the \
                 reference's magnitude); sums over head_dim and keys behave as random walks",
    },
    cases: || {
        let with = |s: Shape, kv: f64, acts: f64| s.with("KV", kv).with("ACTS", acts);
        vec![
            // Windows that begin inside the call; tiles that only some rows reach.
            with(shape(GEMMA, 40, 100), 1.0, 1.0).with("WINDOW", 33.0),
            with(shape(LLAMA, 17, 150), 1.0, 0.0),
            with(shape(QWEN, 20, 80), 0.0, 1.0).with("ROW", 0.0),
            with(shape((3, 2, 80), 33, 70), 1.0, 0.0),
            with(shape((1, 1, 32), 130, 130), 0.0, 0.0),
            with(shape((1, 1, 32), 1, 1), 1.0, 0.0).with("WINDOW", 1.0),
            // Queries past the last slot.
            with(shape((2, 1, 64), 70, 90), 1.0, 0.0).with("SEEN", 50.0).with("WINDOW", 64.0),
        ]
    },
    bench: || {
        let long = [512, 4096].map(|context| [GEMMA, LLAMA, QWEN].map(|h| shape(h, 512, context)));
        let short = [GEMMA, LLAMA, QWEN].map(|h| shape(h, 32, 32));
        [&long.concat()[..], &short].concat()
    },
};
