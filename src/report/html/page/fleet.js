// Machines side by side: cases down, machines across; then each machine with its trend.

const fleet = payload.fleet;

// The first quantity is there even if nothing was measured: its cells say why.
const fleetQuantities = !fleet ? [] : [
  { name: "p50", of: (cell) => cell.latency_p50_ms, text: milliseconds },
  { name: "kWh per million samples", of: (cell) => cell.kwh_per_million, text: threeDigits },
  { name: `${fleet.currency || "price"} per million samples or tokens`, of: (cell) => cell.price_per_million, text: threeDigits },
].filter(({ of }, index) => index === 0 || fleet.cases.some((row) => row.cells.some((cell) => of(cell) !== undefined)));

const showsRow = (row) => [...chosen].every(([name, values]) => name === "machine" || values.has(row[name]));
// If there are many machines, the columns are kinds, and the filter is about the machines that stand for them.
const showsColumn = (column) => fleet.is_large || (chosen.get("machine")?.has(column.name) ?? true);

function matrixSection() {
  let quantity = fleetQuantities[0];
  let showsAll = false;
  const [head, body] = [make("tr"), make("tbody")];
  const more = make("button", { type: "button", class: "more", onclick: () => { showsAll = true; update(); } });
  const switches = make("span", { class: "chips", role: "group", "aria-label": "Quantity" });
  const places = () => d3.range(fleet.columns.length).filter((place) => showsColumn(fleet.columns[place]));
  const header = (column) => make("th", { class: "number", scope: "col" }, column.name,
    column.is_differing ? make("span", { class: "differs" }, "differs") : null);
  const cell = (found, best) => {
    const value = quantity.of(found);
    if (value === undefined) return make("td", { class: "number quiet" }, found.status ?? "");
    // If the best costs nothing, no other value is a multiple of it.
    const ratio = best === undefined || value === best ? 1 : value / best;
    const detail = (ratio === 1 || best === 0 ? "" : ` ×${ratio.toFixed(2)}`) + (found.failed ? ` (${found.failed} without a figure)` : "");
    const title = found.machines > 1 ? `${found.machines} machines, slowest ÷ fastest ${found.spread.toFixed(2)}` : undefined;
    return make("td", { class: best !== undefined && ratio === 1 ? "number best" : "number", title }, quantity.text(value), make("span", { class: "quiet" }, detail));
  };
  const rows = () => fleet.cases.filter(showsRow);
  const update = () => {
    const [shown, found] = [places(), rows()];
    putAnew(switches, ...(fleetQuantities.length < 2 ? [] : fleetQuantities).map((one) => make("button", {
      type: "button", class: "chip", "aria-pressed": String(one === quantity), onclick: () => { quantity = one; update(); },
    }, one.name)));
    head.replaceChildren(make("th", { scope: "col" }, "case"), ...shown.map((place) => header(fleet.columns[place])));
    body.replaceChildren(...(showsAll ? found : found.slice(0, MOST_ROWS)).map((row) => {
      // One machine alone is not the best of several.
      const known = shown.filter((place) => quantity.of(row.cells[place]) !== undefined);
      const best = known.length > 1 ? d3.min(known, (place) => quantity.of(row.cells[place])) : undefined;
      return make("tr", {}, make("th", { scope: "row" }, make("code", {}, row.case_id)), ...shown.map((place) => cell(row.cells[place], best)));
    }));
    more.textContent = `Show all ${found.length} rows`;
    more.hidden = showsAll || found.length <= MOST_ROWS;
  };
  const copyButton = csvButton(() => ({
    columns: [`case · ${quantity.name}${quantity.name === "p50" ? " (ms)" : ""}`, ...places().map((place) => fleet.columns[place].name)],
    rows: rows().map((row) => [row.case_id, ...places().map((place) => quantity.of(row.cells[place]) ?? row.cells[place].status)]),
  }));
  const kinds = fleet.is_large ? " A column of a kind is the geometric mean over its machines; those that differ have columns of their own and are excluded from the mean." : "";
  const leftOut = fleet.columns_left_out ? ` ${fleet.columns_left_out} more machines or kinds have no column; \`inferbench report --machines --format json\` names them.` : "";
  const isPart = payload.machines.length < fleet.machines.length && fleet.has_same_cases;
  const shownBelow = isPart ? ` The charts and tables of cases below are about ${payload.machines.map((machine) => machine.name).join(", ")}.` : "";
  const node = make("section", { id: "fleet" },
    make("div", { class: "head" }, make("h2", {}, "Machines side by side"), make("div", { class: "tools" }, switches, copyButton)),
    make("p", { class: "caption" }, ...withCode(`The best machine of each case is marked; × is the ratio to it.${kinds}${leftOut}${shownBelow}`)),
    make("div", { class: "scroll tall" }, make("table", { class: "fleet" }, make("thead", {}, head), body)), more);
  return { node, update };
}

