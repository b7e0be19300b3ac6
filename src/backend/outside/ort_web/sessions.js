// Sessions: a model's graphs in ONNX Runtime Web, with the batches that are bound to them.

import { Refused } from "./frames.js";

// Values that are made for each step.
const POSITIONS = ["position_ids", "cache_position"];
const MASKS = ["attention_mask", "decoder_attention_mask"];

async function fileAt(path) {
  const answer = await fetch("file", { method: "POST", body: path });
  if (!answer.ok) throw new Refused("failed", `the page does not get ${path}`);
  return new Uint8Array(await answer.arrayBuffer());
}

/// The graph of a part. It has a session for each shape of its inputs if the device is fixed.
class Graph {
  sessions = new Map();
  createMs = 0;

  constructor(device, part) {
    Object.assign(this, { device, part });
  }

  async open() {
    const folder = this.part.onnx.replace(/[^/]*$/, "");
    this.bytes = await fileAt(this.part.onnx);
    const external = this.part.external.map(async (path) => ({ path, data: await fileAt(folder + path) }));
    this.externalData = await Promise.all(external);
    if (!this.device.isFixed) await this.session({});
  }

  /// The session for these sizes of dynamic dimensions.
  async session(sizes) {
    const key = JSON.stringify(sizes);
    if (!this.sessions.has(key)) this.sessions.set(key, await this.create(sizes));
    return this.sessions.get(key);
  }

  async create(sizes) {
    const { ort, provider, isFixed, location } = this.device;
    const options = {
      executionProviders: [provider],
      externalData: this.externalData,
      freeDimensionOverrides: sizes,
      preferredOutputLocation: location,
      extra: isFixed ? { session: { disable_cpu_ep_fallback: "1" } } : undefined,
      enableProfiling: this.onRun !== undefined,
    };
    const begin = performance.now();
    try {
      return await ort.InferenceSession.create(this.bytes, options);
    } finally {
      this.createMs += performance.now() - begin;
      this.device.check?.();
    }
  }

  /// The session for values of these shapes, and the values that it takes.
  async ready(values) {
    const given = this.part.inputs.map(({ name, value, shape }) => {
      if (!(value in values)) throw new Refused("failed", `nothing gives ${value}`);
      return [name, values[value], shape];
    });
    const sizes = {};
    for (const [, value, shape] of this.device.isFixed ? given : []) {
      shape.forEach((size, place) => typeof size === "string" && (sizes[size] = value.dims[place]));
    }
    return [await this.session(sizes), given];
  }

  /// Replaces the session by a profiled one, and calls `onRun` at each of its runs.
  async beginProfile(onRun) {
    [this.onRun, this.plain, this.sessions] = [onRun, this.sessions, new Map()];
    await this.session({});
  }

  /// Restores the plain session. Returns the profiled one.
  endProfile() {
    const [profiled] = this.sessions.values();
    [this.onRun, this.sessions] = [undefined, this.plain];
    return profiled;
  }

  async run(values) {
    const [session, given] = await this.ready(values);
    this.onRun?.();
    const taken = given.filter(([name]) => session.inputNames.includes(name));
    return session.run(Object.fromEntries(taken.map(([name, value]) => [name, value])));
  }
}

class Session {
  bound = [];

  constructor(device, request) {
    this.device = device;
    this.graphs = new Map(request.parts.map((part) => [part.name, new Graph(device, part)]));
  }

  async open() {
    for (const graph of this.graphs.values()) await graph.open();
    return this;
  }

  get compileMs() {
    return [...this.graphs.values()].reduce((sum, graph) => sum + graph.createMs, 0);
  }

  onHost(tensors) {
    return Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, this.device.onHost(tensor)]));
  }

  /// Puts values on the device, which ONNX Runtime has only after it has created a session.
  async put(tensors) {
    const values = {};
    for (const [name, tensor] of Object.entries(tensors)) values[name] = await this.device.upload(tensor);
    return values;
  }

  rewind() {}
}

/// A forward pass, or the encoder of a generative model.
class Forward extends Session {
  constructor(device, request) {
    super(device, request);
    [this.graph] = this.graphs.values();
    this.names = request.outputs;
  }

  async bind(binding, tensors) {
    const old = this.bound[binding];
    await this.graph.ready(this.onHost(tensors));
    this.bound[binding] = await this.put(tensors);
    Object.values(old ?? {}).forEach((value) => value.dispose());
  }

