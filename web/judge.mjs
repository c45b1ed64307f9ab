// The judge of check.js on results that are made up here: right ones pass, and each kind of fault fails.
//   node judge.mjs FOLDER
// FOLDER is an export of cases (plan.json, plan.bin). Needs no WebGPU.
import fs from 'node:fs';
import path from 'node:path';
import { GUARD, POISON, Prepared, judgeReal, realsOf } from './check.js';
import { inMemory, padded } from './engine.js';

const folder = process.argv[2];
const plan = JSON.parse(fs.readFileSync(path.join(folder, 'plan.json')));
const file = fs.readFileSync(path.join(folder, 'plan.bin'));
const data = inMemory(file.buffer.slice(file.byteOffset, file.byteOffset + file.length));
const words = async (range) => new Uint32Array((await data.read(range)).slice().buffer);
const floats = async (range) => new Float64Array((await data.read(range)).slice().buffer);
const valuesOf = (outcome) => realsOf(data, outcome)[0];
const boundsOf = (outcome) => realsOf(data, outcome)[1];

/** A block as a right kernel leaves it, of which `content` are the words. */
function block(tensor, content) {
  const all = new Uint32Array((padded(tensor.bytes) + 2 * GUARD) / 4).fill(POISON);
  all.set(content, GUARD / 4);
  return all;
}

/** Blocks that a right kernel leaves, by tensor; none where storage is not 32 bits wide. */
async function right(one, run) {
  const left = new Map();
  for (const [i, tensor] of one.tensors.entries()) {
    if (tensor.role === 'input' || tensor.role === 'scratch') continue;
    left.set(i, block(tensor, new Uint32Array(tensor.role === 'counter' ? tensor.bytes / 4 : 0)));
  }
  for (const outcome of one.runs[run]) {
    const tensor = one.tensors[outcome.tensor];
    if (tensor.stored !== 'f32' && tensor.stored !== 'u32') return null;
    if (outcome.rule === 'real') left.set(outcome.tensor, block(tensor, new Uint32Array(Float32Array.from(await valuesOf(outcome)).buffer)));
    else if (outcome.words) left.set(outcome.tensor, block(tensor, await words(outcome.words)));
    else {
      const rows = await floats(outcome.rows), order = [];
      for (let r = 0; r < rows.length; r += 3) order.push([rows[r], rows[r + 1]]);
      order.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
      const indices = Array.from({ length: tensor.bytes / 4 }, (_, i) => order[i]?.[0] ?? 0xffffffff);
      left.set(outcome.tensor, block(tensor, Uint32Array.from(indices)));
    }
  }
  return left;
}

async function judged(one, run, left) {
  const prepared = Object.assign(new Prepared(), { plan: one, engine: { data } });
  return prepared.judge(new Map([...left].map(([i, all]) => [i, new Uint8Array(all.buffer)])), run);
}

const counts = new Map();
async function expect(one, run, what, wanted, spoil) {
  const left = await right(one, run);
  if (!left || spoil(left) === false) return;
  const verdict = await judged(one, run, left);
  const found = verdict.status === 'passed' ? 'passed' : verdict.reason;
  if (!found.includes(wanted)) {
    console.error(`${one.kernel}/${one.variant} ${one.shape}: ${what} should give “${wanted}”, not “${found}”`);
    process.exit(1);
  }
  counts.set(what, (counts.get(what) ?? 0) + 1);
}

