// Tables that sort and filter.

const MOST_ROWS = 100;

// A column has a title, a value to sort by, perhaps a text in place of the value, and perhaps other columns in its
// place for CSV. A column without any value is left out.
function tableSection(id, title, caption, given, rows) {
  const columns = given.filter((column) => rows.some((row) => (column.value(row) ?? "") !== ""));
  const isNumber = (column) => rows.some((row) => typeof column.value(row) === "number");
  const text = (column, row) => (column.value(row) === undefined || column.value(row) === null ? column.absent?.(row) ?? "" : column.text?.(row) ?? column.value(row));
  let [sorted, isDown, showsAll] = [null, true, false];
  const [head, body, status] = [make("tr"), make("tbody"), make("span", { class: "quiet", role: "status" })];
  const more = make("button", { type: "button", class: "more", onclick: () => { showsAll = true; update(); } });
  const filter = make("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the rows", oninput: () => update() });

  const compared = (one, other) => {
    const [a, b] = [sorted.value(one) ?? null, sorted.value(other) ?? null];
    if (a === null || b === null) return (a === null) - (b === null); // absent values are last
    return (a < b ? -1 : a > b ? 1 : 0) * (isDown ? -1 : 1);
  };
  const found = () => {
    const words = filter.value.toLowerCase().split(/\s+/);
    const fits = rows.filter((row) => { const all = columns.map((column) => text(column, row)).join("\n").toLowerCase(); return words.every((word) => all.includes(word)); });
    return sorted ? fits.sort(compared) : fits;
  };
  const header = (column) => make("th", { class: isNumber(column) ? "number" : "", "aria-sort": column === sorted ? (isDown ? "descending" : "ascending") : false },
    make("button", { type: "button", onclick: () => { isDown = column === sorted ? !isDown : isNumber(column); sorted = column; update(); } }, column.title));
  const cell = (column, row) => make("td", { class: column.style?.(row) ?? (isNumber(column) ? "number" : "") }, String(text(column, row)));
  const update = () => {
    const all = found();
    const shown = showsAll ? all : all.slice(0, MOST_ROWS);
    putAnew(head, ...columns.map(header));
    body.replaceChildren(...shown.map((row) => make("tr", {}, ...columns.map((column) => cell(column, row)))));
    status.textContent = all.length === rows.length ? "" : `${all.length} of ${rows.length} rows`;
    more.textContent = `Show all ${all.length} rows`;
    more.hidden = all.length <= shown.length;
  };
  const copied = columns.flatMap((column) => column.copied ?? [column]);
  const copyButton = csvButton(() => ({
    columns: copied.map((column) => column.title),
    rows: found().map((row) => copied.map((column) => column.value(row))),
  }));
  const node = make("section", { id },
    make("div", { class: "head" }, make("h2", {}, title), make("div", { class: "tools" }, status, filter, copyButton)),
    make("p", { class: "caption" }, caption),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), body)), more);
  update();
  return { node, draw: () => {} };
}

function rowsSection(one) {
  if (one.rows.length === 0) return null;
  const column = (title, name, text, unit) => ({
    title, value: (row) => row[name], ...(text ? { text: (row) => text(row[name]) } : {}), ...(unit ? { copied: [column(`${title} (${unit})`, name)] } : {}),
  });
  const isOperator = (row) => row.kind !== "outside";
  return tableSection("rows", "All operators", "Times without the profiler's cost, except for raw µs. From … to are the bounds of what it takes in a plain call. A share with < is an upper bound, because that cost hides the rest.", [
    column("module", "module"), column("operator", "operator"), column("kernel", "kernel"),
    { title: "calls", value: (row) => (isOperator(row) ? row.executions : null), text: (row) => count(row.executions) },
    { title: "raw µs", value: (row) => (isOperator(row) ? row.raw_us : null), text: (row) => threeDigits(row.raw_us) },
    { title: "µs", value: (row) => (isHidden(row) ? null : row.corrected_us), text: (row) => threeDigits(row.corrected_us), absent: () => "unknown" },
    { title: "from … to", value: (row) => row.corrected_upper_us, text: boundsOf, copied: [column("from µs", "corrected_lower_us"), column("to µs", "corrected_upper_us")] },
    { title: "share", value: (row) => row.share, text: (row) => percent(row.share), absent: (row) => shareOf(row, one), copied: [column("share (fraction)", "share")] },
    column("FLOPs", "flops", rounded), column("GFLOP/s", "gflops_per_second", threeDigits),
    column("of the roofline", "roofline_fraction", percent, "fraction"), column("bound by", "bound"),
    column("memory", "memory_bytes", megabytes, "bytes"), column("threads busy", "busy_fraction", percent, "fraction"),
  ], [...one.rows].sort((a, b) => (a.kind === "outside") - (b.kind === "outside") || b.corrected_us - a.corrected_us));
}

// The time depends on the position, since a language model reads its whole cache for each token.
function positionsSection(one) {
  if (!one.positions?.length) return null;
  const time = (title, name) => ({ title, value: (row) => row[name], text: (row) => threeDigits(row[name]) });
  return tableSection("positions", "By position of the cache", "Calls in µs by how many tokens there were before. Attention is without its projections, which are products.", [
    { title: "tokens in the cache", value: (row) => row.cached_tokens }, time("plain µs", "plain_us"), time("attention µs", "attention_us"), time("matmul µs", "matmul_us"), time("rest µs", "rest_us"),
  ], one.positions);
}

// The leaves of the tree of two cases are the rows of their difference.
function differenceSection(shown) {
  const leaves = allNodes(treeOf(shown)).filter((node) => node.children.length === 0);
  const rows = leaves.map((node) => {
    const given = rowsOf(node);
    const [a, b] = [0, 1].map((side) => (given.some((one) => one.side === side) ? node.us[side] : null));
    return { module: given[0].row.module, kind: given[0].row.kind, a, b, difference: (b ?? 0) - (a ?? 0), operators: [0, 1].map((side) => operatorsOf(given, side)) };
  });
  const time = (title, name) => ({ title, value: (row) => row[name], text: (row) => threeDigits(row[name]) });
  return tableSection("rows", "Difference by module and kind", "B without A, in µs without the profiler's cost.", [
    { title: "module", value: (row) => row.module }, { title: "kind", value: (row) => row.kind.replace("-", " ") }, time("A µs", "a"), time("B µs", "b"),
    {
      title: "difference µs", value: (row) => row.difference, text: (row) => `${row.difference < 0 ? "−" : "+"}${threeDigits(Math.abs(row.difference))}`,
      style: (row) => `number ${row.difference > 0 ? "slower" : "faster"}`,
    },
    ...["A", "B"].map((name, side) => ({ title: `operators of ${name}`, value: (row) => row.operators[side], style: () => "names" })),
  ], rows.sort((one, other) => Math.abs(other.difference) - Math.abs(one.difference)));
}
