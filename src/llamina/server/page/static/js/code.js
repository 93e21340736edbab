// Code blocks: highlighted, with their language and a button that copies them.

import hljs from "../vendor/highlight.min.js";
import { copyText, h, icon } from "./dom.js";
import { cleanHighlighted } from "./sanitize.js";

const LONGEST = 40_000; // characters that are highlighted
const LONGEST_OPEN = 8_000; // the same while a block still grows, and is highlighted again and again

/** Give the code blocks of a fragment their colours and headers. `open`: the last one still grows. */
export function renderCode(fragment, open) {
  for (const code of fragment.querySelectorAll("pre > code")) {
    const pre = code.parentElement;
    const name = [...code.classList].find((c) => c.startsWith("language-"))?.slice(9) ?? "";
    const text = code.textContent;
    if (hljs.getLanguage(name) && text.length <= (open ? LONGEST_OPEN : LONGEST)) {
      code.replaceChildren(cleanHighlighted(hljs.highlight(text, { language: name, ignoreIllegals: true }).value));
    }
    pre.tabIndex = 0; // it may scroll
    const block = h("div", { class: "code-block" });
    pre.replaceWith(block);
    block.append(header(name, text), pre);
  }
}

function header(name, text) {
  const label = h("span", { "aria-live": "polite" }, "Copy");
  const copy = async () => {
    label.textContent = (await copyText(text)) ? "Copied" : "Not allowed";
    setTimeout(() => (label.textContent = "Copy"), 2000);
  };
  return h(
    "div",
    { class: "code-header" },
    h("span", { class: "code-language" }, name || "text"),
    h("button", { type: "button", class: "text-button", onclick: copy }, icon("copy"), label),
  );
}
