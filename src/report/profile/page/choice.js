// The case that is shown, and the case that it is compared with. Both are kept in the address, so that a link shows the
// same.

const payload = JSON.parse(document.getElementById("payload").textContent);
const cases = payload.cases;
// The name of a case, with its run if several runs have the case.
const idOf = ({ case_id, run_id }) => (cases.filter((one) => one.case_id === case_id).length > 1 ? `${case_id} · ${run_id}` : case_id);
for (const one of cases) one.name = idOf(one);
const chosen = { index: payload.compared?.[0] ?? 0, against: payload.compared?.[1] ?? null };

// One case, or two (A and B); none if all have failed.
const shownCases = () => [chosen.index, chosen.against].map((index) => cases[index]).filter(Boolean);

function choose(index, against) {
  chosen.index = index;
  chosen.against = against === index ? null : against;
  const names = shownCases().map((one) => encodeURIComponent(one.name));
  history.replaceState(null, "", `#${names.join("&")}`);
}

function readAddress() {
  let names;
  try {
    names = location.hash.slice(1).split("&").map(decodeURIComponent);
  } catch {
    return; // an address that somebody has cut
  }
  const [index, against] = names.map((name) => cases.findIndex((one) => one.name === name));
  if (index >= 0) Object.assign(chosen, { index, against: against >= 0 && against !== index ? against : null });
}

function caseChooser(onChange) {
  const option = (selected) => (text, index) => make("option", { value: String(index), selected: index === selected }, text);
  const ids = cases.map((one) => one.name);
  const select = (change, ...options) => make("select", { onchange: (event) => { change(event.target.value); onChange(); } }, ...options);
  const first = select((value) => choose(Number(value), chosen.against), ...ids.map(option(chosen.index)));
  const none = make("option", { value: "" }, "nothing");
  const second = select((value) => choose(chosen.index, value === "" ? null : Number(value)), none, ...ids.map(option(chosen.against)));
  const swap = make("button", { type: "button", onclick: () => { choose(chosen.against, chosen.index); onChange(); } }, "Swap");
  putAnew(
    document.getElementById("filters"),
    make("label", {}, chosen.against === null ? "Case" : "A", first), make("label", {}, chosen.against === null ? "compared with" : "B", second),
    ...(chosen.against === null ? [] : [swap]));
}
