// The few parts of a browser's document that D3, Observable Plot and the page's charts use, and its text as SVG.

const HTML_SPACE = "http://www.w3.org/1999/xhtml";

class TextNode {
  constructor(text) { this.data = text; this.parentNode = null; }
  get textContent() { return this.data; }
}

// Styles are plain properties in camel case, as scripts set them.
class Style {
  setProperty(name, value) { this[name] = String(value); }
  removeProperty(name) { delete this[name]; }
}

class ElementNode {
  constructor(document, space, name) {
    Object.assign(this, { ownerDocument: document, namespaceURI: space, tagName: name, parentNode: null });
    Object.assign(this, { childNodes: [], attributes: new Map(), style: new Style() });
  }

  get firstChild() { return this.childNodes[0] ?? null; }
  get children() { return this.childNodes.filter((node) => node instanceof ElementNode); }
  get nextSibling() { return this.parentNode?.childNodes[this.parentNode.childNodes.indexOf(this) + 1] ?? null; }
  get textContent() { return this.childNodes.map((node) => node.textContent).join(""); }
  set textContent(text) { this.replaceChildren(...(text === null || text === "" ? [] : [text])); }
  get className() { return this.getAttribute("class") ?? ""; }
  set className(value) { this.setAttribute("class", value); }

  getAttribute(name) { return this.attributes.get(name) ?? null; }
  hasAttribute(name) { return this.attributes.has(name); }
  setAttribute(name, value) { this.attributes.set(name, String(value)); }
  setAttributeNS(_, name, value) { this.setAttribute(name, value); }
  removeAttribute(name) { this.attributes.delete(name); }

  appendChild(node) { return this.insertBefore(node, null); }
  insertBefore(node, next) {
    node.parentNode?.removeChild(node);
    this.childNodes.splice(next === null ? this.childNodes.length : this.childNodes.indexOf(next), 0, node);
    node.parentNode = this;
    return node;
  }
  removeChild(node) {
    this.childNodes.splice(this.childNodes.indexOf(node), 1);
    node.parentNode = null;
    return node;
  }
  append(...nodes) { for (const node of nodes) this.appendChild(node instanceof Object ? node : new TextNode(String(node))); }
  replaceChildren(...nodes) { while (this.firstChild) this.removeChild(this.firstChild); this.append(...nodes); }
  remove() { this.parentNode?.removeChild(this); }

  // The first element of this name among the descendants.
  querySelector(name) {
    for (const child of this.children) {
      const found = child.tagName === name ? child : child.querySelector(name);
      if (found) return found;
    }
    return null;
  }

  // A file has no events.
  addEventListener() {}
  dispatchEvent() {}
}

const document = {
  createElementNS: (space, name) => new ElementNode(document, space, name),
  createElement: (name) => new ElementNode(document, HTML_SPACE, name),
  createTextNode: (text) => new TextNode(text),
  defaultView: { Event: class {} },
};
document.documentElement = document.createElement("html");
globalThis.document = document;
globalThis.window = globalThis;

// A colour of the style sheet in its light form: a file is printed on white.
function lightColour(value) {
  const { style } = document.documentElement;
  return value
    .replace(/var\((--[\w-]+)\)/g, (whole, name) => (name in style ? lightColour(style[name]) : whole))
    .replace(/light-dark\(([^,]+),[^)]*\)/g, "$1");
}

// Characters that XML has no form for become spaces.
function escaped(text) {
  const written = text.replace(/[^\t\n\r -\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, " ");
  return written.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;").replaceAll("'", "&#39;");
}

// An element as the text of an SVG file. Style sheets and groups without content are left out.
function svgText(node) {
  if (node instanceof TextNode) return escaped(node.data);
  const content = node.childNodes.map(svgText).join("");
  if (node.tagName === "style" || (node.tagName === "g" && content === "")) return "";
  const kebab = (name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  const style = Object.entries(node.style).map(([name, value]) => `${kebab(name)}: ${value}`).join("; ");
  const attributes = [...node.attributes, ...(style ? [["style", style]] : [])];
  const written = attributes.map(([name, value]) => ` ${name}="${escaped(lightColour(value))}"`).join("");
  return content === "" ? `<${node.tagName}${written}/>` : `<${node.tagName}${written}>${content}</${node.tagName}>`;
}

// Observable Plot asks for a formatter when it is loaded; the charts bring their own.
class Formatter {
  format(value) { return String(value); }
}
globalThis.Intl ??= { NumberFormat: Formatter, DateTimeFormat: Formatter };
