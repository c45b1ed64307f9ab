// Opens an exported page in headless Chromium, lets it work, and writes its records and pictures of it.
//   node chromium.mjs PAGE.html [check,bench,decode] [-o FOLDER] [--kind NAME] [--filter TEXT] [--gpu]
// CHROMIUM names the browser; default: chromium, chromium-browser, google-chrome or chrome. Without --gpu it
// runs on SwiftShader, its software Vulkan. Exit codes as of node.mjs.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { Browser, chromium } from '../harness/device/src/plan/compilers/chromium.mjs';
import { summary } from './record.js';

const PATIENCE = 3600e3; // ms
const [page, ...rest] = process.argv.slice(2);
const option = (name) => (rest.includes(name) ? rest[rest.indexOf(name) + 1] : undefined);
const what = rest[0] && !rest[0].startsWith('-') ? rest[0] : 'check,bench,decode';

/** A picture of the page of this width, light or dark. */
async function picture(browser, file, width, scheme) {
  await browser.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
  await browser.send('Emulation.setDeviceMetricsOverride', { width, height: 900, deviceScaleFactor: 1, mobile: width < 600 });
  const wide = await browser.evaluate('document.documentElement.scrollWidth');
  const { data } = await browser.send('Page.captureScreenshot', { format: 'png' });
  fs.writeFileSync(file, Buffer.from(data, 'base64'));
  if (wide > width) throw new Error(`the page is ${wide} wide on a screen of ${width}`);
}

const program = chromium();
if (!program) {
  console.error('Chromium is not here: install it, or name it by CHROMIUM.');
  process.exit(3);
}
const setup = new URLSearchParams({ run: what });
for (const name of ['kind', 'filter']) if (option(`--${name}`)) setup.set(name, option(`--${name}`));
const url = `${page.includes('://') ? page : pathToFileURL(path.resolve(page)).href}#${setup}`;

let browser, code = 1;
try {
  browser = new Browser(program, { software: !rest.includes('--gpu') });
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
    for (const width of [1280, 400]) for (const scheme of ['light', 'dark']) await picture(browser, path.join(folder, `page-${width}-${scheme}.png`), width, scheme);
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
  await browser?.close();
}
process.exit(code);
