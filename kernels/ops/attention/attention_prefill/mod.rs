//! Attention of several consecutive tokens over a cache that already holds them: causal,
//! grouped-query, full or within a window.

use crate::attention::geometry::*;
use crate::attention::*;
use crate::declare::*;

crate::params! {
    /// Parameters of `attention_prefill`.
    pub struct AttentionPrefill {
        n_tokens: usize = dim("N_TOKENS", "tokens", 16, 40),
        q_per_kv: usize = Q_PER_KV,
        kv_heads: usize = kv_heads(3),
        head_dim: usize = HEAD_DIM,
        kv_size: usize = dim("KV_SIZE", "slots of the cache; nothing wraps", 64, 200),
        window: usize = start("WINDOW", "tokens a query attends to, itself included; 0: all", 70),
        q_row: QueryRow = choice(
            "Q_ROW",
            "what lies in a row of q: query heads, or query, key and value heads",
            &QueryRow::ALL,
        ),
        kv_format: KvFormat = KV_FORMAT,
        act_format: FloatFormat = ACT_FORMAT_OUT,
        scale: f32 = SCALE,
        before: usize = BEFORE,
    }
}

has_cache!(AttentionPrefill);

impl AttentionPrefill {
    /// Rows of a KV head: query heads of all tokens.
    fn rows(&self) -> usize {
        self.n_tokens * self.q_per_kv
    }

    /// Most splits of a block's keys the scratch memory has room for: shares of 64 keys, partial
    /// results of 8 MiB; `splits()` in parts/prefill_split.wgsl.
    fn most_key_splits(&self) -> usize {
        let fitting = (2 << 20) / (self.n_tokens * self.q_elements());
        fitting.min(self.kv_size.div_ceil(64)).max(1)
    }

    /// Blocks of `rows` rows, of all KV heads.
    fn blocks(&self, rows: usize) -> usize {
        self.kv_heads * self.rows().div_ceil(rows)
    }

    /// Heads in a row of q.
    fn row_heads(&self) -> usize {
        match self.q_row {
            QueryRow::Q => self.q_heads(),
            QueryRow::Qkv => self.qkv_heads(),
        }
    }

    /// Elements of a row of q.
    pub fn row_elements(&self) -> usize {
        self.row_heads() * self.head_dim
    }

    /// The slot of the first query, and the first slot that holds a token, when `position` tokens
    /// came before.
    pub fn slots(&self, position: usize) -> (usize, usize) {
        match self.before {
            0 => (position, 0),
            before => (before, before - position.min(before)),
        }
    }

    /// Tokens of the prompt in this chunk, at least one.
    pub fn count(&self, position: usize, prompt_len: usize) -> usize {
        prompt_len.saturating_sub(position).clamp(1, self.n_tokens)
    }

    /// Keys each token attends to, in order.
    fn keys(&self, state: State) -> impl Iterator<Item = usize> + use<> {
        let (first, oldest) = self.slots(state.n_kv - 1);
        let count = self.count(state.n_kv - 1, state.prompt_len);
        let kv_size = self.kv_size;
        let window = if self.window == 0 { usize::MAX } else { self.window };
        (0..self.n_tokens).map(move |i| {
            let last = (first + i.min(count - 1)).min(kv_size - 1);
            (last + 1 - oldest.min(last)).min(window)
        })
    }

    /// Most keys a token attends to.
    fn most_keys(&self, state: State) -> usize {
        self.keys(state).max().unwrap_or(0)
    }
}

/// Vectors of slots that no query attends to: those before the first one's window, and those behind
/// the last token.
fn unread(p: &AttentionPrefill, s: State) -> Vec<usize> {
    let (first, _) = p.slots(s.n_kv - 1);
    let end = (first + p.count(s.n_kv - 1, s.prompt_len)).min(p.kv_size);
    let seen = p.keys(s).next().unwrap_or(0);
    let begin = (first + 1).min(p.kv_size) - seen;
    p.vectors_in((0..begin).chain(end..p.kv_size))
}

