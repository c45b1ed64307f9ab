//! Sampling of the next token, and the end of a step.

use crate::declare::*;

crate::params! {
    /// Parameters of `sample`.
    pub struct Sample {
        n: usize = dim("N", "logits", 1024, 4000),
        temperature: f32 =
            float("TEMPERATURE", "divides the logits; 0 takes the largest", 0.0, 2.0),
        top_k: usize = start("TOP_K", "tokens that stay; 0 keeps all", 70),
        top_p: f32 = float("TOP_P", "share of the probability that stays; 1 keeps all", 0.0, 1.1),
        repeat_penalty: f32 = float(
            "REPEAT_PENALTY",
            "divides positive, multiplies negative logits of the sequence's tokens; 1 changes \
             nothing",
            1.0,
            2.0,
        ).within(1e-3, 1e3),
        last_n: usize = start(
            "LAST_N",
            "last tokens the penalty looks at, the current one included; 0 for all",
            5,
        ),
    }
}

/// Logits, beyond which sums of their weights would leave 64 bits.
const MOST: usize = 1 << 24;

/// Entries that a workgroup sorts at once.
const LIST: usize = 1024;

/// Tokens that the lists of `candidates` hold.
const MOST_CANDIDATES: usize = 256;

const MOST_MERGERS: usize = 64;

/// Groups of logits that a workgroup of `threshold` has, and the most such workgroups.
const RUN: usize = 32;
const MOST_BLOCKS: usize = 256;

/// Bins of `histogram`.
const BINS: usize = 512;

/// Winners whose preceding probability `nucleus` sums.
const PICKS: f64 = 8.0;

/// Workgroups for the logits: each reads a vector of four logits per invocation at a time.
fn blocks(p: &Sample, lanes: f64) -> f64 {
    let blocks = p.n.div_ceil(4 * lanes as usize).next_power_of_two();
    blocks.min(MOST_BLOCKS) as f64
}

impl Sample {
    /// Entries of lists: `histogram` may have every logit, `candidates` the first of every slice,
    /// of 256 at the least.
    fn listed(&self) -> usize {
        self.n.max(self.top_k.min(MOST_CANDIDATES) * self.n.div_ceil(256))
    }
}

/// The largest power of two of invocations in a workgroup, up to 1024.
fn largest_group(caps: &Capabilities) -> f64 {
    f64::from(1 << caps.invocations.clamp(1, 1024).ilog2())
}

fn impossible(p: &Sample, _: &Capabilities) -> Option<String> {
    exceeds("N", p.n, MOST - 1).or_else(|| {
        let penalty = p.repeat_penalty;
        (penalty <= 0.0).then(|| format!("REPEAT_PENALTY={penalty} is not positive"))
    })
}

/// Refuses shapes whose kept tokens exceed the workgroup memory of the variants that hold them
/// there.
fn too_many(p: &Sample, caps: &Capabilities) -> Option<String> {
    impossible(p, caps).or_else(|| {
        let fits = (1..=MOST_CANDIDATES).contains(&p.top_k);
        (!fits).then(|| format!("TOP_K={} is not 1 to {MOST_CANDIDATES}", p.top_k))
    })
}

/// Refuses shapes that `race` cannot run.
fn leaves_some_out(p: &Sample, caps: &Capabilities) -> Option<String> {
    impossible(p, caps).or_else(|| {
        let all = p.temperature == 0.0 || (p.top_k == 0 && p.top_p >= 1.0);
        (!all).then(|| "TEMPERATURE is not 0, and TOP_K is not 0 or TOP_P is below 1".into())
    })
}

/// Refuses shapes that `nucleus` cannot run.
fn keeps_other_than_a_nucleus(p: &Sample, caps: &Capabilities) -> Option<String> {
    impossible(p, caps).or_else(|| {
        let nucleus = (p.top_k == 0 || p.top_k >= p.n) && p.top_p < 1.0;
        (!nucleus).then(|| "TOP_P is not below 1, or TOP_K is between 0 and N".into())
    })
}

/// A stage of `blocks` workgroups.
const fn in_blocks(entry: &'static str) -> Stage<Sample> {
    Stage { entry, grid: &|_, c| c["BLOCKS"] as usize }
}

