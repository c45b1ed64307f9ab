//! Models as plans: the recording of a step and of prompt chunks, weights as kernels read them, and
//! the spelling of tokens.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use lathe_decode::{
    Chunks, DecodeGraph, DecodeOptions, Decoder, Model, Prompts, Sampling, Script, logits_limit,
};
use lathe_device::error::{Error, Result};
use lathe_device::execute::CpuExecutor;
use lathe_device::plan::recording::{Op, Recording, TensorInit};
use lathe_kernels::{KvFormat, Packing};
use lathe_model::ModelFile;
use lathe_model::tokenizer::Tables;
use lathe_record::record::MeasuredModel;
use serde::Serialize;

use crate::check::le_bytes;
use crate::pool::{Data, Range, Stage, StagePlan, Texts};
use crate::{Kind, KindPlan};

/// A model to decode with.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// Checkpoint.
    pub path: PathBuf,
    /// Prompts as texts.
    pub prompts: Vec<String>,
    /// Prompts as tokens.
    pub prompt_tokens: Vec<Vec<u32>>,
    /// Tokens to generate after each prompt.
    pub generate: usize,
    /// Positions of the KV cache.
    pub context: usize,
    /// Storage of the KV cache.
    pub kv: KvFormat,
    /// Settings of sampling; none for the greedy choice.
    pub sampling: Option<Sampling>,
    /// Seed of the draws.
    pub seed: u32,
    /// Computes the tokens that the CPU reference generates, which the page compares its own with.
    pub verify: bool,
    /// Files of expected logits of the first prompts: f32, a row per token of the prompt, and with
    /// `verify` one more for each token that the reference generates.
    pub logits: Vec<PathBuf>,
    /// Largest NMSE of those; none for that which the storage of the model and its cache explains.
    pub nmse: Option<f64>,
}

/// A model for one kind of device.
#[derive(Debug, Serialize)]
pub(crate) struct ModelPlan {
    name: String,
    model: MeasuredModel,
    vocab: usize,
    context: usize,
    kv: &'static str,
    layers: usize,
    sampling: Option<Sampling>,
    seed: u32,
    /// Bytes that a step must move at the middle of the first run.
    step_bytes: f64,
    end_tokens: Vec<u32>,
    tensors: Vec<ModelTensor>,
    /// Tensors by their index.
    state: usize,
    tokens: usize,
    logits: usize,
    caches: Vec<usize>,
    step: Vec<LabelledStage>,
    /// Index of the first dispatch of a step after the last layer.
    tail: usize,
    chunks: Vec<ChunkPlan>,
    prompts: Vec<PromptPlan>,
    spelling: Option<Spelling>,
    /// Tables of a tokenizer, as JSON; none where the page cannot tokenize.
    tokenizer: Option<Range>,
    /// The reason for none.
    no_tokenizer: Option<String>,
}

#[derive(Debug, Serialize)]
struct ModelTensor {
    name: String,
    bytes: u64,
    /// Content at first; zeros without.
    data: Option<Range>,
}

#[derive(Debug, Serialize)]
struct LabelledStage {
    label: String,
    #[serde(flatten)]
    stage: StagePlan,
}

#[derive(Debug, Serialize)]
struct ChunkPlan {
    tokens: usize,
    step: Vec<LabelledStage>,
}

#[derive(Clone, Debug, Serialize)]
struct PromptPlan {
    text: Option<String>,
    tokens: Vec<u32>,
    generate: usize,
    /// Tokens of the CPU reference.
    expected: Option<Vec<u32>>,
    /// Their text.
    expected_text: Option<String>,
    logits: Option<LogitsPlan>,
}

/// Expected logits after each token of a prompt.
#[derive(Clone, Copy, Debug, Serialize)]
struct LogitsPlan {
    rows: Range,
    /// Largest NMSE where the prompt runs token by token.
    nmse: f64,
    /// Allowance of prompts in chunks, which see their own keys and values before they are rounded.
    chunk_nmse: f64,
}

/// Text of tokens: the ends of their bytes, one after the other, with the highest bit for control
/// tokens, which have none; apart for a token that begins a text.
#[derive(Clone, Copy, Debug, Serialize)]
struct Spelling {
    ends: Range,
    bytes: Range,
    first_ends: Range,
    first_bytes: Range,
}

