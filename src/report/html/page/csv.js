// Data as CSV, on the clipboard.

function csv(columns, rows) {
  const cell = (value) => {
    const raw = value === null || value === undefined ? "" : String(value);
    // A spreadsheet would compute a text that begins so.
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(raw) ? `'${raw}` : raw;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

// A button that copies the columns and rows that `table` gives at that moment.
function csvButton(table) {
  const onclick = (event) => { const { columns, rows } = table(); copy(csv(columns, rows), event.currentTarget); };
  return make("button", { type: "button", class: "small", onclick }, "Copy as CSV");
}

async function copy(text, button) {
  // The first label comes back after a second click, too.
  const label = (button.dataset.label ??= button.textContent);
  let isDone = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    isDone = copyFromField(text); // where a page from disk has no clipboard of its own
  }
  button.textContent = isDone ? "Copied" : "Not allowed here";
  setTimeout(() => { button.textContent = label; }, 1500);
}

function copyFromField(text) {
  const field = make("textarea", { "aria-hidden": "true" });
  field.value = text;
  document.body.append(field);
  field.select();
  const isDone = document.execCommand("copy");
  field.remove();
  return isDone;
}
