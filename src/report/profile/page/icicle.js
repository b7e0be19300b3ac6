// The tree as an icicle: the bars below a bar are its parts, and a bar's width is its time. A chosen bar fills the
// width.

const BAR = 22;

function icicle(root, shown, name) {
  const isDifference = shown.length === 2;
  const svg = shape("svg", { class: "bars", tabindex: 0, role: "application", "aria-label": `${name}: arrows go from bar to bar, enter zooms, escape zooms out` });
  const state = { zoomed: root, current: null, query: "" };
  const nodes = allNodes(root);
  let bars = new Map(); // node → its bar

  const isAbove = (node) => { for (let at = state.zoomed; at; at = at.parent) if (at === node) return true; return false; };
  const isBelow = (node) => { for (let at = node; at; at = at.parent) if (at === state.zoomed) return true; return false; };
  // The whole call has the name of its case, which is neither a module nor an operator.
  const isFound = (node) => node !== root && state.query !== "" && node.path.toLowerCase().includes(state.query);

  function fill(node) {
    if (shown[0].is_stacks) return node.name.startsWith("[") ? [kindColour("outside"), 0.3] : [kindColour("module"), 0.55];
    if (!isDifference) return [kindColour(node.kind), node.kind === "module" ? 0.55 : node.rows.length > 0 && node.parent.kind !== "module" ? 0.28 : 0.5];
    const [a, b] = node.us;
    const part = Math.abs(b - a) / Math.max(a, b, 1e-9);
    return [b > a ? "var(--slower)" : "var(--faster)", 0.07 + 0.75 * Math.min(1, part)];
  }

  function draw() {
    const width = svg.parentNode?.clientWidth || 340;
    svg.setAttribute("viewBox", `0 0 ${width} ${BAR * (root.deepest + 1)}`);
    svg.setAttribute("height", BAR * (root.deepest + 1));
    const scale = width / (state.zoomed.size || 1);
    bars = new Map();
    for (const node of nodes) {
      const isOver = isAbove(node);
      if (!isOver && !isBelow(node)) continue;
      const [x, wide] = isOver ? [0, width] : [(node.left - state.zoomed.left) * scale, node.size * scale];
      if (wide < 0.4) continue;
      const drawn = bar(x, node.depth * BAR, wide, BAR, ...fill(node), node.name);
      const marks = { found: isFound(node), dim: state.query !== "" && !isFound(node), current: node === state.current };
      drawn.setAttribute("class", Object.keys(marks).filter((mark) => marks[mark]).join(" "));
      drawn.dataset.path = node.path;
      bars.set(node, drawn);
    }
    // The outline of the current bar is above its neighbours.
    svg.replaceChildren(...[...bars].sort(([a], [b]) => (a === state.current) - (b === state.current)).map(([, drawn]) => drawn));
  }

  function zoom(node) {
    state.zoomed = node;
    if (state.current && !isAbove(state.current) && !isBelow(state.current)) state.current = node;
    draw();
  }

  function go(node) {
    state.current = node;
    draw();
    const { left, bottom } = bars.get(node).getBoundingClientRect();
    showTip(told(node, shown), left, bottom - 14);
  }

  // The next bar on the same level, to the left or the right.
  function beside(node, step) {
    const level = [...bars.keys()].filter((other) => other.depth === node.depth);
    return level[level.indexOf(node) + step];
  }

  const nodeAt = (event) => {
    const drawn = event.target.closest("g");
    return [...bars].find(([, other]) => other === drawn)?.[0];
  };
  svg.addEventListener("pointermove", (event) => {
    const node = nodeAt(event);
    if (node) showTip(told(node, shown), event.clientX, event.clientY); else hideTip();
  });
  svg.addEventListener("pointerleave", hideTip);
  svg.addEventListener("blur", hideTip);
  svg.addEventListener("click", (event) => {
    const node = nodeAt(event);
    if (node) zoom(node === state.zoomed && node.parent ? node.parent : node);
  });
  svg.addEventListener("keydown", (event) => {
    const current = state.current && bars.has(state.current) ? state.current : state.zoomed;
    const next = {
      ArrowLeft: () => beside(current, -1), ArrowRight: () => beside(current, 1), ArrowUp: () => current.parent,
      ArrowDown: () => (state.current ? current.children.find((child) => bars.has(child)) : current),
      Enter: () => { zoom(current); return current; }, Escape: () => { zoom(root); return root; },
    }[event.key];
    if (!next) return;
    event.preventDefault();
    const node = next();
    if (node) go(node);
  });

  // Marks bars by a part of their path, and says how much time they take in each case.
  function search(text) {
    state.query = text.trim().toLowerCase();
    draw();
    const found = nodes.filter((node) => isFound(node) && !(node.parent && isFound(node.parent)));
    return { found: found.length, us: shown.map((_, side) => found.reduce((sum, node) => sum + node.us[side], 0)) };
  }
  return { svg, draw, zoom, search, root };
}

function icicleSection(shown) {
  if (shown.length === 2) {
    return chartSection("icicle", shown, "Difference by module",
      "Modules from the outside to the inside, then kinds of operators. A bar is as wide as the longer of its two times. Red takes longer in B, blue takes longer in A; the paler, the less.",
      "Whole call", legend(["slower", "faster"].map((name) => [`${name} in B`, swatch(`var(--${name})`, "square")])));
  }
  return shown[0].rows.length === 0 ? null : chartSection("icicle", shown, "Time by module",
    "Modules from the outside to the inside, then operators and kernels, in the order of their first execution. A bar is as wide as its time without the profiler's cost.",
    "Whole call", kindLegend(shown));
}

// A flame graph from the top to the bottom.
function stacksSection(one) {
  if (!one.stacks) return null;
  const us = 1e6 / one.stacks.frequency_hz;
  const rows = one.stacks.stacks.map(({ frames, samples }) => ({ frames, samples, kind: "module", corrected_us: samples * us }));
  rows.sort((a, b) => (a.frames.join("\n") < b.frames.join("\n") ? -1 : 1));
  const stacks = { name: "all threads", is_stacks: true, rows, plain_us: rows.reduce((sum, row) => sum + row.corrected_us, 0) };
  return chartSection("stacks", [stacks], "Stacks of threads",
    `What the threads did while they used processors: thread, then functions from the outermost to the innermost, in alphabetical order. A bar is as wide as its samples, ${one.stacks.frequency_hz} per second of processor time. A function without a name is its library, in brackets.`,
    "All threads");
}

function chartSection(id, shown, title, caption, whole, ...colours) {
  const isDifference = shown.length === 2;
  const chart = icicle(treeOf(shown), shown, title);
  const count = make("span", { class: "quiet", role: "status" });
  const input = make("input", {
    type: "search", placeholder: "Search", "aria-label": "Search modules, operators and kernels",
    oninput: () => {
      const { found, us } = chart.search(input.value);
      const parts = us.map((time, side) => `${isDifference ? `${"AB"[side]} ` : ""}${micros(time)}, ${percent(time / shown[side].plain_us)}`);
      count.textContent = input.value.trim() === "" ? "" : found === 0 ? "nothing found" : parts.join("; ");
    },
  });
  const reset = make("button", { type: "button", class: "small", onclick: () => chart.zoom(chart.root) }, whole);
  const node = make("section", { id },
    make("div", { class: "head" }, make("h2", {}, title), make("div", { class: "tools" }, count, input, reset)),
    make("p", { class: "caption" }, caption, " Click a bar, or press Enter on it, to zoom in; Escape zooms out."), ...colours, make("div", {}, chart.svg));
  return { node, draw: chart.draw };
}
