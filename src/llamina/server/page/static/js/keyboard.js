// Keys that work everywhere, and the list of them.

import { byId, h } from "./dom.js";

const MAC = navigator.platform.startsWith("Mac");
const CTRL = MAC ? "⌘" : "Ctrl";

const KEYS = [
  [`${CTRL} Enter`, "Send (also Enter alone; Shift Enter begins a line)"],
  ["Esc", "Stop the answer, or close what is open"],
  ["↑ in the empty field", "Edit the last message"],
  ["Alt ← and Alt →", "Earlier and later version of a message"],
  [`${CTRL} K`, "Search conversations; ↓ and ↑ go through them"],
  [`${CTRL} Shift O`, "New conversation"],
  [`${CTRL} ,`, "Settings"],
  [`${CTRL} /`, "This list"],
];

/** `actions`: start, search, settings, stop (false if there is nothing to stop), choose, close. */
export function listen(actions) {
  const help = byId("keys");
  const rows = KEYS.map(([keys, what]) => h("div", {}, h("dt", {}, h("kbd", {}, keys)), h("dd", {}, what)));
  help.querySelector("dl").append(...rows);
  byId("open-keys").addEventListener("click", () => help.showModal());
  byId("close-keys").addEventListener("click", () => help.close());
  document.addEventListener("keydown", (event) => {
    const ctrl = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
      if (!actions.close()) actions.stop();
    } else if (ctrl && key === "k") actions.search();
    else if (ctrl && event.shiftKey && key === "o") actions.start();
    else if (ctrl && key === ",") actions.settings();
    else if (ctrl && key === "/") help.showModal();
    else if (event.altKey && (key === "arrowleft" || key === "arrowright")) actions.choose(key === "arrowleft" ? -1 : 1);
    else return;
    event.preventDefault();
  });
}
