// Time of kernels: invocations in a row, as many as make a sample long beside the clock's step.
//
// Browsers let timestamps step by 65,536 ns, so a sample takes 20 ms. Stamps that are 0 or run backwards,
// as some drivers give, are no time: the host's clock around the submission is read instead, and the
// record says so. Cold invocations rotate weights and caches past the device's last cache.
import { Refusal, encode, padded } from './engine.js';
import { Prepared, broken } from './check.js';

const SAMPLE_MS = 20;
const QUANTA = 300; // steps of the clock in a sample: it is right within 0.4 %
const MOST = 20000; // invocations in a submission
const ROTATE = 256 << 20; // bytes that rotated copies exceed, where memory has room

export const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};

/** Time of passes, by the GPU's stamps or the host's clock. */
export class Timer {
  constructor(engine) {
    this.engine = engine;
    this.stamped = engine.device.features.has('timestamp-query');
    this.why = this.stamped ? null : 'the browser has no timestamps';
    this.quantum = 0; // ns: the largest step that all stamps are multiples of
    if (!this.stamped) return;
    this.queries = engine.device.createQuerySet({ type: 'timestamp', count: 2 });
    this.resolved = engine.device.createBuffer({ size: 16, usage: 0x200 | 4 }); // QUERY_RESOLVE, COPY_SRC
  }

  get clock() {
    return this.stamped ? 'gpu' : 'wall';
  }

  /** Smallest sample, ns. */
  get least() {
    const step = this.stamped ? this.quantum : 1e5; // a round trip, by the host's clock
    return Math.max((this.engine.software ? 1 : SAMPLE_MS) * 1e6, QUANTA * step);
  }

  /** Nanoseconds of a pass; 0 of less than a step. */
  async time(record) {
    const { device } = this.engine, encoder = device.createCommandEncoder();
    const stamps = this.stamped ? { timestampWrites: { querySet: this.queries, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 } } : {};
    const pass = encoder.beginComputePass(stamps);
    record(pass);
    pass.end();
    const staging = this.stamped ? this.engine.staging(16) : null;
    if (staging) {
      encoder.resolveQuerySet(this.queries, 0, 2, this.resolved, 0);
      encoder.copyBufferToBuffer(this.resolved, 0, staging, 0, 16);
    }
    const begun = performance.now();
    device.queue.submit([encoder.finish()]);
    await device.queue.onSubmittedWorkDone();
    const wall = (performance.now() - begun) * 1e6;
    this.engine.check();
    if (!staging) return wall;
    const [from, to] = new BigUint64Array(await this.engine.map(staging));
    staging.destroy();
    const missing = from === 0n || to === 0n, backwards = to < from;
    // A pass far longer than a step that takes no time by its stamps was not stamped.
    if (missing || backwards || (to === from && wall > 2e7)) {
      this.stamped = false;
      this.why = missing ? 'timestamps are 0' : backwards ? 'timestamps run backwards' : 'timestamps stand still';
      return wall;
    }
    for (const stamp of [from, to]) this.quantum = gcd(this.quantum, Number(stamp % (1n << 40n)));
    return Number(to - from);
  }

  /** Invocations of `record(pass, count)`, at least `from`, that make a sample. */
  async grow(record, from = 1) {
    for (let count = from; ;) {
      const ns = await this.time((pass) => record(pass, count));
      if (ns >= this.least || count >= MOST) return count;
      const missing = this.least / Math.max(ns, this.least / 16);
      count = Math.min(MOST, Math.ceil(count * Math.min(16, Math.max(1.2, missing))));
    }
  }

  /** Microseconds per invocation, a sample each: warmed up until two samples agree, then `samples` of them. */
  async sample(record, samples, renew = async () => {}) {
    await renew();
    let count = await this.grow(record), before = Infinity, settled = false;
    for (let i = 0; i < 50 && !settled; i++) {
      const ns = await this.time((pass) => record(pass, count));
      settled = this.engine.software || Math.abs(ns - before) < 0.02 * ns;
      before = ns;
    }
    // What is long enough at idle clocks is too short at full ones.
    count = await this.grow(record, count);
    const us = [];
    for (let i = 0; i < samples; i++) {
      await renew();
      us.push((await this.time((pass) => record(pass, count))) / 1e3 / count);
    }
    if (!(Math.min(...us) > 0)) throw new Refusal('the clock steps so far that an invocation takes no time');
    return { settled, dispatches: count, samples_us: us, throttled: 0, processes: [] };
  }
}

function gcd(a, b) {
  while (b) [a, b] = [b, a % b];
  return a;
}

const COPY = `@group(0) @binding(0) var<storage, read> whence: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> copied: array<vec4<u32>>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  for (var i = id.x; i < arrayLength(&copied); i += 256u * groups.x) { copied[i] = whence[i]; }
}`;

/** Measured copy bandwidth, bytes read plus written, 10^9 a second. */
export async function copyBandwidth(engine, timer) {
  const size = engine.software ? 4 << 20 : 64 << 20, { device } = engine;
  const buffers = [await engine.buffer('the copy', size), await engine.buffer('the copy', size)];
  const pipeline = await device.createComputePipelineAsync({ layout: 'auto', compute: { module: device.createShaderModule({ code: COPY }), entryPoint: 'main' } });
  const group = (from, to) => device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries: [{ binding: 0, resource: { buffer: buffers[from] } }, { binding: 1, resource: { buffer: buffers[to] } }] });
  const groups = [group(0, 1), group(1, 0)];
  const record = (pass, count) => {
    pass.setPipeline(pipeline);
    for (let i = 0; i < count; i++) {
      pass.setBindGroup(0, groups[i % 2]);
      pass.dispatchWorkgroups(4096);
    }
  };
  const { samples_us: us } = await timer.sample(record, 5);
  buffers.forEach((buffer) => buffer.destroy());
  return (2 * size) / median(us) / 1e3;
}

