// The goldens of cli/tests/goldens under Node with Dawn: exported with the logits of transformers, decoded,
// and compared within the limits that wgpu's tests have.
//   node goldens.mjs LATHE FOLDER [NAME…]
// LATHE is the program, FOLDER takes the exports. NAMEs are parts of goldens' names. Exit codes: 0 good, 1 a
// limit is exceeded or a token differs, 3 no WebGPU.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const [lathe, folder, ...names] = process.argv.slice(2);
const goldens = path.join(path.dirname(fileURLToPath(import.meta.url)), '..', 'cli', 'tests', 'goldens');
// The cache's storage, the limit of NMSE, and the kinds of devices. What a cache of q8_0 loses is the CPU
// reference's affair: its logits are those of that.
const CACHES = [['f32', 1e-8, ['large', 'minimal']], ['f16', 1e-5, ['large']], ['q8_0', 1e-5, ['large']]];

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
  const tokens = [...prompt, ...greedy], given = `${tokens}`;
  for (const [kv, limit, kinds] of CACHES) {
    const out = path.join(folder, `${name}-${kv}`);
    fs.rmSync(out, { recursive: true, force: true });
    fs.mkdirSync(out, { recursive: true });
    let logits = path.join(goldens, `${name}.logits.f32`);
    if (kv === 'q8_0') {
      logits = path.join(out, 'logits.f32');
      run(lathe, ['decode', '--model', model, '--executor', 'cpu', '--kv', kv, '--prompt-tokens', `${prompt}`, '--force-tokens', `${greedy}`, '--logits-out', logits, '--json']);
    }
    run(lathe, ['export-web', model, '--kinds', 'large,minimal', '--kv', kv, '--context', '96', '--prompt-tokens', given, '--prompt-tokens', `${prompt}`, '-n', `${greedy.length}`, '--verify', '--logits', logits, '--logits-limit', `${limit}`, '-o', out, '--json']);
    for (const kind of kinds) {
      const said = path.join(out, kind);
      run(process.execPath, [path.join(out, 'node.mjs'), out, 'decode', '--kind', kind, '-o', said], [0, 1]);
      const { results } = JSON.parse(fs.readFileSync(path.join(said, 'decode.json'))), [long, short] = results;
      // A cache of q8_0 may choose another of two close ones than transformers, which has none.
      const isGreedy = kv === 'q8_0' || `${short.generated}` === `${greedy}`;
      const good = results.length === 2 && results.every((one) => one.good) && !!long.logits && isGreedy;
      const nmse = (value) => (value === null || value === undefined ? '–' : value.toExponential(1));
      console.log(`${good ? 'ok    ' : 'FAILED'} ${name}, cache ${kv}, ${kind}: NMSE ${nmse(long.logits?.nmse)}, in chunks ${nmse(long.logits?.chunked_nmse)}, limit ${limit}; ${short.as_expected} of ${greedy.length} tokens${results.map(({ error }) => (error ? `; ${error}` : '')).join('')}`);
      rows++;
      if (!good) bad++;
    }
    fs.rmSync(out, { recursive: true, force: true });
  }
}
console.log(`${rows - bad} of ${rows} goldens within their limits`);
process.exit(rows && !bad ? 0 : 1);
