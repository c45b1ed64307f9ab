// Plans on a WebGPU device: the adapter, the kind of device whose plans it takes, pipelines, buffers.
//
// A plan is data (web/src/lib.rs): `plan.texts` are shaders with all numbers in them, a stage is a text
// with its workgroups and bindings, a range `[offset, length]` lies in the plan's bytes, which `data`
// reads. Nothing here knows a kernel.

/** An error that people can act on: a sentence. */
export class Refusal extends Error {}

const ALIGN = 32; // of tensors: whole vectors
const READ = 1, COPY_SRC = 4, COPY_DST = 8, UNIFORM = 64, STORAGE = 128; // GPUBufferUsage
const COMPUTE = 4; // GPUShaderStage

const PLAN_VERSION = 1;

/** Bytes that a tensor occupies. */
export const padded = (bytes) => Math.ceil(Math.max(bytes, 1) / ALIGN) * ALIGN;

/** The first line of what WebGPU says. */
export const firstLine = (error) => String(error?.message ?? error).split('\n')[0];

/** Reasons why an adapter cannot run a kind's plans; none if it can. */
export function lacking(adapter, kind) {
  const reasons = [];
  for (const [name, needed] of Object.entries(kind.needs.limits)) {
    const has = adapter.limits[name];
    if (has < needed) reasons.push(`${name} is ${has}, it needs ${needed}`);
  }
  const subgroups = kind.needs.subgroups;
  if (subgroups) {
    const { subgroupMinSize: min, subgroupMaxSize: max } = adapter.info ?? {};
    if (!adapter.features.has('subgroups')) reasons.push('there are no subgroups');
    else if (!min || !max) reasons.push('the size of subgroups is not told');
    else if (min < subgroups[0] || max > subgroups[1]) {
      reasons.push(`subgroups have ${min} to ${max} lanes, it needs ${subgroups[0]} to ${subgroups[1]}`);
    }
  }
  return reasons;
}

/** The best kind of a plan for an adapter, or the one of a name, with the reasons against better ones. */
export function chooseKind(adapter, kinds, wanted) {
  const passed = [];
  for (const kind of kinds) {
    if (wanted && kind.name !== wanted) continue;
    const reasons = lacking(adapter, kind);
    if (!reasons.length) return { kind, passed };
    passed.push({ name: kind.name, reason: reasons.join('; ') });
  }
  const known = kinds.map((kind) => kind.name).join(', ');
  const why = passed.map(({ name, reason }) => `${name}: ${reason}`).join('. ');
  throw new Refusal(why ? `This adapter takes no plan of the export. ${why}.` : `The export has no plans for ${wanted}; it has ${known}.`);
}

/** A device with a kind of plans that it takes. */
export class Engine {
  /** Opens the best adapter of `gpu`, which is `navigator.gpu` or what stands for it. */
  static async open(gpu, plan, data, { kind: wanted, engine = '' } = {}) {
    if (plan.plan_version !== PLAN_VERSION) {
      throw new Refusal(`The plan is of version ${plan.plan_version}, this page reads ${PLAN_VERSION}: export it again.`);
    }
    if (!gpu) {
      throw new Refusal('There is no WebGPU here: use a current Chrome, Edge, Safari or Firefox, and open the page from a file, https or localhost.');
    }
    const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
    if (!adapter) throw new Refusal('WebGPU has no adapter here: the browser may have blocked the graphics driver.');
    const { kind, passed } = chooseKind(adapter, plan.kinds, wanted);
    const features = ['timestamp-query'].filter((name) => adapter.features.has(name));
    if (kind.needs.subgroups) features.push('subgroups');
    let device;
    try {
      device = await adapter.requestDevice({ requiredFeatures: features, requiredLimits: kind.needs.limits });
    } catch (error) {
      throw new Refusal(`The adapter gave no device: ${firstLine(error)}.`);
    }
    return new Engine({ gpu, adapter, device, plan, data, kind, passed, engine });
  }

  constructor(parts) {
    Object.assign(this, parts);
    this.compiled = new Map();
    this.isLost = null;
    this.faults = [];
    this.device.lost.then((info) => {
      if (info.reason !== 'destroyed') this.isLost = info.message || 'the driver gave no reason';
    });
    this.device.addEventListener('uncapturederror', (event) => {
      event.preventDefault?.();
      this.faults.push(firstLine(event.error));
    });
  }

  /** Throws if the device was lost, or what it refused meanwhile. */
  check() {
    if (this.isLost !== null) {
      throw new Refusal(`The device was lost: ${this.isLost}. Another page, or the time a dispatch took, may be the reason; reload to go on.`);
    }
    if (this.faults.length) throw new Refusal(`WebGPU refused: ${this.faults.splice(0).join('; ')}`);
  }

  /** Name of the adapter, as far as it is told. */
  get name() {
    const { device, vendor, architecture } = this.adapter.info ?? {};
    const named = device && !device.startsWith('0x') ? device : [vendor, architecture].filter(Boolean).join(' ');
    return named || 'unnamed adapter';
  }