  async call(binding) {
    const outputs = Object.values(await this.graph.run(this.bound[binding]));
    await this.device.sync(outputs);
    outputs.forEach((output) => output.dispose());
  }

  async outputs(binding) {
    const outputs = await this.graph.run(this.bound[binding]);
    const names = this.names.length ? this.names : Object.keys(outputs);
    const found = [];
    for (const name of names) found.push([name, await this.device.download(outputs[name])]);
    Object.values(outputs).forEach((output) => output.dispose());
    return found;
  }
}

/// The phases `prefill` and `decode`. Choosing the likeliest token is part of a call.
class Generation extends Session {
  constructor(device, request) {
    super(device, request);
    this.plan = request.generation;
    this.isDecode = request.phase === "decode";
    if (this.isDecode && device.beside) {
      const parts = request.parts.filter(({ name }) => this.plan.prefill.includes(name));
      this.before = new Map(parts.map((part) => [part.name, new Graph(device.beside, part)]));
      this.note = `${device.providerName}, after a prefill by ${device.beside.providerName}`;
    }
  }

  async open() {
    for (const graph of this.before?.values() ?? []) await graph.open();
    return super.open();
  }

  /// Runs the parts of a phase, which compute new values. Returns the logits, the likeliest tokens, and the values.
  async runParts(phase, values) {
    const graphs = phase === "prefill" ? this.before ?? this.graphs : this.graphs;
    for (const name of this.plan[phase]) {
      const graph = graphs.get(name);
      const computed = await graph.run(values);
      for (const { name, value, changes } of graph.part.outputs) {
        if (changes || phase === "prefill") values[value] = computed[name];
        else computed[name].dispose();
      }
    }
    const value = values.logits;
    delete values.logits;
    const logits = await this.device.download(value);
    value.dispose();
    return { logits, tokens: likeliest(logits), values };
  }

  async given(tensors) {
    const begins = (prefix) => Object.entries(tensors).filter(([name]) => name.startsWith(prefix)).map(([name, tensor]) => [name.slice(prefix.length), tensor]);
    const inputs = Object.entries(tensors).filter(([name]) => !name.includes("/"));
    const made = Object.fromEntries(begins("decode/"));
    return { prefill: Object.fromEntries([...inputs, ...begins("prefill/")]), made };
  }

  async placed(prefill) {
    return this.before ? this.onHost(prefill) : this.put(prefill);
  }

  async prefill(given) {
    return this.runParts("prefill", { ...given });
  }

  /// The state after the prefill, from which the steps continue.
  async start(given, made) {
    const { logits, tokens, values } = await this.prefill(given);
    for (const name of this.before ? Object.keys(values) : []) {
      const isTaken = this.plan.decode.some((part) => this.graphs.get(part).part.inputs.some(({ value }) => value === name));
      if (isTaken) values[name] = await this.device.upload(await this.device.download(values[name]));
      else delete values[name];
    }
    const isChanging = ([name]) => POSITIONS.includes(name) || MASKS.includes(name);
    const entries = Object.entries(made);
    const changing = Object.fromEntries(entries.filter(isChanging));
    const fixed = await this.put(Object.fromEntries(entries.filter((entry) => !isChanging(entry))));
    return { logits, tokens, changing, number: 0, values: { ...values, ...fixed }, own: new Set() };
  }

  async step(state) {
    const { changing, number, own } = state;
    const host = { [this.plan.tokens]: state.tokens };
    for (const [name, { dtype, shape, data }] of Object.entries(changing)) {
      const one = data[0].constructor;
      if (POSITIONS.includes(name)) host[name] = { dtype, shape, data: data.map((first) => first + one(number)) };
      else {
        const size = [shape[0], this.plan.prompt_positions + number + 1];
        host[name] = { dtype, shape: size, data: new data.constructor(size[0] * size[1]).fill(one(1)) };
      }
    }
    const before = state.values;
    const uploaded = await this.put(host);
    const { logits, tokens, values } = await this.runParts("decode", { ...before, ...uploaded });
    Object.values(uploaded).forEach((value) => value.dispose());
    Object.keys(uploaded).forEach((name) => delete values[name]);
    // A value that a step has made is not needed once the next step has replaced it.
    for (const [name, value] of Object.entries(before)) {
      if (own.has(value) && values[name] !== value) value.dispose();
    }
    const made = Object.values(values).filter((value) => own.has(value) || !Object.values(before).includes(value));
    Object.assign(state, { logits, tokens, values, own: new Set(made), number: number + 1 });
    return state;
  }

