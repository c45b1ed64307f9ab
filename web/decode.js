// Decoding with a model of a plan: prompt in chunks or token by token, then steps, with two submissions
// in flight. Token and position stay on the device; the host reads the tokens that were chosen.
import { Refusal, encode, padded } from './engine.js';
import { wholeWords } from './check.js';

const NO_TOKEN = 0xffffffff; // chosen where logits are not finite
const PIECE = 32 << 20; // bytes of weights that are uploaded at once
const PROMPT_STEPS = 16; // steps of a prompt per submission, without chunks
const SUBMIT_MS = 8; // time of a submission's steps, twice of which is in flight
const CHUNK_COST = 128; // tokens that take as long as what a chunk costs whatever its size

/** Sizes of chunks, by index, that hold `count` tokens in the shortest time. */
export function cover(sizes, count) {
  const chosen = new Array(Math.floor(Math.max(count - 1, 0) / sizes[0])).fill(0);
  let left = count - chosen.length * sizes[0];
  const holding = (n) => { for (let i = sizes.length - 1; i >= 0; i--) if (sizes[i] >= n) return i; return 0; };
  while (left > 0) {
    const holds = holding(left), smaller = sizes[holds + 1];
    const split = smaller !== undefined && 2 * CHUNK_COST + smaller + sizes[holding(left - smaller)] < CHUNK_COST + sizes[holds];
    const next = split ? holds + 1 : holds;
    chosen.push(next);
    left -= Math.min(left, sizes[next]);
  }
  return chosen;
}

/** Text of tokens as they come, whole characters only. */
export class Spelling {
  static async of(data, spelling) {
    if (!spelling) return null;
    const own = new Spelling(), words = async (range) => new Uint32Array((await data.read(range)).slice().buffer);
    own.tables = [
      { ends: await words(spelling.ends), bytes: await data.read(spelling.bytes) },
      { ends: await words(spelling.first_ends), bytes: await data.read(spelling.first_bytes) },
    ];
    return own.begin();
  }

  begin() {
    this.decoder = new TextDecoder();
    this.isFirst = true;
    return this;
  }

  /** The text that a token completes. */
  push(token) {
    const { ends, bytes } = this.tables[this.isFirst ? 1 : 0], end = (at) => ends[at] & 0x7fffffff;
    if (ends[token] >>> 31) return this.decoder.decode();
    this.isFirst = false;
    return this.decoder.decode(bytes.subarray(token ? end(token - 1) : 0, end(token)), { stream: true });
  }

  /** The rest after the last token. */
  finish() {
    return this.decoder.decode();
  }
}

/** A model of the engine's kind with its weights on the device. */
export class Decoder {
  /** Loads a model; `on` hears of bytes done and their number, then of pipelines. */
  static async load(engine, model, on = () => {}) {
    const own = new Decoder(), begun = performance.now();
    Object.assign(own, { engine, model, buffers: [] });
    const total = model.tensors.reduce((sum, tensor) => sum + (tensor.data?.[1] ?? 0), 0);
    let done = 0;
    try {
      for (const tensor of model.tensors) {
        const buffer = await engine.buffer(`${tensor.name} of ${model.name}`, padded(tensor.bytes));
        own.buffers.push(buffer);
        const [offset, length] = tensor.data ?? [0, 0];
        for (let at = 0; at < length; at += PIECE) {
          const bytes = await engine.data.read([offset + at, Math.min(PIECE, length - at)]);
          engine.device.queue.writeBuffer(buffer, at, wholeWords(bytes));
          await engine.device.queue.onSubmittedWorkDone();
          on('weights', (done += bytes.length), total);
        }
        engine.check();
      }
      own.loadMs = performance.now() - begun;
      own.step = await own.prepared(model.step, (made) => on('pipelines', made, model.step.length));
      own.tail = own.step.slice(model.tail);
      own.chunks = model.chunks.map(() => null);
      own.compileMs = performance.now() - begun - own.loadMs;
      own.spelling = await Spelling.of(engine.data, model.spelling);
      return own;
    } catch (error) {
      own.destroy();
      throw error;
    }
  }

  /** Dispatches of stages over the model's tensors. */
  async prepared(stages, on = () => {}) {
    const { engine, model, buffers } = this, dispatches = [];
    const bound = (tensor) => ({ buffer: buffers[tensor], offset: 0, size: padded(model.tensors[tensor].bytes) });
    // Compilers work at once, on threads of their own; what they refuse is told below.
    stages.forEach((stage) => engine.pipeline(stage).catch(() => {}));
    for (const stage of stages) {
      dispatches.push(await engine.dispatch(stage, bound));
      if (dispatches.length % 16 === 0) on(dispatches.length);
    }
    return dispatches;
  }

