// Compiles WGSL by Dawn's null back end. stdin: an array of texts; stdout: of each an array of messages.
import { readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const folder = process.env.LATHE_WEBGPU;
const { main } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
const { create } = await import(pathToFileURL(join(folder, main ?? 'index.js')));
const gpu = create(['backend=null', 'enable-dawn-features=allow_unsafe_apis']);
const adapter = await gpu.requestAdapter();
const features = ['shader-f16', 'subgroups', 'subgroup-size-control'];
const device = await adapter.requestDevice({
  requiredFeatures: features.filter((feature) => adapter.features.has(feature)),
});
const said = [];
for (const code of JSON.parse(readFileSync(0, 'utf8'))) {
  device.pushErrorScope('validation');
  const info = await device.createShaderModule({ code }).getCompilationInfo();
  await device.popErrorScope();
  const message = ({ type, lineNum, linePos, message }) => ({ type, line: lineNum, column: linePos, text: message });
  said.push(info.messages.map(message));
}
const text = Buffer.from(JSON.stringify(said));
for (let at = 0; at < text.length; ) at += writeSync(1, text, at);
// Dawn's threads would keep the process.
process.exit(0);
