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
  firstBackend().click();
  seen.filtered = count();
  seen.hash = location.hash;
  seen.backends = [...new Set([...document.querySelectorAll("#cases tbody td:nth-child(2)")].map((cell) => cell.textContent))];
  const p50 = COLUMNS.filter((column) => column.isShown).findIndex((column) => column.title === "p50");
  document.querySelectorAll("#cases th button")[p50].click();
  const shown = [...document.querySelectorAll(`#cases tbody td:nth-child(${p50 + 1})`)].map((cell) => cell.textContent);
  const inMilliseconds = shown.filter((text) => text.endsWith(" ms")).map((text) => parseFloat(text));
  seen.isSorted = inMilliseconds.length > 20 && inMilliseconds.every((value, index) => index === 0 || inMilliseconds[index - 1] <= value);
  const choose = (title) => [...document.querySelectorAll("#cases .columns label")].find((label) => label.textContent === title).querySelector("input").click();
  const headers = () => [...document.querySelectorAll("#cases th")].map((header) => header.textContent);
  seen.chosen = [headers().includes("p95"), (choose("p95"), headers().includes("p95"))];
  const medians = kinds.batches.rows(charts[0]);
  seen.csv = csv(medians.columns, medians.rows).split("\n").slice(0, 2);
  seen.errors = window.errors;
  document.body.replaceChildren(make("pre", { id: "seen" }, JSON.stringify(seen)));
});