/// Adds a model to the plan of each kind.
pub(crate) fn export(
    request: &ModelRequest,
    kinds: &[Kind],
    plans: &mut [KindPlan],
    texts: &mut Texts,
    data: &mut Data,
) -> Result<()> {
    let model = Model::open(&request.path)?;
    let (prompts, spelling) = (prompts(request, &model, data)?, spelling(&model, data)?);
    let (tokenizer, no_tokenizer) = match tables(&request.path) {
        Ok(tables) => {
            let json = serde_json::to_vec(&tables).expect("tables have no keys but texts");
            (Some(data.add(&json)?), None)
        }
        Err(reason) => (None, Some(reason)),
    };
    let mut weights = HashMap::new();
    for (kind, plan) in kinds.iter().zip(plans) {
        let graph = model.graph_for(&kind.caps, &options(request))?;
        let recording = &*graph.recording;
        let tensors = tensors(recording, &mut weights, data)?;
        let step = stages(&recording.ops, texts)?;
        let tail = recording.ops[..recording.tail].iter().map(|op| op.plan.stages.len()).sum();
        let chunk = |chunk: &lathe_device::plan::recording::Chunk| {
            Ok(ChunkPlan { tokens: chunk.tokens, step: stages(&chunk.ops, texts)? })
        };
        let chunks = recording.chunks.iter().map(chunk).collect::<Result<_>>()?;
        let middle = prompts.first().map_or(0, |p| p.tokens.len() + p.generate / 2);
        plan.models.push(ModelPlan {
            name: lathe_decode::model::recorded_name(&request.path),
            model: model.measured(),
            vocab: graph.vocab,
            context: graph.context,
            kv: request.kv.name(),
            layers: model.config.n_layers,
            sampling: graph.sampling,
            seed: request.seed,
            step_bytes: graph.bytes(middle.max(1)),
            end_tokens: model.config.end_tokens.clone(),
            tensors,
            state: graph.state.0,
            tokens: graph.tokens.0,
            logits: graph.logits.0,
            caches: graph.caches.iter().flat_map(|cache| [cache.k.0, cache.v.0]).collect(),
            step,
            tail,
            chunks,
            prompts: prompts.clone(),
            spelling,
            tokenizer,
            no_tokenizer: no_tokenizer.clone(),
        });
    }
    Ok(())
}

fn options(request: &ModelRequest) -> DecodeOptions {
    DecodeOptions {
        kv: request.kv,
        sampling: request.sampling,
        seed: request.seed,
        chunks: Some(Chunks { most: 128, ..Chunks::with_cache(KvFormat::F32) }),
        ..DecodeOptions::of_step(request.context)
    }
}

fn stages(ops: &[Op], texts: &mut Texts) -> Result<Vec<LabelledStage>> {
    let mut all = Vec::new();
    for op in ops {
        for stage in &op.plan.stages {
            let stage = Stage::of(&op.plan, stage, &|name| op.tensor(name))?.pooled(texts);
            all.push(LabelledStage { label: op.label.to_string(), stage });
        }
    }
    Ok(all)
}

/// Tensors of a recording. Weights that two kinds pack alike are written once.
fn tensors(
    recording: &Recording,
    weights: &mut HashMap<(String, Packing), Range>,
    data: &mut Data,
) -> Result<Vec<ModelTensor>> {
    let mut all = Vec::new();
    for tensor in &recording.tensors {
        let (name, content, bytes) = (&tensor.name, &tensor.content, tensor.content.device_bytes());
        let range = match content {
            TensorInit::Weights(rows, packing) => {
                // Dense rows have one layout.
                let packing = if rows.format.is_dense() { Packing::Blocks } else { *packing };
                let key = (name.clone(), packing);
                let range = match weights.get(&key) {
                    Some(known) => *known,
                    None => data.stream(bytes, |write| content.initial(write))?,
                };
                weights.insert(key, range);
                Some(range)
            }
            _ => {
                let mut all = Vec::new();
                content.initial(|_, bytes| all.extend_from_slice(bytes));
                let is_zero = all.iter().all(|byte| *byte == 0);
                (!is_zero).then(|| data.add(&all)).transpose()?
            }
        };
        all.push(ModelTensor { name: name.clone(), bytes, data: range });
    }
    Ok(all)
}

