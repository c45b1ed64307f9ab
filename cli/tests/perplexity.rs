//! Perplexity: negative log-likelihoods against transformers' logits (see goldens/), and divergence
//! against a plain second computation. The command is a script.

use lathe_harness::decode::perplexity::{self, Scores, Text};
use lathe_harness::decode::{Chunks, DecodeGraph, DecodeOptions, Decoder, Prompts, Script};
use lathe_harness::execute::Execute;
use lathe_harness::gpu::Gpu;
use lathe_kernels::KvFormat;

use crate::common::{self, GOLDENS, Golden, on_cpu};

/// The golden's prompt and continuation, and transformers' logits after each of them.
fn golden(name: &str) -> (Vec<u32>, Vec<f32>) {
    let golden = Golden::load(name);
    ([golden.prompt, golden.greedy].concat(), golden.logits)
}

fn graph(name: &str, gpu: Option<&Gpu>, context: usize, kv: KvFormat) -> DecodeGraph {
    let chunks = Some(Chunks::NONE);
    let options = DecodeOptions { context, kv, chunks, store: None, ..DecodeOptions::default() };
    common::model(name).graph(gpu, &options).unwrap()
}

/// Scores of tokens alone.
fn scores(decoder: &mut Decoder<'_>, text: &Text<'_>) -> Scores {
    perplexity::scores(decoder, None, text, &mut |_| {}).unwrap()
}

/// Probabilities of a row, without a thought for overflow.
fn probabilities(row: &[f32]) -> Vec<f64> {
    let sum: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
    row.iter().map(|l| f64::from(*l).exp() / sum).collect()
}

/// -ln p of each token by the row of logits before it.
fn plain_nll(logits: &[f32], tokens: &[u32]) -> Vec<f64> {
    let vocab = logits.len() / tokens.len();
    let rows = logits.chunks_exact(vocab).zip(tokens);
    rows.map(|(row, token)| -probabilities(row)[*token as usize].ln()).collect()
}

/// Logits after each of `tokens`, as a session shows them.
fn observed(graph: &DecodeGraph, executor: &mut dyn Execute, tokens: &[u32]) -> Vec<f32> {
    let options = Script {
        prompt: tokens.to_vec(),
        prompts: Prompts::TokenByToken,
        steps_per_submit: Some(1),
        ..Script::default()
    };
    common::observed(graph, executor, &options).1
}

fn assert_close(name: &str, got: &[f64], expected: &[f64], limit: f64) {
    assert_eq!(got.len(), expected.len(), "{name}");
    for (at, (a, b)) in got.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= limit, "{name}, token {at}: {a} is not {b}");
    }
}

#[test]
fn tokens_have_the_likelihood_that_transformers_gives_them() {
    let gpu = common::own_gpu();
    for name in GOLDENS {
        let (tokens, logits) = golden(name);
        let scored = &tokens[1..];
        let rows = &logits[..logits.len() / tokens.len() * scored.len()];
        let expected = plain_nll(rows, scored);
        let mean = expected.iter().sum::<f64>() / expected.len() as f64;
        let text = Text::new(tokens[0], scored, scored.len(), None).unwrap();
        for (kv, each, all) in
            [(KvFormat::F32, 2e-4, 2e-5), (KvFormat::F16, 2e-2, 2e-3), (KvFormat::Q8_0, 2e-1, 2e-2)]
        {
            let graph = graph(name, None, scored.len(), kv);
            let mut executor = on_cpu(&graph);
            let mut runner = Decoder::new(&graph, &mut executor);
            let mut heard = 0;
            let scores = perplexity::scores(&mut runner, None, &text, &mut |n| heard += n).unwrap();
            assert_close(name, &scores.nll, &expected, each);
            assert_eq!(heard, scored.len());
            let quality = scores.quality();
            assert!((quality.nll.mean - mean).abs() < all, "{name}: {} {mean}", quality.nll.mean);
            assert!((quality.perplexity().ln() - quality.nll.mean).abs() < 1e-12);
            assert!(quality.against.is_none());
        }
        let Some(gpu) = &gpu else { continue };
        let graph = graph(name, Some(gpu), scored.len(), KvFormat::F32);
        let mut executor = common::on_gpu(gpu, &graph);
        let mut runner = Decoder::new(&graph, &mut executor);
        // Twice: nothing of the first window is left in the second.
        for _ in 0..2 {
            assert_close(name, &scores(&mut runner, &text).nll, &expected, 2e-3);
        }
    }
}