  /** Bytes of its tensors on the device. */
  get bytes() {
    return this.buffers.reduce((sum, buffer) => sum + buffer.size, 0);
  }

  /** Forgets everything and gives a prompt. */
  reset(prompt, seed) {
    const { model, buffers, engine: { device } } = this;
    const encoder = device.createCommandEncoder();
    for (const cache of model.caches) encoder.clearBuffer(buffers[cache]);
    encoder.clearBuffer(buffers[model.state]);
    device.queue.submit([encoder.finish()]);
    device.queue.writeBuffer(buffers[model.state], 0, new Uint32Array([0, prompt.length, 0, seed]));
    device.queue.writeBuffer(buffers[model.tokens], 0, new Uint32Array(prompt));
  }

  /** Submissions of a prompt: lists of dispatches. */
  async promptParts(count, inChunks) {
    const parts = [], { chunks } = this.model;
    if (inChunks && count > 1 && chunks.length) {
      for (const at of cover(chunks.map((chunk) => chunk.tokens), count)) {
        // Most prompts want one or two of the sizes.
        this.chunks[at] ??= await this.prepared(chunks[at].step);
        parts.push([this.chunks[at]]);
      }
      parts[parts.length - 1].push(this.tail);
    } else {
      for (let at = 0; at < count; at += PROMPT_STEPS) parts.push(new Array(Math.min(PROMPT_STEPS, count - at)).fill(this.step));
    }
    return parts;
  }

  /**
   * Generates up to `generate` tokens after a prompt. `on(token, text)` hears of each; `stepsPerSubmit`
   * fixes the steps of a submission, without it they grow to as many as take 8 ms, at most 32.
   */
  async run(prompt, generate, { on = () => {}, inChunks = true, stepsPerSubmit, seed = this.model.seed, stop = () => false, ends = this.model.end_tokens } = {}) {
    const { engine, model, buffers } = this, { device } = engine;
    const positions = prompt.length + generate - 1;
    if (!prompt.length) throw new Refusal('The prompt is empty; decoding starts from a token.');
    if (positions > model.context) throw new Refusal(`${positions} positions do not fit the context of ${model.context}.`);
    if (prompt.some((token) => token >= model.vocab)) throw new Refusal(`A token of the prompt lies beyond the vocabulary of ${model.vocab}.`);
    const parts = await this.promptParts(prompt.length, inChunks);
    this.reset(prompt, seed);
    this.spelling?.begin();
    await device.queue.onSubmittedWorkDone();
    engine.check();
    const generated = [], flying = [], free = [], most = 32;
    let text = '', ended = false, encodeMs = 0, submits = 0;
    const tokens = buffers[model.tokens], isEnd = new Set(ends);
    const submit = (parts, first, count) => {
      const begun = performance.now(), staging = free.pop() ?? engine.staging(4 * most);
      const encoder = device.createCommandEncoder(), pass = encoder.beginComputePass();
      for (const part of parts) encode(pass, part);
      pass.end();
      if (count) encoder.copyBufferToBuffer(tokens, 4 * first, staging, 0, 4 * count);
      device.queue.submit([encoder.finish()]);
      encodeMs += performance.now() - begun;
      submits++;
      const done = count ? engine.map(staging) : null;
      // Whoever takes it hears of a fault; one that nobody takes is not another fault.
      done?.catch(() => {});
      return { staging, count, done };
    };
    const take = async (flight) => {
      const words = new Uint32Array(await flight.done);
      free.push(flight.staging);
      for (let i = 0; i < flight.count && !ended && generated.length < generate; i++) {
        if (words[i] === NO_TOKEN) throw new Refusal(`The logits after token ${generated.length} are not finite.`);
        generated.push(words[i]);
        const spelled = this.spelling?.push(words[i]) ?? '';
        text += spelled;
        on(words[i], spelled);
        ended = isEnd.has(words[i]);
      }
    };
    const begun = performance.now();
    for (const [at, part] of parts.entries()) {
      const last = at === parts.length - 1;
      const flight = submit(part, prompt.length, last ? 1 : 0);
      if (last) await take(flight);
      else free.push(flight.staging);
    }
    const ttftMs = performance.now() - begun, stepsBegun = performance.now();
    encodeMs = submits = 0;
    let position = prompt.length, each = stepsPerSubmit ?? 1, last = stepsBegun, steps = 0;
    while (!ended && !stop() && (position < positions || flying.length)) {
      while (position < positions && flying.length < 2) {
        const count = Math.min(each, positions - position, most);
        flying.push(submit(new Array(count).fill(this.step), position + 1, count));
        position += count;
        steps += count;
      }
      const flight = flying.shift();
      await take(flight);
      const now = performance.now();
      // The device has nothing to do while a submission is encoded that the ones in flight do not outlast.
      const fitting = Math.round((SUBMIT_MS * flight.count) / Math.max(now - last, 0.1));
      if (!stepsPerSubmit) each = Math.max(1, Math.min(most, fitting, 2 * flight.count));
      last = now;
    }
    // What is still in flight belongs to nobody, but its buffers are mapped.
    for (const flight of flying) { await flight.done; free.push(flight.staging); }
    const decodeMs = performance.now() - stepsBegun;
    text += this.spelling?.finish() ?? '';
    for (const staging of free) staging.destroy();
    const rate = generated.length > 1 && decodeMs > 0 ? (1000 * (generated.length - 1)) / decodeMs : null;
    return { generated, text, ttft_ms: ttftMs, decode_ms: decodeMs, decode_tok_s: rate, steps, submits, encode_us_per_step: steps ? (1000 * encodeMs) / steps : null, dispatches_per_token: this.step.length };
  }

