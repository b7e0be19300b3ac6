// The devices of a browser: `wasm`, `webgpu` and `webnn`. A device holds the inputs and outputs of graphs.

import { ARRAYS, Refused } from "./frames.js";

const TYPES = {
  f32: "float32",
  f64: "float64",
  i8: "int8",
  i16: "int16",
  i32: "int32",
  i64: "int64",
  u8: "uint8",
  u16: "uint16",
  u32: "uint32",
  u64: "uint64",
  bool: "bool",
};
const NAMES = Object.fromEntries(Object.entries(TYPES).map(([own, name]) => [name, own]));
/// The device type that is requested from WebNN.
const KINDS = { webnn: "cpu", "webnn-gpu": "gpu", "webnn-npu": "npu" };
const SOFTWARE = /swiftshader|llvmpipe|software/i;

/// The CPU, by WebAssembly.
class Wasm {
  provider = "wasm";
  providerName = "WebAssembly";
  location = "cpu";
  deviceType = "cpu";
  /// Whether a session is made for one shape of its inputs.
  isFixed = false;

  constructor(ort) {
    this.ort = ort;
  }

  async open() {
    const threads = this.ort.env.wasm.numThreads;
    if (threads > 1 && !crossOriginIsolated) throw new Refused("failed", "the page may not use threads");
    return `WebAssembly with SIMD on ${navigator.hardwareConcurrency} processors`;
  }

  onHost({ dtype, shape, data }) {
    return new this.ort.Tensor(TYPES[dtype], data, shape);
  }

  async upload(tensor) {
    return this.onHost(tensor);
  }

  async download(value) {
    const data = await value.getData();
    const dtype = NAMES[value.type];
    if (!dtype) throw new Refused("unsupported", `an output of the type ${value.type}`);
    return { dtype, shape: [...value.dims], data: new ARRAYS[dtype](data) };
  }

  /// Waits until these values are computed.
  async sync() {}
}

class WebGpu extends Wasm {
  provider = "webgpu";
  providerName = "WebGpuExecutionProvider";
  location = "gpu-buffer";
  isFixed = true;

  async open(lose) {
    const adapter = await navigator.gpu?.requestAdapter();
    if (!adapter) throw new Refused("unavailable", "the browser has no adapter for WebGPU");
    const { vendor, architecture, device, description, isFallbackAdapter } = adapter.info;
    const words = [vendor, architecture, device, description].filter(Boolean).join(" ");
    const isSoftware = isFallbackAdapter || adapter.isFallbackAdapter || SOFTWARE.test(words);
    this.deviceType = isSoftware ? "cpu" : "gpu";
    this.lose = lose;
    return `WebGPU on ${isSoftware ? "a software driver" : "a GPU"} (${words})`;
  }

  /// The device that ONNX Runtime creates with its first session.
  async device() {
    if (!this.found) {
      this.found = await this.ort.env.webgpu.device;
      this.found.lost.then(({ message }) => this.lose(new Error(`the GPU's device is lost: ${message}`)));
    }
    return this.found;
  }

  async upload(tensor) {
    const { dtype, shape, data } = tensor;
    if (data.length === 0) return this.onHost(tensor);
    const device = await this.device();
    const size = Math.max(16, Math.ceil(data.byteLength / 4) * 4);
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC;
    const buffer = device.createBuffer({ size, usage, mappedAtCreation: true });
    new Uint8Array(buffer.getMappedRange()).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    buffer.unmap();
    const dispose = () => buffer.destroy();
    return this.ort.Tensor.fromGpuBuffer(buffer, { dataType: TYPES[dtype], dims: shape, dispose });
  }

  async sync() {
    await (await this.device()).queue.onSubmittedWorkDone();
  }
}

class WebNn extends Wasm {
  providerName = "WebNNExecutionProvider";
  location = "ml-tensor";
  isFixed = true;

  constructor(ort, name) {
    super(ort);
    this.deviceType = KINDS[name];
    /// The device of the prefill before decode steps: WebNN has no empty values, which caches before a prefill are.
    this.beside = new Wasm(ort);
  }

  async open(lose) {
    if (!navigator.ml) throw new Refused("unavailable", "the browser has no WebNN");
    const { deviceType } = this;
    this.context = await navigator.ml.createContext({ deviceType });
    this.provider = { name: "webnn", deviceType, context: this.context };
    this.context.lost.then(({ message }) => lose(new Error(`WebNN's context is lost: ${message}`)));
    this.graphs = [];
    const { graphs } = this;
    const build = MLGraphBuilder.prototype.build;
    MLGraphBuilder.prototype.build = async function (outputs) {
      const graph = await build.call(this, outputs);
      graphs.push(graph.devices);
      return graph;
    };
    const builder = new MLGraphBuilder(this.context);
    const input = builder.input("x", { dataType: "float32", shape: [4] });
    await builder.build({ y: builder.relu(input) });
    this.check();
    return `WebNN on ${deviceType}, as the browser says`;
  }

  /// Refuses graphs, of those built since the last check, that the browser computes on another device.
  check() {
    for (const devices of this.graphs.splice(0)) {
      const found = devices?.join(", ") ?? "a device that it does not name";
      if (found !== this.deviceType) {
        throw new Refused("unsupported", `asked for WebNN's ${this.deviceType}, and the browser computes on ${found}`);
      }
    }
  }

  async upload(tensor) {
    const { dtype, shape, data } = tensor;
    if (data.length === 0) return this.onHost(tensor);
    const dataType = dtype === "bool" ? "uint8" : TYPES[dtype];
    const own = await this.context.createTensor({ dataType, shape, writable: true, readable: true });
    this.context.writeTensor(own, data);
    return this.ort.Tensor.fromMLTensor(own, { dataType: TYPES[dtype], dims: shape, dispose: () => own.destroy() });
  }

  /// A run returns before its values are computed, so this reads the smallest one.
  async sync(values) {
    const [least] = values.sort((a, b) => a.size - b.size);
    await least?.getData();
  }
}

/// Opens the device of that name. Returns it and its description.
export async function openDevice(name, threads, lose) {
  const bundle = name === "wasm" ? "ort.wasm.bundle.min.mjs" : "ort.webgpu.bundle.min.mjs";
  const ort = await import(`./ort/${bundle}`);
  ort.env.wasm.wasmPaths = new URL("ort/", location.href).href;
  ort.env.wasm.numThreads = name === "wasm" ? threads : 1;
  ort.env.logLevel = "error";
  const device = new (name === "wasm" ? Wasm : name === "webgpu" ? WebGpu : WebNn)(ort, name);
  return [device, await device.open(lose)];
}