/// The prompts with the tokens that the CPU reference generates, where asked for.
fn prompts(request: &ModelRequest, model: &Model, data: &mut Data) -> Result<Vec<PromptPlan>> {
    let mut all = Vec::new();
    for text in &request.prompts {
        all.push((Some(text.clone()), model.encode(text)?));
    }
    all.extend(request.prompt_tokens.iter().map(|tokens| (None, tokens.clone())));
    let graph = model.graph(None, &options(request))?;
    let mut executor = CpuExecutor::new(graph.recording.clone());
    let mut files = request.logits.iter();
    let mut one = |(text, tokens): (Option<String>, Vec<u32>)| {
        graph.knows(&tokens, "")?;
        let script = Script {
            prompt: tokens.clone(),
            generate: request.generate,
            steps_per_submit: Some(1),
            prompts: Prompts::TokenByToken,
            stop_at: model.config.end_tokens.clone(),
            seed: request.seed,
            ..Script::default()
        };
        if tokens.is_empty() || script.positions() > graph.context {
            return Err(Error::Usage(format!(
                "a prompt of {} tokens and {} more need a context of {}, it has {}",
                tokens.len(),
                request.generate,
                script.positions().max(1),
                graph.context
            )));
        }
        let expected = match request.verify {
            true => Some(Decoder::new(&graph, &mut executor).run(&script, &mut |_| {})?.generated),
            false => None,
        };
        let expected_text = expected.as_ref().and_then(|tokens| model.text(tokens));
        let logits = match files.next() {
            Some(file) => {
                let generated = expected.as_ref().map_or(0, Vec::len);
                Some(logits(request, &graph, file, [tokens.len(), generated], data)?)
            }
            None => None,
        };
        let generate = request.generate;
        Ok(PromptPlan { text, tokens, generate, expected, expected_text, logits })
    };
    let all = all.into_iter().map(&mut one).collect::<Result<_>>()?;
    match files.next() {
        Some(file) => Err(Error::Usage(format!(
            "{}: there are more files of logits than prompts",
            file.display()
        ))),
        None => Ok(all),
    }
}

/// Expected logits from a file, and their limits.
fn logits(
    request: &ModelRequest,
    graph: &DecodeGraph,
    file: &Path,
    [given, generated]: [usize; 2],
    data: &mut Data,
) -> Result<LogitsPlan> {
    let bytes = std::fs::read(file).map_err(crate::io(file))?;
    let row = 4 * graph.vocab;
    if ![given, given + generated].contains(&(bytes.len() / row)) || bytes.len() % row != 0 {
        return Err(Error::Usage(format!(
            "{} has {} bytes; {given} tokens and a vocabulary of {} make {}, {} with the tokens of \
             --verify",
            file.display(),
            bytes.len(),
            graph.vocab,
            given * row,
            (given + generated) * row
        )));
    }
    let own = logits_limit(graph);
    let nmse = request.nmse.unwrap_or(own);
    let chunk_nmse = if request.kv == KvFormat::Q8_0 { own.max(nmse) } else { nmse };
    Ok(LogitsPlan { rows: data.add(&bytes)?, nmse, chunk_nmse })
}

/// Tables that the page tokenizes by, or the reason why there are none.
fn tables(path: &Path) -> Result<Tables, String> {
    let vocabulary = ModelFile::open(path).and_then(|file| file.vocabulary());
    let vocabulary = vocabulary.map_err(|e| e.to_string())?.ok_or("the model has no tokenizer")?;
    Tables::new(vocabulary).map_err(|e| e.to_string())
}

/// The spelling of all tokens; none for a model without a tokenizer.
fn spelling(model: &Model, data: &mut Data) -> Result<Option<Spelling>> {
    const CONTROL: u32 = 1 << 31;
    let Ok(tokenizer) = model.tokenizer() else { return Ok(None) };
    let mut written = |first: bool| -> Result<(Range, Range)> {
        let (mut ends, mut bytes) = (Vec::new(), Vec::new());
        for id in 0..model.config.vocab as u32 {
            let spelled = tokenizer.bytes(id, first);
            bytes.extend_from_slice(spelled.as_deref().unwrap_or_default());
            ends.push(bytes.len() as u32 | if spelled.is_some() { 0 } else { CONTROL });
        }
        Ok((data.add(&le_bytes(&ends))?, data.add(&bytes)?))
    };
    let ((ends, bytes), (first_ends, first_bytes)) = (written(false)?, written(true)?);
    Ok(Some(Spelling { ends, bytes, first_ends, first_bytes }))
}
