// Headless Chromium, driven by its debugging protocol over pipes.
// CHROMIUM names the browser; default: chromium, chromium-browser, google-chrome or chrome.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

/** Path of the browser; none if there is none. */
export function chromium() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  const names = ['chromium', 'chromium-browser', 'google-chrome', 'chrome'];
  const folders = (process.env.PATH ?? '').split(path.delimiter).map((folder) => names.map((name) => path.join(folder, name)));
  return names.flatMap((_, at) => folders.map((files) => files[at])).find((file) => fs.existsSync(file));
}

/** A browser with an empty profile. Messages of the protocol end by zeros. */
export class Browser {
  constructor(program, { software = true } = {}) {
    this.profile = fs.mkdtempSync(path.join(os.tmpdir(), 'lathe-chromium-'));
    const flags = ['--headless', '--no-sandbox', '--remote-debugging-pipe', `--user-data-dir=${this.profile}`, '--enable-unsafe-webgpu', '--no-first-run', '--disable-background-networking'];
    if (software) flags.push('--use-webgpu-adapter=swiftshader');
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

  async close() {
    const gone = new Promise((resolve) => this.child.once('exit', resolve));
    if (this.child.exitCode === null && this.child.kill()) await gone;
    // Its children may write for a moment longer; a folder that stays is no fault of the work.
    try { fs.rmSync(this.profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }); } catch {}
  }
}
