// The parts that all kinds of charts share: panels, legends and axes.

const AXES = { marginTop: 24, marginRight: 14, marginBottom: 34, style: { fontSize: "11.5px", background: "none" } };
const kinds = {};

const selectedPoints = (chart) => chart.points.filter((point) => isSelected[point.case]);

// The selected points of a chart by panel, in the order in which the panels come up.
function byPanel(chart) {
  return d3.groups(selectedPoints(chart), (point) => point.panel);
}

// The first columns of every chart's CSV.
const CASE_COLUMNS = ["case", "model", "backend", "device", "dtype", "machine", "batch_size"];
const caseCells = (point) => {
  const one = cases[point.case];
  // The answers of a server are not figures of the case beside which they are shown.
  if (point.server) return [point.label, one.group, "server", "", "", one.machine, one.batch_size];
  return [one.id, one.group, one.backend, one.device, one.dtype, one.machine, one.batch_size];
};

function seriesLegend(chart) {
  const points = selectedPoints(chart);
  const names = new Set(points.filter((point) => !point.server).map(seriesOf));
  const servers = points.some((point) => point.server) ? [["server", serverMark()]] : [];
  return legend([...[...names].map((name) => [name, seriesMark(name)]), ...servers]);
}

// A server belongs to no series; its points are hollow circles.
function serverMark() {
  const mark = symbolMark("circle", "var(--ink)");
  mark.firstChild.setAttribute("fill", "var(--card)");
  mark.firstChild.setAttribute("stroke", "currentColor");
  return mark;
}

// The mark of a series: its symbol on a piece of its line.
function seriesMark(name) {
  return symbolMark(seriesSymbol(name), seriesColour(name), seriesDash(name));
}

// A symbol, on a line if `dash` is given.
function symbolMark(name, colour, dash) {
  const mark = shape("svg", { width: 26, height: 12, viewBox: "-13 -6 26 12", "aria-hidden": "true" });
  mark.style.color = colour;
  const symbol = d3[`symbol${name.replace(/^./, (letter) => letter.toUpperCase())}`];
  if (dash !== undefined) mark.append(shape("path", { d: "M-13,0H13", stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": dash }));
  mark.append(shape("path", { d: d3.symbol(symbol, 44)(), fill: "currentColor" }));
  return mark;
}
