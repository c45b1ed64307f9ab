// Opens an exported page in headless Chromium, lets it work, and writes its records and pictures of it.
//   node chromium.mjs PAGE.html [check,bench,decode] [-o FOLDER] [--kind NAME] [--filter TEXT] [--gpu]
// CHROMIUM names the browser; default: chromium, chromium-browser, google-chrome or chrome. Without --gpu it
// runs on SwiftShader, its software Vulkan. Exit codes as of node.mjs.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { summary } from './record.js';

const PATIENCE = 3600e3; // ms
const [page, ...rest] = process.argv.slice(2);
const option = (name) => (rest.includes(name) ? rest[rest.indexOf(name) + 1] : undefined);
const what = rest[0] && !rest[0].startsWith('-') ? rest[0] : 'check,bench,decode';

/** Messages of Chromium's debugging protocol over pipes, ended by zeros. */
class Browser {
  constructor(program, flags) {
    this.child = spawn(program, flags, { stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'] });
    this.said = '';
    this.child.stderr.on('data', (text) => { this.said = (this.said + text).slice(-4000); });
    this.waiting = new Map();
    this.last = 0;
    this.gone = new Promise((_, reject) => {
      this.child.on('error', (error) => reject(error));
      this.child.on('exit', (code) => reject(new Error(`the browser ended (${code}): ${this.said}`)));
    });
    this.gone.catch(() => {});
    let rest = '';
    this.child.stdio[4].on('data', (data) => {
      const parts = (rest + data).split('\0');
      rest = parts.pop();
      for (const part of parts) {
        const { id, result, error } = JSON.parse(part);
        if (!this.waiting.has(id)) continue;
        const { resolve, reject } = this.waiting.get(id);
        this.waiting.delete(id);
        if (error) reject(new Error(error.message));
        else resolve(result);
      }
    });
  }

  send(method, params = {}, sessionId = this.session) {
    const id = ++this.last;
    this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return Promise.race([new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject })), this.gone]);
  }

  async open(url) {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' });
    this.session = (await this.send('Target.attachToTarget', { targetId, flatten: true })).sessionId;
    await this.send('Page.enable');
    await this.send('Page.navigate', { url });
  }

  async evaluate(expression) {
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true });
    if (exceptionDetails) throw new Error(exceptionDetails.text);
    return result.value;
  }

  /** A picture of the page of this width, light or dark. */
  async picture(file, width, scheme) {
    await this.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
    await this.send('Emulation.setDeviceMetricsOverride', { width, height: 900, deviceScaleFactor: 1, mobile: width < 600 });
    const wide = await this.evaluate('document.documentElement.scrollWidth');
    const { data } = await this.send('Page.captureScreenshot', { format: 'png' });
    fs.writeFileSync(file, Buffer.from(data, 'base64'));
    if (wide > width) throw new Error(`the page is ${wide} wide on a screen of ${width}`);
  }
}

function found() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  const names = ['chromium', 'chromium-browser', 'google-chrome', 'chrome'];
  const folders = (process.env.PATH ?? '').split(path.delimiter);
  for (const name of names) for (const folder of folders) if (fs.existsSync(path.join(folder, name))) return path.join(folder, name);
  console.error('Chromium is not here: install it, or name it by CHROMIUM.');
  process.exit(3);
}

const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'lathe-chromium-'));
const flags = ['--headless', '--no-sandbox', '--remote-debugging-pipe', `--user-data-dir=${profile}`, '--enable-unsafe-webgpu', '--no-first-run', '--disable-background-networking'];
if (!rest.includes('--gpu')) flags.push('--use-webgpu-adapter=swiftshader');
const setup = new URLSearchParams({ run: what });
for (const name of ['kind', 'filter']) if (option(`--${name}`)) setup.set(name, option(`--${name}`));
const url = `${page.includes('://') ? page : pathToFileURL(path.resolve(page)).href}#${setup}`;

let browser, code = 1;
try {
  browser = new Browser(found(), flags);
  await browser.open(url);
  const begun = Date.now();
  let state = null, said = begun;
  while (!state?.result && !state?.error) {
    if (Date.now() - begun > PATIENCE) throw new Error('the page did not end');
    await new Promise((resolve) => setTimeout(resolve, 500));
    state = await browser.evaluate("({ result: window.lathe?.result ?? null, error: window.lathe?.error ?? null, status: document.getElementById('status')?.textContent })");
    if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${state.status ?? ''}`);
    else if (Date.now() - said > 30e3) {
      said = Date.now();
      console.error(state.status);
    }
  }
  const folder = option('-o');
  if (folder) {
    fs.mkdirSync(folder, { recursive: true });
    for (const width of [1280, 400]) for (const scheme of ['light', 'dark']) await browser.picture(path.join(folder, `page-${width}-${scheme}.png`), width, scheme);
  }
  if (state.error) {
    console.error(state.error);
    code = 3;
  } else {
    for (const name of ['check', 'bench', 'decode']) {
      if (folder && state.result[name]) fs.writeFileSync(path.join(folder, `${name}.json`), `${JSON.stringify(state.result[name], null, 1)}\n`);
    }
    for (const line of summary(state.result)) console.log(line);
    code = state.result.good ? 0 : 1;
  }
} catch (error) {
  console.error(error.message);
} finally {
  browser?.child.kill();
  await new Promise((resolve) => setTimeout(resolve, 300));
  fs.rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
}
process.exit(code);
