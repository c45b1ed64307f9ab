// Work on an export and its results as documents: what `lathe check --json` prints, and records that
// `lathe report`, `compare` and `merge` read (docs/records.md).
import { Refusal } from './engine.js';
import { checkAll, shown } from './check.js';
import { benchAll } from './bench.js';
import { Decoder, alike } from './decode.js';
import { Tokenizer } from './tokenizer.js';

const SCHEMA_VERSION = 1;
const REPEATS = 3; // runs of a prompt that are timed, after one that warms up

const seconds = () => `${new Date().toISOString().slice(0, 19)}Z`;

/** The environment of a record. */
export function environment(engine, { command, os, date, copy_gb_s = null, timestamp_quantum_ns = null }) {
  const { info = {} } = engine.adapter, { environment: build } = engine.plan;
  return {
    date, commit: build.commit, dirty: build.dirty, lathe: build.lathe, wgpu: `none: ${engine.engine}`, os, adapter: engine.name,
    driver: info.description || [info.vendor, info.architecture].filter(Boolean).join(' '), backend: 'webgpu', software: engine.software, runtime_checks: 'on',
    timestamp_quantum_ns, copy_gb_s, read_gb_s: null, canary_drift: null, command, wgsl: build.wgsl, seed: engine.plan.seed, naga: build.naga,
    build: `plans ${engine.kind.name}`,
  };
}

/** Tests of a model in the form of `lathe bench decode`: the prompts, and the steps after them. */
function tests(engine, decoder, prompt, runs, date) {
  const { model } = decoder, count = prompt.tokens.length;
  const of = (test, n_prompt, n_gen, n_depth, samples) => ({
    test, ...model.model, type_k: model.kv, type_v: model.kv, activations: 'f32', n_prompt, n_gen, n_depth, sequences: 1,
    steps_per_submit: null, test_time: date, samples_ns: samples.map((ms) => Math.round(1e6 * ms)), sampling: model.sampling,
    kv_cache_bytes: model.caches.reduce((sum, cache) => sum + model.tensors[cache].bytes, 0), gpu_memory_bytes: decoder.bytes,
    gpu_memory_predicted_bytes: decoder.bytes, verified: null, selected: [], persistent_grid: null, throttled: 0, flags: [],
  });
  const steps = runs[0].generated.length - 1, all = [of(`pp${count}`, count, 0, 0, runs.map((run) => run.ttft_ms))];
  if (steps > 0) all.push(of(`tg${steps} @ d${count}`, 0, steps, count, runs.map((run) => run.decode_ms)));
  return all;
}

/** A prompt that somebody typed: `{ text, generate }`. */
async function promptOf(engine, model, { text, generate }) {
  if (!model.tokenizer) throw new Refusal(`This page does not tokenize for ${model.name}: ${model.no_tokenizer}.`);
  const tokens = (await Tokenizer.of(engine.data, model.tokenizer)).encode(text);
  return { text, tokens, generate: Math.max(1, Math.min(generate, model.context - tokens.length + 1)), expected: null };
}

/** Decodes every prompt of every model of the kind, or one that was typed. */
async function decodeAll(engine, { progress = () => {}, token = () => {}, say = () => {}, repeats = engine.software ? 0 : REPEATS, stop = () => false, prompted = () => {}, typed = null, date }) {
  const results = [], all = [];
  for (const model of engine.kind.models) {
    const decoder = await Decoder.load(engine, model, (what, done, total) => progress(`${model.name}: ${what} ${done} of ${total}`));
    progress('');
    try {
      for (const prompt of typed ? [await promptOf(engine, model, typed)] : model.prompts) {
        if (stop()) break;
        const result = { model: model.name, prompt_tokens: prompt.tokens.length, load_ms: decoder.loadMs, compile_ms: decoder.compileMs };
        prompted(model, prompt);
        say(`${model.name}, ${prompt.text === null ? `${prompt.tokens.length} tokens` : JSON.stringify(prompt.text)}:`);
        try {
          const first = await decoder.run(prompt.tokens, prompt.generate, { on: (id, text) => token(text, id), stop });
          token('\n', null);
          // Where there are logits they are compared token by token and in chunks.
          const apart = prompt.logits ? first : await decoder.run(prompt.tokens, prompt.generate, { inChunks: false, stepsPerSubmit: 1, stop });
          // Software takes seconds a token, and its times are no subject.
          const runs = repeats ? [] : [first];
          for (let i = 0; i < repeats && !stop(); i++) runs.push(await decoder.run(prompt.tokens, prompt.generate, { stop }));
          const same = [apart, ...runs].map((run) => alike(run.generated, first.generated));
          Object.assign(result, first, {
            decode_tok_s: Math.max(...[first, ...runs].map((run) => run.decode_tok_s ?? 0)), ttft_ms: Math.min(...[first, ...runs].map((run) => run.ttft_ms)),
            runs_alike: same.every((count) => count === first.generated.length), chunks: model.chunks.length > 0,
            as_expected: prompt.expected ? alike(first.generated, prompt.expected) : null, expected: prompt.expected?.length ?? null,
          });
          if (runs.length) all.push(...tests(engine, decoder, prompt, runs, date));
          if (prompt.logits) {
            const rows = new Float32Array((await engine.data.read(prompt.logits.rows)).slice().buffer);
            const on = (at, count) => progress(`${model.name}: logits ${at} of ${count}`);
            const tokens = [...prompt.tokens, ...(prompt.expected ?? [])].slice(0, rows.length / model.vocab);
            result.logits = { wanted: tokens.length, ...(await decoder.compareLogits(tokens, rows, { on, stop })), limit: prompt.logits.nmse, chunked_limit: prompt.logits.chunk_nmse };
          }
        } catch (error) {
          if (engine.isLost !== null || !(error instanceof Refusal)) throw error;
          result.error = error.message;
        }
        const { logits } = result, close = !logits || (logits.rows === logits.wanted && logits.nmse <= logits.limit && !(logits.chunked_nmse > logits.chunked_limit));
        result.good = !result.error && result.runs_alike && close && (result.expected === null || (result.as_expected === result.expected && result.generated.length === result.expected));
        results.push(result);
      }
    } finally {
      decoder.destroy();
    }
  }
  return { results, tests: all };
}

