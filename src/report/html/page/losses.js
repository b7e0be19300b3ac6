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

kinds.losses = cloudKind({
  front: bestForms,
  ring: 10,
  columns: ({ x, y }) => ["variant", x, y, "kl_divergence"],
  cells: (point) => [cases[point.case].variant, point.x, point.y, point.kl],
  look(points, _, chart) {
    const names = runtimesOf(chart);
    return {
      symbol: { domain: names, range: names.map((name) => symbolOfRuntime(chart, name)) },
      marks: [Plot.dot(points, {
        x: "x", y: "y", fill: ({ kl }) => colourOfLoss(kl), stroke: ({ kl }) => (kl === undefined ? "var(--quiet)" : "var(--card)"), symbol: runtimeOf, r: 6,
      })],
    };
  },
  told: (point) => `${point.label}, ${seriesOf(point)}\n${threeDigits(point.x)} MB\n${threeDigits(point.y)} tokens/s\nKL ${point.kl === undefined ? "unknown" : threeDigits(point.kl)}`,
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
});

// The front in size, speed and divergence, of the forms whose divergence is known. The smallest come first.
function bestForms(points) {
  return frontOf(points.filter(({ kl }) => kl !== undefined), [({ x }) => x, ({ y }) => -y, ({ kl }) => kl]);
}

const runtimesOf = (chart) => [...new Set(chart.points.map(runtimeOf))];
const symbolOfRuntime = (chart, name) => SYMBOLS[runtimesOf(chart).indexOf(name) % SYMBOLS.length];
