// Tool calls of an answer, folded, and a form for what they returned.

import { h, icon } from "./dom.js";

/** The calls with their arguments. */
export function callViews(calls) {
  return calls.filter(Boolean).map((call) =>
    h(
      "details",
      { class: "fold" },
      h("summary", {}, icon("tool"), h("span", {}, "Calls ", h("code", {}, call.name))),
      h("pre", { tabIndex: 0 }, pretty(call.arguments)),
    ),
  );
}

/** Fields for the results of calls; `give` gets them in order. */
export function resultForm(calls, give) {
  const areas = calls.filter(Boolean).map((call) => h("textarea", { class: "editor", rows: 2, "aria-label": `Result of ${call.name}`, placeholder: `What ${call.name} returned` }));
  const submit = (event) => {
    event.preventDefault();
    give(areas.map((area) => area.value));
  };
  return h("form", { class: "results", onsubmit: submit }, ...areas, h("button", { class: "button button-main" }, "Send results"));
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // not all of it is here yet
  }
}