/// Tolerance with queries and weights rounded to f16, and with keys and values if the cache is not
/// f16.
fn f16_tolerance(p: &AttentionPrefill, s: State) -> Tolerance {
    let keys = p.most_keys(s) as f64;
    // 2^-11, half a unit in the last place of f16, in multiples of 2^-23.
    let half_ulp = 4096.0;
    let d = p.head_dim as f64;
    let f16_operands = if p.kv_format == KvFormat::F16 { 1 } else { 2 };
    Tolerance {
        f16_operands,
        ..Tolerance::new(
            16.0 + d.sqrt()
                + keys.sqrt()
                + (d + keys) / 16.0
                + 2.0 * f64::from(f16_operands) * half_ulp * (4.0 / d.sqrt()).min(1.0),
            3e-6,
            "queries and weights rounded to f16 err by up to 2^-11 each, scores by as much of the \
             sizes of their products, HEAD_DIM of them as a random walk, which act through exp on \
             every weight (in the reference's magnitude); matrix units truncate sums; else as f32",
        )
    }
}

/// Rows of a block of `flash`.
fn flash_rows(c: &Constants) -> usize {
    16 * c["ROWS_EACH"] as usize
}

/// Returns true if workgroup memory holds `each` rows per invocation of `flash`: a tile of values,
/// and a slice of the query, weights and maxima of each row.
fn flash_fits(each: usize, caps: &Capabilities) -> bool {
    16 * (1024 + 16 * each * (9 + 17 + 4)) <= caps.workgroup_memory as usize
}

fn flash_unsupported(p: &AttentionPrefill, _: &Capabilities) -> Option<String> {
    ragged(p).or_else(|| exceeds("HEAD_DIM", p.head_dim, 256))
}

/// Rows of a block of `cooperative_matrix`.
fn matrix_rows(c: &Constants) -> usize {
    32 * c["ROW_BLOCKS"] as usize
}

/// ROW_BLOCKS of `cooperative_matrix`: four subgroups of 32 rows and 64 columns.
fn matrix_blocks(p: &AttentionPrefill) -> usize {
    (256 / p.head_dim.max(1)).clamp(1, 4)
}

fn matrix_constants(p: &AttentionPrefill, caps: &Capabilities) -> Overrides {
    let subgroup = caps.subgroup.map_or(32, |(_, max)| max);
    vec![("ROW_BLOCKS", matrix_blocks(p) as f64), ("SG", f64::from(subgroup))]
}

fn matrix_unsupported(p: &AttentionPrefill, caps: &Capabilities) -> Option<String> {
    // Rows of a block are as many as its subgroups have lanes.
    let sizes = caps.subgroup.filter(|sizes| *sizes != (32, 32));
    ragged(p)
        .or_else(|| {
            let d = p.head_dim;
            (![64, 128, 256].contains(&d)).then(|| format!("HEAD_DIM={d} is not 64, 128 or 256"))
        })
        .or_else(|| sizes.map(|(min, max)| format!("subgroups of {min} to {max} lanes, not of 32")))
}

/// Workgroups of a stage that attends: a share of the keys of a block of rows each.
fn split_blocks(p: &AttentionPrefill, c: &Constants, rows: usize) -> usize {
    p.blocks(rows) * (c["SPLITS"] as usize).clamp(1, p.most_key_splits())
}

/// The stage that combines the splits.
const COMBINE: Stage<AttentionPrefill> = Stage {
    entry: "combine",
    grid: &|p, c| (p.n_tokens * p.q_elements() / 4).div_ceil(c["COMBINE_FOURS"] as usize),
};

/// Geometry of both stages with blocks of `rows` rows: about two workgroups a processor of a large
/// GPU attend, and an invocation combines four splits.
fn split_constants(p: &AttentionPrefill, rows: usize) -> Overrides {
    let splits = (264 / p.blocks(rows)).clamp(1, p.most_key_splits());
    let parts = splits.div_ceil(4).next_power_of_two();
    vec![("SPLITS", splits as f64), ("COMBINE_FOURS", (256 / parts) as f64)]
}

