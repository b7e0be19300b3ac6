// Rows with one dot per series: architectures, and hardware.

kinds.dots = {
  isWide: (chart) => new Set(chart.points.map((point) => point.panel)).size === 1,
  panels: (chart) => byPanel(chart).map(([title, points]) => {
    const means = dotMeans(points);
    const rows = [...new Set(means.map((mean) => mean.row))];
    const height = 64 + 26 * rows.length;
    return { title, height, draw: (width) => dots(chart, means, rows, width, height) };
  }),
  legend(chart) {
    const names = new Set(selectedPoints(chart).map((point) => point.series));
    return legend([...names].map((name) => [name, symbolMark(dotSymbol(name), dotColour(chart, name))]));
  },
  rows: (chart) => ({
    columns: ["model", chart.y, "series", chart.x, "cases"],
    rows: byPanel(chart).flatMap(([title, points]) =>
      dotMeans(points).map((mean) => [title, mean.row, mean.series, mean.value, mean.count])),
  }),
};

function dotColour(chart, name) {
  if (series.has(name)) return seriesColour(name);
  const names = [...new Set(chart.points.map((point) => point.series))];
  return `var(--place-${names.indexOf(name) % placeColours.length})`;
}

const dotSymbol = (name) => (series.has(name) ? seriesSymbol(name) : "circle");

function dotMeans(points) {
  const groups = d3.groups(points, (point) => point.row, (point) => point.series);
  return groups.flatMap(([row, ofRow]) => ofRow.map(([name, members]) => ({
    row, series: name, count: members.length, value: geometricMean(members.map((member) => member.value)),
  })));
}

function dots(chart, means, rows, width, height) {
  const names = [...new Set(means.map((mean) => mean.series))];
  const marginLeft = Math.min(18 + 6.6 * Math.max(...rows.map((row) => row.length)), width * 0.42);
  const reference = chart.reference;
  const spans = d3.rollups(means, (members) => d3.extent(members, (mean) => mean.value), (mean) => mean.row);
  return Plot.plot({
    ...AXES, width, height, marginLeft, marginTop: 8,
    x: { ...logAxis([...means.map((mean) => mean.value), ...(reference ? [reference] : [])], chart.x), grid: true },
    y: { type: "point", domain: rows, label: null, tickSize: 0, padding: 0.6 },
    color: { domain: names, range: names.map((name) => dotColour(chart, name)) },
    symbol: { domain: names, range: names.map(dotSymbol) },
    marks: [
      reference ? Plot.ruleX([reference], { strokeDasharray: "4 3", strokeOpacity: 0.6 }) : null,
      Plot.ruleY(spans, { x1: (span) => span[1][0], x2: (span) => span[1][1], y: "0", strokeOpacity: 0.25, strokeWidth: 2 }),
      Plot.dot(means, { x: "value", y: "row", fill: "series", symbol: "series", stroke: "var(--card)", strokeWidth: 1, r: 6 }),
      Plot.tip(means, Plot.pointer({
        x: "value", y: "row",
        title: (mean) => {
          const value = reference ? `${mean.value.toFixed(2)} × the fastest` : milliseconds(mean.value);
          return `${mean.row}\n${mean.series}: ${value}${mean.count > 1 ? `\nmean of ${mean.count} cases` : ""}`;
        },
      })),
    ],
  });
}
