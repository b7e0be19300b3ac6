// The compatibility matrix as a heat map.

// The levels, and the statuses of cells in which no case is right, from good to bad: kind, name and colour.
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
    const rows = inOrder(chart, cells, "row");
    const height = 66 + 28 * rows.length;
    return [{ title: null, height, draw: (width) => matrix(chart, cells, rows, width, height) }];
  },
  legend(chart) {
    const there = new Set(selectedCells(chart).map((cell) => cell.kind));
    return legend(CELL_KINDS.filter(([kind]) => there.has(kind)).map(([kind, name]) => [name, swatch(cellColour(kind), "square")]));
  },
  rows: (chart) => ({
    columns: ["model", "configuration", "level", "text", "reason"],
    rows: selectedCells(chart).map((cell) => [cell.row, cell.column, cell.kind, cell.text, cell.reason]),
  }),
};

// A cell about machines whose cases are not shown is shown unless something is chosen.
function selectedCells(chart) {
  const isShown = ({ cases }) => (cases.length === 0 ? chosen.size === 0 : cases.some((index) => isSelected[index]));
  return chart.points.filter(isShown);
}

// The rows or columns that some cells have, in the order of the whole chart.
function inOrder(chart, cells, name) {
  const there = new Set(cells.map((cell) => cell[name]));
  return [...new Set(chart.points.map((cell) => cell[name]))].filter((value) => there.has(value));
}

function wrapped(text, length) {
  return text.split("\n").flatMap((line) => line.match(new RegExp(`.{1,${length}}(\\s|$)|.{${length}}`, "gu")) ?? [line]).slice(0, 14).join("\n");
}

function matrix(chart, cells, rows, width, height) {
  const columns = inOrder(chart, cells, "column");
  const longest = Math.max(...columns.map((column) => column.length), ...cells.map((cell) => cell.text.length));
  const each = Math.max(150, longest * 6.8 + 8);
  const marginLeft = 16 + 6.8 * Math.max(...rows.map((row) => row.length));
  const wide = Math.min(Math.max(width, marginLeft + columns.length * each), marginLeft + columns.length * Math.max(240, each));
  const drawing = Plot.plot({
    ...AXES, width: wide, height, marginLeft, marginTop: 30, marginBottom: 8, marginRight: 4,
    style: { fontSize: "12px", background: "none", maxWidth: "none" },
    x: { type: "band", domain: columns, axis: "top", label: null, tickSize: 0, padding: 0.03 },
    y: { type: "band", domain: rows, label: null, tickSize: 0, padding: 0.08 },
    marks: [
      Plot.cell(cells, { x: "column", y: "row", fill: (cell) => cellColour(cell.kind), rx: 3 }),
      Plot.text(cells, { x: "column", y: "row", text: "text", fill: "currentColor" }),
      Plot.tip(cells, Plot.pointer({
        x: "column", y: "row", lineWidth: 60,
        title: (cell) => `${cell.row} on ${cell.column}\n${wrapped(cell.reason, 64)}`,
      })),
    ],
  });
  return make("div", { class: "scroll" }, drawing);
}
