//! Negative log-likelihood of given tokens: the term whose mean perplexity is made of.

use crate::declare::*;

crate::params! {
    /// Parameters of `nll`.
    pub struct Nll {
        n: usize = dim("N", "logits of a row: tokens of the vocabulary", 64, 3000),
        rows: usize = dim("ROWS", "rows of logits, each with a token of its own", 4, 12),
    }
}

/// The declaration.
pub static OPERATION: Declaration<Nll> = Declaration {
    name: "nll",
    summary: "negative log-likelihood of a given token in each row of logits",
    fuses: None,
    state: &[],
    bindings: &[
        spreads(
            Binding::<Nll>::input("logits", &f32s, len!(p => p.rows * p.n)).drawn(&|_| Draw::Ties),
        ),
        // Now and then a token that no row has.
        Binding::<Nll>::input("tokens", &words, len!(p => p.rows))
            .drawn(&|p| Draw::Tokens(p.n + 1)),
        Binding::output("y", &f32s, len!(p => p.rows)),
    ],
    variants: &[Variant {
        tunables: "WG=64|128|256|512|1024",
        ..Variant::new("naive", &[Stage::main(&|p, _| p.rows)])
    }],
    prefer: &|_| &["naive"],
    cost: &|p, _| Cost {
        bytes: 4.0 * (p.rows * (p.n + 2)) as f64,
        // A difference, an exponential and a sum for each.
        flops: 3.0 * (p.rows * p.n) as f64,
    },
    tolerance: &|p, _| {
        Tolerance::new(
            16.0 + (p.n as f64).sqrt(),
            // A row whose token takes nearly all of the probability has next to no value to divide
            // by.
            1e-6,
            "N rounded additions behave as a random walk of step eps * sum; WGSL's exp errs by \
                 3 + 2 |x| units in the last place, its log by 2^-21",
        )
    },
    cases: "
        N=1
        N=7,ROWS=3; N=64,ROWS=65; N=1003,ROWS=9; N=128256,ROWS=2
        N=262147
    ",
    bench: "
        # The next token of one position, and a window of perplexity.
        N=262144
        N=128256,ROWS=512
    ",
};
