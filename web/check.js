// Correctness of a case: two invocations between guard words, judged by the plan's expected outcomes.
//
// Outputs are poisoned before, guard words surround every tensor, and the second invocation has other
// inputs over what the first left in outputs and scratch memory. The rules are those of `lathe check`.
import { Refusal, encode, firstLine, padded } from './engine.js';

export const GUARD = 256; // bytes before and after a tensor, and the alignment of its binding
// A NaN that arithmetic does not make, another one in each session.
export const POISON = 0x7fc00001 + Math.floor(Math.random() * 0x003ffff0);

/** Text of a number as reports have it. */
export const shown = (value) => (Number.isFinite(value) ? value.toExponential(3) : String(value));

let halves = null;
/** Values of all 16-bit floats. */
function halfValues() {
  if (halves) return halves;
  halves = new Float32Array(1 << 16);
  for (let bits = 0; bits < 1 << 16; bits++) {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent === 31) halves[bits] = fraction ? NaN : sign * Infinity;
    else halves[bits] = sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
  }
  return halves;
}

/** The first `count` values of a tensor's bytes. */
export function values(tensor, bytes, count) {
  const view = (Type, length) => new Type(bytes.buffer, bytes.byteOffset, length);
  if (tensor.stored === 'f32') return view(Float32Array, count);
  const out = new Float32Array(count);
  if (tensor.stored === 'f16') {
    const words = view(Uint16Array, count), all = halfValues();
    for (let i = 0; i < count; i++) out[i] = all[words[i]];
  } else if (tensor.stored === 'bf16') {
    const words = view(Uint16Array, count), wide = new Uint32Array(out.buffer);
    for (let i = 0; i < count; i++) wide[i] = words[i] << 16;
  } else if (tensor.stored === 'q8_0') {
    // A vector is its 8-bit values, padded to 16 bytes, then a 16-bit scale per block of 32, padded too.
    const each = tensor.head_dim, all = halfValues(), vectors = Math.floor(count / each);
    const stride = tensor.bytes / Math.round(tensor.values / each), scales = Math.ceil(each / 16) * 16;
    for (let v = 0; v < vectors; v++) {
      for (let i = 0; i < each; i++) {
        const quant = (bytes[v * stride + i] << 24) >> 24, at = v * stride + scales + 2 * Math.floor(i / 32);
        out[v * each + i] = quant * all[bytes[at] | (bytes[at + 1] << 8)];
      }
    }
  } else throw new Refusal(`a tensor is stored as ${tensor.stored}, which this page does not know`);
  return out;
}

/** True if a result is what the stored type makes of a value beyond its largest: that, an infinity, or a NaN. */
function holdsBeyond(value, bound, got, largest) {
  const size = Math.abs(value), isNegative = (v) => v < 0 || Object.is(v, -0);
  return size + bound > largest && (Number.isNaN(got) || (Math.abs(got) >= Math.min(size - bound, largest) && isNegative(got) === isNegative(value)));
}

/** Judges real numbers as `compare` of reference/src/compare.rs does. */
export function judgeReal(name, rule, got) {
  const { value, bound: bounds, spreads, largest } = rule, unavoidableOf = new Map();
  for (let i = 0; i < rule.overflowing.length; i += 2) unavoidableOf.set(rule.overflowing[i], rule.overflowing[i + 1]);
  let worst = null, notFinite = null, vanished = null, exceeded = 0, error = 0, energy = 0, unavoidable = rule.unavoidable ?? Infinity;
  const at = (w) => `[${w.index}] is ${shown(w.got)}, expected ${shown(w.expected)} ± ${shown(w.bound)}`;
  const failed = (reason, w = null, nmse = null) => ({ status: 'failed', reason: `${name}: ${reason}`, nmse, worst: w });
  if (!value.length) return failed('nothing to compare: the output is empty');
  if (got.length !== value.length) return failed(`${got.length} elements, expected ${value.length}`);
  for (let i = 0; i < value.length; i++) {
    const bound = Math.abs(bounds[i]), mayOverflow = bounds[i] < 0;
    if (spreads && !Number.isFinite(value[i])) {
      const isKept = bounds[i] === 0 ? Object.is(got[i], value[i]) : !Number.isFinite(got[i]);
      if (!isKept) vanished ??= `[${i}] is ${shown(got[i])}, expected ${shown(value[i])}: a value that is not finite vanished`;
      continue;
    }
    if (!(Number.isFinite(value[i]) && Number.isFinite(bound) && bound > 0)) {
      return failed(`the oracle itself is at fault: [${i}] expects ${shown(value[i])} ± ${shown(bound)}`);
    }
    if ((mayOverflow && !Number.isFinite(got[i])) || holdsBeyond(value[i], bound, got[i], largest)) continue;
    const off = got[i] - value[i], ratio = Math.abs(off) / bound;
    if (!Number.isFinite(got[i]) || !worst || ratio > worst.ratio) {
      const element = { tensor: name, index: i, got: got[i], expected: value[i], bound, ratio };
      if (!Number.isFinite(got[i])) notFinite ??= element;
      else worst = element;
    }
    if (ratio > 1) exceeded++;
    error += off * off;
    energy += value[i] * value[i];
    unavoidable += unavoidableOf.get(i) ?? 0;
  }
  const nmse = error === 0 ? 0 : error / energy, limit = rule.nmse ?? Infinity;
  if (notFinite) return failed(`not finite: ${at(notFinite)}`, notFinite);
  if (vanished) return failed(vanished);
  if (exceeded && got.every((v) => v === 0)) return failed(`all ${got.length} elements are zero: ${at(worst)}`, worst, nmse);
  if (exceeded) return failed(`${exceeded} of ${value.length} elements out of bound, worst ${at(worst)}`, worst, nmse);
  if (!(nmse <= limit || error <= limit * energy + unavoidable)) {
    return failed(`NMSE ${shown(nmse)} over the limit ${shown(limit)}${worst ? `, worst ${at(worst)}` : ''}`, worst, nmse);
  }
  return { status: 'passed', nmse: energy === 0 ? 0 : nmse, worst };
}

