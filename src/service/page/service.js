"use strict";
// The page of the server: starts a run, follows it, and shows the history. All data come from the API.

const byId = (id) => document.getElementById(id);
const rows = (id) => byId(id).querySelector("tbody") ?? byId(id);

// Asks again, when the server says so, for what would disturb a measurement now.
async function ask(path, options, attempts = 5) {
  const response = await fetch(path, options);
  const body = await response.json();
  if (response.status === 503 && !options && attempts > 1) {
    await new Promise((wake) => setTimeout(wake, 1000 * Number(response.headers.get("Retry-After") ?? 1)));
    return ask(path, options, attempts - 1);
  }
  if (!response.ok) throw new Error(body.message ?? response.statusText);
  return body;
}

// The first items of a list, in several answers if need be: one has at most a thousand.
async function first(path, most) {
  const items = [];
  let offset = 0;
  while (offset !== null && items.length < most) {
    const page = await ask(`${path}&limit=${Math.min(most - items.length, 1000)}&offset=${offset}`);
    items.push(...page.items);
    offset = page.next_offset ?? null;
  }
  return { items, hasMore: offset !== null };
}

async function all(path) {
  return (await first(path, Infinity)).items;
}

// What to measure.

let devices = [];

async function fillForm() {
  const models = (await all("/api/v1/models?")).filter((model) => !model.unusable);
  const names = [...new Set(models.map((model) => model.model))];
  byId("models").replaceChildren(...names.map((name) => make("option", { value: name }, name)));
  const found = await ask("/api/v1/devices");
  devices = found.devices.filter((device) => device.available);
  byId("machine").textContent = [found.machine.cpu_model, `${found.machine.logical_processors} processors`].filter(Boolean).join(", ");
  const backends = [...new Set(devices.map((device) => device.backend))];
  byId("backends").replaceChildren(...backends.map((name) => make("label", {}, make("input", { type: "checkbox", value: name, checked: true }), name)));
  const kinds = [...new Set(devices.map((device) => device.device))];
  byId("device").replaceChildren(...kinds.map((name) => make("option", { selected: name === "cpu" }, name)));
}

function asked() {
  const device = byId("device").value;
  const isThere = (backend) => devices.some((one) => one.backend === backend && one.device === device);
  const threads = byId("threads").value;
  const ticked = [...byId("backends").querySelectorAll(":checked")].map((box) => box.value);
  const there = ticked.filter(isThere);
  return {
    models: [...byId("models").selectedOptions].map((option) => option.value),
    // An empty list would mean all backends. One that lacks the device has rows that say so.
    backends: there.length > 0 ? there : ticked,
    devices: [device],
    batch_sizes: byId("batches").value.split(",").map(Number),
    iterations: Number(byId("iterations").value),
    ...(threads ? { threads: Number(threads) } : {}),
  };
}

