//! Token embedding: gather the rows of one token, of several neighbours or of the current ones of
//! several sequences, and scale them.

use crate::codes::{Format, Packing, TablePart, TokensOf};
use crate::descriptor::*;
use crate::len;
use crate::param::{choice, dim, float, n_kv, start};
use crate::shared::*;

crate::params! {
    /// Parameters of `embed`.
    pub struct Embed {
        vocab: usize = dim("VOCAB", "rows of the table", 32, 300),
        hidden: usize = dim("HIDDEN", "elements of a row", 64, 1500),
        weight: Format = choice("WEIGHT", "storage format of the table", &Format::ALL),
        packing: Packing =
            choice("PACKING", "layout of quantised rows; a tied head decides it", &Packing::ALL),
        scale: f32 =
            float("SCALE", "factor on every element; Gemma's is sqrt(HIDDEN)", 0.5, 34.0),
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

/// A whole table in blocks.
fn table(vocab: usize, hidden: usize, weight: Format, scale: f32) -> Embed {
    let packing = Packing::Blocks;
    Embed {
        vocab,
        hidden,
        weight,
        packing,
        scale,
        first_row: 0,
        part: TablePart::Whole,
        n_tokens: 1,
        tokens_of: TokensOf::One,
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
            words,
            len!(p, s => match p.tokens_of {
                TokensOf::One => s.n_kv - 1 + p.n_tokens,
                TokensOf::Each => s.n_kv * p.n_tokens,
            }),
        )
        .drawn(|p| Draw::Tokens(p.vocab)),
        Binding::input(
            "table",
            |p, _| {
                let packing = Some(p.packing);
                Elem::Weights(Matrix { packing, ..Matrix::rows(p.weight, p.hidden) })
            },
            len!(p => p.vocab * p.hidden),
        ),
        Binding::in_out("x", f32s, len!(p => p.n_tokens * p.hidden)),
    ],
    variants: &[
        Variant::sized("naive", &[Stage::main(|p, c| groups_for(p.n_tokens * p.hidden, c))]),
        Variant {
            name: "vec4",
            stages: &[Stage::main(|p, c| {
                let chunks = p.weight.row_stride(p.hidden, Packing::Blocks) / 16;
                groups_for(p.n_tokens * chunks, c)
            })],
            tunables: WORKGROUPS,
            unsupported: |p, _| {
                (!p.weight.is_dense()).then(|| format!("WEIGHT={} is quantised", p.weight.name()))
            },
            ..Variant::PLAIN
        },
        Variant {
            name: "quantised",
            stages: &[Stage::main(|p, c| groups_for(p.n_tokens * (p.hidden / 4), c))],
            constants: |p, _| p.weight.fields(p.hidden, p.packing),
            tunables: WORKGROUPS,
            unsupported: |p, _| {
                if p.weight.is_dense() {
                    return Some(format!("WEIGHT={} is dense", p.weight.name()));
                }
                no_multiple("HIDDEN", p.hidden, 4)
            },
            ..Variant::PLAIN
        },
    ],
    prefer: |p| {
        if p.weight.is_dense() { &["vec4", "naive"] } else { &["quantised", "naive"] }
    },
    cost: |p, _| {
        let n = (p.n_tokens * p.hidden) as f64;
        let rows = (p.n_tokens * p.weight.row_bytes(p.hidden)) as f64;
        Cost { bytes: rows + 4.0 * n, flops: n }
    },
    tolerance: |_, _| Tolerance {
        k: 2.0,
        rounding: 0.0,
        nmse: 1e-13,
        reason: "a conversion exact but for the sum with a minimum, and one rounded product",
    },
    cases: || {
        let mut cases: Vec<Case<Embed>> = Vec::new();
        for &weight in Format::ALL {
            for &packing in Packing::ALL {
                if weight.is_dense() && packing == Packing::Planes {
                    continue;
                }
                let sizes = [(320, 1152, 1152f32.sqrt(), 3), (7, 2048, 1.0, 1)];
                for (vocab, hidden, scale, n_kv) in
                    sizes.into_iter().chain([(5, 13, 1.0, 9), (1, 1, 1.0, 1)])
                {
                    let embed = Embed { packing, ..table(vocab, hidden, weight, scale) };
                    cases.push(Case::from(embed).n_kv(n_kv));
                }
            }
        }
        // Before, in and behind a part: the token is below 90.
        for first_row in [0, 40, 80, 100] {
            for weight in [Format::Bf16, Format::Q4K] {
                let part = TablePart::Part;
                let embed = Embed { part, first_row, ..table(90, 256, weight, 1.0) };
                cases.push(Case::from(embed).n_kv(3));
            }
        }
        // Tokens of a prompt: rows that end anywhere in a chunk, and in another part for some.
        for weight in [Format::F32, Format::Bf16, Format::Q8_0, Format::Q4K] {
            for (n_tokens, hidden) in [(5, 44), (37, 1152)] {
                let embed = Embed { n_tokens, ..table(90, hidden, weight, 2.0) };
                cases.push(Case::from(embed).n_kv(4));
                let part = TablePart::Part;
                cases.push(Case::from(Embed { part, first_row: 60, ..embed }).n_kv(1));
                let tokens_of = TokensOf::Each;
                cases.push(Case::from(Embed { tokens_of, ..embed }).n_kv(4));
            }
        }
        cases
    },
    bench: || {
        let tables = [Format::Bf16, Format::Q8_0, Format::Q6K]
            .map(|weight| table(262_144, 1152, weight, 1152f32.sqrt()));
        [1, 1024].map(|n_tokens| tables.map(|t| Embed { n_tokens, ..t }.into())).concat()
    },
};
