// The compatibility matrix as a heat map.

// Levels, and for cells where no case is right their status: how bad it is, and its colour.
const CELL_KINDS = [
  ["high", "high", "high"], ["medium", "medium", "medium"], ["low", "low", "low"], ["none", "none", "failed"],
  ["unavailable", "none: unavailable", "unavailable"], ["unsupported", "none: unsupported", "unsupported"],
  ["failed", "none: failed", "failed"], ["out-of-memory", "none: out of memory", "failed"], ["timeout", "none: timeout", "failed"],
  ["unstable", "none: unstable", "failed"], ["suspicious", "none: suspicious", "failed"], ["wrong-output", "none: wrong output", "wrong-output"],
];
const cellColour = (kind) => `var(--cell-${CELL_KINDS.find(([known]) => known === kind)?.[2] ?? "failed"})`;

kinds.cells = {
  isWide: () => true,
  panels(chart) {
    const cells = selectedCells(chart);
    if (cells.length === 0) return [];
    const rows = [...new Set(cells.map((cell) => cell.row))].sort(d3.ascending);
    const height = 66 + 28 * rows.length;
    return [{ title: null, height, draw: (width) => matrix(chart, cells, rows, width, height) }];
  },
  legend(chart) {
    const there = new Set(selectedCells(chart).map((cell) => cell.kind));
    return legend(CELL_KINDS.filter(([kind]) => there.has(kind)).map(([kind, name]) => [name, cellColour(kind)]), "square");
  },
  rows: (chart) => ({
    columns: ["model", "configuration", "level", "text", "reason"],
    rows: selectedCells(chart).map((cell) => [chart.plot.rows[cell.row], chart.plot.columns[cell.column], cell.kind, cell.text, cell.reason]),
  }),
};

function selectedCells(chart) {
  return chart.plot.cells.filter((cell) => cell.cases.some((index) => isSelected[index]));
}

function wrapped(text, length) {
  return text.split("\n").flatMap((line) => line.match(new RegExp(`.{1,${length}}(\\s|$)|.{${length}}`, "gu")) ?? [line]).slice(0, 14).join("\n");
}

function matrix(chart, cells, rows, width, height) {
  const columns = [...new Set(cells.map((cell) => cell.column))].sort(d3.ascending);
  const rowNames = rows.map((row) => chart.plot.rows[row]);
  const longest = Math.max(...columns.map((column) => chart.plot.columns[column].length));
  const marginLeft = 16 + 6.8 * Math.max(...rowNames.map((name) => name.length));
  const wide = Math.min(Math.max(width, marginLeft + columns.length * Math.max(150, longest * 6.8)), marginLeft + columns.length * 240);
  const drawing = Plot.plot({
    ...AXES, width: wide, height, marginLeft, marginTop: 30, marginBottom: 8, marginRight: 4,
    style: { fontSize: "12px", background: "none", maxWidth: "none" },
    x: { type: "band", domain: columns, axis: "top", label: null, tickSize: 0, tickFormat: (column) => chart.plot.columns[column], padding: 0.03 },
    y: { type: "band", domain: rows, label: null, tickSize: 0, tickFormat: (row) => chart.plot.rows[row], padding: 0.08 },
    marks: [
      Plot.cell(cells, { x: "column", y: "row", fill: (cell) => cellColour(cell.kind), rx: 3 }),
      Plot.text(cells, { x: "column", y: "row", text: "text", fill: "currentColor" }),
      Plot.tip(cells, Plot.pointer({
        x: "column", y: "row", lineWidth: 60,
        title: (cell) => `${chart.plot.rows[cell.row]} on ${chart.plot.columns[cell.column]}\n${wrapped(cell.reason, 64)}`,
      })),
    ],
  });
  return make("div", { class: "scroll" }, drawing);
}
