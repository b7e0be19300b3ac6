// Elements, made of text only: no text of a file becomes markup.

function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// The same for SVG.
function shape(tag, properties = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Replaces the content of a node. The focus moves to the new part in the place of the old one, so that keys work on
// from there.
function putAnew(node, ...children) {
  const parts = () => [...node.querySelectorAll("button, input, select, summary")];
  const place = parts().indexOf(document.activeElement);
  node.replaceChildren(...children);
  parts()[place]?.focus();
}

function swatch(colour, shape = "") {
  const node = make("span", { class: `swatch ${shape}` });
  node.style.background = colour;
  return node;
}

// Names with their marks.
function legend(entries) {
  return make("div", { class: "legend" }, ...entries.map(([name, mark]) => make("span", {}, mark, name)));
}

// Text with `commands` in it.
function withCode(text) {
  return text.split("`").map((part, index) => (index % 2 === 1 ? make("code", {}, part) : part));
}
