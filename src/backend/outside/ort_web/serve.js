// Answers inferbench's requests one by one, and times calls.

import { frame, readFrame, Refused } from "./frames.js";
import { Profiler } from "./profiles.js";
import { openDevice } from "./device.js";
import { openSession } from "./sessions.js";

const PROTOCOL = 1;
/// The clock has steps of 5 µs, so calls are timed together until they take at least a hundred steps.
const LEAST_MS = 0.5;

const asked = new URLSearchParams(location.search);
const [name, threads] = [asked.get("device"), Number(asked.get("threads"))];
let device, session;
let together = 1;
let fail = () => {};
let lost;

function lose(why) {
  lost ??= why;
  fail(why);
}
addEventListener("unhandledrejection", ({ reason }) => fail(reason));
addEventListener("error", ({ error, message }) => fail(error ?? message));

async function describe() {
  const version = navigator.userAgent.match(/Chrome\/(\d+)/)?.[1];
  let devices;
  try {
    const [{ ort }, detail] = await openDevice(name, 1, lose);
    devices = [{ device: name, detail: `${detail}; ONNX Runtime Web ${ort.env.versions.web}, Chromium ${version}` }];
  } catch (why) {
    devices = [{ device: name, missing: messageOf(why), status: why instanceof Refused ? why.status : undefined }];
  }
  return { protocol: PROTOCOL, name: "ort-web", version: version ?? "", devices };
}

async function load(request) {
  if (request.device !== name) throw new Refused("unavailable", `the page was opened for ${name}`);
  if (!device) [device] = await openDevice(name, threads, lose);
  session = await openSession(device, request);
  return {
    device: name,
    device_type: device.deviceType,
    dtype: request.dtype,
    threads: name === "wasm" ? device.ort.env.wasm.numThreads : undefined,
    provider: device.providerName,
    note: session.note,
    files: request.parts.map((part) => part.onnx),
  };
}

/// The nanoseconds of each group of `together` calls.
async function timed(turns) {
  const times = [];
  for (let place = 0; place < turns.length; place += together) {
    const some = turns.subarray(place, place + together);
    const begin = performance.now();
    for (const turn of some) {
      if (turn < 0) session.rewind(-1 - turn);
      session.profiler?.beginCall();
      await session.call(turn < 0 ? -1 - turn : turn);
    }
    times.push(performance.now() - begin);
  }
  const fields = { together };
  const whole = times.slice(0, Math.floor(turns.length / together)).sort((a, b) => a - b);
  const median = whole[whole.length >> 1];
  if (median < LEAST_MS / 2) together = Math.ceil((together * LEAST_MS) / Math.max(median, 0.005));
  const data = BigInt64Array.from(times, (ms) => BigInt(Math.round(ms * 1e6)));
  return [fields, [["times", { dtype: "i64", shape: [data.length], data }]]];
}

/// The fields and tensors of the answer.
async function answer(request, tensors) {
  const { verb } = request;
  if (verb === "describe") return [await describe(), []];
  if (verb === "clock") return [{ ns: Math.round(performance.now() * 1e6) }, []];
  if (lost) throw lost;
  if (verb === "load") return [{ ...(await load(request)), compile_ms: session.compileMs }, []];
  if (!["bind", "run", "outputs", "follow", "profile"].includes(verb)) throw new Refused("unsupported", `it does not know the verb "${verb}"`);
  if (!session) throw new Refused("failed", `"${verb}" before "load"`);
  let [fields, results] = [{}, []];
  if (verb === "bind") await session.bind(request.binding, tensors);
  else if (verb === "run") [fields, results] = await timed(tensors.turns.data);
  else if (verb === "outputs") results = await session.outputs(request.binding);
  else if (verb === "follow") results = await session.follow(tensors, request.tokens, request.ends);
  else if (request.is_on) session.profiler = await Profiler.begin(session);
  else {
    const { profiler } = session;
    session.profiler = undefined;
    fields = { calls: await profiler.end() };
  }
  return [{ ...fields, compile_ms: session.compileMs, first_ms: session.firstMs }, results];
}

function messageOf(why) {
  const text = typeof why === "number" ? `an exception of WebAssembly (${why})` : String(why?.message ?? why);
  return text.split("\n")[0].replace(/^.*ERROR_MESSAGE: /, "").slice(0, 400);
}

function failureOf(why) {
  const message = messageOf(why);
  if (why instanceof Refused) return { status: why.status, message };
  if (why instanceof RangeError || /out of memory|bad_alloc|allocation failed|failed to allocate/i.test(message)) return { status: "out-of-memory", message };
  if (/not supported|unsupported|only supports|not implemented|NOT_IMPLEMENTED|fallback to CPU EP/i.test(message)) return { status: "unsupported", message };
  console.error(why);
  return { status: "failed", message };
}

// This request stays open as long as the page, so its end tells that the page was closed.
fetch("alive").catch(() => {});
for (let body = new Blob(); ; ) {
  const got = await fetch("next", { method: "POST", body });
  if (!got.ok) break;
  const broken = new Promise((_, reject) => (fail = reject));
  broken.catch(() => {});
  try {
    const [request, tensors] = readFrame(await got.arrayBuffer());
    body = frame(...(await Promise.race([answer(request, tensors), broken])));
  } catch (why) {
    body = frame({ error: failureOf(why) }, []);
  }
}
