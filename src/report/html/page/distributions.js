// Latency over the fraction of the calls; each further nine has as much room.

const nines = (fraction) => -Math.log10(1 - fraction);
const NINE_TICKS = [0, 0.5, 0.9, 0.99, 0.999, 0.9999];
const nineLabel = (position) => `${+((1 - 10 ** -position) * 100).toPrecision(6)} %`;

kinds.distributions = {
  panels(chart) {
    return byPanel(chart).map(([title, curves]) => ({
      title, height: 230, draw: (width) => distribution(curves, width),
    }));
  },
  legend: seriesLegend,
  rows: (chart) => ({
    columns: [...CASE_COLUMNS, "fraction_of_the_calls", "latency_ms"],
    rows: selectedPoints(chart).flatMap((curve) => curve.quantiles.map((quantile) => [...caseCells(curve), ...quantile])),
  }),
};

function distribution(curves, width) {
  const points = curves.flatMap((curve) => curve.quantiles.map(([fraction, ms]) => ({ case: curve.case, fraction, ms })));
  const bounds = curves.flatMap((curve) => curve.bounds.map((bound) => ({ case: curve.case, ...bound })));
  const x = (point) => nines(point.fraction);
  const unit = timeUnit(points.map((point) => point.ms));
  const inUnit = (name) => (point) => point[name] * unit.factor;
  const all = [...points.map(inUnit("ms")), ...bounds.map((bound) => (bound.upper ?? bound.ms) * unit.factor)];
  const most = Math.max(...points.map(x), nines(0.9));
  return Plot.plot({
    ...AXES, width, height: 230, marginLeft: 52, marginRight: 22,
    x: { domain: [0, most * 1.02], ticks: NINE_TICKS.map(nines).filter((at) => at <= most * 1.02 && (at > 0 || most < 2.5)), tickFormat: nineLabel, label: "fraction of the calls", grid: true },
    y: { ...logAxis(all, `latency (${unit.name})`), grid: true },
    color: colourScale, symbol: symbolScale,
    marks: [
      ...dashed(points, (members) => Plot.line(members, {
        x, y: inUnit("ms"), stroke: seriesOf, strokeWidth: 1.8, strokeDasharray: seriesDash(seriesOf(members[0])),
      })),
      Plot.ruleX(bounds.filter((bound) => bound.upper !== null), { x, y1: inUnit("ms"), y2: inUnit("upper"), stroke: seriesOf, strokeWidth: 3, strokeOpacity: 0.45 }),
      Plot.dot(bounds, { x, y: inUnit("ms"), fill: seriesOf, stroke: "var(--card)", symbol: seriesOf, r: 3.5 }),
      Plot.tip(bounds, Plot.pointer({
        x, y: inUnit("ms"),
        title: (bound) => `${seriesOf(bound)}\np${bound.fraction * 100} ${milliseconds(bound.ms)}\n` +
          (bound.upper === null ? "too few calls for a 99 % bound" : `99 % bound ${milliseconds(bound.upper)}`),
      })),
    ],
  });
}
