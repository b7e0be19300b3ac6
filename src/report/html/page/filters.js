// The bar on top: backends as coloured buttons, which are the legend too, the other fields as lists.

function filterBar(onChange) {
  const bar = document.getElementById("filters");
  const redraw = () => {
    const open = bar.querySelector("details[open]")?.dataset.field;
    const count = isSelected.filter(Boolean).length;
    putAnew(
      bar,
      ...shownFields.map((field) => (field.name === "backend" ? chips(field) : choice(field, open === field.name))),
      make("span", { class: "count", role: "status" }, `${count} of ${cases.length} ${cases.length === 1 ? "case" : "cases"}`),
      make("button", { type: "button", onclick: () => { chosen.clear(); select(); history.replaceState(null, "", "#"); changed(); } }, "Reset"),
      make("button", { type: "button", onclick: (event) => copy(location.href, event.currentTarget) }, "Copy link"),
    );
  };
  const changed = () => { redraw(); onChange(); };

  const toggle = (field, value) => {
    const values = new Set(chosen.get(field.name) ?? field.values);
    if (!values.delete(value)) values.add(value);
    choose(field, values);
    changed();
  };

  const chips = (field) => make("span", { class: "chips", role: "group", "aria-label": field.title },
    ...field.values.map((value) => {
      const isOn = chosen.get(field.name)?.has(value) ?? true;
      const button = make("button", { type: "button", class: "chip", "aria-pressed": String(isOn), onclick: () => toggle(field, value) },
        swatch(backendColour(value)), value);
      button.style.marginRight = "6px";
      return button;
    }));

  const choice = (field, isOpen) => {
    const values = chosen.get(field.name);
    const one = (value) => make("label", {},
      make("input", {
        type: "checkbox", checked: values?.has(value) ?? false,
        onchange: (event) => {
          const next = new Set(chosen.get(field.name) ?? []);
          if (event.target.checked) next.add(value); else next.delete(value);
          choose(field, next);
          changed();
        },
      }), value);
    const summary = values ? `${field.title}: ${values.size === 1 ? [...values][0] : values.size}` : field.title;
    return make("details", { class: values ? "choice is-set" : "choice", "data-field": field.name, open: isOpen },
      make("summary", {}, summary), make("div", {}, ...field.values.map(one)));
  };

  document.addEventListener("click", (event) => {
    for (const open of bar.querySelectorAll("details[open]")) if (!open.contains(event.target) && event.target.isConnected) open.open = false;
  });
  addEventListener("hashchange", () => { readAddress(); changed(); });
  redraw();
}