/// Windows longer than the chunk of logits that is held, and several of them.
#[test]
fn windows_are_sequences_of_their_own() {
    let name = "gemma3-tiny-f16";
    let (tokens, _) = golden(name);
    let tokens: Vec<u32> = tokens.iter().cycle().take(290).copied().collect();
    let (start, window) = (2, 140);
    let text = Text::new(start, &tokens, window, None).unwrap();
    assert_eq!((text.windows().len(), text.tokens()), (2, 280));
    let graph = graph(name, None, window, KvFormat::F32);
    let mut executor = on_cpu(&graph);
    let mut expected = Vec::new();
    for scored in text.windows() {
        let fed = [&[start], &scored[..window - 1]].concat();
        expected.extend(plain_nll(&observed(&graph, &mut executor, &fed), scored));
    }
    let mut runner = Decoder::new(&graph, &mut executor);
    let scores = scores(&mut runner, &text);
    assert_close(name, &scores.nll, &expected, 1e-9);
    let quality = scores.quality();
    let n = expected.len() as f64;
    let mean = expected.iter().sum::<f64>() / n;
    let squares: f64 = expected.iter().map(|v| v * v).sum();
    let error = ((squares / n - mean * mean) / (n - 1.0)).sqrt();
    assert!((quality.nll.mean - mean).abs() < 1e-9);
    assert!((quality.nll.std_error.unwrap() - error).abs() < 1e-9);
}

#[test]
fn scores_beside_a_reference_are_those_of_a_plain_computation() {
    let (name, reference) = ("llama-tiny-q4km", "llama-tiny-f16");
    let tokens = &golden(name).0[..40];
    let (start, scored) = (tokens[0], &tokens[1..]);
    let graphs = [name, reference].map(|n| graph(n, None, scored.len(), KvFormat::F32));
    let mut executors = [on_cpu(&graphs[0]), on_cpu(&graphs[1])];
    let fed = &tokens[..scored.len()];
    let rows = [0, 1].map(|i| observed(&graphs[i], &mut executors[i], fed));
    let [ours, theirs] = &mut executors;
    let mut model = Decoder::new(&graphs[0], ours);
    let mut other = Decoder::new(&graphs[1], theirs);
    let text = Text::new(start, scored, scored.len(), None).unwrap();
    let got = perplexity::scores(&mut model, Some(&mut other), &text, &mut |_| {}).unwrap();
    let nll = [0, 1].map(|i| plain_nll(&rows[i], scored));
    assert_close("nll", &got.nll, &nll[0], 1e-9);
    assert_close("reference", &got.reference_nll, &nll[1], 1e-9);
    let vocab = graphs[0].vocab;
    let pairs = rows[0].chunks_exact(vocab).zip(rows[1].chunks_exact(vocab));
    let (mut kl, mut agreeing) = (Vec::new(), 0);
    for ((q, p), top1) in pairs.zip(&got.top1) {
        let (q, p) = (probabilities(q), probabilities(p));
        kl.push(p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum::<f64>());
        let best = |p: &[f64]| (0..vocab).max_by(|a, b| p[*a].total_cmp(&p[*b]));
        assert_eq!(*top1 == 1.0, best(&p) == best(&q));
        agreeing += usize::from(*top1 == 1.0);
    }
    assert_close("kl", &got.kl, &kl, 1e-9);
    assert!(kl.iter().all(|kl| *kl > 0.0));
    let against = got.quality().against.unwrap();
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    assert!((against.kl.mean - mean(&kl)).abs() < 1e-9);
    assert!((against.more.mean - (mean(&nll[0]) - mean(&nll[1]))).abs() < 1e-9);
    assert!((against.top1 - agreeing as f64 / scored.len() as f64).abs() < 1e-12);
}
