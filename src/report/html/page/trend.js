// Runs from left to right; triangles are changes beyond the noise.

kinds.trend = {
  panels(chart) {
    return byPanel(chart, chart.plot.points).map(([title, points]) => ({ title, height: 220, draw: (width) => trend(chart, points, width) }));
  },
  legend: (chart) => seriesLegend(chart.plot.points),
  rows: (chart) => ({
    columns: ["case", "model", "backend", "device", "dtype", "machine", "batch_size", "run", chart.y.label, "verdict", "ratio", "lower", "upper"],
    rows: chart.plot.points.filter((point) => isSelected[point.case]).map((point) => {
      const one = cases[point.case];
      const change = point.change ?? {};
      return [one.id, one.group, one.backend, one.device, one.dtype, one.machine, one.batch_size, chart.plot.runs[point.run],
        point.value, change.verdict, change.ratio, change.lower, change.upper];
    }),
  }),
};

function trend(chart, points, width) {
  const runs = chart.plot.runs;
  const most = Math.max(2, Math.floor((width - 70) / 80));
  const step = Math.max(1, Math.ceil((runs.length - 1) / (most - 1)));
  const ticks = d3.range(runs.length - 1, -1, -step);
  const changed = points.filter((point) => point.change);
  const isUp = (point) => point.change.ratio > 1;
  const label = (point) => signedPercent(point.change.ratio);
  return Plot.plot({
    ...AXES, width, height: 220, marginLeft: 52, marginRight: 34,
    x: { type: "point", domain: d3.range(runs.length), ticks, tickFormat: (run) => runs[run].slice(0, 11), label: "run (UTC)", padding: 0.3 },
    y: { ...logAxis(points.flatMap((point) => [point.value * 1.06, point.value / 1.06]), "latency, p50 (ms)"), grid: true },
    color: colourScale,
    marks: [
      Plot.line(points, { x: "run", y: "value", z: seriesOf, stroke: seriesOf, strokeWidth: 1.8 }),
      Plot.dot(points, { x: "run", y: "value", fill: seriesOf, r: 2.6 }),
      Plot.dot(changed, { x: "run", y: "value", fill: seriesOf, stroke: "currentColor", symbol: "triangle", rotate: (point) => (isUp(point) ? 0 : 180), r: 6.5 }),
      Plot.text(changed, { filter: isUp, x: "run", y: "value", text: label, dy: -13, fontWeight: 600, fill: "currentColor", stroke: "var(--card)", strokeWidth: 3 }),
      Plot.text(changed, { filter: (point) => !isUp(point), x: "run", y: "value", text: label, dy: 14, fontWeight: 600, fill: "currentColor", stroke: "var(--card)", strokeWidth: 3 }),
      Plot.tip(points, Plot.pointer({
        x: "run", y: "value",
        title: (point) => {
          const change = point.change;
          const found = change ? `\n${change.verdict}: ${signedPercent(change.ratio)} (${signedPercent(change.lower)} to ${signedPercent(change.upper)})` : "";
          return `${runs[point.run]}\n${seriesOf(point)}: ${milliseconds(point.value)}${found}`;
        },
      })),
    ],
  });
}
