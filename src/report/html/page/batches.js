// A quantity over batch sizes: lines; bars where there is one batch size only.

kinds.batches = {
  panels(chart) {
    return byPanel(chart, chart.plot.points).map(([title, points]) => {
      const sizes = [...new Set(points.map((point) => point.batch_size))].sort((a, b) => a - b);
      const isBars = sizes.length === 1;
      return {
        title: isBars ? `${title} · batch ${sizes[0]}` : title,
        height: isBars ? barsHeight(points) : 220,
        draw: (width) => (isBars ? bars(chart, points, width) : lines(chart, points, sizes, width)),
      };
    });
  },
  legend: (chart) => seriesLegend(chart.plot.points),
  rows: (chart) => ({
    columns: ["case", "model", "backend", "device", "dtype", "machine", "batch_size", chart.y.label, "low", "high"],
    rows: chart.plot.points.filter((point) => isSelected[point.case]).map((point) => {
      const one = cases[point.case];
      return [one.id, one.group, one.backend, one.device, one.dtype, one.machine, one.batch_size, point.value, point.low, point.high];
    }),
  }),
};

const seriesOf = (value) => cases[value.case].series;

function unitOf(chart) {
  return chart.id === "latency" ? milliseconds : (value) => `${threeDigits(value)} ${chart.id === "memory" ? "MB" : "/s"}`;
}

function told(chart, point) {
  const value = unitOf(chart);
  const interval = point.low !== null && point.high !== null;
  const whisker = !interval ? "" : chart.id === "latency" ? `\np99 ${value(point.high)}` : `\n${value(point.low)} to ${value(point.high)}`;
  return `${cases[point.case].series}, batch ${point.batch_size}\n${chart.id === "latency" ? "p50 " : ""}${value(point.value)}${whisker}`;
}

function shortLabel(chart, point) {
  const isTokens = ["prefill", "decode"].includes(cases[point.case].phase) && cases[point.case].tokens_per_second !== null;
  if (chart.id === "latency") return "latency (ms)";
  if (chart.id === "memory") return "peak memory (MB)";
  return isTokens ? "throughput (tokens/s)" : "throughput (samples/s)";
}

function lines(chart, points, sizes, width) {
  const values = points.flatMap((point) => [point.value, point.low ?? point.value, point.high ?? point.value]);
  const label = shortLabel(chart, points[0]);
  const y = chart.y.scale === "log" ? logAxis(values, label) : { zero: true, nice: true, ticks: 5, tickFormat: tick, label };
  const whiskers = points.filter((point) => point.low !== null && point.high !== null);
  return Plot.plot({
    ...AXES, width, height: 220, marginLeft: 52,
    x: { type: "point", domain: sizes, label: "batch size (samples)", padding: 0.4 },
    y: { ...y, grid: true },
    color: colourScale, symbol: symbolScale,
    marks: [
      Plot.ruleX(whiskers, { x: "batch_size", y1: "low", y2: "high", stroke: seriesOf, strokeOpacity: 0.5 }),
      Plot.line(points, {
        x: "batch_size", y: "value", z: seriesOf, stroke: seriesOf, strokeWidth: 2, sort: "batch_size",
      }),
      Plot.dot(points, { x: "batch_size", y: "value", stroke: seriesOf, fill: seriesOf, symbol: seriesOf, r: 3.5 }),
      Plot.tip(points, Plot.pointer({ x: "batch_size", y: "value", title: (point) => told(chart, point) })),
    ],
  });
}

function barsHeight(points) {
  return 58 + 30 * points.length;
}

function bars(chart, points, width) {
  const names = points.map(seriesOf);
  const value = unitOf(chart);
  const most = Math.max(...points.map((point) => (point.low !== null ? point.high : null) ?? point.value));
  const marginLeft = 14 + 6.6 * Math.max(...names.map((name) => name.length));
  return Plot.plot({
    ...AXES, width, height: barsHeight(points), marginLeft: Math.min(marginLeft, width * 0.45), marginTop: 4, marginRight: 18,
    x: { domain: [0, most * 1.22], nice: true, ticks: 4, tickFormat: tick, label: shortLabel(chart, points[0]), grid: true },
    y: { domain: names, label: null, tickSize: 0 },
    color: colourScale,
    marks: [
      Plot.barX(points, { x: "value", y: seriesOf, fill: seriesOf, insetTop: 3, insetBottom: 3, rx: 2 }),
      Plot.ruleY(points.filter((point) => point.low !== null && point.high !== null), {
        x1: "low", x2: "high", y: seriesOf, stroke: "currentColor", strokeOpacity: 0.65,
      }),
      Plot.text(points, {
        x: (point) => (point.low !== null && point.high) || point.value, y: seriesOf, text: (point) => value(point.value),
        textAnchor: "start", dx: 6, fill: "currentColor", fontWeight: 600,
      }),
      Plot.tip(points, Plot.pointerY({ x: "value", y: seriesOf, title: (point) => told(chart, point) })),
      Plot.ruleX([0]),
    ],
  });
}
