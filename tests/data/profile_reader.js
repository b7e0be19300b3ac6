// Put into a copy of a profile's page by tests/integration/profile_page.rs: zooms, searches, sorts and compares as a reader would, and
// writes down what it saw.

addEventListener("load", () => {
  const bars = (...classes) => [...document.querySelectorAll(["#icicle g", ...classes].join("."))];
  const barOf = (path) => bars().find((bar) => bar.dataset.path === path);
  const widthOf = (path) => Math.round(barOf(path)?.querySelector("rect").getBoundingClientRect().width ?? 0);
  const send = (node, type, event) => node.dispatchEvent(Object.assign(new Event(type, { bubbles: true, cancelable: true }), event));
  const press = (...keys) => keys.forEach((key) => send(document.querySelector("#icicle svg"), "keydown", { key }));
  const fill = (node, text) => { node.value = text; send(node, "input", {}); };
  const column = (number) => [...document.querySelectorAll(`#rows tbody td:nth-child(${number})`)].map((cell) => cell.textContent);
  const tip = () => (document.getElementById("tip").hidden ? null : document.getElementById("tip").textContent);
  const whole = document.querySelector("#icicle svg").getBoundingClientRect().width;
  const layer = "encoder.layer.1";
  const seen = { errors: window.errors, bars: bars().length, summaries: document.querySelectorAll("#cases .case").length };

  seen.lanes = new Set([...document.querySelectorAll("#timeline g rect")].map((rect) => rect.getAttribute("y"))).size;
  seen.hasMemory = document.querySelector("#timeline path.memory") !== null;
  send(document.querySelector("#timeline g"), "pointermove", { clientX: 30, clientY: 30 });
  seen.told = tip();

  const before = widthOf(layer);
  send(barOf(layer).querySelector("rect"), "click", {});
  seen.zoom = [before < whole / 2, widthOf(layer) === Math.round(whole), widthOf("encoder.layer.0")];
  press("Escape");
  seen.back = widthOf(layer) === before;
  press("ArrowDown", "ArrowDown", "ArrowRight", "Enter");
  seen.byKeys = [document.querySelector("#icicle .current").dataset.path, widthOf(layer) === Math.round(whole), tip()?.split("\n")[0]];
  press("Escape");

  const search = document.querySelector("#icicle input");
  fill(search, "Softmax");
  seen.found = [bars("found").length, bars("dim").length > 20, document.querySelector("#icicle [role=status]").textContent];
  // The second is in the name of the case only.
  seen.nothing = ["nosuch", "bert"].map((text) => { fill(search, text); return document.querySelector("#icicle [role=status]").textContent; });
  fill(search, "");
  seen.unmarked = bars("found").length + bars("dim").length;

  fill(document.querySelector("#rows input"), "layer.2 linear");
  seen.filtered = column(1);
  fill(document.querySelector("#rows input"), "");
  seen.first = column(1)[0];
  window.copy = (text) => { seen.copied = text.split("\n"); };
  [...document.querySelectorAll("#rows button")].find((button) => button.textContent === "Copy as CSV").click();
  document.querySelector("#rows th button").click();
  seen.sorted = column(1).filter((text) => text !== "").every((text, index, all) => index === 0 || all[index - 1] <= text);

  // As on paper.
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).filter((rule) => rule.media?.mediaText === "print");
  const style = make("style", {}, rules.flatMap((rule) => [...rule.cssRules].map((own) => own.cssText)).join("\n"));
  document.head.append(style);
  const isShown = (selector) => getComputedStyle(document.querySelector(selector)).display !== "none";
  seen.onPaper = ["#cases button", "#rows th button", "#icicle .tools button", "#icicle input"].map(isShown);
  style.remove();

  const [, against] = document.querySelectorAll("#filters select");
  against.value = "0";
  send(against, "change", {});
  seen.hash = location.hash;
  seen.slowest = [column(1)[0], column(5)[0]];
  const colours = new Set(bars().map((bar) => bar.querySelector("rect").style.fill));
  seen.colours = [...colours].sort();
  seen.slower = barOf("encoder.layer.2.dense.matmul").querySelector("rect").style.fill;
  seen.timelines = document.querySelectorAll("#timeline").length;
  document.body.replaceChildren(make("pre", { id: "seen" }, JSON.stringify(seen)));
});