const float = new Float32Array(1), bits = new Uint32Array(float.buffer);
const asBits = (value) => { float[0] = value; return bits[0]; };
for (const one of plan.kinds[0].check) {
  for (const run of [0, 1]) {
    const first = one.runs[run][0], at = first.tensor, tensor = one.tensors[at], begin = GUARD / 4;
    const bounds = first.rule === 'real' ? await boundsOf(first) : null, value = bounds && (await valuesOf(first));
    const where = (test) => (bounds ? value.findIndex((v, i) => test(v, bounds[i])) : -1);
    // A value that neither lies beyond its type nor may overflow.
    const plain = where((v, bound) => bound > 0 && Math.abs(v) + bound < first.largest);
    const put = (at, test, content) => (left) => {
      const index = where(test);
      if (index < 0) return false;
      left.get(at)[begin + index] = asBits(content(value[index], bounds[index]));
    };
    const isFinite = (v) => Number.isFinite(v);
    await expect(one, run, 'a right result', 'passed', () => {});
    await expect(one, run, 'a word behind the tensor', 'wrote outside the tensor', (left) => { left.get(at)[begin + Math.ceil(tensor.bytes / 4)] = 1; });
    await expect(one, run, 'a word before the tensor', 'wrote outside the tensor', (left) => { left.get(at)[begin - 1] = 0; });
    await expect(one, run, 'a word not written', 'was never written', (left) => {
      if (tensor.role !== 'output') return false;
      left.get(at)[begin] = POISON;
    });
    await expect(one, run, 'an element out of bound', 'out of bound', (left) => {
      if (plain < 0 || value.length < 2 || !value[plain]) return false;
      left.get(at)[begin + plain] = asBits(value[plain] + 2.5 * bounds[plain] + 2e-7 * Math.abs(value[plain]));
      const other = plain ? 0 : 1;
      if (value[other] === 0) left.get(at)[begin + other] = asBits(1e-40);
    });
    await expect(one, run, 'a NaN that appears', 'not finite: ', (left) => { if (plain < 0) return false; left.get(at)[begin + plain] = 0x7fc00000; });
    await expect(one, run, 'an infinity that appears', 'not finite: ', (left) => { if (plain < 0) return false; left.get(at)[begin + plain] = 0x7f800000; });
    await expect(one, run, 'a value that is not finite and vanishes', 'not finite vanished', put(at, (v) => first.spreads && !isFinite(v), () => 1));
    await expect(one, run, 'another value that is not finite, computed', 'passed', put(at, (v, bound) => first.spreads && !isFinite(v) && bound > 0, (v) => (v > 0 ? NaN : Infinity)));
    await expect(one, run, 'another value that is not finite, of an exact one', 'not finite vanished', put(at, (v, bound) => first.spreads && !isFinite(v) && bound === 0, (v) => (v > 0 ? NaN : Infinity)));
    await expect(one, run, 'an overflow where there may be one', 'passed', put(at, (v, bound) => isFinite(v) && bound < 0, () => NaN));
    await expect(one, run, 'another integer', 'integers differ', (left) => {
      if (first.rule !== 'words') return false;
      left.get(at)[begin] ^= 1;
    });
    await expect(one, run, 'a choice that is none of them', 'integers differ', (left) => {
      if (first.rule !== 'choice') return false;
      left.get(at)[begin + first.at] = 0x7ffffff1;
    });
    const ranking = one.runs[run].find((outcome) => outcome.rule === 'ranking');
    await expect(one, run, 'an index twice', '[1] ', (left) => {
      if (!ranking || one.tensors[ranking.tensor].bytes < 8) return false;
      const own = left.get(ranking.tensor);
      own[begin + 1] = own[begin];
    });
    const counter = one.tensors.findIndex((tensor) => tensor.role === 'counter');
    await expect(one, run, 'a counter that is not zero', 'was not left at zero', (left) => {
      if (counter < 0) return false;
      left.get(counter)[begin] = 3;
    });
  }
}

