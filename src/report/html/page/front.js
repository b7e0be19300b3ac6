// Clouds with their Pareto fronts, found among the selected points.

// A kind of cloud. `front` chooses the points on the front of a panel, which get rings of the radius `ring`. `columns`
// and `cells` are the kind's own part of the CSV, `look` gives scales and marks, and `told` the text of a point's tip.
function cloudKind({ front, ring, columns, cells, look, told, ...others }) {
  const cloud = (chart, points, width) => {
    const best = front(points, chart);
    const { marks, ...scales } = look(points, best, chart);
    const y = chart.isLog ? logAxis(points.map((point) => point.y), chart.y) : { nice: true, inset: 12, ticks: 5, label: chart.y };
    return Plot.plot({
      ...AXES, width, height: 340, marginLeft: 56, marginRight: width > 600 ? 110 : 40, ...scales,
      x: { ...logAxis(points.map((point) => point.x), chart.x), grid: true }, y: { ...y, grid: true },
      marks: [
        ...marks,
        Plot.dot(best, { x: "x", y: "y", stroke: "currentColor", r: ring, strokeOpacity: 0.7 }),
        ...labelMarks(points, best, chart.isLog, width),
        Plot.tip(points, Plot.pointer({ x: "x", y: "y", title: (point) => told(point, chart) })),
      ],
    });
  };
  return {
    isWide: () => true,
    panels: (chart) => byPanel(chart).map(([title, points]) => ({ title, height: 340, draw: (width) => cloud(chart, points, width) })),
    rows: (chart) => {
      const best = new Set(byPanel(chart).flatMap(([, points]) => front(points, chart)));
      return {
        columns: [...CASE_COLUMNS, ...columns(chart), "on_front"],
        rows: selectedPoints(chart).map((point) => [...caseCells(point), ...cells(point), best.has(point)]),
      };
    },
    ...others,
  };
}

kinds.front = cloudKind({
  front: (points, chart) => frontOf(points, [({ x }) => x, ({ y }) => (chart.better === "lower" ? y : -y)]),
  ring: 8,
  columns: ({ x, y }) => ["label", x, y],
  cells: ({ label, x, y }) => [label, x, y],
  look: (points, front) => ({
    color: colourScale, symbol: symbolScale,
    marks: [
      Plot.line(front, { x: "x", y: "y", curve: "step-after", stroke: "currentColor", strokeOpacity: 0.5, strokeDasharray: "5 4" }),
      Plot.dot(points.filter((point) => !point.server), { x: "x", y: "y", fill: seriesOf, stroke: "var(--card)", symbol: seriesOf, r: 5, fillOpacity: 0.85 }),
      Plot.dot(points.filter((point) => point.server), { x: "x", y: "y", fill: "var(--card)", stroke: "currentColor", r: 4 }),
    ],
  }),
  told: (point, chart) => `${point.label}, batch ${cases[point.case].batch_size}\n${point.server ? "server" : seriesOf(point)}\n${chart.x} ${threeDigits(point.x)}\n${chart.y} ${threeDigits(point.y)}`,
  legend: seriesLegend,
});

// The points that no other point beats: one that is at least as good on each axis, and better on one. Less is better.
// The points are sorted by the axes, so each comes after those that beat it.
function frontOf(points, axes) {
  const beats = (a, b) => axes.every((axis) => axis(a) <= axis(b)) && axes.some((axis) => axis(a) < axis(b));
  const front = [];
  for (const point of d3.sort(points, ...axes)) if (!front.some((other) => beats(other, point))) front.push(point);
  return front;
}

// Where a label can be: the distance of its left end from the point, in widths of the label, its offset in pixels, and
// its style.
const LABEL_SIDES = [
  { from: 0, dx: 11, dy: 0, style: { textAnchor: "start", dx: 11 } },
  { from: -1, dx: -11, dy: 0, style: { textAnchor: "end", dx: -11 } },
  { from: -0.5, dx: 0, dy: -15, style: { textAnchor: "middle", dy: -15 } },
  { from: -0.5, dx: 0, dy: 16, style: { textAnchor: "middle", dy: 16 } },
];

function labelMarks(points, front, isLog, width) {
  return d3.groups(labelled(points, front, isLog, width), ({ side }) => side).map(([side, labels]) => Plot.text(labels.map(({ point }) => point), {
    x: "x", y: "y", text: "label", ...side.style, fill: "currentColor", stroke: "var(--card)", strokeWidth: 4, fontSize: 11.5,
  }));
}

// Each model once, or each point that has a key, those on the front first, none over another label or a point.
function labelled(points, front, isLog, width) {
  const span = (values) => { const [low, high] = d3.extent(values); return (value) => (high > low ? (value - low) / (high - low) : 0.5); };
  const toX = span(points.map((point) => Math.log(point.x)));
  const toY = span(points.map((point) => (isLog ? Math.log(point.y) : point.y)));
  const [wide, high] = [width - 166, 282];
  const place = (point) => [toX(Math.log(point.x)) * wide, (1 - toY(isLog ? Math.log(point.y) : point.y)) * high];
  const places = points.map(place);
  const placed = []; // { point, side, left, right, top }
  for (const point of [...front, ...[...points].sort((a, b) => b.x - a.x)]) {
    if (placed.some((other) => (other.point.key ?? other.point.label) === (point.key ?? point.label))) continue;
    const [x, y] = place(point);
    const own = 7 * point.label.length;
    for (const side of LABEL_SIDES) {
      const [left, top] = [x + side.from * own + side.dx, y + side.dy];
      const label = { point, side, left, right: left + own, top };
      const hits = placed.some((other) => Math.abs(other.top - top) < 15 && other.left < label.right && label.left < other.right);
      const covers = () => places.some(([l, t], index) => points[index] !== point && Math.abs(t - top) < 9 && l > label.left - 5 && l < label.right + 5);
      if (left < -40 || hits || covers()) continue;
      placed.push(label);
      break;
    }
  }
  return placed;
}
