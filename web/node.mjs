// Runs an export under Node with Dawn (npm `webgpu`), Chrome's engine.
//   node node.mjs [FOLDER] [check] [bench] [decode] [--kind NAME] [--filter KERNEL/VARIANT]
//                 [--adapter NAME] [--dawn NAME,NAME] [-o FOLDER]
// The first FOLDER has plan.json; default: this file's. Without check, bench or decode it does all three.
// -o writes check.json, bench.json and decode.json: the last two are records that `lathe report` reads.
// --dawn turns Dawn's toggles on, with a leading `-` off, such as disable_robustness,-timestamp_quantization.
// DAWN_NODE names a dawn.node; without it the package `webgpu` is looked up from here and from the current
// folder. Exit codes: 0 good, 1 a check failed or a token differs, 2 usage, 3 no WebGPU.
import { createRequire } from 'node:module';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Engine, Refusal } from './engine.js';
import { summary, work } from './record.js';

const here = path.dirname(fileURLToPath(import.meta.url));

function parse(args) {
  const options = { folder: here, what: [], kind: undefined, filter: '', adapter: undefined, dawn: '', out: undefined };
  const named = { '--kind': 'kind', '--filter': 'filter', '--adapter': 'adapter', '--dawn': 'dawn', '-o': 'out' };
  for (let i = 0; i < args.length; i++) {
    if (['check', 'bench', 'decode'].includes(args[i])) options.what.push(args[i]);
    else if (named[args[i]]) {
      if (args[i + 1] === undefined) throw new Refusal(`${args[i]} wants a value.`);
      options[named[args[i]]] = args[++i];
    } else if (args[i].startsWith('-')) throw new Refusal(`There is no option ${args[i]}.`);
    else options.folder = args[i];
  }
  if (!options.what.length) options.what = ['check', 'bench', 'decode'];
  return options;
}

/** The version of the package that a dawn.node lies in, as far as it does. */
function versionBeside(file) {
  try {
    const { name, version } = JSON.parse(fs.readFileSync(path.join(path.dirname(file), '..', '..', 'package.json')));
    return `npm ${name} ${version}`;
  } catch {
    return 'of unknown version';
  }
}

/** Dawn's `create` and globals, with its version. */
function dawn() {
  const given = process.env.DAWN_NODE;
  if (given) return { ...createRequire(import.meta.url)(path.resolve(given)), version: versionBeside(given) };
  for (const from of [path.join(here, 'x.js'), path.join(process.cwd(), 'x.js')]) {
    const require = createRequire(from);
    let entry;
    try { entry = require.resolve('webgpu'); } catch { continue; }
    const file = path.join(path.dirname(entry), 'dist', `${process.platform === 'darwin' ? 'darwin-universal' : `${process.platform}-${process.arch}`}`, 'dawn.node');
    return { ...require(file), version: versionBeside(file) };
  }
  throw new Refusal('Dawn is not here: `npm install webgpu`, or name its dawn.node by DAWN_NODE.');
}

function openData(file) {
  const fd = fs.openSync(file, 'r');
  return {
    read: async ([offset, length]) => {
      const bytes = new Uint8Array(length);
      for (let done = 0; done < length;) {
        const got = fs.readSync(fd, bytes, done, length - done, offset + done);
        if (!got) throw new Refusal(`${file} ends at byte ${offset + done}; the plan is of another export.`);
        done += got;
      }
      return bytes;
    },
  };
}

let gpu; // Dawn's instance must outlive the device
async function main() {
  const options = parse(process.argv.slice(2));
  const plan = JSON.parse(fs.readFileSync(path.join(options.folder, 'plan.json')));
  const { create, globals, version } = dawn();
  Object.assign(globalThis, globals);
  const toggles = options.dawn.split(',').filter(Boolean), flags = [];
  const on = toggles.filter((name) => !name.startsWith('-')), off = toggles.filter((name) => name.startsWith('-'));
  if (on.length) flags.push(`enable-dawn-features=${on.join(',')}`);
  if (off.length) flags.push(`disable-dawn-features=${off.map((name) => name.slice(1)).join(',')}`);
  if (options.adapter) flags.push(`adapter=${options.adapter}`);
  gpu = create(flags);
  const data = openData(path.join(options.folder, 'plan.bin'));
  const said = [`Dawn, ${version}`, ...toggles].join(', ');
  const engine = await Engine.open(gpu, plan, data, { kind: options.kind, engine: said });
  const say = (...words) => console.error(...words);
  say(`${engine.name}: plans ${engine.kind.name} (${engine.kind.what})`);
  for (const { name, reason } of engine.passed) say(`  not ${name}: ${reason}`);
  // Where there is no line to write over, a line every ten seconds.
  let said_at = Date.now();
  const progress = (text) => {
    if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
    else if (Date.now() - said_at > 10_000) {
      said_at = Date.now();
      say(text);
    }
  };
  const result = await work(engine, options.what, {
    filter: options.filter,
    // Without the folders of this machine.
    command: ['node node.mjs', ...process.argv.slice(2).map((word) => word.replace(/^.*[\\/]/, ''))].join(' '),
    os: `${process.platform} ${process.arch}`,
    progress,
    token: (text) => process.stderr.write(text),
    say,
  });
  progress('');
  for (const line of summary(result)) console.log(line);
  if (options.out) {
    fs.mkdirSync(options.out, { recursive: true });
    for (const name of ['check', 'bench', 'decode']) {
      if (result[name]) fs.writeFileSync(path.join(options.out, `${name}.json`), `${JSON.stringify(result[name], null, 1)}\n`);
    }
  }
  return result.good ? 0 : 1;
}

main().then((code) => process.exit(code), (error) => {
  console.error(error instanceof Refusal ? error.message : error);
  process.exit(error instanceof Refusal ? 3 : 1);
});
