//! Greedy choice of the next token, and the end of a step.

use crate::declare::*;

crate::params! {
    /// Parameters of `argmax`.
    pub struct Argmax {
        n: usize = dim("N", "logits", 256, 70_000),
        sequences: usize = SEQUENCES,
    }
}

/// Parts of a sequence's logits, at most.
const MOST_PARTS: usize = 256;

/// A variant of two dispatches: parts of the logits, then the parts' candidates.
const TWO_PASS: Variant<Argmax> = Variant {
    stages: &[
        Stage { entry: "slices", grid: &|p, c| p.sequences * c["PARTS"] as usize },
        Stage { entry: "choose", grid: &|p, _| p.sequences },
    ],
    ..Variant::PLAIN
};

/// The declaration.
pub static OPERATION: Declaration<Argmax> = Declaration {
    name: "argmax",
    summary: "greedy choice (lower index wins ties), next token and position",
    fuses: None,
    state: &[n_kv(4, 9), PROMPT_LEN],
    bindings: &[
        Binding::<Argmax>::input("logits", &f32s, len!(p => p.sequences * p.n))
            .drawn(&|_| Draw::TiesAndNan),
        Binding::<Argmax>::in_out("tokens", &words, len!(p, s => p.sequences * (s.n_kv + 1)))
            .drawn(&|_| Draw::Sequence(1000)),
        Binding::<Argmax>::in_out("state", &words, len!(p => p.sequences * STATE_WORDS))
            .drawn(&|_| Draw::State),
        Binding::<Argmax>::scratch("partial_values", &f32s, len!(p => MOST_PARTS * p.sequences)),
        Binding::<Argmax>::scratch("partial_indices", &words, len!(p => MOST_PARTS * p.sequences)),
    ],
    variants: &[
        Variant::new("naive", &[Stage::main(&|p, _| p.sequences)]),
        Variant {
            tunables: "WG=128|256|512|1024",
            ..Variant::new("workgroup", &[Stage::main(&|p, _| p.sequences)])
        },
        Variant { name: "two_pass", tunables: "WG=128|256|512,PARTS=16|32|64", ..TWO_PASS },
        Variant {
            name: "two_pass_subgroup",
            // A vector an invocation, until a large GPU is full.
            constants: &|p, _| {
                let parts = p.n.div_ceil(4 * 256).next_power_of_two().min(128);
                vec![("PARTS", parts as f64)]
            },
            tunables: "WG=128|256|512,PARTS=32|64|128|256",
            unsupported: &|p, _| {
                let is_ragged = p.sequences > 1 && !p.n.is_multiple_of(4);
                is_ragged.then(|| format!("N={} is no multiple of 4, and SEQUENCES exceeds 1", p.n))
            },
            ..TWO_PASS
        },
    ],
    prefer: &|p| {
        if p.n >= 8192 {
            &["two_pass_subgroup", "two_pass", "workgroup", "naive"]
        } else {
            &["workgroup", "naive"]
        }
    },
    cost: &|p, _| Cost { bytes: 4.0 * (p.sequences * p.n) as f64, flops: 0.0 },
    tolerance: &|_, _| Tolerance::exact("the index is exact"),
    cases: "
        # Tails of a vocabulary: a tile times n plus 3.
        N=1|2|255|256|257|16387|128256|262147:
            N_KV=66003
            N_KV=2,PROMPT_LEN=5
        SEQUENCES=8,N_KV=4,PROMPT_LEN=2
        N=300,SEQUENCES=3,N_KV=4,PROMPT_LEN=2; N=20000,SEQUENCES=5,N_KV=4,PROMPT_LEN=2
    ",
    // All tokens given: repeated runs advance the position and must not write past `tokens`.
    bench: "
        PROMPT_LEN=4294967295:
            N=262144|128256|151936
            N=128256,SEQUENCES=8
    ",
};
