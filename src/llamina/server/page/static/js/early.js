// Before anything is painted: the theme, so that a dark page does not flash white. theme.js does the rest.
const chosenTheme = localStorage.getItem("llamina.theme") ?? "system";
const systemIsDark = matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.theme = chosenTheme === "system" ? (systemIsDark ? "dark" : "light") : chosenTheme;
