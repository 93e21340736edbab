// An answer as tokens, coloured by probability; one under the pointer or the focus tells what else could have been.

import { h } from "./dom.js";

const percent = (logprob) => `${(100 * Math.exp(logprob)).toFixed(1)} %`;
const shown = (text) => (text === "" ? "(empty)" : text.replaceAll("\n", "↵").replaceAll(" ", "␣"));

/** `logprobs` are [token, logprob, [[token, logprob], …]]. Arrow keys go from token to token. */
export function tokenView(logprobs) {
  const card = h("div", { class: "token-card", role: "status", hidden: true });
  const spans = logprobs.map(([text, logprob], index) =>
    h(
      "span",
      {
        class: `token token-${level(logprob)}`,
        tabIndex: index ? -1 : 0,
        role: "button",
        "aria-label": `${shown(text)}, ${percent(logprob)}`,
        "data-index": String(index),
      },
      text,
    ),
  );
  const at = (event) => Number(event.target.closest?.(".token")?.dataset.index ?? -1);
  const show = (index) => {
    const [text, logprob, top] = logprobs[index];
    card.replaceChildren(row(text, logprob, true), ...top.filter(([other]) => other !== text).map(([other, value]) => row(other, value, false)));
    card.hidden = false;
    place(card, spans[index]);
  };
  const hide = () => (card.hidden = true);
  const move = (event) => {
    const next = at(event) + ({ ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? 0);
    if (event.key === "Escape") hide();
    if (next === at(event) || !spans[next]) return;
    event.preventDefault();
    spans[at(event)].tabIndex = -1;
    spans[next].tabIndex = 0;
    spans[next].focus();
  };
  const over = (event) => at(event) >= 0 && show(at(event));
  return h("div", { class: "tokens", onpointerover: over, onpointerleave: hide, onfocusin: over, onfocusout: hide, onkeydown: move }, ...spans, card);
}

function row(text, logprob, taken) {
  const bar = h("meter", { min: 0, max: 1, value: Math.exp(logprob), "aria-hidden": true });
  return h("div", { class: taken ? "token-row taken" : "token-row" }, h("code", {}, shown(text)), bar, h("span", {}, percent(logprob)), h("span", { class: "faint" }, logprob.toFixed(2)));
}

function place(card, span) {
  const around = card.parentElement.getBoundingClientRect();
  const box = span.getBoundingClientRect();
  card.style.top = `${box.bottom - around.top + 6}px`;
  card.style.left = `${Math.max(0, Math.min(box.left - around.left, around.width - card.offsetWidth))}px`;
}

/** 0 (sure) to 4 (a surprise). */
function level(logprob) {
  return [0.9, 0.6, 0.3, 0.1, 0].findIndex((bound) => Math.exp(logprob) >= bound);
}