  /** A software implementation: right, but no subject for speed. */
  get software() {
    const { vendor, architecture, description } = this.adapter.info ?? {};
    const said = [this.name, vendor, architecture, description].join(' ');
    return !!this.adapter.info?.isFallbackAdapter || /swiftshader|llvmpipe|lavapipe|warp|basic render/i.test(said);
  }

  /** WGSL extensions that a text requires and this implementation lacks. */
  extensionsLacking(text) {
    const known = this.gpu.wgslLanguageFeatures;
    const required = [...text.wgsl.matchAll(/^requires (\w+);/gm)].map((match) => match[1]);
    return required.filter((name) => !known?.has(name));
  }

  /** The pipeline of a stage, compiled once per text. */
  pipeline(stage) {
    let made = this.compiled.get(stage.text);
    if (!made) this.compiled.set(stage.text, (made = this.compile(stage)));
    return made;
  }

  async compile(stage) {
    const text = this.plan.texts[stage.text], { device } = this;
    const name = `${text.name} (${text.entry})`;
    device.pushErrorScope('validation');
    const module = device.createShaderModule({ code: text.wgsl, label: name });
    const count = Math.max(0, ...stage.bindings.map(([group]) => group + 1));
    const type = { read: 'read-only-storage', write: 'storage', uniform: 'uniform' };
    const layouts = Array.from({ length: count }, (_, own) => device.createBindGroupLayout({
      entries: stage.bindings.filter(([group]) => group === own).map(([, binding, access]) => ({ binding, visibility: COMPUTE, buffer: { type: type[access] } })),
    }));
    const layout = device.createPipelineLayout({ bindGroupLayouts: layouts });
    let pipeline = null, refused = null;
    try {
      pipeline = await device.createComputePipelineAsync({ label: name, layout, compute: { module, entryPoint: text.entry } });
    } catch (error) {
      refused = firstLine(error);
    }
    const fault = await device.popErrorScope();
    if (pipeline && !fault) return { pipeline, layouts };
    this.check();
    const info = await module.getCompilationInfo();
    const first = info.messages.find((message) => message.type === 'error');
    const why = first ? `line ${first.lineNum}:${first.linePos}: ${first.message}` : fault ? firstLine(fault) : refused;
    throw new Refusal(`${name}: the browser refuses its shader: ${why}`);
  }

  /** A dispatch of a stage over buffers: `bound(tensor)` is `{ buffer, offset, size }`. */
  async dispatch(stage, bound) {
    const { pipeline, layouts } = await this.pipeline(stage);
    const groups = layouts.map((layout, own) => this.device.createBindGroup({
      layout,
      entries: stage.bindings.filter(([group]) => group === own).map(([, binding, , tensor]) => ({ binding, resource: bound(tensor) })),
    }));
    return { pipeline, groups, size: stage.groups };
  }

  /** A buffer, which `fill` may write as bytes before it is used. */
  async buffer(name, size, fill) {
    const usage = STORAGE | UNIFORM | COPY_SRC | COPY_DST;
    this.device.pushErrorScope('out-of-memory');
    this.device.pushErrorScope('validation');
    let buffer = null, refused = null;
    try {
      buffer = this.device.createBuffer({ label: name, size, usage, mappedAtCreation: !!fill });
      if (fill) {
        fill(new Uint8Array(buffer.getMappedRange()));
        buffer.unmap();
      }
    } catch (error) {
      refused = error;
    }
    refused = (await this.device.popErrorScope()) ?? (await this.device.popErrorScope()) ?? refused;
    if (!refused) return buffer;
    this.check();
    throw new Refusal(`There is no memory for ${name}, ${size} bytes: ${firstLine(refused)}.`);
  }

  /** Buffer that results are copied to and mapped from. */
  staging(size) {
    return this.device.createBuffer({ size, usage: READ | COPY_DST });
  }

  /** Contents of a mapped staging buffer after the work before it, which is unmapped again. */
  async map(staging) {
    try {
      await staging.mapAsync(1);
    } catch (error) {
      this.check();
      throw new Refusal(`A result could not be read: ${firstLine(error)}.`);
    }
    const copy = staging.getMappedRange().slice(0);
    staging.unmap();
    this.check();
    return copy;
  }
}

/** Encodes prepared dispatches in a pass. */
export function encode(pass, dispatches) {
  for (const { pipeline, groups, size } of dispatches) {
    pass.setPipeline(pipeline);
    for (let group = 0; group < groups.length; group++) pass.setBindGroup(group, groups[group]);
    pass.dispatchWorkgroups(size[0], size[1], size[2]);
  }
}

/** Bytes of a plan that are in memory. */
export function inMemory(buffer) {
  return { read: async ([offset, length]) => new Uint8Array(buffer, offset, length) };
}
