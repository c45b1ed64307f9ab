// The judge of check.js on results that are made up here: right ones pass, and each kind of fault fails.
//   node judge.mjs FOLDER
// FOLDER is an export of cases (plan.json, plan.bin). Needs no WebGPU.
import fs from 'node:fs';
import path from 'node:path';
import { GUARD, POISON, Prepared } from './check.js';
import { inMemory, padded } from './engine.js';

const folder = process.argv[2];
const plan = JSON.parse(fs.readFileSync(path.join(folder, 'plan.json')));
const file = fs.readFileSync(path.join(folder, 'plan.bin'));
const data = inMemory(file.buffer.slice(file.byteOffset, file.byteOffset + file.length));
const words = async (range) => new Uint32Array((await data.read(range)).slice().buffer);
const floats = async (range, Type = Float64Array) => new Type((await data.read(range)).slice().buffer);
const valuesOf = (outcome) => floats(outcome.value, outcome.exact ? Float32Array : Float64Array);

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
    const bounds = first.rule === 'real' ? await floats(first.bound, Float32Array) : null, value = bounds && (await valuesOf(first));
    await expect(one, run, 'a right result', 'passed', () => {});
    await expect(one, run, 'a word behind the tensor', 'wrote outside the tensor', (left) => { left.get(at)[begin + Math.ceil(tensor.bytes / 4)] = 1; });
    await expect(one, run, 'a word before the tensor', 'wrote outside the tensor', (left) => { left.get(at)[begin - 1] = 0; });
    await expect(one, run, 'a word not written', 'was never written', (left) => {
      if (tensor.role !== 'output') return false;
      left.get(at)[begin] = POISON;
    });
    await expect(one, run, 'an element out of bound', 'out of bound', (left) => {
      if (!bounds || value.length < 2 || value.every((v) => v === 0)) return false;
      const last = value.length - 1;
      left.get(at)[begin + last] = asBits(value[last] + 2.5 * bounds[last] + 2e-7 * Math.abs(value[last]));
      left.get(at)[begin] = asBits(value[0] || 1e-30);
    });
    await expect(one, run, 'a NaN', 'not finite', (left) => { if (!bounds) return false; left.get(at)[begin] = 0x7fc00000; });
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
for (const [what, count] of counts) console.log(`${what}: ${count}`);
if (!counts.get('a right result') || !counts.get('an element out of bound')) {
  console.error('The export has no case that this can judge.');
  process.exit(1);
}
