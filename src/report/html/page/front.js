// A cloud with its Pareto front, found among what is selected.

kinds.front = {
  isWide: () => true,
  panels: (chart) => byPanel(chart, chart.plot.points).map(([title, points]) => ({
    title, height: 340, draw: (width) => cloud(chart, points, width),
  })),
  legend: (chart) => seriesLegend(chart.plot.points),
  rows: (chart) => {
    const points = chart.plot.points.filter((point) => isSelected[point.case]);
    const fronts = d3.groups(points, (point) => point.panel).flatMap(([, members]) => frontOf(members, chart.plot.y_is_better));
    const front = new Set(fronts);
    return {
      columns: ["case", "model", "backend", "device", "dtype", "machine", "batch_size", chart.x.label, chart.y.label, "on_front"],
      rows: points.map((point) => {
        const one = cases[point.case];
        return [one.id, one.group, one.backend, one.device, one.dtype, one.machine, one.batch_size, point.x, point.y, front.has(point)];
      }),
    };
  },
};

// The points that no other beats in both; x is better when smaller.
function frontOf(points, yIsBetter) {
  const sign = yIsBetter === "lower" ? 1 : -1;
  const order = [...points].sort((a, b) => a.x - b.x || sign * (a.y - b.y));
  const front = [];
  let last = null;
  for (const point of order) {
    if (last === null || sign * point.y < sign * last.y || (point.x === last.x && point.y === last.y)) {
      front.push(point);
      last = point;
    }
  }
  return front;
}

function cloud(chart, points, width) {
  const front = frontOf(points, chart.plot.y_is_better);
  const x = logAxis(points.map((point) => point.x), chart.x.label);
  const isLog = chart.y.scale === "log";
  const y = isLog ? logAxis(points.map((point) => point.y), chart.y.label) : { nice: true, inset: 12, ticks: 5, label: chart.y.label };
  const marginRight = width > 600 ? 110 : 40;
  return Plot.plot({
    ...AXES, width, height: 340, marginLeft: 56, marginRight,
    x: { ...x, grid: true }, y: { ...y, grid: true },
    color: colourScale, symbol: symbolScale,
    marks: [
      Plot.line(front, { x: "x", y: "y", curve: "step-after", stroke: "currentColor", strokeOpacity: 0.5, strokeDasharray: "5 4" }),
      Plot.dot(points, { x: "x", y: "y", fill: seriesOf, stroke: "var(--card)", symbol: seriesOf, r: 5, fillOpacity: 0.85 }),
      Plot.dot(front, { x: "x", y: "y", stroke: "currentColor", r: 8, strokeOpacity: 0.7 }),
      Plot.text(labelled(points, front, isLog, width), {
        x: "x", y: "y", text: "label", textAnchor: "start", dx: 11, fill: "currentColor", stroke: "var(--card)", strokeWidth: 4, fontSize: 11.5,
      }),
      Plot.tip(points, Plot.pointer({
        x: "x", y: "y",
        title: (point) => `${point.label}, batch ${cases[point.case].batch_size}\n${seriesOf(point)}\np50 ${milliseconds(point.x)}\n${chart.y.label} ${threeDigits(point.y)}`,
      })),
    ],
  });
}

// Each model once, those on the front first, and none over another one.
function labelled(points, front, isLog, width) {
  const span = (values) => { const [low, high] = d3.extent(values); return (value) => (high > low ? (value - low) / (high - low) : 0.5); };
  const toX = span(points.map((point) => Math.log(point.x)));
  const toY = span(points.map((point) => (isLog ? Math.log(point.y) : point.y)));
  const [wide, high] = [width - 166, 282];
  const place = (point) => [toX(Math.log(point.x)) * wide, toY(isLog ? Math.log(point.y) : point.y) * high];
  const placed = [];
  const rest = [...points].sort((a, b) => b.x - a.x);
  for (const point of [...front, ...rest]) {
    if (placed.some((other) => other.label === point.label)) continue;
    const [left, top] = place(point);
    const right = left + 20 + 7 * point.label.length;
    const hits = (other) => { const [l, t] = place(other); return Math.abs(t - top) < 15 && l < right && l + 20 + 7 * other.label.length > left; };
    const covers = points.some((other) => { const [l, t] = place(other); return other !== point && Math.abs(t - top) < 9 && l > left + 4 && l < right; });
    if (!placed.some(hits) && !covers) placed.push(point);
  }
  return placed;
}
