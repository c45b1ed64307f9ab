//! Token embedding: gather the rows of one token, of several neighbours or of the current ones of
//! several sequences, and scale them.

use crate::declare::*;

crate::params! {
    /// Parameters of `embed`.
    pub struct Embed {
        vocab: usize = dim("VOCAB", "rows of the table", 32, 300),
        hidden: usize = dim("HIDDEN", "elements of a row", 64, 1500),
        weight: Format = choice("WEIGHT", "storage format of the table", &Format::ALL),
        packing: Packing =
            choice("PACKING", "layout of quantised rows; a tied head decides it", &Packing::ALL),
        scale: f32 = float("SCALE", "factor on every element; Gemma's is sqrt(HIDDEN)", 0.5, 34.0),
        first_row: usize = start(
            "FIRST_ROW",
            "token of row 0 of a part: a table too large for one binding comes in parts",
            70,
        ),
        part: TablePart = choice(
            "PART",
            "the whole table, or a part that leaves x as it is for tokens of the others",
            &TablePart::ALL,
        ),
        n_tokens: usize = N_TOKENS,
        tokens_of: TokensOf = TOKENS_OF,
    }
}

/// The declaration.
pub static OPERATION: Declaration<Embed> = Declaration {
    name: "embed",
    summary: "gather the embedding rows of N_TOKENS tokens and scale them",
    fuses: None,
    state: &[n_kv(8, 40)],
    bindings: &[
        state(),
        Binding::<Embed>::input(
            "tokens",
            &words,
            len!(p, s => match p.tokens_of {
                TokensOf::One => s.n_kv - 1 + p.n_tokens,
                TokensOf::Each => s.n_kv * p.n_tokens,
            }),
        )
        .drawn(&|p| Draw::Tokens(p.vocab)),
        spreads(
            Binding::<Embed>::input(
                "table",
                &|p, _| {
                    let packing = Some(p.packing);
                    Elem::Weights(Matrix { packing, ..Matrix::rows(p.weight, p.hidden) })
                },
                len!(p => p.vocab * p.hidden),
            )
            .drawn(&|_| Draw::TinyRows),
        ),
        spreads(Binding::in_out("x", &f32s, len!(p => p.n_tokens * p.hidden))),
    ],
    variants: &[
        Variant::sized("naive", &[Stage::main(&|p, c| groups_for(p.n_tokens * p.hidden, c))]),
        Variant {
            name: "vec4",
            stages: &[Stage::main(&|p, c| {
                let chunks = p.weight.row_stride(p.hidden, Packing::Blocks) / 16;
                groups_for(p.n_tokens * chunks, c)
            })],
            tunables: WORKGROUPS,
            unsupported: &|p, _| {
                (!p.weight.is_dense()).then(|| format!("WEIGHT={} is quantised", p.weight.name()))
            },
            ..Variant::PLAIN
        },
        Variant {
            constants: &|p, _| p.weight.fields(p.hidden, p.packing),
            unsupported: &|p, _| {
                if p.weight.is_dense() {
                    return Some(format!("WEIGHT={} is dense", p.weight.name()));
                }
                no_multiple("HIDDEN", p.hidden, 4)
            },
            ..Variant::sized(
                "quantised",
                &[Stage::main(&|p, c| groups_for(p.n_tokens * (p.hidden / 4), c))],
            )
        },
    ],
    prefer: &|p| {
        if p.weight.is_dense() { &["vec4", "naive"] } else { &["quantised", "naive"] }
    },
    cost: &|p, _| {
        let n = (p.n_tokens * p.hidden) as f64;
        let rows = (p.n_tokens * p.weight.row_bytes(p.hidden)) as f64;
        Cost { bytes: rows + 4.0 * n, flops: n }
    },
    tolerance: &|_, _| {
        Tolerance::new(
            2.0,
            1e-13,
            "a conversion exact but for the sum with a minimum, and one rounded product",
        )
    },
    cases: "
        SCALE=1:
            WEIGHT=f32|f16|bf16|q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k:
                VOCAB=320,HIDDEN=1152,SCALE=33.941124,N_KV=3
                VOCAB=7,HIDDEN=2048; VOCAB=5,HIDDEN=13,N_KV=9; VOCAB=1
            WEIGHT=q8_0|q4_0|q4_1|q5_0|q5_1|q4_k|q5_k|q6_k,PACKING=soa:
                VOCAB=320,HIDDEN=1152,SCALE=33.941124,N_KV=3
                VOCAB=7,HIDDEN=2048; VOCAB=5,HIDDEN=13,N_KV=9; VOCAB=1
            # Ids beyond sixteen bits.
            VOCAB=70001,HIDDEN=4,WEIGHT=bf16,N_TOKENS=5,TOKENS_OF=one,N_KV=66004
            # Before, in and behind a part: the token is below 90.
            FIRST_ROW=0|40|80|100:
                VOCAB=90,HIDDEN=256,WEIGHT=bf16|q4_k,PART=part,N_KV=3
            # Tokens of a prompt: rows that end anywhere in a chunk, and in another part for some.
            WEIGHT=f32|bf16|q8_0|q4_k:
                VOCAB=90,HIDDEN=44,SCALE=2,N_TOKENS=5:
                    TOKENS_OF=one|each,N_KV=4; FIRST_ROW=60,PART=part
                VOCAB=90,HIDDEN=1152,SCALE=2,N_TOKENS=37:
                    TOKENS_OF=one|each,N_KV=4; FIRST_ROW=60,PART=part
    ",
    bench: "
        VOCAB=262144,HIDDEN=1152,SCALE=33.941124:
            WEIGHT=bf16|q8_0|q6_k
            WEIGHT=bf16|q8_0|q6_k,N_TOKENS=1024
    ",
};
