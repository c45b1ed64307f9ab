
// Compiles WGSL in headless Chromium. stdin: an array of texts; stdout: of each an array of messages.
import { pathToFileURL } from 'node:url';

/** Runs in a page. A text that asks for a feature that the adapter lacks is not compiled. */
async function compile(texts) {
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) return null;
  const device = await adapter.requestDevice({
    requiredFeatures: ['shader-f16', 'subgroups', 'subgroup-size-control'].filter((feature) => adapter.features.has(feature)),
  });
  const said = [];
  for (const code of texts) {
    const extensions = [...code.matchAll(/^\s*enable\s+([^;]*);/gm)].flatMap((match) => match[1].split(',')).map((name) => name.trim());
    const lacks = extensions.map((name) => (name === 'f16' ? 'shader-f16' : name.replaceAll('_', '-'))).filter((feature) => ['shader-f16', 'subgroups'].includes(feature) && !adapter.features.has(feature));
    if (lacks.length) {
      said.push([{ type: 'unavailable', line: 0, column: 0, text: `the browser's adapter lacks ${lacks.join(', ')}` }]);
      continue;
    }
    device.pushErrorScope('validation');
    const info = await device.createShaderModule({ code }).getCompilationInfo();
    await device.popErrorScope();
    said.push(info.messages.map(({ type, lineNum, linePos, message }) => ({ type, line: lineNum, column: linePos, text: message })));
  }
  return said;
}

const program = chromium();
if (!program) {
  console.error('no Chromium: install it, or name it by CHROMIUM');
  process.exit(1);
}
const texts = fs.readFileSync(0, 'utf8'), browser = new Browser(program);
try {
  // WebGPU is for secure pages, which files are and empty ones are not.
  const page = path.join(browser.profile, 'page.html');
  fs.writeFileSync(page, '<!doctype html>');
  await browser.open(pathToFileURL(page).href);
  const said = await browser.evaluate(`(${compile})(${texts})`);
  if (!said) throw new Error('the browser has no WebGPU adapter');
  fs.writeFileSync(1, JSON.stringify(said));
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await browser.close();
}
process.exit();
