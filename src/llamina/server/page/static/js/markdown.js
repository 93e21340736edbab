// A model's Markdown, block by block, to elements.

import { Marked } from "../vendor/marked.esm.js";
import { renderCode } from "./code.js";
import { h } from "./dom.js";
import { mathsExtensions, renderMaths } from "./maths.js";
import { cleanMarkdown } from "./sanitize.js";

// HTML in Markdown: these elements, without attributes. Anything else is shown as the text that it is.
const PLAIN =
  /(<\/?(?:br|hr|p|b|i|u|s|em|strong|small|del|ins|mark|sub|sup|kbd|ul|ol|li|blockquote|details|summary|table|thead|tbody|tr|th|td|h[1-6])\s*\/?>)/i;

const escape = (text) => text.replace(/[<>"]/g, (sign) => ({ "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]);

const marked = new Marked({
  gfm: true,
  extensions: mathsExtensions,
  renderer: {
    html: ({ text }) => text.split(PLAIN).map((part, index) => (index % 2 ? part : escape(part))).join(""),
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
    // A picture is a link: loading it would tell another server who reads this.
    image({ href, text }) {
      return this.link({ href, title: null, tokens: [{ type: "text", raw: text, text: text || href, escaped: false }] });
    },
  },
});

/** The blocks of a text: tokens of marked, whose `raw` parts make up the text again. */
export function blocks(text) {
  return marked.lexer(text);
}

/** Line ends as marked has them, so that `raw` parts are parts of the text. */
export const normalized = (text) => text.replace(/\r\n?/g, "\n");

/** One block as an element. `links` are the text's link definitions; `open`: the block still grows. */
export function renderBlock(token, links, open = false) {
  const tokens = Object.assign([token], { links });
  const fragment = cleanMarkdown(marked.parser(tokens));
  renderMaths(fragment);
  renderCode(fragment, open);
  for (const table of fragment.querySelectorAll("table")) {
    const scroll = h("div", { class: "table-scroll", tabIndex: 0, role: "group", "aria-label": "Table" });
    table.replaceWith(scroll);
    scroll.append(table);
  }
  return h("div", { class: "block" }, fragment);
}

/** Whether a token shows anything. */
export const visible = (token) => token.type !== "space" && token.type !== "def";