/** Copies of the tensors that rotate, bound by dispatches of their own. */
async function rotated(engine, prepared, plan) {
  const large = plan.tensors.map((tensor, i) => [i, tensor]).filter(([, tensor]) => tensor.large);
  const bytes = large.reduce((sum, [, tensor]) => sum + padded(tensor.bytes), 0);
  const most = engine.software ? 2 << 20 : ROTATE;
  const count = bytes ? Math.min(4096, Math.max(2, Math.ceil(most / bytes))) : 1;
  const turns = [prepared.dispatches], own = [];
  while (turns.length < count) {
    const buffers = [...prepared.buffers];
    const encoder = engine.device.createCommandEncoder();
    for (const [i, tensor] of large) {
      buffers[i] = await engine.buffer(`a copy of ${tensor.name}`, prepared.buffers[i].size);
      encoder.copyBufferToBuffer(prepared.buffers[i], 0, buffers[i], 0, buffers[i].size);
      own.push(buffers[i]);
    }
    engine.device.queue.submit([encoder.finish()]);
    const dispatches = [];
    for (const stage of plan.stages) dispatches.push(await engine.dispatch(stage, (tensor) => prepared.bound(tensor, buffers)));
    turns.push(dispatches);
  }
  return { turns, own, bytes: count * bytes };
}

/** Benchmarks one case: checked, timed cold and warm, checked again. Returns the entry of a record. */
export async function benchCase(engine, plan, timer, copy) {
  const prepared = await Prepared.of(engine, plan);
  let own = [];
  try {
    const judged = async (when) => {
      await prepared.renew('first');
      prepared.poison();
      const verdict = await prepared.judge(await prepared.run(), 0);
      if (verdict.status !== 'passed') throw new Refusal(`is wrong ${when}: ${verdict.reason}`);
      return verdict.nmse;
    };
    let nmse = await judged('before timing');
    const ring = await rotated(engine, prepared, plan);
    own = ring.own;
    let cursor = 0;
    const samples = engine.software ? 5 : 9, renew = () => prepared.renew('first');
    const rotate = (pass, count) => { for (let i = 0; i < count; i++) encode(pass, ring.turns[cursor++ % ring.turns.length]); };
    const cold = await timer.sample(rotate, samples, renew);
    const stay = (pass, count) => { for (let i = 0; i < count; i++) encode(pass, ring.turns[0]); };
    const warm = await timer.sample(stay, samples, renew);
    nmse = Math.max(nmse, await judged('after timing'));
    const us = median(cold.samples_us), gb_s = plan.bytes / us / 1e3;
    const bounds = plan.runs[0].map((outcome) => outcome.nmse).filter((limit) => limit !== undefined);
    const flags = [];
    if (!cold.settled) flags.push('not settled');
    if (timer.clock === 'wall') flags.push('wall clock');
    return {
      kernel: plan.kernel, variant: plan.variant, shape: plan.shape, source: plan.source, wgsl: null, tuned: {}, cold: { median_us: us, ...cold },
      warm: { median_us: median(warm.samples_us), ...warm }, overlapped: null, bytes: plan.bytes, flops: plan.flops, gb_s, fraction_of_copy: copy ? gb_s / copy : 0,
      rotated_bytes: ring.bytes, nmse, nmse_bound: Math.max(0, ...bounds), canary: null, seed_a_sample: false, clock: timer.clock, flags,
    };
  } finally {
    own.forEach((buffer) => buffer.destroy());
    prepared.destroy();
  }
}

/** Benchmarks all cases of the kind whose name has `filter`. Returns the body of a record, and the clock. */
export async function benchAll(engine, { filter = '', on = () => {}, stop = () => false } = {}) {
  const plans = engine.kind.bench.filter((one) => `${one.kernel}/${one.variant}`.includes(filter));
  const timer = new Timer(engine), cases = [], failed = [];
  const copy = plans.length ? await copyBandwidth(engine, timer) : null;
  for (const plan of plans) {
    if (stop()) break;
    const name = `${plan.kernel}/${plan.variant} ${plan.shape}`;
    const lacks = plan.stages.flatMap((stage) => engine.extensionsLacking(engine.plan.texts[stage.text]));
    let result;
    try {
      if (lacks.length) throw new Refusal(`this browser lacks WGSL's ${[...new Set(lacks)].join(', ')}`);
      result = await benchCase(engine, plan, timer, copy);
      cases.push(result);
    } catch (error) {
      if (engine.isLost !== null || !(error instanceof Refusal)) throw error;
      failed.push(`${name}: ${error.message}`);
      result = broken(error.message);
    }
    on(plan, result, cases.length + failed.length, plans.length);
  }
  return { cases, failed, copy_gb_s: copy, timestamp_quantum_ns: timer.stamped ? timer.quantum : null, clock: timer.clock, why_wall: timer.why };
}
