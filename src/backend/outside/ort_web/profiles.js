// Times of the nodes of a model's graphs on WebAssembly. When a session's profile ends, ONNX Runtime Web writes its
// events to the console, where other builds write a file.

import { Refused } from "./frames.js";

const KERNEL_TIME = "_kernel_time";
/// Operators that contain graphs, whose nodes have events too.
const AROUND_GRAPHS = ["BeamSearch", "GreedySearch", "If", "Loop", "Sampling", "Scan", "WhisperBeamSearch"];
/// Calls of the profiled sessions before the profile begins.
const WARM_UP_CALLS = 3;

// The console is wrapped before ONNX Runtime is loaded, because it keeps the function that it finds.
let written;
const log = console.log.bind(console);
console.log = (...words) => (written ? written.push(words.join(" ")) : log(...words));

export class Profiler {
  /// For each call, the graphs that ran, each with the number of its run.
  calls = [];
  current = [];
  runs = new Map();

  constructor(session) {
    this.graphs = [...session.graphs.values()];
  }

  /// Begins a profile of a session. ONNX Runtime needs new sessions for this.
  static async begin(session) {
    if (session.device.provider !== "wasm") throw new Refused("unsupported", "ONNX Runtime Web tells the times of nodes on wasm only");
    const profiler = new Profiler(session);
    for (const graph of profiler.graphs) await graph.beginProfile(() => profiler.ran(graph));
    for (const binding of session.bound.keys()) {
      session.rewind(binding);
      for (let call = 0; call < WARM_UP_CALLS; call += 1) await session.call(binding);
      session.rewind(binding);
    }
    return profiler;
  }

  beginCall() {
    this.current = [];
    this.calls.push(this.current);
  }

  ran(graph) {
    const number = this.runs.get(graph) ?? 0;
    this.runs.set(graph, number + 1);
    this.current.push([graph, number]);
  }

  /// The operators of each call.
  async end() {
    const found = new Map();
    for (const graph of this.graphs) {
      const events = await eventsOf(graph.endProfile());
      const runs = runsOf(events);
      if (runs.length !== (this.runs.get(graph) ?? 0)) {
        throw new Refused("failed", `the profile has ${runs.length} runs of a graph, and ${this.runs.get(graph) ?? 0} were made`);
      }
      found.set(graph, runs);
    }
    return this.calls.map((ran) => {
      let begin = 0;
      const operators = [];
      for (const { duration, nodes } of ran.map(([graph, number]) => found.get(graph)[number])) {
        for (const node of nodes) operators.push({ ...node, start_ns: node.start_ns + begin });
        begin += duration;
      }
      return { operators };
    });
  }
}

/// The events that a session writes when its profile ends.
async function eventsOf(session) {
  written = [];
  try {
    session.endProfiling();
    // The last events may arrive in the next task.
    await new Promise((resolve) => setTimeout(resolve));
    return JSON.parse(written.join("\n"));
  } catch (why) {
    throw new Refused("failed", `the profile of ONNX Runtime Web cannot be read: ${why.message}`);
  } finally {
    written = undefined;
  }
}

/// The runs of a graph, each with its nodes. The clock is coarse, so a node may have the same start time as its run, or
/// as the operator around it, which then comes first. The time of such an operator excludes that of the nodes within it.
function runsOf(events) {
  const around = ({ args, dur }) => (AROUND_GRAPHS.includes(args?.op_name) ? dur : 0);
  const sorted = events.sort((one, other) => one.ts - other.ts || around(other) - around(one));
  const runs = sorted.filter(({ cat, name }) => cat === "Session" && name === "model_run").map(({ ts, dur }) => ({ begin: ts, duration: dur * 1000, nodes: [] }));
  let place = -1;
  // The operators around graphs that are still running.
  let open = [];
  for (const { cat, name, ts, dur, args } of sorted) {
    while (place + 1 < runs.length && runs[place + 1].begin <= ts) place += 1;
    if (cat !== "Node" || !name.endsWith(KERNEL_TIME) || place < 0) continue;
    const { begin, nodes } = runs[place];
    const node = {
      node: name.slice(0, -KERNEL_TIME.length),
      operator: args.op_name,
      kernel: args.provider?.replace(/ExecutionProvider$/, ""),
      start_ns: (ts - begin) * 1000,
      duration_ns: dur * 1000,
    };
    nodes.push(node);
    open = open.filter(({ end }) => ts < end);
    const outer = open.at(-1)?.node;
    if (outer) outer.duration_ns = Math.max(outer.duration_ns - node.duration_ns, 0);
    if (around({ args, dur })) open.push({ node, end: ts + dur });
  }
  return runs;
}
