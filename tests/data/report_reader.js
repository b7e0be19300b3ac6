// Put into a copy of a report's page by tests/report.rs: filters and sorts as a reader would, and writes down what it saw.

addEventListener("load", () => {
  const count = () => document.querySelector("#filters .count").textContent;
  const firstBackend = () => document.querySelector("#filters .chip");
  // The page draws what is in sight at its next frame; here that is done at once, to be in the time.
  const drawInSight = () => {
    for (const panel of drawings.keys()) if (panel.getBoundingClientRect().top < innerHeight + 300) drawNow(panel);
  };
  const seen = { atFirst: count() };
  drawAll();
  seen.drawn = document.querySelectorAll(".drawing svg").length;
  seen.empty = [...document.querySelectorAll("section")].filter((s) => !s.querySelector("svg, table, li, .absent")).map((s) => s.id);
  const times = d3.range(10).map(() => {
    const start = performance.now();
    firstBackend().click();
    drawInSight();
    document.body.getBoundingClientRect();
    return performance.now() - start;
  });
  seen.milliseconds = Math.round(d3.median(times));
  firstBackend().focus();
  firstBackend().click();
  seen.hasFocus = [document.activeElement === firstBackend()];
  seen.filtered = count();
  seen.hash = location.hash;
  seen.backends = [...new Set([...document.querySelectorAll("#cases tbody td:nth-child(2)")].map((cell) => cell.textContent))];
  const p50 = COLUMNS.filter((column) => column.isShown).findIndex((column) => column.title === "p50");
  const header = () => document.querySelectorAll("#cases th button")[p50];
  header().focus();
  header().click();
  seen.hasFocus.push(document.activeElement === header());
  const shown = [...document.querySelectorAll(`#cases tbody td:nth-child(${p50 + 1})`)].map((cell) => cell.textContent);
  const inMilliseconds = shown.filter((text) => text.endsWith(" ms")).map((text) => parseFloat(text));
  seen.isSorted = inMilliseconds.length > 20 && inMilliseconds.every((value, index) => index === 0 || inMilliseconds[index - 1] <= value);
  // A second click comes before the label of the first one is back.
  Object.defineProperty(navigator, "clipboard", { value: undefined });
  const later = [];
  window.setTimeout = (run) => later.push(run);
  const copyButton = document.querySelector("#cases .tools > button");
  copyButton.click();
  copyButton.click();
  later.forEach((run) => run());
  seen.label = copyButton.textContent;
  window.copy = (text) => { seen.copied = text.split("\n")[0]; };
  copyButton.click();
  const choose = (title) => [...document.querySelectorAll("#cases .columns label")].find((label) => label.textContent === title).querySelector("input").click();
  const headers = () => [...document.querySelectorAll("#cases th")].map((header) => header.textContent);
  seen.chosen = [headers().includes("p95"), (choose("p95"), headers().includes("p95"))];
  const medians = kinds.batches.rows(charts[0]);
  seen.csv = csv(medians.columns, medians.rows).split("\n").slice(0, 2);
  // As on paper, which says that there are more rows.
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).filter((rule) => rule.media?.mediaText === "print");
  document.head.append(make("style", {}, rules.flatMap((rule) => [...rule.cssRules].map((own) => own.cssText)).join("\n")));
  seen.onPaper = ["#cases .more", "#cases .tools > button"].map((selector) => getComputedStyle(document.querySelector(selector)).display !== "none");
  seen.errors = window.errors;
  document.body.replaceChildren(make("pre", { id: "seen" }, JSON.stringify(seen)));
});