  /** The logits of the last step. */
  async logits() {
    const { engine, model } = this, staging = engine.staging(padded(4 * model.vocab));
    const encoder = engine.device.createCommandEncoder();
    encoder.copyBufferToBuffer(this.buffers[model.logits], 0, staging, 0, 4 * model.vocab);
    engine.device.queue.submit([encoder.finish()]);
    const all = new Float32Array(await engine.map(staging), 0, model.vocab);
    staging.destroy();
    return all;
  }

  /**
   * NMSE of the logits after each token of a prompt, and of those after prompts in chunks of lengths
   * around the sizes of chunks, from expected rows. `on` hears of tokens done and their number.
   */
  async compareLogits(prompt, expected, { on = () => {}, stop = () => false } = {}) {
    const { model, engine: { device } } = this, { vocab } = model;
    const row = (at) => expected.subarray(at * vocab, (at + 1) * vocab);
    const steps = new Errors(), chunked = new Errors();
    this.reset(prompt, model.seed);
    const dispatch = (parts) => {
      const encoder = device.createCommandEncoder(), pass = encoder.beginComputePass();
      for (const part of parts) encode(pass, part);
      pass.end();
      device.queue.submit([encoder.finish()]);
    };
    for (let at = 0; at < prompt.length && !stop(); at++) {
      dispatch([this.step]);
      steps.add(row(at), await this.logits());
      on(at + 1, prompt.length);
    }
    const edges = model.chunks.flatMap(({ tokens }) => [tokens - 1, tokens, tokens + 1, tokens + 3]);
    const lengths = new Set([2, 3, ...edges, prompt.length - 1, prompt.length]);
    for (const length of [...lengths].filter((length) => model.chunks.length && length > 1 && length <= prompt.length)) {
      if (stop()) break;
      const part = prompt.slice(0, length);
      this.reset(part, model.seed);
      for (const parts of await this.promptParts(length, true)) dispatch(parts);
      chunked.add(row(length - 1), await this.logits());
      on(length, prompt.length);
    }
    return { rows: steps.rows, nmse: steps.nmse, chunked_rows: chunked.rows, chunked_nmse: chunked.rows ? chunked.nmse : null };
  }

  destroy() {
    for (const buffer of this.buffers) buffer.destroy();
  }
}

/** Squared errors of rows beside those expected. */
class Errors {
  constructor() {
    Object.assign(this, { rows: 0, error: 0, energy: 0 });
  }

  add(expected, got) {
    this.rows++;
    for (let i = 0; i < expected.length; i++) {
      this.error += (got[i] - expected[i]) ** 2;
      this.energy += expected[i] ** 2;
    }
  }

  /** Infinite for results that are not finite. */
  get nmse() {
    const nmse = this.error === 0 ? 0 : this.error / this.energy;
    return Number.isNaN(nmse) ? Infinity : nmse;
  }
}

/** Number of tokens with which two sequences begin alike. */
export function alike(one, other) {
  let count = 0;
  while (count < Math.min(one.length, other.length) && one[count] === other[count]) count++;
  return count;
}
