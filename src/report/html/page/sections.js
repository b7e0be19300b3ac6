// Sections with panels. A panel is drawn when it comes into sight, so that a report of a thousand cases opens at once.

const MOST_PANELS = 12;
const drawings = new Map(); // panel → how it is drawn

const inSight = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) drawNow(entry.target);
}, { rootMargin: "300px" });

function drawNow(panel) {
  const draw = drawings.get(panel);
  if (!draw || panel.dataset.drawn) return;
  panel.dataset.drawn = "yes";
  const width = panel.clientWidth || 340;
  panel.querySelector(".drawing").replaceChildren(draw(width));
}

function drawAll() {
  for (const panel of drawings.keys()) drawNow(panel);
}

// A chart's section; `update` draws the selected points.
function chartSection(chart) {
  const kind = kinds[chart.kind];
  const body = make("div");
  const copyButton = csvButton(() => kind.rows(chart));
  const node = make("section", { id: chart.id },
    make("div", { class: "head" }, make("h2", {}, chart.title), chart.absent ? null : copyButton),
    chart.absent ? null : make("p", { class: "caption" }, chart.caption), body);
  let showsAll = false;

  const update = () => {
    for (const panel of body.querySelectorAll(".panel")) { drawings.delete(panel); inSight.unobserve(panel); }
    if (chart.absent) return body.replaceChildren(make("p", { class: "absent" }, ...withCode(chart.absent)));
    const panels = kind.panels(chart);
    if (panels.length === 0) return body.replaceChildren(make("p", { class: "absent" }, "Nothing of this chart is selected."));
    const shown = showsAll ? panels : panels.slice(0, MOST_PANELS);
    const nodes = shown.map(({ title, draw, height }) => {
      const drawing = make("div", { class: "drawing" });
      drawing.style.minHeight = `${height}px`;
      const panel = make("div", { class: "panel" }, title ? make("h3", {}, title) : null, drawing);
      drawings.set(panel, draw);
      return panel;
    });
    const grid = make("div", { class: kind.isWide?.(chart) ? "panels wide" : "panels" }, ...nodes);
    const words = (kind.words?.(chart) ?? []).map((sentence) => make("li", {}, sentence));
    body.replaceChildren(kind.legend(chart), grid, ...(words.length > 0 ? [make("ul", {}, ...words)] : []));
    if (panels.length > shown.length) {
      const rest = `Show all ${panels.length}, or choose models above`;
      body.append(make("button", { type: "button", class: "more", onclick: () => { showsAll = true; update(); } }, rest));
    }
    nodes.forEach((panel) => inSight.observe(panel));
  };
  return { node, update };
}

addEventListener("beforeprint", drawAll);
let lastWidth = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === lastWidth) return; // a phone's address bar comes and goes
  lastWidth = innerWidth;
  for (const panel of drawings.keys()) { delete panel.dataset.drawn; inSight.unobserve(panel); inSight.observe(panel); }
});
