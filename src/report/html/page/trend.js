// Runs from left to right; large triangles are changes beyond the noise.

kinds.trend = {
  panels(chart) {
    return byPanel(chart).map(([title, points]) => ({ title, height: 220, draw: (width) => trend(chart, points, width) }));
  },
  legend: seriesLegend,
  rows: (chart) => ({
    columns: [...CASE_COLUMNS, "run", chart.y, "verdict", "ratio", "lower", "upper"],
    rows: selectedPoints(chart).map((point) => {
      const { verdict, interval = {} } = point.change ?? {};
      return [...caseCells(point), runName(point.run), point.value, verdict, interval.ratio, interval.lower, interval.upper];
    }),
  }),
};

// `01-31 14:05 1a2b3c4`: the time and the commit of a run. Points count runs from the oldest on, and the list begins with the newest.
function runName(index) {
  const { started, commit } = payload.runs.at(-1 - index);
  return `${started.slice(5, 16)} ${commit?.slice(0, 7) ?? ""}`.trimEnd();
}

function trend(chart, points, width) {
  // Only runs that have measured a case of the panel take room.
  const runs = [...new Set(points.map((point) => point.run))].sort(d3.ascending);
  const places = Math.max(2, Math.floor((width - 70) / 84));
  const step = Math.max(1, Math.ceil((runs.length - 1) / (places - 1)));
  const ticks = d3.range(runs.length - 1, -1, -step).map((index) => runs[index]);
  const unit = timeUnit(points.map((point) => point.value));
  const y = (point) => point.value * unit.factor;
  const changed = points.filter((point) => point.change);
  const isUp = (point) => point.change.interval.ratio > 1;
  // The texts above and below the changes stay inside.
  const [least, most] = d3.extent(points, y);
  const beyond = Math.max(1.08, (most / least) ** 0.16);
  const room = points.flatMap((point) => (point.change ? [y(point) * beyond, y(point) / beyond] : [y(point)]));
  const axis = logAxis(room, `latency, p50 (${unit.name})`);
  const told = readable(changed, runs, axis.domain, y, width);
  const label = { x: "run", y, text: (point) => signedPercent(point.change.interval.ratio), fontWeight: 600, fill: "currentColor", stroke: "var(--card)", strokeWidth: 3 };
  return Plot.plot({
    ...AXES, width, height: 220, marginLeft: 52, marginRight: 34,
    x: { type: "point", domain: runs, ticks, tickFormat: (run) => runName(run).slice(0, 11), label: "run (UTC)", labelAnchor: "right", padding: 0.3 },
    y: { ...axis, grid: true },
    color: colourScale, symbol: symbolScale,
    marks: [
      ...dashed(points, (members) => Plot.line(members, { x: "run", y, stroke: seriesOf, strokeWidth: 1.8, strokeDasharray: seriesDash(seriesOf(members[0])) })),
      Plot.dot(points, { x: "run", y, fill: seriesOf, symbol: seriesOf, r: 3 }),
      Plot.dot(changed, { x: "run", y, fill: seriesOf, stroke: "currentColor", symbol: "triangle", rotate: (point) => (isUp(point) ? 0 : 180), r: 5.5 }),
      Plot.text(told.filter(isUp), { ...label, dy: -14 }),
      Plot.text(told.filter((point) => !isUp(point)), { ...label, dy: 15 }),
      Plot.tip(points, Plot.pointer({
        x: "run", y,
        title: (point) => {
          const change = point.change;
          const figures = change && [change.interval.ratio, change.interval.lower, change.interval.upper].map(signedPercent);
          const found = change ? `\n${change.verdict}: ${figures[0]} (${figures[1]} to ${figures[2]})` : "";
          return `${runName(point.run)}\n${seriesOf(point)}: ${milliseconds(point.value)}${found}`;
        },
      })),
    ],
  });
}

// The changes whose figures do not overlap; the larger changes come first.
function readable(changed, runs, domain, value, width) {
  const [low, high] = domain.map(Math.log);
  const place = (point) => [
    (runs.indexOf(point.run) / Math.max(1, runs.length - 1)) * (width - 100),
    ((Math.log(value(point)) - low) / (high - low)) * 162 + (point.change.interval.ratio > 1 ? 14 : -15),
  ];
  const told = [];
  for (const point of d3.sort(changed, (one) => -Math.abs(Math.log(one.change.interval.ratio)))) {
    const [x, y] = place(point);
    if (told.every((other) => { const [left, top] = place(other); return Math.abs(left - x) > 44 || Math.abs(top - y) > 14; })) told.push(point);
  }
  return told;
}
