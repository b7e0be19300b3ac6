// The forms of a language model: tokens per second against the bytes of the weights, with the divergence from the original as the colour.

// Classes of the divergence in nats: the largest of each, and its colour on white and on black.
const LOSSES = [
  [0.001, ["#1b6bb5", "#6cb6ff"]], [0.01, ["#4f9fc4", "#a5d4ef"]], [0.1, ["#c39a00", "#f0cf66"]], [1, ["#d4672f", "#f29e74"]], [Infinity, ["#a81c2c", "#f2727e"]],
];
LOSSES.forEach(([, colour], index) => defineColour(`--loss-${index}`, colour));
const classOfLoss = (kl) => LOSSES.findIndex(([most]) => kl <= most);
const colourOfLoss = (kl) => (kl === undefined ? "var(--card)" : `var(--loss-${classOfLoss(kl)})`);
const nameOfLoss = (index) => {
  const [[most], below] = [LOSSES[index], LOSSES[index - 1]?.[0]];
  return most === Infinity ? `KL over ${below}` : `KL up to ${most}`;
};

// The colour is the divergence here, so runtimes differ by their symbols.
const runtimeOf = (value) => {
  const one = cases[value.case];
  return areSeveral("device") ? `${one.backend} · ${one.device}` : one.backend;
};

kinds.losses = {
  isWide: () => true,
  panels: (chart) => byPanel(chart).map(([title, points]) => ({ title, height: 340, draw: (width) => forms(chart, points, width) })),
  legend(chart) {
    const points = selectedPoints(chart);
    const classes = d3.sort(new Set(points.filter(({ kl }) => kl !== undefined).map(({ kl }) => classOfLoss(kl))));
    const names = [...new Set(points.map(runtimeOf))];
    const unknowns = points.some(({ kl }) => kl === undefined) ? [["KL unknown", swatch("var(--card)", "square")]] : [];
    return legend([
      ...names.map((name) => [name, symbolMark(symbolOfRuntime(chart, name), "var(--quiet)")]),
      ...classes.map((index) => [nameOfLoss(index), swatch(`var(--loss-${index})`, "square")]),
      ...unknowns,
    ]);
  },
  // The best forms of each panel, in words.
  words: (chart) => byPanel(chart).map(([title, points]) => {
    const front = bestForms(points);
    if (front.length === 0) return `${title}: no form was compared with the original.`;
    const told = front.map((point) => `${point.label} on ${runtimeOf(point)} (${threeDigits(point.x)} MB, ${threeDigits(point.y)} tokens/s, KL ${threeDigits(point.kl)})`);
    const compared = points.filter(({ kl }) => kl !== undefined).length;
    const rest = compared - front.length;
    return `${title}: the front is ${told.join("; ")}.${rest ? ` ${rest} of ${compared} compared forms are not on it.` : ""}`;
  }),
  rows: (chart) => {
    const front = new Set(byPanel(chart).flatMap(([, points]) => bestForms(points)));
    return {
      columns: [...CASE_COLUMNS, "variant", chart.x, chart.y, "kl_divergence", "on_front"],
      rows: selectedPoints(chart).map((point) => [...caseCells(point), cases[point.case].variant, point.x, point.y, point.kl, front.has(point)]),
    };
  },
};

// The points that no other point beats: one that is at least as good in size, speed and divergence, and better in one
// of them. The smallest come first.
function bestForms(points) {
  const known = points.filter(({ kl }) => kl !== undefined);
  const beats = (a, b) => a.x <= b.x && a.y >= b.y && a.kl <= b.kl && (a.x < b.x || a.y > b.y || a.kl < b.kl);
  return d3.sort(known.filter((point) => !known.some((other) => beats(other, point))), (point) => point.x);
}

const runtimesOf = (chart) => [...new Set(chart.points.map(runtimeOf))];
const symbolOfRuntime = (chart, name) => SYMBOLS[runtimesOf(chart).indexOf(name) % SYMBOLS.length];

function forms(chart, points, width) {
  const front = bestForms(points);
  const names = runtimesOf(chart);
  const marginRight = width > 600 ? 110 : 40;
  return Plot.plot({
    ...AXES, width, height: 340, marginLeft: 56, marginRight,
    x: { ...logAxis(points.map(({ x }) => x), chart.x), grid: true },
    y: { ...logAxis(points.map(({ y }) => y), chart.y), grid: true },
    symbol: { domain: names, range: names.map((name) => symbolOfRuntime(chart, name)) },
    marks: [
      Plot.dot(points, {
        x: "x", y: "y", fill: ({ kl }) => colourOfLoss(kl), stroke: ({ kl }) => (kl === undefined ? "var(--quiet)" : "var(--card)"), symbol: runtimeOf, r: 6,
      }),
      Plot.dot(front, { x: "x", y: "y", stroke: "currentColor", r: 10, strokeOpacity: 0.7 }),
      ...labelMarks(points, front, true, width),
      Plot.tip(points, Plot.pointer({
        x: "x", y: "y",
        title: (point) => `${point.label}, ${seriesOf(point)}\n${threeDigits(point.x)} MB\n${threeDigits(point.y)} tokens/s\nKL ${point.kl === undefined ? "unknown" : threeDigits(point.kl)}`,
      })),
    ],
  });
}
