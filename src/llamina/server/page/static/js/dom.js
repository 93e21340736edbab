// Elements made from code. Text is always text: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties (`onclick`, `class`, `aria-…`, `data-…`) and children; null and false are left out. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && !name.includes("-")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An icon of index.html; it says nothing to screen readers. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

/** A button that shows an icon and is called `label`. */
export function iconButton(name, label, onclick, props = {}) {
  return h("button", { type: "button", class: "icon-button", title: label, "aria-label": label, onclick, ...props }, icon(name));
}

export const byId = (id) => document.getElementById(id);

const numbers = new Intl.NumberFormat();

/** A whole number with separators. */
export const count = (value) => numbers.format(Math.round(value));

/** Milliseconds as people read them. */
export function duration(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
}

/** Tokens per second as people read them. */
export const rate = (speed) => `${speed < 100 ? speed.toFixed(1) : count(speed)} tokens/s`;

/** Bytes as people read them. */
export function size(bytes) {
  return bytes < 1024 ? `${bytes} B` : bytes < 1 << 20 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / (1 << 20)).toFixed(1)} MB`;
}

/** Put text on the clipboard; true if that worked. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // no permission, or a page that is not served securely
  }
}
