//! Timed generations: trials that must fail if something differs from the verified run. The commands
//! `bench decode` and `suite` are scripts.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use lathe_harness::data::rng::Rng;
use lathe_harness::decode::bench::{Test, Trial};
use lathe_harness::decode::prompts::drawn;
use lathe_harness::decode::{
    Checked, DecodeGraph, DecodeOptions, Decoder, Model, Sampling, Script, Session,
};
use lathe_harness::error::Error;
use lathe_harness::model::synth::{SynthArch, SynthSpec};
use lathe_harness::plan::weights::{Bytes, WeightRows};
use lathe_kernels::Format;

use crate::common::{self, Fault, Faulty, model, on_cpu};

fn graph(model: &Model, context: usize, sampling: Option<Sampling>) -> DecodeGraph {
    let options = DecodeOptions { context, sampling, store: None, ..DecodeOptions::default() };
    model.graph(None, &options).unwrap()
}

fn test([depth, prompt, generate]: [usize; 3], sampling: Option<Sampling>) -> Test {
    Test { depth, prompt, generate, sequences: 1, sampling, spare: 0 }
}

#[test]
fn a_trial_verifies_and_repeats_itself() {
    let model = model("llama-tiny-f16");
    let sampled =
        Sampling { temperature: 0.8, top_k: 50, top_p: 0.9, repeat_penalty: 1.1, repeat_last_n: 0 };
    for lengths in [[0, 12, 0], [0, 0, 12], [9, 0, 6], [5, 12, 6], [0, 3, 9]] {
        for sampling in [None, Some(sampled)] {
            let test = test(lengths, sampling);
            let tokens = drawn(&model, 42, test.given()).unwrap();
            let graph = graph(&model, test.positions(), sampling);
            let mut device = on_cpu(&graph);
            let decoder = Decoder::new(&graph, &mut device);
            let mut trial = Trial::new(decoder, test, &tokens, 42, Some(8)).unwrap();
            let runs = [1, 4, 1].map(|per_submit| trial.run(per_submit).unwrap());
            let verified = trial.verified().unwrap();
            assert_eq!(verified.positions, 8);
            assert!(verified.worst_nmse <= verified.limit);
            for run in &runs {
                let [depth, prompt, generate] = lengths;
                assert_eq!(run.steps.len(), generate);
                assert_eq!(run.ttft.is_zero(), prompt == 0);
                assert_eq!(run.generated, runs[0].generated);
                assert_eq!(run.generated.len(), generate + usize::from(depth + prompt > 0));
            }
        }
    }
}

/// A prompt behind tokens that are in the caches has the answer that it has alone. Gemma's rings of
/// 16 slots cannot go back once they went round.
#[test]
fn a_session_goes_on_behind_the_tokens_it_knows() {
    for (name, rings) in [("llama-tiny-f16", false), ("gemma3-tiny-f16", true)] {
        let model = model(name);
        let options = DecodeOptions { context: 64, store: None, ..DecodeOptions::of_step(64) };
        let session = || {
            let graph = model.graph(None, &options).unwrap();
            Session::new(&model, graph, None, options.clone())
        };
        let tokens = drawn(&model, 7, 40).unwrap();
        let other = |mut prompt: Vec<u32>, at: usize| {
            prompt[at] = (prompt[at] + 1) % 100;
            prompt
        };
        let mut talk = session();
        for (prompt, kept) in [
            (tokens[..5].to_vec(), 0),
            // The same again: its last token has to run.
            (tokens[..5].to_vec(), 4),
            (tokens[..9].to_vec(), 5),
            (other(tokens[..9].to_vec(), 3), 3),
            (tokens[..20].to_vec(), 3),
            (other(tokens[..24].to_vec(), 10), if rings { 0 } else { 10 }),
            (tokens[..3].to_vec(), if rings { 0 } else { 2 }),
        ] {
            let run = talk.go_on(&prompt, 3, &mut ()).unwrap();
            let alone = session().generate(&prompt, 3, |_| {}).unwrap();
            assert_eq!(run.generated, alone.generated, "{name}: {prompt:?}");
            assert_eq!(run.kept, kept, "{name}: {prompt:?}");
        }
        // What was chosen is known too.
        let run = talk.go_on(&tokens[..5], 4, &mut ()).unwrap();
        let next = [&tokens[..5], &run.generated, &tokens[5..7]].concat();
        assert_eq!(talk.go_on(&next, 1, &mut ()).unwrap().kept, 4 + run.generated.len());
    }
}

#[test]
fn a_trial_that_cannot_run_is_refused() {
    let model = model("llama-tiny-f16");
    let graph = graph(&model, 8, None);
    let good = [0, 4, 4];
    let mut executor = on_cpu(&graph);
    for (lengths, tokens, verify, why) in [
        (good, vec![], None, "0 tokens for a run that is given 4"),
        ([0, 4, 5], vec![1; 4], None, "9 positions do not fit"),
        ([4, 0, 0], vec![1; 4], None, "times nothing"),
        (good, vec![999; 4], None, "token 999"),
        (good, vec![1; 4], Some(0), "0 positions verify nothing"),
    ] {
        let (decoder, test) = (Decoder::new(&graph, &mut executor), test(lengths, None));
        match Trial::new(decoder, test, &tokens, 42, verify).map(drop) {
            Err(Error::Usage(text)) => assert!(text.contains(why), "{text}"),
            other => panic!("{why}: {other:?}"),
        }
    }
}