/** The judge on values written here, as the tests of reference/src/compare.rs have them. */
function judgesReals() {
  const EPSILON = 2 ** -23, MAX = 3.4028234663852886e38;
  const of = (pairs, { may = [], ...rule } = {}) => ({
    value: pairs.map(([v]) => v), bound: pairs.map(([v, magnitude], i) => (isFinite(v) ? (may.includes(i) ? -1 : 1) * (4 * EPSILON * magnitude + 2 ** -126) : magnitude === 0 ? 0 : Infinity)),
    spreads: false, largest: MAX, nmse: 1e-9, unavoidable: 0, overflowing: [], ...rule,
  });
  let count = 0;
  const expect = (rule, got, wanted) => {
    const { status, reason } = judgeReal('y', rule, Float32Array.from(got)), found = status === 'passed' ? status : reason;
    if (!found.includes(wanted)) {
      console.error(`values ${rule.value}, results ${got}: “${wanted}” is expected, not “${found}”`);
      process.exit(1);
    }
    count++;
  };
  const nan = NaN, inf = Infinity;
  const plain = of([[1, 1], [-2, 3], [0.5, 8], [0, 1]]), changed = (index, v) => plain.value.map((own, i) => (i === index ? v : own));
  expect(plain, plain.value, 'passed');
  expect(plain, changed(2, 0.5 + 2 ** -18), 'passed');
  expect(plain, changed(2, 0.5 + 2 ** -17), '1 of 4 elements out of bound');
  expect(plain, [0, 0, 0, 0], 'all 4 elements are zero');
  expect(plain, plain.value.slice(1), '3 elements, expected 4');
  expect({ ...plain, nmse: 1e-16 }, changed(2, 0.5 + 2 ** -18), 'NMSE');
  expect({ ...plain, nmse: 1e-16, unavoidable: 2 ** -36 }, changed(2, 0.5 + 2 ** -18), 'passed');
  for (const bad of [nan, inf, -inf]) expect(plain, changed(3, bad), 'not finite: [3]');
  const values = of([[nan, nan], [inf, 1], [1, 1]]), spread = { ...values, spreads: true };
  for (const got of [[nan, inf, 1], [inf, nan, 1]]) {
    expect(spread, got, 'passed');
    expect(values, got, 'the oracle itself is at fault: [0]');
  }
  expect(spread, [nan, MAX, 1], '[1] is 3.403e+38, expected Infinity: a value that is not finite vanished');
  expect(spread, [nan, nan, nan], 'not finite: [2]');
  expect(spread, [nan, nan, 2], 'out of bound');
  for (const one of [nan, inf, -inf]) {
    for (const other of [nan, inf, -inf]) expect(of([[one, 0], [1, 1]], { spreads: true }), [other, 1], Object.is(one, other) ? 'passed' : 'vanished');
  }
  // The errors of an element that may overflow count only where it did not.
  const may = of([[1, 1], [1e6, 1e6]], { may: [1], nmse: 0, overflowing: [1, 1e-3] });
  expect(may, [1, 1e6], 'passed');
  expect(may, [1, nan], 'passed');
  expect(may, [1, 2e6], 'out of bound');
  expect(may, [nan, 1e6], 'not finite: [0]');
  expect(may, [1 + EPSILON, 1e6], 'passed');
  expect(may, [1 + EPSILON, nan], 'NMSE');
  const beyond = of([[1e6, 1e6], [-7e4, 7e4], [3, 3]], { largest: 65504 });
  for (const got of [[inf, -65504, 3], [65504, -inf, 3], [nan, -65504, 3]]) {
    expect(beyond, got, 'passed');
    expect({ ...beyond, largest: MAX }, got, 'not finite');
  }
  expect(beyond, [65504, -65504, nan], 'not finite: [2]');
  expect(beyond, [-inf, -65504, 3], 'not finite: [0]');
  expect(beyond, [-65504, -65504, 3], 'out of bound');
  expect(beyond, [1e3, -65504, 3], 'out of bound');
  expect(of([]), [], 'nothing to compare');
  return count;
}
counts.set('values written in judge.mjs', judgesReals());

for (const [what, count] of counts) console.log(`${what}: ${count}`);
// Not the faults that no case of the export allows.
const wanted = ['a right result', 'a word behind the tensor', 'a word before the tensor', 'a word not written', 'an element out of bound', 'a NaN that appears', 'a value that is not finite and vanishes'];
const missing = wanted.filter((what) => !counts.get(what));
if (missing.length) {
  console.error(`The export has no case that shows ${missing.join(', ')}.`);
  process.exit(1);
}
