// TeX in Markdown: $…$ and \(…\) in a line, $$…$$ and \[…\] for themselves. Temml (a classic script) makes MathML.

import { cleanMaths } from "./sanitize.js";

const BLOCK = /^(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n|$)/;
const INLINE = /^(?:\$\$([^\n]+?)\$\$|\$(?!\s)((?:\\.|[^\\$\n])+?)(?<!\s)\$(?!\d)|\\\((.+?)\\\)|\\\[(.+?)\\\])/;
const OPTIONS = { throwOnError: true, maxSize: [20, 20], maxExpand: 200, trust: false, strict: false };
const LONGEST = 4000; // characters of one formula

const escape = (text) => text.replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]);

const formula = (match) => match.slice(1).find((group) => group !== undefined);

/** Extensions of marked: a formula becomes a code element, which `renderMaths` replaces. */
export const mathsExtensions = [
  {
    name: "mathBlock",
    level: "block",
    start: (source) => source.match(/(?:^|\n)[ ]{0,3}(?:\$\$|\\\[)/)?.index,
    tokenizer(source) {
      const match = BLOCK.exec(source);
      return match ? { type: "mathBlock", raw: match[0], tex: formula(match).trim() } : undefined;
    },
    renderer: ({ tex }) => `<div><code class="math-block">${escape(tex)}</code></div>\n`,
  },
  {
    name: "mathInline",
    level: "inline",
    start: (source) => source.match(/\$|\\[([]/)?.index,
    tokenizer(source) {
      const match = INLINE.exec(source);
      return match ? { type: "mathInline", raw: match[0], tex: formula(match).trim() } : undefined;
    },
    renderer: ({ tex }) => `<code class="math-inline">${escape(tex)}</code>`,
  },
];

/** Replace the formulas of a fragment by MathML; what is no TeX stays as it was written. */
export function renderMaths(fragment) {
  for (const code of fragment.querySelectorAll("code.math-inline, code.math-block")) {
    const tex = code.textContent;
    if (tex.length > LONGEST) continue;
    const holder = document.createElement("span");
    try {
      globalThis.temml.render(tex, holder, { ...OPTIONS, displayMode: code.classList.contains("math-block") });
    } catch {
      continue;
    }
    const math = holder.querySelector("math");
    if (!math) continue;
    math.setAttribute("alttext", tex);
    code.replaceWith(cleanMaths(math));
  }
}
