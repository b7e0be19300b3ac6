// All selected cases as a table that sorts, with a chooser of its columns.

const MOST_ROWS = 100;

// A cell is a text, or a number to sort by with its text.
const textOf = (column, one) => [column.cell(one)].flat().at(-1);
function valueOf(column, one) {
  const cell = column.cell(one);
  if (Array.isArray(cell)) return cell[0];
  return column.isNumber || cell === "" ? null : cell;
}

const COLUMNS = [
  { title: "model", isShown: true, cell: (one) => one.group },
  ...payload.columns.map((column, index) => ({
    title: column.title, unit: column.unit, isNumber: column.is_number, isReason: column.name === "status", isShown: column.is_default,
    cell: (one) => one.cells[index],
  })),
];
if (areSeveral("machine")) {
  COLUMNS.splice(1, 0, { title: "machine", isShown: true, cell: (one) => one.machine });
}
if (cases.some((one) => one.profile)) {
  COLUMNS.push({ title: "profile", isShown: true, cell: (one) => (one.profile ? [one.profile, make("a", { href: one.profile }, "where the time goes")] : "") });
}

function tableSection() {
  let sorted = null; // { column, isDown }
  let showsAll = false;
  const [head, body] = [make("tr"), make("tbody")];
  const more = make("button", { type: "button", class: "more", onclick: () => { showsAll = true; update(); } });
  const shownColumns = () => COLUMNS.filter((column) => column.isShown);
  const classOf = (column) => (column.isNumber ? "number" : column.isReason ? "reason" : "");
  const sortBy = (column) => {
    sorted = { column, isDown: sorted?.column === column && !sorted.isDown };
    update();
  };
  const header = (column) => {
    const direction = sorted?.column !== column ? undefined : sorted.isDown ? "descending" : "ascending";
    return make("th", { scope: "col", class: classOf(column), "aria-sort": direction },
      make("button", { type: "button", onclick: () => sortBy(column) }, column.title));
  };
  const compared = (one, other) => {
    const [a, b] = [valueOf(sorted.column, one), valueOf(sorted.column, other)];
    if (a === null || b === null) return (a === null) - (b === null); // unknown values come last in both directions
    return sorted.isDown ? d3.descending(a, b) : d3.ascending(a, b);
  };
  const rows = () => {
    const selected = cases.filter((_, index) => isSelected[index]);
    return sorted ? selected.sort(compared) : selected;
  };
  const update = () => {
    const found = rows();
    const shown = showsAll ? found : found.slice(0, MOST_ROWS);
    putAnew(head, ...shownColumns().map(header));
    body.replaceChildren(...shown.map((one) => make("tr", { class: one.ratio_to_best === 1 ? "best" : "" },
      ...shownColumns().map((column) => make("td", { class: classOf(column) }, textOf(column, one))))));
    more.textContent = `Show all ${found.length} rows`;
    more.hidden = found.length <= shown.length;
  };
  const choice = (column) => make("label", {},
    make("input", { type: "checkbox", checked: column.isShown, onchange: (event) => { column.isShown = event.target.checked; update(); } }),
    column.title);
  const chooser = make("details", { class: "choice columns" }, make("summary", {}, "Columns"), make("div", {}, ...COLUMNS.map(choice)));
  document.addEventListener("click", (event) => { if (!chooser.contains(event.target)) chooser.open = false; });
  const copyButton = csvButton(() => ({
    columns: shownColumns().map(({ title, unit }) => (unit ? `${title} (${unit})` : title)),
    rows: rows().map((one) => shownColumns().map((column) => valueOf(column, one))),
  }));
  const node = make("section", { id: "cases" },
    make("div", { class: "head" }, make("h2", {}, "All cases"), make("div", { class: "tools" }, chooser, copyButton)),
    make("p", { class: "caption" }, "The fastest of the same work is bold; a percentile in parentheses has too few calls for a 99 % bound. Click a header to sort by its column." + payload.note),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), body)), more);
  return { node, update };
}
