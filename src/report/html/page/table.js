// All selected cases as a table that sorts.

const MOST_ROWS = 100;
const rateOf = (one) => one.tokens_per_second ?? one.throughput_ips;
const p99 = (one) => (one.latency_p99_ms !== null && one.latency_p99_upper_ms === null ? `(${milliseconds(one.latency_p99_ms)})` : milliseconds(one.latency_p99_ms));
const COLUMNS = [
  { title: "model", value: (one) => one.group },
  { title: "backend", value: (one) => one.backend },
  { title: "device", value: (one) => one.device },
  { title: "dtype", value: (one) => one.dtype },
  { title: "machine", value: (one) => one.machine, onlyIfSeveral: true },
  { title: "batch", value: (one) => one.batch_size, isNumber: true },
  { title: "p50", value: (one) => one.latency_p50_ms, text: (one) => milliseconds(one.latency_p50_ms), isNumber: true },
  { title: "p99", value: (one) => one.latency_p99_ms, text: p99, isNumber: true },
  { title: "per second", value: rateOf, text: (one) => (rateOf(one) === null ? "" : `${threeDigits(rateOf(one))} ${one.tokens_per_second !== null ? "tok" : "smp"}`), isNumber: true },
  { title: "memory", value: (one) => one.memory_mb, text: (one) => (one.memory_mb === null ? "" : `${Math.round(one.memory_mb)} MB`), isNumber: true },
  { title: "p50 ÷ best", value: (one) => one.ratio_to_best, text: (one) => one.ratio_to_best?.toFixed(2) ?? "", isNumber: true },
  { title: "status", value: (one) => one.status, text: (one) => (one.status === "ok" ? "ok" : `${one.status}: ${one.message ?? ""}`), isReason: true },
].filter((column) => !column.onlyIfSeveral || new Set(cases.map(column.value)).size > 1);

function tableSection() {
  let sorted = null; // { column, isDown }
  let showsAll = false;
  const body = make("tbody");
  const more = make("button", { type: "button", class: "more", onclick: () => { showsAll = true; update(); } });
  const headers = COLUMNS.map((column) => make("th", { scope: "col", class: column.isNumber ? "number" : "" },
    make("button", { type: "button", onclick: () => sortBy(column) }, column.title)));
  const sortBy = (column) => {
    sorted = { column, isDown: sorted?.column === column && !sorted.isDown };
    headers.forEach((header, index) => {
      if (COLUMNS[index] === column) header.setAttribute("aria-sort", sorted.isDown ? "descending" : "ascending");
      else header.removeAttribute("aria-sort");
    });
    update();
  };
  const compared = (one, other) => {
    const [a, b] = [sorted.column.value(one), sorted.column.value(other)];
    if (a === null || b === null) return (a === null) - (b === null); // what is unknown comes last either way
    return sorted.isDown ? d3.descending(a, b) : d3.ascending(a, b);
  };
  const rows = () => {
    const selected = cases.filter((_, index) => isSelected[index]);
    return sorted ? selected.sort(compared) : selected;
  };
  const update = () => {
    const found = rows();
    const shown = showsAll ? found : found.slice(0, MOST_ROWS);
    body.replaceChildren(...shown.map((one) => make("tr", { class: one.ratio_to_best === 1 ? "best" : "" },
      ...COLUMNS.map((column) => make("td", { class: column.isNumber ? "number" : column.isReason ? "reason" : "" },
        String((column.text ?? column.value)(one) ?? ""))))));
    more.textContent = `Show all ${found.length} rows`;
    more.hidden = found.length <= shown.length;
  };
  const copyButton = make("button", {
    type: "button", class: "small",
    onclick: (event) => copy(csv(COLUMNS.map((column) => column.title), rows().map((one) => COLUMNS.map((column) => column.value(one)))), event.currentTarget),
  }, "Copy as CSV");
  const node = make("section", { id: "cases" },
    make("div", { class: "head" }, make("h2", {}, "All cases"), copyButton),
    make("p", { class: "caption" }, "The fastest of the same work is bold; p99 in parentheses has too few calls for a 99 % bound. Sort by the column's name."),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...headers)), body)), more);
  return { node, update };
}
