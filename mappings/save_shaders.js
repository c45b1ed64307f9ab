// Keeps the WGSL of every shader that a page makes, for engines that write theirs when a model runs.
//
// Run it in the page before the engine loads: in the console of the developer tools, or as the page's first
// script. Run the model, then call saveShaders(): a file for each text, and dispatches.json with the sizes.
(() => {
    const texts = new Map(); // text: name of its file
    const dispatches = [];
    const pipelines = new WeakMap(); // pipeline: the file its text is in
    const modules = new WeakMap();

    const wrap = (type, method, after) => {
        const inner = type.prototype[method];
        type.prototype[method] = function (...given) {
            const result = inner.apply(this, given);
            after.call(this, result, ...given);
            return result;
        };
    };
    wrap(GPUDevice, "createShaderModule", (module, { code, label }) => {
        const name = (label || "shader").replace(/\W+/g, "_");
        if (!texts.has(code)) texts.set(code, `${texts.size}-${name}.wgsl`);
        modules.set(module, texts.get(code));
    });
    const made = (pipeline, { compute }) => pipelines.set(pipeline, modules.get(compute.module));
    wrap(GPUDevice, "createComputePipeline", made);
    wrap(GPUDevice, "createComputePipelineAsync", (promise, descriptor) => {
        promise.then((pipeline) => made(pipeline, descriptor), () => {});
    });
    const current = new WeakMap();
    wrap(GPUComputePassEncoder, "setPipeline", function (_, pipeline) {
        current.set(this, pipelines.get(pipeline));
    });
    wrap(GPUComputePassEncoder, "dispatchWorkgroups", function (_, x, y = 1, z = 1) {
        dispatches.push({ shader: current.get(this), workgroups: [x, y, z] });
    });

    const save = (name, text) => {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob([text]));
        link.download = name;
        link.click();
    };
    globalThis.savedShaders = { texts, dispatches };
    globalThis.saveShaders = () => {
        for (const [text, name] of texts) save(name, text);
        save("dispatches.json", JSON.stringify(dispatches, null, 1));
    };
})();
