// A cloud with its Pareto front, found among the selected points.

kinds.front = {
  isWide: () => true,
  panels: (chart) => byPanel(chart).map(([title, points]) => ({
    title, height: 340, draw: (width) => cloud(chart, points, width),
  })),
  legend: seriesLegend,
  rows: (chart) => {
    const front = new Set(byPanel(chart).flatMap(([, members]) => frontOf(members, chart.better)));
    return {
      columns: [...CASE_COLUMNS, "label", chart.x, chart.y, "on_front"],
      rows: selectedPoints(chart).map((point) => [...caseCells(point), point.label, point.x, point.y, front.has(point)]),
    };
  },
};

// The points that no other point beats in both values; a smaller x is better.
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
  const front = frontOf(points, chart.better);
  const x = logAxis(points.map((point) => point.x), chart.x);
  const isLog = chart.isLog;
  const y = isLog ? logAxis(points.map((point) => point.y), chart.y) : { nice: true, inset: 12, ticks: 5, label: chart.y };
  const marginRight = width > 600 ? 110 : 40;
  return Plot.plot({
    ...AXES, width, height: 340, marginLeft: 56, marginRight,
    x: { ...x, grid: true }, y: { ...y, grid: true },
    color: colourScale, symbol: symbolScale,
    marks: [
      Plot.line(front, { x: "x", y: "y", curve: "step-after", stroke: "currentColor", strokeOpacity: 0.5, strokeDasharray: "5 4" }),
      Plot.dot(points.filter((point) => !point.server), { x: "x", y: "y", fill: seriesOf, stroke: "var(--card)", symbol: seriesOf, r: 5, fillOpacity: 0.85 }),
      Plot.dot(points.filter((point) => point.server), { x: "x", y: "y", fill: "var(--card)", stroke: "currentColor", r: 4 }),
      Plot.dot(front, { x: "x", y: "y", stroke: "currentColor", r: 8, strokeOpacity: 0.7 }),
      ...labelMarks(points, front, isLog, width),
      Plot.tip(points, Plot.pointer({
        x: "x", y: "y",
        title: (point) => `${point.label}, batch ${cases[point.case].batch_size}\n${point.server ? "server" : seriesOf(point)}\n${chart.x} ${threeDigits(point.x)}\n${chart.y} ${threeDigits(point.y)}`,
      })),
    ],
  });
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