  async bind(binding, tensors) {
    const { prefill, made } = await this.given(tensors);
    if (!this.before) await this.graphs.get(this.plan.prefill[0]).ready(this.onHost(prefill));
    const given = await this.placed(prefill);
    const bound = (this.bound[binding] = { given });
    if (this.isDecode) {
      bound.start = await this.start(given, made);
      // This row of calls creates a session for each length.
      const shapes = JSON.stringify(Object.values(prefill).map(({ shape }) => shape));
      for (let step = 0; this.device.isFixed && shapes !== this.shapes && step < this.plan.steps; step += 1) {
        const [begin, compiled] = [performance.now(), this.compileMs];
        await this.call(binding);
        this.firstMs ??= performance.now() - begin - (this.compileMs - compiled);
      }
      this.shapes = shapes;
      this.rewind(binding);
    }
  }

  rewind(binding) {
    const bound = this.bound[binding];
    bound.now?.own.forEach((value) => value.dispose());
    bound.now = null;
  }

  async call(binding) {
    const bound = this.bound[binding];
    if (this.isDecode) {
      bound.now ??= { ...bound.start, own: new Set() };
      return this.step(bound.now);
    }
    const done = await this.prefill(bound.given);
    const given = Object.values(bound.given);
    Object.values(done.values).filter((value) => !given.includes(value)).forEach((value) => value.dispose());
    return done;
  }

  async outputs(binding) {
    if (!this.isDecode) {
      const { logits, tokens } = await this.call(binding);
      return [["token", { ...tokens, shape: tokens.shape.slice(0, 1) }], ["logits", logits]];
    }
    this.rewind(binding);
    const steps = [];
    let logits;
    while (steps.length < this.plan.compared_steps) {
      const state = await this.call(binding);
      steps.push(state.tokens.data);
      logits = state.logits;
    }
    this.rewind(binding);
    const rows = steps[0].length;
    const data = BigInt64Array.from({ length: rows * steps.length }, (_, place) => steps[place % steps.length][Math.floor(place / steps.length)]);
    return [["tokens", { dtype: "i64", shape: [rows, steps.length], data }], ["logits", logits]];
  }

  /// The logits for each of `count` tokens after a prompt. The tokens are those of a text, or the likeliest ones until
  /// each row has one of `ends`.
  async follow({ text, ...tensors }, count, ends) {
    const { prefill, made } = await this.given(tensors);
    const given = await this.placed(prefill);
    const state = await this.start(given, made);
    const first = Object.values(state.values);
    const all = [["logits", state.logits]];
    const hasEnded = new Set();
    while (all.length < count) {
      state.tokens.data.forEach((token, row) => { if (ends.includes(Number(token))) hasEnded.add(row); });
      if (!text && hasEnded.size === state.tokens.data.length) break;
      if (text) {
        const [rows, length] = text.shape;
        const data = BigInt64Array.from({ length: rows }, (_, row) => text.data[row * length + all.length - 1]);
        state.tokens = { dtype: "i64", shape: [rows, 1], data };
      }
      await this.step(state);
      all.push(["logits", state.logits]);
    }
    // Nothing else frees the device's memory.
    new Set([...Object.values(given), ...first, ...Object.values(state.values)]).forEach((value) => value.dispose());
    return all;
  }
}

/// The index of the largest logit of each row at its last position.
function likeliest({ shape, data }) {
  const [rows, columns] = [shape[0], shape[shape.length - 1]];
  const row = data.length / rows;
  const tokens = BigInt64Array.from({ length: rows }, (_, number) => {
    const from = (number + 1) * row - columns;
    let best = from;
    for (let place = from; place < from + columns; place += 1) if (data[place] > data[best]) best = place;
    return BigInt(best - from);
  });
  return { dtype: "i64", shape: [rows, 1], data: tokens };
}

export function openSession(device, request) {
  const kind = request.phase === "prefill" || request.phase === "decode" ? Generation : Forward;
  return new kind(device, request).open();
}
