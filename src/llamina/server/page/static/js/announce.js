// Short messages: shown as a toast, and said by screen readers.

import { byId, h } from "./dom.js";

const SECONDS = 6;

/** Say a text to screen readers only. */
export function say(text) {
  byId("status").textContent = text;
}

/** Show a text for a few seconds; an error stays until it is closed. */
export function toast(text, { error = false } = {}) {
  const close = () => element.remove();
  const element = h(
    "div",
    { class: error ? "toast toast-error" : "toast", role: error ? "alert" : "status" },
    h("span", {}, text),
    h("button", { type: "button", class: "text-button", onclick: close }, "Close"),
  );
  byId("toasts").append(element);
  if (!error) setTimeout(close, SECONDS * 1000);
}
