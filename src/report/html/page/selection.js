// What is selected: a set of values a field, kept in the address so that a link shows the same.

const payload = JSON.parse(document.getElementById("payload").textContent);
const cases = payload.cases;

// A series is named by its backend, and what else tells the configurations of this report apart.
const areSeveral = (name) => new Set(cases.map((one) => one[name])).size > 1;
const TOLD = ["backend", ...["device", "dtype", "machine"].filter(areSeveral)];
for (const one of cases) one.series = TOLD.map((name) => one[name]).join(" · ");

const FIELDS = [
  { name: "backend", title: "Backend" },
  { name: "model", title: "Model" },
  { name: "device", title: "Device" },
  { name: "dtype", title: "Dtype" },
  { name: "variant", title: "Variant", onlyIfSeveral: true },
  { name: "phase", title: "Phase", onlyIfSeveral: true },
  { name: "machine", title: "Machine", onlyIfSeveral: true },
];
for (const field of FIELDS) field.values = [...new Set(cases.map((one) => one[field.name]))];
const shownFields = FIELDS.filter((field) => !field.onlyIfSeveral || field.values.length > 1);

// Field → the chosen values; a field that is not there is not restricted.
const chosen = new Map();
let isSelected = cases.map(() => true);

function select() {
  isSelected = cases.map((one) => [...chosen].every(([name, values]) => values.has(one[name])));
}

function choose(field, values) {
  const isAll = values.size === 0 || field.values.every((value) => values.has(value));
  if (isAll) chosen.delete(field.name);
  else chosen.set(field.name, values);
  select();
  history.replaceState(null, "", address());
}

// #model=a,b&backend=ort
function address() {
  const parts = [...chosen].map(([name, values]) => `${name}=${[...values].map(encodeURIComponent).join(",")}`);
  return `#${parts.join("&")}`;
}

function readAddress() {
  chosen.clear();
  for (const part of location.hash.slice(1).split("&")) {
    const [name, list] = part.split("=");
    const field = FIELDS.find((known) => known.name === name);
    if (!field || !list) continue;
    let values;
    try {
      values = list.split(",").map(decodeURIComponent).filter((value) => field.values.includes(value));
    } catch {
      continue; // an address that somebody has cut
    }
    if (values.length > 0) chosen.set(name, new Set(values));
  }
  select();
}

// One colour per backend, the same in every chart, report and year: that of the registry, after Okabe & Ito 2008, "Color
// universal design"; others have these, in the order of their names. They are style variables, so that light, dark and print
// need no new drawing.
const OTHER_COLOURS = [
  ["#4b3d8f", "#a99cf0"], ["#0b7a75", "#56d3cd"], ["#a23b3b", "#f08a8a"], ["#56700a", "#b5d957"], ["#33658a", "#8cc1e8"],
];
const ownColours = new Map(payload.colours);
const backends = [...new Set(cases.map((one) => one.backend))].sort();
const unknown = backends.filter((name) => !ownColours.has(name));
const colourOf = (name) => ownColours.get(name) ?? OTHER_COLOURS[unknown.indexOf(name) % OTHER_COLOURS.length];
// Of series that are no backends, such as machines, by their order.
const placeColours = [...ownColours.values(), ...OTHER_COLOURS];
const defineColour = (name, [light, dark]) => document.documentElement.style.setProperty(name, `light-dark(${light}, ${dark})`);
backends.forEach((name, index) => defineColour(`--backend-${index}`, colourOf(name)));
placeColours.forEach((colour, index) => defineColour(`--place-${index}`, colour));

function backendColour(name) {
  return `var(--backend-${backends.indexOf(name)})`;
}

// Series of one backend have its colour; what else differs shows as a dash and a symbol.
const series = new Map();
for (const one of cases) {
  if (series.has(one.series)) continue;
  const order = [...series.values()].filter((known) => known.backend === one.backend).length;
  series.set(one.series, { backend: one.backend, order });
}
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 2"];
const SYMBOLS = ["circle", "square", "diamond2", "triangle", "plus"];
const seriesColour = (name) => backendColour(series.get(name).backend);
const seriesDash = (name) => DASHES[series.get(name).order % DASHES.length];
const seriesSymbol = (name) => SYMBOLS[series.get(name).order % SYMBOLS.length];
const colourScale = { domain: [...series.keys()], range: [...series.keys()].map(seriesColour) };
const symbolScale = {
  domain: [...series.keys()],
  range: [...series.keys()].map(seriesSymbol),
};

const seriesOf = (value) => cases[value.case].series;

function geometricMean(values) {
  return Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
}
