// Light or dark, as the reader's system is set until the button says otherwise.

function themeButton() {
  return make("button", { type: "button", onclick: switchTheme, title: "Light or dark" }, "◐");
}

function switchTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
}
