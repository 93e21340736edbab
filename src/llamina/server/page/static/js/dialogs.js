// Small questions in a dialog: a text, or yes and no.

import { h } from "./dom.js";

function show(title, fields, accept, danger) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { class: "dialog", "aria-labelledby": "dialog-title" });
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      ...fields,
      h(
        "div",
        { class: "dialog-buttons" },
        h("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Cancel"),
        h("button", { class: danger ? "button button-danger" : "button button-main", value: "yes" }, accept),
      ),
    );
    dialog.append(form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** The text that was typed; null if it was not accepted. */
export async function askText(title, label, value = "", { accept = "Keep", secret = false, hint = "" } = {}) {
  const input = h("input", { type: secret ? "password" : "text", value, autocomplete: "off", class: "input" });
  const fields = [h("label", { class: "field" }, h("span", {}, label), input), hint && h("p", { class: "faint" }, hint)];
  queueMicrotask(() => input.select());
  return (await show(title, fields.filter(Boolean), accept, false)) ? input.value.trim() : null;
}

/** Whether it was accepted. */
export const askYes = (title, text, accept) => show(title, [h("p", {}, text)], accept, true);
