// What all kinds of charts share: their panels, their legends and their axes.

const AXES = { marginTop: 24, marginRight: 14, marginBottom: 34, style: { fontSize: "11.5px", background: "none" } };
const kinds = {};

// The selected values of a chart by panel, in the order of the panels.
function byPanel(chart, values) {
  const groups = d3.group(values.filter((value) => isSelected[value.case]), (value) => value.panel);
  return [...groups].sort(([one], [other]) => one - other).map(([panel, members]) => [chart.plot.panels[panel], members]);
}

function seriesLegend(values) {
  const names = new Set(values.filter((value) => isSelected[value.case]).map((value) => cases[value.case].series));
  return make("div", { class: "legend" }, ...[...names].map((name) => make("span", {}, seriesMark(name), name)));
}

// As a series is drawn: its symbol on a piece of its line.
function seriesMark(name) {
  const space = "http://www.w3.org/2000/svg";
  const part = (tag, properties) => {
    const node = document.createElementNS(space, tag);
    for (const [key, value] of Object.entries(properties)) node.setAttribute(key, value);
    return node;
  };
  const mark = part("svg", { width: 26, height: 12, viewBox: "-13 -6 26 12", "aria-hidden": "true" });
  mark.style.color = seriesColour(name);
  const symbol = d3[`symbol${seriesSymbol(name).replace(/^./, (letter) => letter.toUpperCase())}`];
  mark.append(
    part("path", { d: "M-13,0H13", stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": seriesDash(name) }),
    part("path", { d: d3.symbol(symbol, 44)(), fill: "currentColor" }),
  );
  return mark;
}