const SPLITS: &str = "SPLITS=2|4|8|16|32|64";

/// The declaration.
pub static OPERATION: Declaration<AttentionPrefill> = Declaration {
    name: "attention_prefill",
    summary: "causal attention of N_TOKENS over a cache that holds them, optionally in a window",
    fuses: None,
    state: &[
        Param {
            doc: "tokens of the sequence up to the first query's (state: the position is on \
                  the GPU)",
            ..n_kv(32, 120)
        },
        PROMPT_LEN,
    ],
    bindings: &[
        state(),
        spreads(
            Binding::<AttentionPrefill>::input(
                "q",
                &f32s,
                len!(p => p.n_tokens * p.row_heads() * p.head_dim),
            )
            .drawn(&|p| Draw::Queries { of: p.q_elements(), row: p.row_elements() }),
        ),
        spreads(read_cache("k_cache").never_reads(&unread)),
        // Queries that share a tile multiply all its values, some by a weight of zero: a NaN would
        // reach outputs that do not depend on it.
        read_cache("v_cache").never_reads(&unread),
        Binding::scratch(
            "tops",
            &f32s,
            len!(p => 2 * p.n_tokens * p.q_heads() * p.most_key_splits()),
        ),
        Binding::scratch(
            "partials",
            &f32s,
            len!(p => p.n_tokens * p.q_elements() * p.most_key_splits()),
        ),
        Binding::output("y", floats!(act_format), len!(p => p.n_tokens * p.q_heads() * p.head_dim)),
    ],
    variants: &[
        Variant {
            name: "naive",
            stages: &[Stage::main(&|p, c| {
                let pieces = p.head_dim.div_ceil(16);
                groups_for(p.n_tokens * p.q_heads() * pieces, c)
            })],
            tunables: WORKGROUPS,
            unsupported: &|p, _| {
                let odd = !p.head_dim.is_multiple_of(2);
                odd.then(|| format!("HEAD_DIM={} is odd", p.head_dim))
            },
            ..Variant::PLAIN
        },
        Variant {
            constants: &|p, caps| {
                // Rows whose chunks fill a workgroup, and a tile that leaves room for them.
                let chunks = p.value_chunks();
                let room = caps.workgroup_memory.min(16 << 10) as usize;
                let wg = |rows: usize| (rows * chunks).next_power_of_two().max(64);
                let fits = |rows: &usize| tiled_bytes(p, *rows, wg(*rows), 4, 8) <= room;
                let most =
                    power_up_to(256 / chunks.max(1)).min(p.rows().next_power_of_two()).min(8);
                let rows = [8, 4, 2].into_iter().filter(|r| *r <= most).find(fits).unwrap_or(1);
                tiled_constants(p, rows, 64, 32, room)
            },
            tunables: "TILE=4|8|16",
            unsupported: &|p, _| ragged(p),
            ..Variant::new("tiled", &[Stage::main(&|p, c| p.blocks(c["ROWS"] as usize))])
        },
        Variant {
            constants: &|p, caps| {
                // Larger blocks do more with what they load, as long as there are enough of them.
                let fits = |each: &usize| p.blocks(16 * each) >= 128 && flash_fits(*each, caps);
                vec![("ROWS_EACH", [4, 2].into_iter().find(fits).unwrap_or(1) as f64)]
            },
            tunables: "ROWS_EACH=1|2|4",
            unsupported: &flash_unsupported,
            ..Variant::new("flash", &[Stage::main(&|p, c| p.blocks(flash_rows(c)))])
        },
        Variant {
            name: "flash_split",
            stages: &[Stage::main(&|p, c| split_blocks(p, c, flash_rows(c))), COMBINE],
            constants: &|p, caps| {
                // Splits make up for few blocks.
                let fits = |each: &usize| 8 * each <= p.rows() && flash_fits(*each, caps);
                let each = [4, 2].into_iter().find(fits).unwrap_or(1);
                [vec![("ROWS_EACH", each as f64)], split_constants(p, 16 * each)].concat()
            },
            tunables: SPLITS,
            unsupported: &flash_unsupported,
            ..Variant::PLAIN
        },
        Variant {
            constants: &matrix_constants,
            unsupported: &matrix_unsupported,
            tolerance: Some(&f16_tolerance),
            ..Variant::new("cooperative_matrix", &[Stage::main(&|p, c| p.blocks(matrix_rows(c)))])
        },
        Variant {
            name: "cooperative_matrix_split",
            stages: &[Stage::main(&|p, c| split_blocks(p, c, matrix_rows(c))), COMBINE],
            constants: &|p, caps| {
                let constants = matrix_constants(p, caps);
                let rows = 32 * constants[0].1 as usize;
                [constants, split_constants(p, rows)].concat()
            },
            tunables: SPLITS,
            unsupported: &matrix_unsupported,
            tolerance: Some(&f16_tolerance),
            ..Variant::PLAIN
        },
    ],
    prefer: &|p| {
        // Measured on 132 processors. Keys shared by several workgroups take a fifteenth to nine
        // tenths of the time at the end of a long sequence and 5 µs more at its beginning; the
        // position is not known here.
        let shared = |rows: usize| p.kv_size >= 512 + p.n_tokens && p.blocks(rows) <= 64;
        // Matrix units only where keys and values are no more than f16, and so is what follows.
        // Those of q8_0 are rounded once more, which sums over short heads would show.
        let as_f16 = match p.kv_format {
            KvFormat::F32 => false,
            KvFormat::F16 => true,
            KvFormat::Q8_0 => p.head_dim >= 64,
        };
        let units = as_f16 && p.act_format == FloatFormat::F16;
        // `flash` takes 64 keys at a time, more than a few tokens at the start of a sequence have;
        // and with heads of 256 it takes longer a key, up to 64 blocks of rows.
        let small = p.n_tokens <= 32 || (p.head_dim > 128 && p.blocks(16) <= 64);
        match (units, small) {
            (true, _) if shared(32 * matrix_blocks(p)) => {
                &["cooperative_matrix_split", "flash_split", "flash", "tiled", "naive"]
            }
            (true, _) => &["cooperative_matrix", "flash", "tiled", "naive"],
            _ if shared(64) => &["flash_split", "flash", "tiled", "naive"],
            (_, true) => &["tiled", "flash", "naive"],
            _ => &["flash", "tiled", "naive"],
        }
    },
    cost: &|p, s| {
        // With a window, what the first query attends to, and one key more for each further query.
        let slots = (p.most_keys(s) + p.n_tokens - 1).min(p.kv_size).min(s.n_kv + p.n_tokens);
        let cache = 2 * slots * p.kv_heads * p.vector_bytes();
        let query = p.q_elements();
        Cost {
            bytes: (cache + (4 + p.act_format.bytes()) * p.n_tokens * query) as f64,
            flops: (4 * p.keys(s).sum::<usize>() * query) as f64,
        }
    },
    tolerance: &|p, s| {
        Tolerance::new(
            16.0 + (p.head_dim as f64).sqrt() + (p.most_keys(s) as f64).sqrt(),
            1e-9,
            "as attention_decode: score errors act through exp on every weight (in the \
                 reference's magnitude); sums over head_dim and keys behave as random walks",
        )
    },
    cases: "
        Q_ROW=qkv,KV_FORMAT=f16:
            # Windows that begin inside the call; tiles that only some rows reach.
            LAYER=gemma,N_TOKENS=40,KV_SIZE=100,WINDOW=33,ACT_FORMAT=f16,N_KV=61,PROMPT_LEN=100
            LAYER=llama,N_TOKENS=17,KV_SIZE=150,N_KV=134,PROMPT_LEN=150
            LAYER=qwen,N_TOKENS=20,KV_SIZE=80,Q_ROW=q:
                KV_FORMAT=f32,ACT_FORMAT=f16,N_KV=61,PROMPT_LEN=80
            N_TOKENS=33,Q_PER_KV=3,KV_HEADS=2,HEAD_DIM=80:
                KV_SIZE=70,SCALE=0.1118034,N_KV=38,PROMPT_LEN=70
            N_TOKENS=130,HEAD_DIM=32,KV_SIZE=130,KV_FORMAT=f32,SCALE=0.17677669,PROMPT_LEN=130
            HEAD_DIM=32,WINDOW=1,SCALE=0.17677669
            # Matrix units: rows that fill no block, f16 and f32 caches, growing scores. Caches of
            # q8_0, with scales that fill their chunk and that do not.
            LAYER=llama,N_TOKENS=100,KV_SIZE=300,ACT_FORMAT=f16,N_KV=201,PROMPT_LEN=300
            LAYER=qwen,N_TOKENS=64,KV_SIZE=250,ACT_FORMAT=f16,SCALE=0.3,N_KV=187,PROMPT_LEN=250
            LAYER=gemma,N_TOKENS=37,KV_SIZE=90:
                KV_FORMAT=f32|q8_0,ACT_FORMAT=f16,N_KV=54,PROMPT_LEN=90
            LAYER=llama,N_TOKENS=20,KV_SIZE=400:
                KV_FORMAT=q8_0,ACT_FORMAT=f16,N_KV=381,PROMPT_LEN=400
            N_TOKENS=33,Q_PER_KV=3,KV_HEADS=2,HEAD_DIM=80:
                KV_SIZE=70,KV_FORMAT=q8_0,SCALE=0.1118034,N_KV=38,PROMPT_LEN=70
            N_TOKENS=70,Q_PER_KV=2,HEAD_DIM=64,KV_SIZE=90:
                WINDOW=64,SCALE=0.125,N_KV=50,PROMPT_LEN=90
            # Behind a window that is not yet full, and behind a full one.
            LAYER=gemma,N_TOKENS=40,KV_SIZE=60,WINDOW=20,BEFORE=20,N_KV=6,PROMPT_LEN=99
            # Keys in one share and in several; rows of a block that attend to none of a share.
            LAYER=llama,N_TOKENS=5,KV_SIZE=400,ACT_FORMAT=f16,N_KV=396,PROMPT_LEN=400
            LAYER=qwen,N_TOKENS=20,KV_SIZE=900,ACT_FORMAT=f16,N_KV=3,PROMPT_LEN=23
            N_TOKENS=90,HEAD_DIM=64,KV_SIZE=400,WINDOW=130,SCALE=0.125,N_KV=311,PROMPT_LEN=400
            # A chunk that the prompt does not fill.
            LAYER=llama,N_TOKENS=70,KV_SIZE=134,WINDOW=64:
                ACT_FORMAT=f16,BEFORE=64,N_KV=66000,PROMPT_LEN=66050
            # Slots beyond 16384.
            N_TOKENS=3,HEAD_DIM=32,KV_SIZE=16430,SCALE=0.17677669,N_KV=16420,PROMPT_LEN=16422
    ",
    bench: "
        Q_ROW=qkv,KV_FORMAT=f16,ACT_FORMAT=f16:
            LAYER=gemma|llama|qwen,N_TOKENS=512,KV_SIZE=512,PROMPT_LEN=512
            LAYER=gemma|llama|qwen,N_TOKENS=512,KV_SIZE=4096,N_KV=3585,PROMPT_LEN=4096
            LAYER=gemma|llama|qwen,N_TOKENS=32,KV_SIZE=32,PROMPT_LEN=32
            # A few tokens after many.
            LAYER=gemma|llama|qwen,N_TOKENS=16,KV_SIZE=4096,N_KV=4081,PROMPT_LEN=4096
            LAYER=gemma|llama|qwen,N_TOKENS=16,ACT_FORMAT=f32:
                KV_SIZE=4096,N_KV=4081,PROMPT_LEN=4096
    ",
};