function judgeWords(name, expected, got, more = '') {
  let differing = 0, first = -1;
  for (let i = 0; i < expected.length; i++) {
    if (expected[i] === got[i]) continue;
    if (!differing++) first = i;
  }
  if (!differing) return { status: 'passed', nmse: 0, worst: null };
  const reason = `${name}: ${differing} of ${expected.length} integers differ, first [${first}] is ${got[first]}, expected ${expected[first]}${more}`;
  return { status: 'failed', reason, nmse: null, worst: null };
}

/** Judges a list of the largest values by its content: rounding may exchange neighbours. */
function judgeRanking(name, rows, values, indices) {
  const NONE = 0xffffffff, NO_VALUE = Math.fround(-3.4028234e38), listed = new Set(), byIndex = new Map();
  const count = rows.length / 3;
  for (let r = 0; r < count; r++) {
    const [index, value, bound] = [rows[3 * r], rows[3 * r + 1], rows[3 * r + 2]];
    byIndex.set(index, [...(byIndex.get(index) ?? []), { value, bound }]);
  }
  const failed = (why) => ({ status: 'failed', reason: `${name}: ${why}`, nmse: null, worst: null });
  for (let i = 0; i < indices.length; i++) {
    const value = values[i], index = indices[i], own = `[${i}] is (${shown(value)}, ${index})`;
    if (i >= count) {
      if (index !== NONE || value !== NO_VALUE) return failed(`${own}, beyond all ${count} rows`);
      continue;
    }
    if (!(byIndex.get(index) ?? []).some((row) => Math.abs(value - row.value) <= row.bound)) {
      return failed(`${own}, which is no row's logit and index`);
    }
    if (listed.has(index)) return failed(`[${i}] lists index ${index} again`);
    listed.add(index);
    const before = i > 0 && (value > values[i - 1] || (value === values[i - 1] && index < indices[i - 1]));
    if (before) return failed(`${own}, which belongs before [${i - 1}]`);
  }
  return { status: 'passed', nmse: 0, worst: null };
}

/** The verdict over two: the first failure, or the larger error and the element closest to its bound. */
export function both(one, next) {
  if (one.status !== 'passed') return one;
  if (next.status !== 'passed') return next;
  const worst = [one.worst, next.worst].filter(Boolean).sort((a, b) => b.ratio - a.ratio)[0] ?? null;
  return { status: 'passed', nmse: Math.max(one.nmse, next.nmse), worst };
}

/** Values, bounds, and errors of elements that may overflow, of an outcome of real numbers. */
export function realsOf(data, { len, value, bound, overflowing }) {
  const floats = async (range, length) => {
    if (!range) return new Float64Array(0);
    const { buffer } = (await data.read(range)).slice();
    return buffer.byteLength === 4 * length ? new Float32Array(buffer) : new Float64Array(buffer);
  };
  return [floats(value, len), floats(bound, len), floats(overflowing, 0)];
}

