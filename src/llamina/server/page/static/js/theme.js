// Light, dark, or what the system has.

const KEY = "llamina.theme";

export const currentTheme = () => localStorage.getItem(KEY) ?? "system";

export function setTheme(theme) {
  if (theme === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, theme);
  applyTheme();
}

/** `data-theme` is what the style sheets look at. */
export function applyTheme() {
  const theme = currentTheme();
  const dark = theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

/** From the theme that is shown to the other one. */
export function toggleTheme() {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
