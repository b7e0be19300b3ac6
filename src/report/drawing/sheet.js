// A chart as an SVG file: a title, the legend, and the panels of the page in rows of three or one below the other.

const SHEET = { margin: 20, panel: 380, wide: 1000, columns: 3, mostPanels: 36 };
const FONT = "DejaVu Sans, Helvetica, Arial, sans-serif";
const INK = lightColour("var(--ink)");
const QUIET = lightColour("var(--quiet)");

function words(text, x, y, attributes = {}) {
  return shape("text", { x, y, fill: INK, "font-size": 11.5, ...attributes }, text);
}

const textWidth = (text, size = 11.5) => 0.6 * size * [...text].length;

function chartSvg(id) {
  const chart = charts.find((one) => one.id === id);
  const kind = kinds[chart.kind];
  const isWide = kind.isWide?.(chart) ?? false;
  const all = kind.panels(chart);
  const panels = all.slice(0, SHEET.mostPanels);
  const columns = isWide ? 1 : Math.min(SHEET.columns, panels.length);
  const gap = 22;
  const drawings = panels.map(({ title, draw }) => ({ title, svg: plotOf(draw((isWide ? SHEET.wide : SHEET.panel) - gap)) }));
  const panelWidth = Math.max(isWide ? SHEET.wide : SHEET.panel, ...drawings.map(({ svg }) => gap + Number(svg.getAttribute("width"))),
    ...drawings.map(({ title }) => (title ? gap + textWidth(title, 13.5) : 0)));
  const content = Math.max(columns * panelWidth, textWidth(chart.title, 17));

  const nodes = [words(chart.title, SHEET.margin, SHEET.margin + 14, { "font-size": 16, "font-weight": "bold" })];
  let top = SHEET.margin + 36 + placeLegend(kind.legend(chart), content, SHEET.margin + 36, nodes);
  for (const row of d3.range(0, drawings.length, columns).map((first) => drawings.slice(first, first + columns))) {
    row.forEach(({ title, svg }, index) => {
      const left = SHEET.margin + index * panelWidth;
      if (title) nodes.push(words(title, left, top + 12, { "font-size": 12.5, "font-weight": "bold" }));
      for (const [name, value] of Object.entries({ x: left, y: top + 16, overflow: "visible" })) svg.setAttribute(name, value);
      nodes.push(svg);
    });
    top += 16 + Math.max(...row.map(({ svg }) => Number(svg.getAttribute("height")))) + 12;
  }
  const left = all.length - panels.length;
  if (left > 0) {
    nodes.push(words(`${left} more panels are left out; choose some with --model, --backend, --batch-sizes`, SHEET.margin, top + 10, { fill: QUIET }));
    top += 20;
  }
  const size = [Math.ceil(content + 2 * SHEET.margin), Math.ceil(top + SHEET.margin - 12)];
  const root = shape("svg", {
    xmlns: "http://www.w3.org/2000/svg", width: size[0], height: size[1], viewBox: `0 0 ${size.join(" ")}`, "font-family": FONT, color: INK,
  }, shape("rect", { width: "100%", height: "100%", fill: "#ffffff" }), ...nodes);
  return svgText(root);
}

// The drawing of a panel without its font and class, which only a page needs.
function plotOf(node) {
  const svg = node.tagName === "svg" ? node : node.querySelector("svg");
  for (const name of ["class", "font-family"]) svg.removeAttribute(name);
  return svg;
}

// Adds the entries of the page's legend in rows; returns their height.
function placeLegend(legend, width, top, nodes) {
  let [x, y] = [0, 0];
  for (const entry of legend.children) {
    const [mark] = entry.children;
    const name = entry.textContent;
    const own = 48 + textWidth(name);
    if (x > 0 && x + own > width) [x, y] = [0, y + 18];
    const [left, middle] = [SHEET.margin + x, top + y];
    if (mark.tagName === "svg") {
      const colour = mark.style.color;
      nodes.push(shape("g", { transform: `translate(${left + 13},${middle})`, color: lightColour(colour) }, ...mark.children));
    } else {
      const corner = mark.className.includes("square") ? 3 : 6;
      nodes.push(shape("rect", { x: left + 8, y: middle - 6, width: 12, height: 12, rx: corner, fill: mark.style.background }));
    }
    nodes.push(words(name, left + 32, middle + 4));
    x += own;
  }
  return legend.children.length > 0 ? y + 20 : 0;
}
