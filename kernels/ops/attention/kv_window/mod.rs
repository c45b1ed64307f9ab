//! Keys and values between the ring of a sliding-window layer and the rows that a chunk of a prompt
//! attends to: the window before the chunk, then the chunk.

use crate::declare::*;

crate::params! {
    /// Parameters of `kv_window`.
    pub struct KvWindow {
        window_move: WindowMove = choice(
            "WINDOW_MOVE",
            "to_rows: the ring's tokens into the rows before the chunk; to_ring: the chunk's into the ring",
            &WindowMove::ALL,
        ),
        n_tokens: usize = dim("N_TOKENS", "tokens of the chunk", 4, 40),
        kv_heads: usize = kv_heads(3),
        head_dim: usize = HEAD_DIM,
        kv_size: usize = dim("KV_SIZE", "slots of the ring; position modulo KV_SIZE", 4, 40),
        kv_format: KvFormat = KV_FORMAT,
    }
}

impl KvWindow {
    /// Rows: a window and a chunk.
    pub fn rows(&self) -> usize {
        self.kv_size + self.n_tokens
    }

    /// Vectors of keys that may move, and of values.
    fn moved(&self) -> usize {
        let tokens = match self.window_move {
            WindowMove::ToRows => self.kv_size,
            WindowMove::ToRing => self.n_tokens,
        };
        self.kv_heads * tokens
    }

    fn vectors(&self) -> KvVectors {
        KvVectors { format: self.kv_format, head_dim: self.head_dim }
    }
}

const fn ring(name: &'static str) -> Binding<KvWindow> {
    Binding::in_out(
        name,
        &|p: &KvWindow, _| Elem::Kv(p.vectors()),
        len!(p => p.kv_heads * p.kv_size * p.head_dim),
    )
}

const fn rows(name: &'static str) -> Binding<KvWindow> {
    Binding::in_out(
        name,
        &|p: &KvWindow, _| Elem::Kv(p.vectors()),
        len!(p => p.kv_heads * (p.kv_size + p.n_tokens) * p.head_dim),
    )
}

/// Invocations for units of `bytes` bytes each.
fn grid(p: &KvWindow, c: &Constants, bytes: usize) -> usize {
    groups_for(p.moved() * p.vectors().bytes() / bytes, c)
}

/// The declaration.
pub static OPERATION: Declaration<KvWindow> = Declaration {
    name: "kv_window",
    summary: "keys and values from a ring to the rows before a chunk, or from a chunk's rows to the ring",
    fuses: None,
    state: &[n_kv(8, 90), PROMPT_LEN],
    bindings: &[state(), ring("k_cache"), ring("v_cache"), rows("k_rows"), rows("v_rows")],
    variants: &[
        Variant::sized("naive", &[Stage::main(&|p, c| grid(p, c, 4))]),
        Variant {
            unsupported: &|p, _| {
                let (d, bytes) = (p.head_dim, p.vectors().bytes());
                (!bytes.is_multiple_of(16))
                    .then(|| format!("HEAD_DIM={d} takes {bytes} bytes, no multiple of 16"))
            },
            ..Variant::sized("vec4", &[Stage::main(&|p, c| grid(p, c, 16))])
        },
    ],
    prefer: &|_| &["vec4", "naive"],
    cost: &|p, s| {
        let before = s.n_kv - 1;
        let tokens = match p.window_move {
            WindowMove::ToRows => before.min(p.kv_size),
            WindowMove::ToRing => s.prompt_len.saturating_sub(before).min(p.n_tokens).min(p.kv_size),
        };
        let vectors = 2 * p.kv_heads * tokens;
        // Position and prompt length are read even where nothing moves.
        Cost { bytes: (8 + 2 * vectors * p.vectors().bytes()) as f64, flops: 0.0 }
    },
    tolerance: &|_, _| Tolerance::exact("a copy"),
    cases: "
        KV_HEADS=2,HEAD_DIM=32,KV_FORMAT=f16:
            WINDOW_MOVE=to_rows|to_ring:
                # The first chunk, one behind half a window, behind a full one, longer than the ring,
                # not full, and past the prompt.
                N_TOKENS=12,KV_SIZE=8,PROMPT_LEN=12
                N_TOKENS=6,KV_SIZE=8,KV_FORMAT=f32,N_KV=5,PROMPT_LEN=10
                LAYER=gemma,N_TOKENS=16,KV_SIZE=512,N_KV=700,PROMPT_LEN=900
                LAYER=qwen,N_TOKENS=40,KV_SIZE=7,N_KV=66000,PROMPT_LEN=66100
                N_TOKENS=9,KV_SIZE=8,N_KV=20,PROMPT_LEN=24
                N_TOKENS=9,KV_SIZE=4,N_KV=20,PROMPT_LEN=3
                N_TOKENS=6,KV_SIZE=8,KV_FORMAT=q8_0,N_KV=5,PROMPT_LEN=10
                LAYER=gemma,N_TOKENS=16,KV_SIZE=512,KV_FORMAT=q8_0,N_KV=700,PROMPT_LEN=900
    ",
    bench: "
        LAYER=gemma,WINDOW_MOVE=to_rows|to_ring,N_TOKENS=1024:
            KV_SIZE=512,KV_FORMAT=f16,N_KV=1025,PROMPT_LEN=4096
    ",
};
