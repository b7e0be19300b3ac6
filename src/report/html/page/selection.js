// The selection: a set of values per field, kept in the address so that a link shows the same.

const payload = JSON.parse(document.getElementById("payload").textContent);
const cases = payload.cases;

// A series is named by its backend, and by the other fields in which the configurations of this report differ.
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

// One colour per backend, the same in every chart, report and year: the registry's, after Okabe & Ito 2008, "Color universal
// design". Colours are style variables, so that light, dark and print need no new drawing.
const ownColours = new Map(payload.colours);
const backends = [...new Set(cases.map((one) => one.backend))].sort();
// The colours of series that are not backends, such as machines, by their order.
const placeColours = [
  ...ownColours.values(),
  ["#4b3d8f", "#a99cf0"], ["#0b7a75", "#56d3cd"], ["#a23b3b", "#f08a8a"], ["#56700a", "#b5d957"], ["#33658a", "#8cc1e8"],
];
const defineColour = (name, [light, dark]) => document.documentElement.style.setProperty(name, `light-dark(${light}, ${dark})`);
backends.forEach((name, index) => defineColour(`--backend-${index}`, ownColours.get(name)));
placeColours.forEach((colour, index) => defineColour(`--place-${index}`, colour));

function backendColour(name) {
  return `var(--backend-${backends.indexOf(name)})`;
}

// Series of one backend have its colour; other differences show as a dash and a symbol.
const series = new Map();
for (const one of cases) {
  if (series.has(one.series)) continue;
  const order = [...series.values()].filter((known) => known.backend === one.backend).length;
  series.set(one.series, { backend: one.backend, order });
}
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 2"];
// Closed shapes, because charts fill them. Five dashes and seven symbols tell 35 series apart.
const SYMBOLS = ["circle", "square", "diamond2", "triangle", "cross", "star", "wye"];
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