/** A case on a device: guarded buffers with its inputs, and its dispatches. */
export class Prepared {
  static async of(engine, plan) {
    const own = new Prepared();
    Object.assign(own, { engine, plan, buffers: [] });
    try {
      for (const tensor of plan.tensors) own.buffers.push(await own.block(tensor));
      own.dispatches = [];
      for (const stage of plan.stages) own.dispatches.push(await engine.dispatch(stage, (tensor) => own.bound(tensor)));
    } catch (error) {
      own.destroy();
      throw error;
    }
    return own;
  }

  async block(tensor) {
    const { engine } = this;
    const content = tensor.first ? await engine.data.read(tensor.first) : null;
    return engine.buffer(`tensor ${tensor.name}`, padded(tensor.bytes) + 2 * GUARD, (bytes) => {
      new Uint32Array(bytes.buffer).fill(POISON);
      if (content) bytes.set(content, GUARD);
    });
  }

  bound(tensor, buffers = this.buffers) {
    return { buffer: buffers[tensor], offset: GUARD, size: padded(this.plan.tensors[tensor].bytes) };
  }

  /** Writes what the second invocation finds anew. */
  async renew(which) {
    for (const [i, tensor] of this.plan.tensors.entries()) {
      const range = tensor[which];
      if (range) this.engine.device.queue.writeBuffer(this.buffers[i], GUARD, wholeWords(await this.engine.data.read(range)));
    }
  }

  /** Poisons outputs and scratch memory. */
  poison() {
    for (const [i, tensor] of this.plan.tensors.entries()) {
      if (tensor.role !== 'output' && tensor.role !== 'scratch') continue;
      this.engine.device.queue.writeBuffer(this.buffers[i], 0, new Uint32Array(this.buffers[i].size / 4).fill(POISON));
    }
  }

  /** Tensors that are read back. */
  written() {
    return this.plan.tensors.map((tensor, i) => [i, tensor]).filter(([, tensor]) => tensor.role !== 'input');
  }

  /** Runs one invocation and reads what it left: bytes by tensor, guards included. */
  async run() {
    const { device } = this.engine;
    const encoder = device.createCommandEncoder(), pass = encoder.beginComputePass();
    encode(pass, this.dispatches);
    pass.end();
    return this.read(encoder);
  }

  /** Submits an encoder and reads the tensors that are written. */
  async read(encoder) {
    const { device } = this.engine, written = this.written();
    const total = written.reduce((sum, [i]) => sum + this.buffers[i].size, 0);
    const staging = this.engine.staging(Math.max(total, 16));
    let at = 0;
    for (const [i] of written) {
      encoder.copyBufferToBuffer(this.buffers[i], 0, staging, at, this.buffers[i].size);
      at += this.buffers[i].size;
    }
    device.queue.submit([encoder.finish()]);
    const all = await this.engine.map(staging);
    staging.destroy();
    at = 0;
    return new Map(written.map(([i]) => {
      const bytes = new Uint8Array(all, at, this.buffers[i].size);
      at += this.buffers[i].size;
      return [i, bytes];
    }));
  }

  /** Compares what is left with the outcomes of invocation `run`. */
  async judge(left, run) {
    const { plan, engine } = this, content = new Map();
    for (const [i, bytes] of left) {
      const tensor = plan.tensors[i];
      const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
      const end = GUARD + tensor.bytes;
      for (let w = 0; w < words.length; w++) {
        if (words[w] === POISON || (4 * w >= GUARD && 4 * w + 4 <= end)) continue;
        const mixed = 4 * w < end && 4 * w + 4 > end; // the last word may hold content and padding
        const byte = mixed ? [end - 4 * w, 1, 2, 3].find((b) => b >= end - 4 * w && b < 4 && bytes[4 * w + b] !== ((POISON >>> (8 * b)) & 255)) : 0;
        if (byte === undefined) continue;
        return broken(`${tensor.name}: wrote outside the tensor, at byte ${4 * w + byte - GUARD} of ${tensor.bytes}`);
      }
      const own = bytes.slice(GUARD, GUARD + Math.ceil(tensor.bytes / 4) * 4), ownWords = new Uint32Array(own.buffer);
      const whole = Math.floor(tensor.bytes / 4);
      if (tensor.role === 'counter' && ownWords.some((word) => word !== 0)) {
        return broken(`${tensor.name}: the counter was not left at zero`);
      }
      if (tensor.role === 'output') {
        const at = ownWords.subarray(0, whole).indexOf(POISON);
        if (at >= 0) return broken(`${tensor.name}[${at}] was never written, or is made of what lies behind the end of an input`);
      }
      content.set(i, own);
    }
    const floats = async (range) => new Float64Array((await engine.data.read(range)).slice().buffer);
    const words32 = async (range) => new Uint32Array((await engine.data.read(range)).slice().buffer);
    let verdict = { status: 'passed', nmse: 0, worst: null }, chosen = null;
    for (const outcome of plan.runs[run]) {
      const tensor = plan.tensors[outcome.tensor], bytes = content.get(outcome.tensor), words = new Uint32Array(bytes.buffer);
      let next;
      if (outcome.rule === 'real') {
        const [value, bound, overflowing] = await Promise.all(realsOf(engine.data, outcome));
        next = judgeReal(tensor.name, { ...outcome, value, bound, overflowing }, values({ ...tensor, values: value.length }, bytes, value.length));
      } else if (outcome.rule === 'words') {
        next = judgeWords(tensor.name, await words32(outcome.words), words);
      } else if (outcome.rule === 'choice') {
        const expected = await words32(outcome.words), word = words[outcome.at];
        if (outcome.allowed.includes(word) && (chosen === null || chosen === word)) {
          expected[outcome.at] = word;
          chosen = word;
        }
        const others = outcome.allowed.length > 1 ? `, and ${outcome.allowed.length} choices lie within rounding of each other` : '';
        next = judgeWords(tensor.name, expected, words, others);
      } else if (outcome.rule === 'ranking') {
        const of = plan.tensors[outcome.values], rows = await floats(outcome.rows);
        const ranked = values({ ...of, values: words.length }, content.get(outcome.values), words.length);
        next = judgeRanking(tensor.name, rows, ranked, words);
      } else throw new Refusal(`an outcome is judged by ${outcome.rule}, which this page does not know`);
      verdict = both(verdict, next);
    }
    return verdict;
  }