/// Error of a trial on a device that is sound at first and then has a fault: from its verification
/// on, from its first run, or from its second.
fn found(model: &Model, fault: Fault, from: usize, prompt: usize) -> String {
    let test = test([0, prompt, 6], None);
    let tokens = drawn(model, 42, test.given()).unwrap();
    let graph = graph(model, test.positions(), None);
    let cell = Rc::new(Cell::new(Fault::Nothing));
    let (mut cpu, given) = (on_cpu(&graph), tokens.len());
    let fault_now = Rc::clone(&cell);
    let mut device = Faulty { inner: &mut cpu, fault: fault_now, graph: &graph, given };
    if from == 0 {
        cell.set(fault);
    }
    let fails = |e: Error, stage: usize| match e {
        Error::CheckFailed(text) if stage == from => text,
        e => panic!("{fault:?} from {from}: {e} at stage {stage}"),
    };
    let mut trial = match Trial::new(Decoder::new(&graph, &mut device), test, &tokens, 42, Some(4))
    {
        Ok(trial) => trial,
        Err(e) => return fails(e, 0),
    };
    for stage in 1..3 {
        if stage == from {
            cell.set(fault);
        }
        if let Err(e) = trial.run(1) {
            return fails(e, stage);
        }
    }
    panic!("{fault:?} from {from} with a prompt of {prompt} was not found");
}

#[test]
fn a_trial_finds_what_is_not_as_it_was_verified() {
    let model = model("llama-tiny-f16");
    for (fault, from, prompt, says) in [
        (Fault::Logits, 0, 5, "logits differ from the CPU reference"),
        (Fault::Heard, 1, 5, "read while it ran"),
        (Fault::Chosen, 1, 0, "verified"),
        (Fault::Chosen, 2, 0, "verified"),
        (Fault::Given, 1, 5, "was given"),
        (Fault::Logits, 2, 5, "last logits are not those of the first run"),
        (Fault::Reset, 2, 5, "Position of the step state is 11 after a reset"),
    ] {
        let text = found(&model, fault, from, prompt);
        assert!(text.contains(says), "{fault:?} from {from}: {text}");
    }
}

/// A head in which tokens 2i and 2i + 1 always have the same logit: the reference excuses either,
/// but a timed run that chooses another than the same kernels chose before is wrong.
#[test]
fn a_timed_run_has_no_near_ties_with_the_verified_one() {
    let mut model = model("llama-tiny-f16");
    let (vocab, hidden) = (model.config.vocab, model.config.hidden);
    let mut rng = Rng::derive(1, "head");
    let rows = (0..vocab / 2).map(|_| rng.normals(hidden)).flat_map(|row| [row.clone(), row]);
    let head: Arc<[u8]> = rows.flatten().flat_map(f32::to_le_bytes).collect();
    let bytes = head.len();
    model.weights.head = Some(WeightRows::new(Format::F32, hidden, Bytes::Owned(head, 0..bytes)));
    for from in [1, 2] {
        let text = found(&model, Fault::Chosen, from, 0);
        assert!(text.contains("was verified step by step, a timed run chose"), "{text}");
    }
    for prompt in [1, 5] {
        let script =
            Script { prompt: drawn(&model, 42, prompt).unwrap(), generate: 9, ..Script::default() };
        let graph = graph(&model, script.positions(), None);
        let mut device = on_cpu(&graph);
        let mut decoder = Decoder::new(&graph, &mut device);
        let mut checked = Checked::begin(&mut decoder, script, Some(8)).unwrap();
        let good = checked.run(&mut decoder).unwrap().generated;
        for i in 0..good.len() {
            let mut other = good.clone();
            other[i] ^= 1;
            let said = checked.check(&other).unwrap_err().to_string();
            let by = if i < 9 - prompt { "verified step by step" } else { "the first run" };
            assert!(said.contains(&format!("token {i}: ")) && said.contains(by), "{i}: {said}");
        }
    }
}

#[test]
fn prompts_are_ordinary_tokens_of_a_seed() {
    let (arch, quant) = (SynthArch::LlamaMini, Format::Bf16);
    let model = common::synthetic(&SynthSpec { arch, quant, embed_quant: None, seed: 42 });
    let long = drawn(&model, 42, 3000).unwrap();
    // Padding, end, beginning and unknown are the first four.
    assert!(long.iter().all(|t| *t >= 4 && (*t as usize) < model.config.vocab));
    assert!(long.iter().any(|t| *t as usize > model.config.vocab / 2));
    assert_eq!(drawn(&model, 42, 10).unwrap(), long[..10]);
    assert_ne!(drawn(&model, 43, 10).unwrap(), long[..10]);
}
