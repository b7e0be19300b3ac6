// Bars with names, and the tip beside the pointer.

// As much of a text as fits into a width.
function fitting(text, width) {
  const most = Math.floor((width - 8) / 6.8);
  if (text.length <= most) return text;
  return most < 4 ? "" : `${text.slice(0, most - 1)}…`;
}

// A rectangle with a name in it.
function bar(x, y, width, height, colour, opacity, name) {
  const rect = shape("rect", { x, y, width: Math.max(0.5, width), height, rx: 2, "fill-opacity": opacity });
  rect.style.fill = colour;
  const text = fitting(name, width);
  return shape("g", {}, rect, ...(text ? [shape("text", { x: x + 4, y: y + height / 2 + 4 }, text)] : []));
}

function showTip(text, x, y) {
  const tip = document.getElementById("tip");
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? Math.max(8, y - height - 12) : y + 18}px`;
}

function hideTip() {
  document.getElementById("tip").hidden = true;
}

const kindColour = (kind) => `var(--kind-${kind})`;

function kindLegend(shown) {
  const kinds = [...new Set(shown.flatMap((one) => one.rows.map((row) => row.kind)))];
  return legend(kinds.map((kind) => [kind.replace("-", " "), swatch(kindColour(kind), "square")]));
}
