// The operators of one call from left to right, with one lane per thread, and the memory below.

const [LANE, CURVE, AXIS] = [24, 64, 20];

// Round times, about as many as fit.
function timeTicks(end, most) {
  const least = end / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(least || 1));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= least);
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, index) => index * step);
}

function timeline(one, width) {
  const lanes = one.has_timeline ? [...new Set(one.spans.map(([row]) => one.rows[row].thread))].sort((a, b) => a - b) : [];
  const remembered = one.spans.filter(([row]) => one.rows[row].memory_bytes !== undefined);
  const end = Math.max(...one.spans.map(([, start, duration]) => start + duration));
  const x = (us) => (us / end) * width;
  const below = AXIS + lanes.length * LANE;
  const height = below + (remembered.length ? CURVE + 22 : 0);
  const svg = shape("svg", { class: "bars", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": "Timeline" });
  svg.style.width = `${width}px`;
  for (const tick of timeTicks(end, width / 90)) {
    svg.append(shape("line", { class: "axis", x1: x(tick), x2: x(tick), y1: AXIS - 4, y2: height }));
    if (x(tick) < width - 50) svg.append(shape("text", { class: "quiet", x: x(tick) + 3, y: 12 }, tick === 0 ? "0" : micros(tick)));
  }
  for (const [index, start, duration] of one.has_timeline ? one.spans : []) {
    const row = one.rows[index];
    const drawn = bar(x(start), AXIS + lanes.indexOf(row.thread) * LANE, x(duration), LANE - 3, kindColour(row.kind), 0.55, row.operator);
    drawn.dataset.row = index;
    svg.append(drawn);
  }
  if (remembered.length) svg.append(...memoryCurve(one, remembered, x, below + 16, width));
  svg.addEventListener("pointermove", (event) => {
    const row = one.rows[event.target.closest("g")?.dataset.row];
    if (row) showTip(`${nameOf(row)}\n${facts(row, one)}`, event.clientX, event.clientY); else hideTip();
  });
  svg.addEventListener("pointerleave", hideTip);
  return svg;
}

// Steps at the ends of operators, where the memory is read.
function memoryCurve(one, spans, x, top, width) {
  const points = spans.map(([row, start, duration]) => [start + duration, one.rows[row].memory_bytes]).sort((a, b) => a[0] - b[0]);
  const most = Math.max(...points.map(([, bytes]) => bytes), 1);
  const y = (bytes) => top + CURVE * (1 - (0.9 * bytes) / most);
  let d = `M0,${top + CURVE}V${y(points[0][1])}`;
  for (const [time, bytes] of points) d += `H${x(time)}V${y(bytes)}`;
  return [
    shape("path", { class: "memory", d: `${d}H${width}V${top + CURVE}Z` }),
    shape("text", { x: 4, y: y(most) - 4 }, `memory, at most ${megabytes(most)}`),
  ];
}

function timelineSection(one) {
  if (one.spans.length === 0 || (!one.has_timeline && !one.rows.some((row) => row.memory_bytes !== undefined))) return null;
  const body = make("div", { class: "scroll" });
  let factor = 1;
  const draw = () => body.replaceChildren(timeline(one, Math.min(30000, (body.clientWidth || 340) * factor)));
  const zoom = (by) => {
    const middle = (body.scrollLeft + body.clientWidth / 2) / body.scrollWidth;
    factor = Math.min(64, Math.max(1, factor * by));
    draw();
    body.scrollLeft = middle * body.scrollWidth - body.clientWidth / 2;
  };
  const button = (name, title, by) => make("button", { type: "button", class: "small", title, onclick: () => zoom(by) }, name);
  const caption = one.has_timeline
    ? "The operators of one call as they followed one another, with the profiler's cost in them."
    : "The memory after each operator; the backend does not say when operators begin, so they are laid one after the other.";
  const node = make("section", { id: "timeline" },
    make("div", { class: "head" }, make("h2", {}, one.has_timeline ? "One call in time" : "Memory"), make("div", { class: "tools" }, button("−", "Narrower", 0.5), button("+", "Wider", 2))),
    make("p", { class: "caption" }, caption), body);
  return { node, draw };
}
