// Puts the page together.

let sections = [];

function heading() {
  const { run_id, host_id, threads } = payload;
  // Criterion's stacks belong to no run.
  const run = run_id === "" ? null
    : make("p", { class: "quiet" }, `Profile ${run_id} on ${host_id} with ${threads} ${threads === 1 ? "thread" : "threads"}`);
  document.getElementById("top").append(
    make("div", {}, make("h1", {}, payload.title), run),
    themeButton());
}

// The cases with their summaries; a click shows one.
function casesSection() {
  const block = (one, index) => {
    const name = cases.length === 1 ? make("code", {}, one.name)
      : make("button", { type: "button", class: "link", onclick: () => { choose(index, null); show(); } }, one.name);
    return make("div", { class: shownCases().includes(one) ? "case chosen" : "case" }, name,
      make("p", {}, one.summary), make("p", { class: "quiet" }, `${one.heading}.`));
  };
  const failure = ({ case_id, message }) => make("div", { class: "case" }, make("code", {}, case_id), make("p", { class: "quiet" }, message));
  return make("section", { id: "cases" }, ...cases.map(block), ...payload.failures.map(failure));
}

function show() {
  hideTip();
  if (cases.length > 1) caseChooser(show); else document.getElementById("filters").hidden = true;
  const shown = shownCases();
  const parts = shown.length === 2 ? [icicleSection(shown), differenceSection(shown)]
    : shown.length === 1 ? [icicleSection(shown), stacksSection(shown[0]), positionsSection(shown[0]), timelineSection(shown[0]), rowsSection(shown[0])] : [];
  sections = parts.filter(Boolean);
  document.getElementById("sections").replaceChildren(casesSection(), ...sections.map((section) => section.node));
  for (const section of sections) section.draw();
}

heading();
readAddress();
show();
addEventListener("hashchange", () => { readAddress(); show(); });
let lastWidth = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === lastWidth) return; // a phone's address bar comes and goes
  lastWidth = innerWidth;
  for (const section of sections) section.draw();
});
document.documentElement.dataset.ready = "yes";
