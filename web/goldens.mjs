// The goldens of cli/tests/goldens under Node with Dawn: exported with the logits of transformers, decoded,
// and compared within the limits that wgpu's tests have.
//   node goldens.mjs LATHE FOLDER [f32] [f16] [q8_0] [NAME…]
// LATHE is the program, FOLDER takes the exports. Caches and parts of goldens' names restrict what runs.
// Exit codes: 0 good, 1 a limit is exceeded or a token differs, 3 no WebGPU.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const [lathe, folder, ...rest] = process.argv.slice(2);
const only = rest.filter((name) => ['f32', 'f16', 'q8_0'].includes(name)), names = rest.filter((name) => !only.includes(name));
const goldens = path.join(path.dirname(fileURLToPath(import.meta.url)), '..', 'cli', 'tests', 'goldens');
// The cache's storage, the limit of NMSE, and the kinds of devices. What a cache of q8_0 loses is the CPU
// reference's affair: its logits are those of that.
const CACHES = [['f32', 1e-8, ['large', 'minimal']], ['f16', 1e-5, ['large']], ['q8_0', 1e-5, ['large']]].filter(([kv]) => !only.length || only.includes(kv));

/** Runs a program to its end; its standard output. */
function run(program, args, codes = [0]) {
  const { status, stdout, stderr, error } = spawnSync(program, args, { encoding: 'utf8', maxBuffer: 1 << 28 });
  if (error) throw error;
  if (!codes.includes(status)) {
    console.error(`${program} ${args.join(' ')} ended with ${status}:\n${stdout}${stderr}`);
    process.exit(status === 3 ? 3 : 1);
  }
  return stdout;
}

const all = fs.readdirSync(goldens).filter((file) => file.endsWith('.logits.f32')).map((file) => file.slice(0, -'.logits.f32'.length));
const wanted = all.filter((name) => !names.length || names.some((part) => name.includes(part)));
let rows = 0, bad = 0;
for (const name of wanted) {
  const { prompt, greedy } = JSON.parse(fs.readFileSync(path.join(goldens, `${name}.json`)));
  const gguf = path.join(goldens, `${name}.gguf`), model = fs.existsSync(gguf) ? gguf : path.join(goldens, name);
  for (const [kv, limit, kinds] of CACHES) {
    const out = path.join(folder, `${name}-${kv}`);
    fs.rmSync(out, { recursive: true, force: true });
    fs.mkdirSync(out, { recursive: true });
    let logits = path.join(goldens, `${name}.logits.f32`);
    if (kv === 'q8_0') {
      logits = path.join(out, 'logits.f32');
      run(lathe, ['decode', '--model', model, '--executor', 'cpu', '--kv', kv, '--prompt-tokens', `${prompt}`, '--force-tokens', `${greedy}`, '--logits-out', logits, '--json']);
    }
    run(lathe, ['export-web', model, '--kinds', 'large,minimal', '--kv', kv, '--context', '96', '--prompt-tokens', `${prompt}`, '-n', `${greedy.length}`, '--verify', '--logits', logits, '--logits-limit', `${limit}`, '-o', out, '--json']);
    const plan = JSON.parse(fs.readFileSync(path.join(out, 'plan.json'))), texts = new Set();
    for (const kind of kinds) {
      // Most models run the same shaders on both kinds.
      const { models: [own] } = plan.kinds.find(({ name }) => name === kind), used = JSON.stringify([own.step, own.chunks]);
      if (texts.has(used)) continue;
      texts.add(used);
      const said = path.join(out, kind);
      run(process.execPath, [path.join(out, 'node.mjs'), out, 'decode', '--kind', kind, '-o', said], [0, 1]);
      const [one] = JSON.parse(fs.readFileSync(path.join(said, 'decode.json'))).results;
      // A cache of q8_0 may choose another of two close ones than transformers, which has none.
      const isGreedy = kv === 'q8_0' || `${one.generated}` === `${greedy}`;
      const good = one.good && one.logits?.rows === prompt.length + greedy.length && isGreedy;
      const nmse = (value) => (value === null || value === undefined ? '–' : value.toExponential(1));
      console.log(`${good ? 'ok    ' : 'FAILED'} ${name}, cache ${kv}, ${kind}: NMSE ${nmse(one.logits?.nmse)}, in chunks ${nmse(one.logits?.chunked_nmse)}, limit ${limit}; ${one.as_expected} of ${greedy.length} tokens${one.error ? `; ${one.error}` : ''}`);
      rows++;
      if (!good) bad++;
    }
    fs.rmSync(out, { recursive: true, force: true });
  }
}
console.log(`${rows - bad} of ${rows} goldens within their limits`);
process.exit(rows && !bad ? 0 : 1);
