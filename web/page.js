// The page around the modules: buttons, progress, tables, records to download.
//
// The part of the address behind `#` starts work by itself: `#run=check,bench,decode&kind=minimal&filter=gemv`.
// `window.lathe` has the result when it is done, for programs that drive the page.
import { Engine, Refusal, firstLine, inMemory } from './engine.js';
import { work } from './record.js';
import { shown } from './check.js';

const element = (id) => document.getElementById(id);
const setup = new URLSearchParams(location.hash.slice(1));
const state = { engine: null, busy: false, stop: false, rows: new Map() };
window.lathe = { result: null, error: null };

function node(tag, text = '', className = '') {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function row(table, cells, className = '') {
  const made = table.insertRow();
  made.className = className;
  for (const cell of cells) made.append(cell instanceof Node ? cell : node('td', cell));
  return made;
}

function head(table, names) {
  table.replaceChildren();
  const made = table.createTHead().insertRow();
  for (const name of names) made.append(node('th', name));
  table.append(document.createElement('tbody'));
  return table.tBodies[0];
}

/** Shows an error as a sentence. */
function fail(error) {
  const said = error instanceof Refusal ? error.message : `${firstLine(error)} (an error of this page)`;
  element('error').hidden = false;
  element('error').querySelector('p').textContent = said;
  element('status').textContent = '';
  window.lathe.error = said;
  if (!(error instanceof Refusal)) console.error(error);
}

/** The plan and its data: in this page, or files beside it. */
async function load() {
  const inline = document.getElementById('plan');
  if (inline) {
    const text = document.getElementById('data').textContent, bytes = new Uint8Array(Math.floor(text.length / 4) * 3);
    let at = 0;
    for (let from = 0; from < text.length; from += 1 << 20) {
      const piece = atob(text.slice(from, from + (1 << 20)));
      for (let i = 0; i < piece.length; i++) bytes[at++] = piece.charCodeAt(i);
    }
    return { plan: JSON.parse(inline.textContent), data: inMemory(bytes.buffer) };
  }
  const got = async (name) => {
    let response;
    try { response = await fetch(name); } catch { throw new Refusal(`${name} cannot be read: serve this folder over http, or export with --single.`); }
    if (!response.ok) throw new Refusal(`${name} is not beside this page (${response.status}).`);
    return response;
  };
  const plan = await (await got('plan.json')).json();
  return { plan, data: inMemory(await (await got('plan.bin')).arrayBuffer()) };
}

function say(text) {
  element('status').textContent = text;
}

/** Counts of a variant, in one row. */
function onChecked(one, done, total) {
  const key = `${one.kernel}/${one.variant}`, body = element('checked').tBodies[0];
  let own = state.rows.get(key);
  if (!own) {
    if (!state.rows.has(one.kernel)) state.rows.set(one.kernel, row(body, [one.kernel, '', '', '', ''], 'group'));
    own = { counts: { passed: 0, failed: 0, unavailable: 0 }, nmse: 0, ratio: 0, row: row(body, [`\u2003${one.variant}`, '', '', '', '']) };
    state.rows.set(key, own);
  }
  own.counts[one.status]++;
  own.nmse = Math.max(own.nmse, one.nmse ?? 0);
  own.ratio = Math.max(own.ratio, one.worst?.ratio ?? 0);
  const { passed, failed } = own.counts, cells = own.row.cells;
  cells[1].textContent = passed;
  cells[2].textContent = failed;
  cells[2].className = failed ? 'bad' : '';
  cells[3].textContent = passed ? shown(own.nmse) : '–';
  cells[4].textContent = passed ? `${(100 * own.ratio).toFixed(0)} %` : '–';
  if (one.status === 'failed') {
    const failure = node('div', '', 'failure');
    failure.append(node('span', `${key}: ${one.reason}`, 'bad'), node('pre', one.repeat ?? ''));
    element('failures').append(failure);
  }
  if (done % 5 === 0 || done === total) meter(done, total);
}

function meter(done, total) {
  element('bar').hidden = false;
  element('bar').value = done / total;
}

function onChecks(report) {
  const counts = element('counts');
  counts.replaceChildren(node('span', `${report.passed} passed`, report.passed ? 'good' : ''), `, `, node('span', `${report.failed} failed`, report.failed ? 'bad' : ''), `, ${report.unavailable} unavailable`);
  const reasons = new Map();
  for (const one of report.cases.filter((one) => one.status === 'unavailable')) {
    const reason = one.reason.replace(/\d+/g, 'N'), known = reasons.get(reason) ?? { count: 0, names: new Set() };
    known.count++;
    known.names.add(`${one.kernel}/${one.variant}`);
    reasons.set(reason, known);
  }
  element('unavailable').hidden = !reasons.size;
  element('unavailable').querySelector('ul').replaceChildren(...[...reasons].map(([reason, { count, names }]) => node('li', `${count} cases of ${names.size} variants: ${reason}`)));
}

/** A benchmark's row, with a bar for its share of a copy. */
function onBenched(plan, one, done, total) {
  const body = element('timed').tBodies[0], name = `${plan.kernel}/${plan.variant}`;
  meter(done, total);
  if (one.status === 'failed') {
    row(body, [name, node('td', one.reason, 'bad')]);
    return;
  }
  const bar = node('td', '', 'bar'), fill = document.createElement('i');
  fill.style.width = `${Math.min(100, 100 * one.fraction_of_copy)}%`;
  bar.append(fill, node('span', `${(100 * one.fraction_of_copy).toFixed(0)} %`));
  const made = row(body, [name, one.cold.median_us.toFixed(2), one.warm.median_us.toFixed(2), one.gb_s.toFixed(1), bar]);
  made.title = `${plan.shape}${one.flags.length ? `; ${one.flags.join(', ')}` : ''}`;
}

function onBench(record) {
  const { copy_gb_s: copy, timestamp_quantum_ns: quantum } = record.environment;
  const clock = quantum ? `the GPU's timestamps, which step by ${quantum} ns` : "the host's clock";
  element('clock').textContent = `Times by ${clock}. A copy moves ${copy?.toFixed(1)} GB/s, read and written.`;
}

/** Place for a prompt's text. */
function onPrompt(model, prompt) {
  const block = node('div'), figures = node('p', '', 'figures'), text = node('pre');
  const given = prompt.text ?? `${prompt.tokens.length} tokens: ${prompt.tokens.slice(0, 16).join(' ')}${prompt.tokens.length > 16 ? ' …' : ''}`;
  text.append(node('span', given, 'soft'));
  block.append(node('p', model.name, 'soft'), text, figures);
  element('texts').append(block);
  state.prompt = { text, figures, spelled: model.spelling !== null };
}

function onToken(text, id) {
  if (id !== null) state.prompt.text.append(state.prompt.spelled ? text : ` ${id}`);
}

function onDecode(record) {
  const blocks = element('texts').children;
  record.results.forEach((one, at) => {
    const figures = blocks[at]?.querySelector('.figures');
    if (!figures) return;
    if (one.error) {
      figures.replaceChildren(node('span', one.error, 'bad'));
      return;
    }
    const figure = (value, what, className = '') => {
      const made = node('span', ` ${what}`, className);
      made.prepend(node('b', value));
      return made;
    };
    const all = [figure(one.decode_tok_s.toFixed(1), 'tokens/s'), figure(one.ttft_ms.toFixed(1), 'ms to the first'), figure(one.dispatches_per_token, 'dispatches per token')];
    if (one.expected !== null) all.push(figure(`${one.as_expected} of ${one.expected}`, 'tokens as the reference', one.good ? 'good' : 'bad'));
    if (!one.runs_alike) all.push(node('span', 'runs differ', 'bad'));
    figures.replaceChildren(...all);
  });
}

function offer(result) {
  element('records').hidden = false;
  for (const name of ['check', 'bench', 'decode']) {
    if (!result[name]) continue;
    element(`link-${name}`)?.remove();
    const link = node('a', `${name}.json`);
    Object.assign(link, { id: `link-${name}`, download: `${name}.json`, href: URL.createObjectURL(new Blob([JSON.stringify(result[name], null, 1)], { type: 'application/json' })) });
    element('links').append(link, ' ');
  }
}

async function run(what, typed = null) {
  if (state.busy) return;
  Object.assign(state, { busy: true, stop: false, rows: new Map() });
  element('error').hidden = true;
  for (const name of ['check', 'bench', 'decode']) {
    element(`run-${name}`).disabled = true;
    if (what.includes(name)) element(name).hidden = false;
  }
  element('stop').disabled = false;
  if (what.includes('check')) {
    head(element('checked'), ['kernel, variant', 'passed', 'failed', 'NMSE', 'of bound']);
    element('failures').replaceChildren();
  }
  if (what.includes('bench')) head(element('timed'), ['kernel, variant', 'cold, µs', 'warm, µs', 'GB/s', 'of a copy']);
  if (what.includes('decode')) element('texts').replaceChildren();
  try {
    const result = await work(state.engine, what, {
      filter: setup.get('filter') ?? '', command: null, os: navigator.userAgentData?.platform ?? navigator.platform, progress: say, token: onToken,
      checked: onChecked, benched: onBenched, prompted: onPrompt, typed, stop: () => state.stop,
    });
    if (result.check) onChecks(result.check);
    if (result.bench) onBench(result.bench);
    if (result.decode) onDecode(result.decode);
    offer(result);
    say(result.good ? 'Done.' : 'Done; not all of it is right.');
    window.lathe.result = result;
  } catch (error) {
    fail(error);
  }
  state.busy = false;
  element('stop').disabled = true;
  element('bar').hidden = true;
  enable();
}

function enable() {
  const { kind } = state.engine, some = { check: kind.check, bench: kind.bench, decode: kind.models };
  for (const [name, all] of Object.entries(some)) element(`run-${name}`).disabled = !all.length;
}

/** Name of the browser, as far as it is told. */
function browser() {
  const brand = navigator.userAgentData?.brands?.filter(({ brand }) => !/not.?a.?brand/i.test(brand)).pop();
  return brand ? `${brand.brand} ${brand.version}` : navigator.userAgent;
}

async function main() {
  const { plan, data } = await load();
  const engine = await Engine.open(navigator.gpu, plan, data, { kind: setup.get('kind') ?? undefined, engine: browser() });
  state.engine = engine;
  element('adapter').textContent = `${engine.name}${engine.software ? ' (software: right, but no subject for speed)' : ''}`;
  element('kind').textContent = `Plans “${engine.kind.name}”: ${engine.kind.what}.`;
  element('passed').hidden = !engine.passed.length;
  element('passed').querySelector('ul').replaceChildren(...engine.passed.map(({ name, reason }) => node('li', `${name}: ${reason}`)));
  element('controls').hidden = false;
  enable();
  for (const name of ['check', 'bench', 'decode']) element(`run-${name}`).onclick = () => run([name]);
  const { models } = engine.kind, silent = models.filter((model) => !model.tokenizer);
  element('ask').hidden = !models.length || silent.length === models.length;
  element('untyped').hidden = !silent.length;
  element('untyped').textContent = silent.map((model) => `No prompt can be typed for ${model.name}: ${model.no_tokenizer}.`).join(' ');
  element('ask').onsubmit = (event) => {
    event.preventDefault();
    if (element('typed').value) run(['decode'], { text: element('typed').value, generate: Math.max(1, Number(element('count').value) || 1) });
  };
  element('stop').onclick = () => { state.stop = true; };
  if (setup.get('run')) await run(setup.get('run').split(','));
}

main().catch((error) => {
  element('adapter').textContent = '';
  fail(error);
});
