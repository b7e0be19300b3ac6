// The words around the charts: title, machines, runs.

// `1a2b3c4d5e6f (changed)`; empty if the commit is not known.
function commitOf({ commit, is_dirty }) {
  return commit ? `${commit.slice(0, 12)}${is_dirty ? " (changed)" : ""}` : "";
}

function heading() {
  const newest = payload.runs[0];
  const commit = newest?.commit ? `, commit ${commitOf(newest)}` : "";
  document.getElementById("top").append(
    make("div", {}, make("h1", {}, payload.title),
      make("p", { class: "quiet" }, newest ? `Run ${newest.run_id}, ${newest.started}${commit}` : "No case was measured"),
      ...payload.runs.filter((run) => run.not_reached).map((run) => make("p", { class: "resolution" }, sentence(`run ${run.run_id}: ${run.not_reached}`))),
      ...payload.unmeasured.map((text) => make("p", { class: "resolution" }, sentence(text))),
      ...(payload.machines.length > 3 ? [] : payload.machines).map((machine) => make("p", { class: "resolution" },
        ...withCode(payload.machines.length > 1 ? `${machine.name}: ${machine.resolution}` : sentence(machine.resolution))))),
    themeButton());
}

function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

function machinesSection() {
  const table = (machine) => make("div", { class: "panel" }, make("h3", {}, machine.name),
    make("table", { class: "facts" }, make("tbody", {},
      ...machine.facts.map((fact) => make("tr", {}, make("td", {}, fact.name), make("td", {}, fact.value))))),
    make("p", { class: "resolution" }, ...withCode(sentence(machine.resolution))));
  return make("section", { id: "machine" }, make("div", { class: "head" }, make("h2", {}, payload.machines.length > 1 ? "Machines" : "Machine")),
    make("div", { class: "panels wide" }, ...payload.machines.map(table)));
}

function runsSection() {
  const cell = (text, isNumber) => make("td", { class: isNumber ? "number" : "" }, text ?? "");
  const row = (run) => make("tr", {}, cell(run.run_id), cell(run.started),
    cell(commitOf(run)), cell(run.suite), cell(run.machine), cell(`${run.measured} of ${run.cases}`, true));
  const header = ["run", "started", "commit", "suite", "machine"].map((name) => make("th", {}, name));
  return make("section", { id: "runs" }, make("div", { class: "head" }, make("h2", {}, "Runs in this report")),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...header, make("th", { class: "number" }, "measured"))),
      make("tbody", {}, ...payload.runs.map(row)))));
}