  destroy() {
    for (const buffer of this.buffers) buffer.destroy();
  }
}

export const broken = (reason) => ({ status: 'failed', reason, nmse: null, worst: null });

/** Bytes in whole words, as queues write them. */
export function wholeWords(bytes) {
  if (bytes.length % 4 === 0) return bytes;
  const whole = new Uint8Array(Math.ceil(bytes.length / 4) * 4);
  whole.set(bytes);
  return whole;
}

/** Checks one case. Only a lost device throws. */
export async function checkCase(engine, plan) {
  const lacks = [...new Set(plan.stages.flatMap((stage) => engine.extensionsLacking(engine.plan.texts[stage.text])))];
  if (lacks.length) return { status: 'unavailable', reason: `this browser lacks WGSL's ${lacks.join(', ')}` };
  let prepared = null;
  try {
    prepared = await Prepared.of(engine, plan);
    const first = await prepared.judge(await prepared.run(), 0);
    if (first.status !== 'passed') return first;
    await prepared.renew('second');
    const second = await prepared.judge(await prepared.run(), 1);
    if (second.status !== 'passed') second.reason += ', when it ran again with other inputs over what it had left';
    return both(first, second);
  } catch (error) {
    if (engine.isLost !== null) throw error;
    return broken(error instanceof Refusal ? error.message : `${firstLine(error)}`);
  } finally {
    prepared?.destroy();
  }
}

/** Checks all cases of the kind whose name has `filter`; `on` hears of each. Returns a report as `lathe check --json` has it. */
export async function checkAll(engine, { filter = '', on = () => {}, stop = () => false } = {}) {
  const wanted = (one) => `${one.kernel}/${one.variant}`.includes(filter);
  const plans = engine.kind.check.filter(wanted), cases = [];
  const entry = (plan, verdict) => ({ kernel: plan.kernel, variant: plan.variant, shape: plan.shape, seed: plan.seed, repeat: plan.repeat, ...verdict });
  for (const [at, plan] of plans.entries()) {
    if (stop()) break;
    // Compilers work meanwhile, on threads of their own.
    for (const next of plans.slice(at + 1, at + 5)) {
      for (const stage of next.stages) {
        if (!engine.extensionsLacking(engine.plan.texts[stage.text]).length) engine.pipeline(stage).catch(() => {});
      }
    }
    cases.push(entry(plan, await checkCase(engine, plan)));
    on(cases[cases.length - 1], cases.length, plans.length);
    for (const stage of plan.stages) {
      if (!plans.slice(at + 1, at + 200).some((next) => next.stages.some((other) => other.text === stage.text))) engine.compiled.delete(stage.text);
    }
  }
  for (const one of engine.kind.unavailable.filter(wanted)) cases.push(entry(one, { status: 'unavailable', reason: one.reason }));
  const count = (status) => cases.filter((one) => one.status === status).length;
  return { passed: count('passed'), failed: count('failed'), unavailable: count('unavailable'), not_run: plans.length + engine.kind.unavailable.filter(wanted).length - cases.length, cases };
}