/** Does the work of some names (`check`, `bench`, `decode`) and returns its documents. */
export async function work(engine, what, options) {
  const { filter, progress = () => {}, say = () => {} } = options, date = seconds(), about = { ...options, date };
  const result = { good: true, adapter: engine.name, engine: engine.engine, kind: engine.kind.name, passed_over: engine.passed };
  if (what.includes('check') && engine.kind.check.length + engine.kind.unavailable.length) {
    const begun = performance.now();
    const on = (one, done, total) => {
      const minutes = (((performance.now() - begun) / done) * (total - done)) / 60e3;
      progress(`${done} of ${total} ${one.kernel}/${one.variant}${minutes > 1 ? `, some ${minutes.toFixed(0)} minutes left` : ''}`);
      options.checked?.(one, done, total);
      if (one.status === 'failed') say(`FAILED ${one.kernel}/${one.variant}: ${one.reason}\n  repeat: ${one.repeat}`);
    };
    const report = await checkAll(engine, { filter, on, stop: options.stop });
    progress('');
    result.check = { schema_version: SCHEMA_VERSION, environment: environment(engine, about), seed: engine.plan.seed, ...report };
    result.good &&= report.failed === 0;
  }
  if (what.includes('bench') && engine.kind.bench.length) {
    const on = (plan, one, done, total) => {
      progress(`${done} of ${total} ${plan.kernel}/${plan.variant}`);
      options.benched?.(plan, one, done, total);
    };
    const { cases, failed, ...clock } = await benchAll(engine, { filter, on, stop: options.stop });
    progress('');
    if (clock.why_wall) say(`The host's clock is read: ${clock.why_wall}.`);
    result.bench = { schema_version: SCHEMA_VERSION, environment: environment(engine, { ...about, ...clock }), kind: 'bench', cases, failed };
    result.good &&= failed.length === 0;
  }
  if (what.includes('decode') && engine.kind.models.length) {
    const decoded = await decodeAll(engine, about);
    result.decode = { schema_version: SCHEMA_VERSION, environment: environment(engine, about), kind: 'generation_tests', prompts: 'of the export', tests: decoded.tests, results: decoded.results };
    result.good &&= decoded.results.every((one) => one.good);
  }
  return result;
}

/** The result in lines. */
export function summary(result) {
  const lines = [];
  if (result.check) {
    const { passed, failed, unavailable } = result.check;
    lines.push(`${result.adapter}, ${result.engine}, plans ${result.kind}: ${passed} passed, ${failed} failed, ${unavailable} unavailable`);
  }
  for (const one of result.bench?.cases ?? []) {
    const { fraction_of_copy: share } = one;
    lines.push(`${one.kernel}/${one.variant} ${one.shape}: ${one.cold.median_us.toFixed(2)} µs cold, ${one.warm.median_us.toFixed(2)} warm, ${one.gb_s.toFixed(1)} GB/s, ${(100 * share).toFixed(0)} % of a copy${one.flags.length ? `; ${one.flags.join(', ')}` : ''}`);
  }
  for (const failed of result.bench?.failed ?? []) lines.push(`FAILED ${failed}`);
  for (const one of result.decode?.results ?? []) {
    if (one.error) {
      lines.push(`FAILED ${one.model}: ${one.error}`);
      continue;
    }
    const expected = one.expected === null ? '' : `, ${one.as_expected} of ${one.expected} as the reference`;
    const alikeText = one.runs_alike ? '' : ', RUNS DIFFER';
    if (one.logits) {
      const { logits } = one, chunked = logits.chunked_rows ? `, in chunks ${shown(logits.chunked_nmse)} (limit ${shown(logits.chunked_limit)}) over ${logits.chunked_rows}` : '';
      const far = logits.nmse > logits.limit || logits.chunked_nmse > logits.chunked_limit ? 'FAILED ' : '';
      lines.push(`${far}${one.model}: NMSE of logits ${shown(logits.nmse)} (limit ${shown(logits.limit)}) over ${logits.rows} tokens${chunked}`);
    }
    lines.push(`${one.model}: ${one.generated.length} tokens after ${one.prompt_tokens}${expected}${alikeText}; first ${one.ttft_ms.toFixed(1)} ms, ${shown(one.decode_tok_s)} tok/s, ${one.dispatches_per_token} dispatches per token`);
  }
  if (!lines.length) lines.push('The export has nothing of this for the kind of device.');
  return lines;
}