byId("choose").addEventListener("submit", async (event) => {
  event.preventDefault();
  byId("said").textContent = "";
  try {
    const body = JSON.stringify(asked());
    const run = await ask("/api/v1/runs", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    location.hash = `run=${run.id}`;
    await listRuns();
  } catch (error) {
    byId("said").textContent = error.message;
  }
});

// The run that is followed.

const IS_OVER = ["done", "failed", "cancelled", "interrupted"];
let stream = null;
let followed = null;
const caseRows = new Map();

function caseRow(id) {
  if (!caseRows.has(id)) {
    const cells = ["", "", "", "", ""].map((text, index) => make("td", { class: index > 0 && index < 4 ? "number" : "" }, text));
    const row = make("tr", {}, make("td", {}, id), ...cells);
    rows("cases").append(row);
    caseRows.set(id, { row, cells });
  }
  return caseRows.get(id);
}

function showCase(one) {
  if (one.state === "observed") return;
  const { row, cells } = caseRow(one.id);
  row.classList.toggle("current", one.state === "started");
  const throughput = one.throughput_ips ? threeDigits(one.throughput_ips) : "";
  const texts = [one.status ?? "measuring", milliseconds(one.latency_p50_ms), milliseconds(one.latency_p99_ms), throughput, one.message ?? ""];
  texts.forEach((text, index) => { cells[index].textContent = text; });
}

function showState(job) {
  const waits = job.state === "queued" && job.place !== null ? `, ${job.place} before it, about ${threeDigits(job.expected_wait_s ?? 0)} s` : "";
  const left = job.state === "running" && job.time_left ? `, about ${job.time_left} left` : "";
  const count = job.cases ? `, ${job.finished_cases} of ${job.cases} ${job.cases === 1 ? "case" : "cases"}` : "";
  byId("state").textContent = `${job.state}${waits}${count}${left}${job.message ? `: ${job.message}` : ""}`;
  byId("cancel").hidden = IS_OVER.includes(job.state);
  const progress = byId("progress");
  progress.hidden = IS_OVER.includes(job.state);
  if (job.cases) { progress.max = job.cases; progress.value = job.finished_cases; } else progress.removeAttribute("value");
}

// Shows the records of a run that is over, and its report with the charts.
async function showResult(id) {
  const items = await all(`/api/v1/records?run=${encodeURIComponent(id)}`);
  if (followed !== id || items.length === 0) return;
  for (const record of items) showCase({ ...record, id: record.case_id, state: "finished" });
  const frame = make("iframe", { src: `/api/v1/runs/${encodeURIComponent(id)}/report`, title: `Charts of run ${id}` });
  let attempts = 5;
  // A refusal is JSON: while another run is measured, the history is read once per second.
  frame.addEventListener("load", () => {
    const isRefused = frame.contentDocument?.contentType === "application/json";
    if (isRefused && --attempts > 0) setTimeout(() => frame.contentWindow?.location.reload(), 1100);
    else frame.dataset.loaded = "yes";
  });
  byId("report").replaceChildren(frame);
}

async function follow(id) {
  stream?.close();
  followed = id;
  caseRows.clear();
  rows("cases").replaceChildren();
  byId("report").replaceChildren();
  byId("run-title").textContent = `Run ${id}`;
  byId("run").hidden = false;
  byId("state").textContent = "";
  let job;
  try {
    const run = await ask(`/api/v1/runs/${encodeURIComponent(id)}`);
    job = run.job ?? { state: run.state, finished_cases: run.facts?.cases ?? 0, cases: run.facts?.cases };
  } catch (error) {
    if (followed !== id) return;
    byId("state").textContent = error.message;
    byId("progress").hidden = byId("cancel").hidden = true;
    return;
  }
  // Another run may have been chosen before the answer came.
  if (followed !== id) return;
  showState(job);
  if (IS_OVER.includes(job.state)) return showResult(id);
  stream?.close();
  stream = new EventSource(`/api/v1/runs/${encodeURIComponent(id)}/events`);
  const on = (kind, take) => stream.addEventListener(kind, (event) => take(JSON.parse(event.data)));
  on("planned", ({ cases }) => { job.cases = cases.length; cases.forEach(caseRow); showState(job); });
  on("case", (one) => {
    if (one.state === "finished") job.finished_cases += 1;
    showCase(one);
    showState(job);
  });
  on("left", ({ time_left }) => { job.time_left = time_left; showState(job); });
  on("state", async (now) => {
    job = now;
    showState(job);
    if (!IS_OVER.includes(job.state)) return;
    stream.close();
    await showResult(id);
    await listRuns();
  });
}

byId("cancel").addEventListener("click", () => ask(`/api/v1/runs/${encodeURIComponent(followed)}`, { method: "DELETE" }).catch((error) => { byId("state").textContent = error.message; }));

// The history, and a comparison of two runs.

let shown = 20;

async function listRuns() {
  let page;
  try {
    const models = byId("of-models").value.split(",").map((name) => name.trim()).filter(Boolean).join(",");
    page = await first(`/api/v1/runs?${models && `model=${encodeURIComponent(models)}`}`, shown);
  } catch {
    setTimeout(listRuns, 1500);
    return;
  }
  const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value;
  const before = { base: chosen("base"), candidate: chosen("candidate") };
  const radio = (name, run) => make("td", {}, make("input", {
    type: "radio", name, value: run.id, "aria-label": `${run.id} as ${name}`, checked: before[name] === run.id, disabled: !run.facts, onchange: choice,
  }));
  rows("history").replaceChildren(...page.items.map((run) => make("tr", {},
    radio("base", run), radio("candidate", run),
    make("td", {}, make("a", { href: `#run=${run.id}` }, run.id)),
    make("td", {}, run.state),
    make("td", {}, run.facts?.models ?? run.job?.asked.models.join(", ") ?? ""), make("td", {}, run.facts?.backends ?? run.job?.asked.backends.join(", ") ?? ""),
    make("td", { title: run.facts?.fastest_cases ?? "" }, fastest(run.facts)), make("td", { class: "number" }, milliseconds(run.facts?.fastest_p50_ms)),
    make("td", { class: "number" }, String(run.facts?.cases_ok ?? "")), make("td", { class: "number" }, String(run.facts?.cases ?? run.job?.cases ?? "")))));
  byId("more").hidden = !page.hasMore;
  const waiting = page.items.filter((run) => run.state === "queued").length;
  byId("queue").textContent = waiting ? `${waiting} ${waiting === 1 ? "run waits" : "runs wait"}` : "";
  choice();
}

// The fastest case of a run of one model; of several models, the first and how many more there are.
function fastest(facts) {
  const [first, ...others] = facts?.fastest_cases.split(", ") ?? [""];
  return others.length > 0 ? `${first} and ${others.length} more` : first;
}

function choice() {
  byId("compare").disabled = document.querySelectorAll("#history input:checked").length < 2;
}

byId("of-models").addEventListener("change", listRuns);
byId("more").addEventListener("click", () => { shown += 50; listRuns(); });
byId("compare").addEventListener("click", () => {
  const [base, candidate] = ["base", "candidate"].map((name) => document.querySelector(`input[name="${name}"]:checked`).value);
  location.hash = `compare=${base},${candidate}`;
});

// `memory_mb: 100 → 150 (regression)`. A notice is shown only if the case has no times.
function otherChanges({ latency, changes }) {
  const text = (value) => (typeof value === "number" ? threeDigits(value) : value);
  return changes.filter((change) => !latency || change.effect !== "notice")
    .map(({ quantity, base, candidate, effect }) => `${quantity}: ${text(base)} → ${text(candidate)} (${effect})`).join("; ");
}

let lastComparison = null;

async function showComparison(base, candidate) {
  const own = (lastComparison = {});
  byId("comparison").hidden = false;
  byId("comparison-title").textContent = `${candidate} against ${base}`;
  byId("compared").replaceChildren();
  byId("comparison-said").textContent = "";
  try {
    const { cases, refused, conclusion } = await ask(`/api/v1/compare?base=${encodeURIComponent(base)}&candidate=${encodeURIComponent(candidate)}`);
    if (lastComparison !== own) return;
    byId("compared").replaceChildren(...cases.map(({ id, latency, changes }) => make("tr", {},
      make("td", {}, id), make("td", { class: "number" }, milliseconds(latency?.base_ms)), make("td", { class: "number" }, milliseconds(latency?.candidate_ms)),
      make("td", { class: "number" }, latency ? `${signedPercent(latency.interval.ratio)} (${signedPercent(latency.interval.lower)} to ${signedPercent(latency.interval.upper)})` : ""),
      make("td", { class: latency?.verdict ?? "" }, latency?.verdict ?? ""), make("td", {}, otherChanges({ latency, changes })))));
    const result = cases.length > 0 ? `Conclusion: ${conclusion}` : "The two runs have no case in common that can be compared";
    const left = refused.length > 0 ? `. Not compared, because the conditions differ: ${refused.map(({ id }) => id).join(", ")}` : "";
    byId("comparison-said").textContent = `${result}${left}.`;
  } catch (error) {
    if (lastComparison === own) byId("comparison-said").textContent = error.message;
  }
}

// An address names what is shown, so that it can be reloaded and shared.
function readAddress() {
  const [kind, value] = location.hash.slice(1).split("=").map(decodeURIComponent);
  byId("comparison").hidden = true;
  if (kind === "run" && value) return follow(value);
  if (kind === "compare" && value?.includes(",")) return showComparison(...value.split(","));
}

addEventListener("hashchange", readAddress);
Promise.all([fillForm().catch((error) => { byId("said").textContent = error.message; }), listRuns(), readAddress()])
  .finally(() => { document.documentElement.dataset.ready = "yes"; });