/// The stage that takes the token.
const CHOOSE: Stage<Sample> = Stage { entry: "choose", grid: &|_, _| 1 };

/// Geometry of blocks of which each invocation reads vectors, `least` blocks at the least.
fn vector_blocks(p: &Sample, caps: &Capabilities, least: f64) -> Overrides {
    let lanes = largest_group(caps).min(256.0);
    vec![("WG", lanes), ("BLOCKS", blocks(p, lanes).max(least))]
}

/// The declaration.
pub static OPERATION: Declaration<Sample> = Declaration {
    name: "sample",
    summary: "repetition penalty, temperature, top-k, top-p, one draw; next token and position",
    fuses: None,
    state: &[n_kv(4, 9), PROMPT_LEN],
    bindings: &[
        Binding::<Sample>::input("logits", &f32s, len!(p => p.n)).drawn(&|_| Draw::TiesAndNan),
        Binding::in_out("tokens", &words, len!(_, s => s.n_kv + 1))
            .drawn(&|p| Draw::Sequence(p.n.min(1000))),
        Binding::in_out("state", &words, len!(_ => STATE_WORDS)).drawn(&|_| Draw::SeededState),
        // Whole vectors of four.
        Binding::scratch("keys", &words, len!(p => p.n.next_multiple_of(4))),
        Binding::scratch("maxima", &words, len!(_ => RUN * MOST_BLOCKS)),
        Binding::scratch("lists", &words, len!(p => 2 * p.listed())),
        Binding::scratch("merged", &words, len!(p => 2 * MOST_MERGERS * p.top_k)),
        Binding::scratch("bins", &words, len!(_ => 5 * BINS)),
        Binding::scratch("winners", &words, len!(_ => 2 * BINS * MOST_BLOCKS)),
    ],
    variants: &[
        Variant {
            constants: &|_, caps| vec![("WG", largest_group(caps))],
            unsupported: &impossible,
            ..Variant::new("naive", &[Stage::main(&|_, _| 1)])
        },
        Variant {
            name: "candidates",
            stages: &[
                Stage { entry: "slices", grid: &|p, c| p.n.div_ceil(c["SLICE"] as usize) },
                Stage {
                    entry: "merge",
                    grid: &|p, c| match p.n.div_ceil(c["SLICE"] as usize) * p.top_k {
                        0..=LIST => 0,
                        _ => c["MERGERS"] as usize,
                    },
                },
                CHOOSE,
            ],
            constants: &|_, caps| vec![("WG", largest_group(caps).min(512.0))],
            tunables: "WG=128|256|512,SLICE=256|512|1024|2048,MERGERS=8|16|32",
            unsupported: &too_many,
            ..Variant::PLAIN
        },
        Variant {
            name: "histogram",
            stages: &[
                // One more than take maxima: it clears the bins.
                Stage { entry: "largest", grid: &|_, c| c["BLOCKS"] as usize + 1 },
                in_blocks("tally"),
                CHOOSE,
            ],
            constants: &|p, caps| {
                // A logit an invocation, where there are as many.
                let lanes = largest_group(caps).min(512.0);
                let blocks = p.n.div_ceil(lanes as usize).next_power_of_two().min(MOST_BLOCKS);
                vec![("WG", lanes), ("BLOCKS", blocks as f64)]
            },
            tunables: "WG=256|512|1024,BLOCKS=64|128|256",
            unsupported: &impossible,
            ..Variant::PLAIN
        },
        Variant {
            name: "nucleus",
            stages: &[in_blocks("race"), in_blocks("weigh"), CHOOSE],
            constants: &|p, caps| vector_blocks(p, caps, PICKS),
            tunables: "WG=128|256|512,BLOCKS=64|128|256",
            unsupported: &keeps_other_than_a_nucleus,
            ..Variant::PLAIN
        },
        Variant {
            name: "race",
            stages: &[in_blocks("race"), CHOOSE],
            constants: &|p, caps| vector_blocks(p, caps, 1.0),
            tunables: "WG=128|256|512,BLOCKS=64|128|256",
            unsupported: &leaves_some_out,
            ..Variant::PLAIN
        },
        Variant {
            name: "threshold",
            stages: &[in_blocks("scan"), CHOOSE],
            constants: &|p, caps| {
                // A vector a group where there are no more, and as many as fill a large GPU.
                let blocks = p.n.div_ceil(4 * RUN).next_power_of_two().min(128);
                let coarse = (2 * p.top_k).next_power_of_two().clamp(128, 512);
                vec![
                    ("WG", largest_group(caps)),
                    ("BLOCKS", blocks as f64),
                    ("COARSE", coarse as f64),
                ]
            },
            tunables: "WG=256|512|1024,BLOCKS=64|128|256,COARSE=128|256|512",
            unsupported: &too_many,
            ..Variant::PLAIN
        },
    ],
    prefer: &|p| {
        // At 0.5 and more one workgroup has to look at a draw in seventeen or fewer, where there
        // are many blocks that have winners.
        if p.top_p >= 0.5 && p.n >= 32_768 {
            &["race", "threshold", "nucleus", "histogram", "candidates", "naive"]
        } else {
            &["race", "threshold", "histogram", "nucleus", "candidates", "naive"]
        }
    },
    cost: &|p, _| Cost { bytes: 4.0 * p.n as f64, flops: 0.0 },
    tolerance: &|_, _| {
        Tolerance::exact(
            "weights and sums are integers, and what rounds is defined: the token is exact",
        )
    },
    cases: "
        N_KV=9:
            TEMPERATURE=0.8,TOP_K=40,TOP_P=0.9,REPEAT_PENALTY=1.3
            N=50,TEMPERATURE=1,TOP_K=20,TOP_P=0.95,REPEAT_PENALTY=1.3
            N=257,TEMPERATURE=1.5,TOP_P=1,REPEAT_PENALTY=1,PROMPT_LEN=20
            N=1024,TEMPERATURE=0.8,TOP_K=40,TOP_P=0.95,REPEAT_PENALTY=1.3
            N=1025,TEMPERATURE=1,TOP_P=0.95,REPEAT_PENALTY=1.3
            N=3000,TEMPERATURE=0,TOP_P=1,REPEAT_PENALTY=1.1
            # Runs that end among many equal logits, with all tokens but one, with one alone.
            N=5000,TEMPERATURE=2,TOP_K=300,TOP_P=0.5,REPEAT_PENALTY=1
            N=700,TEMPERATURE=0.001,TOP_K=699,TOP_P=0.999,REPEAT_PENALTY=1
            N=700,TEMPERATURE=1000000000000000000000000000000,TOP_P=0.5,REPEAT_PENALTY=1.2,LAST_N=3
            N=700,TEMPERATURE=1,TOP_K=200,TOP_P=0,REPEAT_PENALTY=1
            # All of them kept, by count.
            N=33,TEMPERATURE=1,TOP_K=33,TOP_P=1,REPEAT_PENALTY=1
            # Half of them seen, at a position beyond sixteen bits.
            N=37,TEMPERATURE=0|1,TOP_P=1,REPEAT_PENALTY=1.5,LAST_N=24,N_KV=65540
            # The largest logit by itself has the share.
            N=900,TEMPERATURE=0.001,TOP_K=0|1,TOP_P=0.9,REPEAT_PENALTY=1
            N=131075,TEMPERATURE=0.7,TOP_K=50,TOP_P=0.9,REPEAT_PENALTY=1.1,LAST_N=4
    ",
    // All tokens given: repeated runs advance the position and must not write past `tokens`.
    bench: "
        TEMPERATURE=0.8,TOP_P=0.9,REPEAT_PENALTY=1,PROMPT_LEN=4294967295:
            N=262144|128256|151936,TOP_K=50
            N=262144,TOP_K=50,REPEAT_PENALTY=1.1,LAST_N=64,N_KV=64
            N=262144
            N=128256,TOP_P=0.95|0.5
            # More tokens than a list has room for, and both cuts.
            N=128256,TOP_K=1000,TOP_P=0.95
            N=128256,TOP_P=1
            # Logits that hardly differ: many tokens about a cut.
            N=128256,TEMPERATURE=20
    ",
};
