// A quantity over batch sizes, or over the size of the input: lines; bars where there is one batch size only.

kinds.batches = {
  panels(chart) {
    return byPanel(chart).map(([title, points]) => {
      const sizes = [...new Set(points.map((point) => point[chart.at ?? "batch_size"]))].sort((a, b) => a - b);
      const isBars = sizes.length === 1;
      return {
        title: isBars ? `${title} · ${points[0].said ?? `batch ${sizes[0]}`}` : title,
        height: isBars ? barsHeight(points) : 220,
        draw: (width) => (isBars ? bars(chart, points, width) : lines(chart, points, sizes, width)),
      };
    });
  },
  legend: seriesLegend,
  rows: (chart) => ({
    columns: [...CASE_COLUMNS, chart.y, "low", "high"],
    rows: selectedPoints(chart).map((point) => [...caseCells(point), point.value, point.low, point.high]),
  }),
};

// How a panel's values are written: the axis with its unit, a factor, and a single value in words.
function measure(chart, points) {
  if (chart.id === "memory") return { label: "peak memory (MB)", factor: 1, text: (value) => `${threeDigits(value)} MB` };
  if (chart.id.startsWith("latency")) {
    const unit = timeUnit(points.map((point) => point.value));
    return { label: `latency (${unit.name})`, factor: unit.factor, text: milliseconds };
  }
  const isTokens = isInTokens(cases[points[0].case]);
  const name = isTokens ? "tokens/s" : "samples/s";
  return { label: `throughput (${name})`, factor: 1, text: threeDigits };
}

const hasWhisker = (point) => point.low !== null && point.high !== null;

function told(chart, { text }, point) {
  const isLatency = chart.id.startsWith("latency");
  const whisker = !hasWhisker(point) ? "" : isLatency ? `\np99 ${text(point.high)}` : `\n${text(point.low)} to ${text(point.high)}`;
  const size = point.said ?? `batch ${point.batch_size}`;
  return `${seriesOf(point)}, ${size}\n${isLatency ? "p50 " : ""}${text(point.value)}${whisker}`;
}

function lines(chart, points, sizes, width) {
  const measured = measure(chart, points);
  const at = (name) => (point) => point[name] * measured.factor;
  const whiskers = points.filter(hasWhisker);
  const values = [...points.map(at("value")), ...whiskers.map(at("low")), ...whiskers.map(at("high"))];
  const y = chart.isLog ? logAxis(values, measured.label) : { zero: true, nice: true, ticks: 5, tickFormat: tick, label: measured.label };
  const place = chart.at ?? "batch_size";
  const x = chart.at
    ? { type: "log", ticks: sizes, tickFormat: tick, label: points[0].names, labelAnchor: "right", inset: 16 }
    : { type: "point", domain: sizes, tickFormat: String, label: "batch size (samples)", labelAnchor: "right", padding: 0.4 };
  return Plot.plot({
    ...AXES, width, height: 220, marginLeft: 52, x,
    y: { ...y, grid: true },
    color: colourScale, symbol: symbolScale,
    marks: [
      Plot.ruleX(whiskers, { x: place, y1: at("low"), y2: at("high"), stroke: seriesOf, strokeWidth: 1.5, strokeOpacity: 0.5 }),
      ...dashed(points, (members) => Plot.line(members, {
        x: place, y: at("value"), stroke: seriesOf, strokeWidth: 2, sort: place,
        strokeDasharray: seriesDash(seriesOf(members[0])),
      })),
      Plot.dot(points, { x: place, y: at("value"), stroke: seriesOf, fill: seriesOf, symbol: seriesOf, r: 3.5 }),
      Plot.tip(points, Plot.pointer({ x: place, y: at("value"), title: (point) => told(chart, measured, point) })),
    ],
  });
}

// One mark per series, since a whole mark has one dash.
function dashed(values, mark) {
  return d3.groups(values, seriesOf).map(([, members]) => mark(members));
}

function barsHeight(points) {
  return 58 + 30 * points.length;
}

function bars(chart, points, width) {
  const measured = measure(chart, points);
  const at = (name) => (point) => point[name] * measured.factor;
  const end = (point) => Math.max(point.value, (point.low !== null && point.high) || 0) * measured.factor;
  const names = points.map(seriesOf);
  const marginLeft = 14 + 6.6 * Math.max(...names.map((name) => name.length));
  const most = Math.max(8, Math.floor((width * 0.45 - 14) / 6.9));
  const half = Math.floor(most / 2);
  const shortened = (name) => (name.length <= most ? name : `${name.slice(0, half)}…${name.slice(1 - half)}`);
  return Plot.plot({
    ...AXES, width, height: barsHeight(points), marginLeft: Math.min(marginLeft, width * 0.45), marginTop: 4, marginRight: 18,
    x: { domain: [0, Math.max(...points.map(end)) * 1.28], ticks: 4, tickFormat: tick, label: measured.label, grid: true },
    y: { domain: names, label: null, tickSize: 0, tickFormat: shortened },
    color: colourScale,
    marks: [
      Plot.barX(points, { x1: 0, x2: at("value"), y: seriesOf, fill: seriesOf, insetTop: 3, insetBottom: 3, rx: 2 }),
      Plot.ruleY(points.filter(hasWhisker), {
        x1: at("low"), x2: at("high"), y: seriesOf, stroke: "currentColor", strokeOpacity: 0.65,
      }),
      Plot.text(points, { x: end, y: seriesOf, text: (point) => measured.text(point.value), textAnchor: "start", dx: 6, fill: "currentColor", fontWeight: 600 }),
      Plot.tip(points, Plot.pointerY({ x: at("value"), y: seriesOf, title: (point) => told(chart, measured, point) })),
      Plot.ruleX([0]),
    ],
  });
}
