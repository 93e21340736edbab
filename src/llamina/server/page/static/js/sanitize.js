// What a model writes is hostile until it has been here: a short list of elements and attributes goes through.
// The page's Content-Security-Policy and trusted types stand behind it.

import DOMPurify from "../vendor/purify.es.mjs";

const CLASSES = /^(language-[\w+#.-]{1,40}|math-(inline|block)|hljs-[\w-]{1,40}|(class|function|inherited)_)$/;
const LINKS = /^(?:https?:\/\/|mailto:)/i;

const MARKDOWN = {
  ALLOWED_TAGS: [
    "p", "br", "hr", "em", "strong", "b", "i", "u", "s", "del", "ins", "mark", "small", "sub", "sup", "kbd", "abbr",
    "code", "pre", "a", "ul", "ol", "li", "dl", "dt", "dd", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6",
    "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "span", "div", "#text",
  ],
  ALLOWED_ATTR: ["href", "title", "class", "align", "colspan", "rowspan", "start"],
  ADD_URI_SAFE_ATTR: ["title", "class", "align", "colspan", "rowspan", "start"], // the others must be links
  ALLOWED_URI_REGEXP: LINKS,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
const HIGHLIGHTED = { ...MARKDOWN, ALLOWED_TAGS: ["span", "#text"], ALLOWED_ATTR: ["class"] };
const MATHS = {
  USE_PROFILES: { mathMl: true },
  ADD_ATTR: ["class", "style", "alttext"], // Temml's own: TeX cannot name them unless it is trusted
  FORBID_ATTR: ["href", "id", "name"],
  IN_PLACE: true,
};

DOMPurify.addHook("uponSanitizeAttribute", (node, data, config) => {
  if (data.attrName === "style" && /url\(|position|@|\\/i.test(data.attrValue)) data.keepAttr = false;
  if (data.attrName !== "class" || config.IN_PLACE) return;
  data.attrValue = data.attrValue.split(/\s+/).filter((name) => CLASSES.test(name)).join(" ");
  data.keepAttr = data.attrValue !== "";
});
DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
});

/** HTML of a model's Markdown as a fragment of harmless elements. */
export const cleanMarkdown = (html) => fragmentOf(html, MARKDOWN);

/** The highlighter's HTML as a fragment of spans. */
export const cleanHighlighted = (html) => fragmentOf(html, HIGHLIGHTED);

/** HTML that has no body, as that of a frameset, is shown as text. */
function fragmentOf(html, config) {
  const found = DOMPurify.sanitize(html, config);
  if (found) return found;
  const fragment = document.createDocumentFragment();
  fragment.append(html);
  return fragment;
}

/** A `math` element, stripped in place of what is not MathML. */
export function cleanMaths(element) {
  DOMPurify.sanitize(element, MATHS);
  return element;
}