// A machine's times over those of its first run, as a line of 120 × 22 pixels between 0.8 and 1.25, or wider.
function sparkline(values) {
  if (values.length < 2) return "";
  const most = Math.max(1.25, ...values.map((value) => Math.max(value, 1 / value)));
  const x = d3.scaleLinear([0, values.length - 1], [3, 117]);
  const y = d3.scaleLog([1 / most, most], [20, 2]);
  return shape(
    "svg", { width: 120, height: 22, viewBox: "0 0 120 22", role: "img", "aria-label": values.map(signedPercent).join(", ") },
    shape("path", { d: `M3,${y(1)}H117`, stroke: "var(--rule)" }),
    shape("path", { d: d3.line((_, index) => x(index), y)(values), fill: "none", stroke: "var(--accent)", "stroke-width": 1.5 }),
    shape("circle", { cx: x(values.length - 1), cy: y(values.at(-1)), r: 2.2, fill: "var(--accent)" }),
  );
}

function fleetMachinesSection() {
  const FEW = 20;
  let showsAll = false;
  const machines = d3.sort(fleet.machines, (one) => !one.is_differing); // those that differ come first
  const body = make("tbody");
  const more = make("button", { type: "button", class: "more", onclick: () => { showsAll = true; update(); } }, `Show all ${machines.length} machines`);
  const number = (title, of, text) => ({ title, isNumber: true, isKnown: machines.some((one) => (of(one) ?? null) !== null), cell: (one) => ((of(one) ?? null) === null ? "" : text(of(one))) });
  const columns = [
    { title: "machine", isKnown: true, cell: (one) => [one.name, ...(one.is_differing ? [make("span", { class: "differs" }, "differs")] : [])] },
    { title: "kind", isKnown: true, cell: (one) => one.kind ?? "unknown" },
    number("cases", (one) => one.measured, String),
    number("matmul, GFLOP/s", (one) => one.product_gflops_per_second, threeDigits),
    number("copy, GB/s", (one) => one.copy_gb_per_second, threeDigits),
    number("anchor case", (one) => one.anchor_ms, milliseconds),
    number("disturbed", (one) => one.disturbed_share, percent),
    number("throttled", (one) => one.throttled, String),
    { title: "trend", isKnown: machines.some((one) => one.trend.length > 1), cell: (one) => sparkline(one.trend) },
    number("last run", (one) => (one.trend.length > 1 ? one.trend.at(-1) : null), signedPercent),
  ].filter((column) => column.isKnown);
  const classOf = (column) => (column.isNumber ? "number" : "");
  const row = (one) => make("tr", {}, ...columns.map((column) => make("td", { class: classOf(column) }, ...[column.cell(one)].flat())));
  const update = () => {
    const shown = machines.filter(showsColumn);
    body.replaceChildren(...(showsAll ? shown : shown.slice(0, FEW)).map(row));
    more.hidden = showsAll || shown.length <= FEW;
  };
  const head = columns.map((column) => make("th", { scope: "col", class: classOf(column) }, column.title));
  const node = make("section", { id: "equality" },
    make("div", { class: "head" }, make("h2", {}, "Which machines are equal")),
    make("p", { class: "caption" }, ...withCode("Machines of one kind are compared by their calibrations and by the anchor case, as `inferbench compare` does with runs. " +
      "The trend is the time over that of a machine's first run here, the geometric mean over its cases.")),
    make("ul", {}, ...fleet.lines.slice(0, 40).map((line) => make("li", {}, `${line}.`)),
      fleet.lines.length > 40 ? make("li", {}, `And ${fleet.lines.length - 40} more.`) : null),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...head)), body)), more);
  return { node, update };
}
