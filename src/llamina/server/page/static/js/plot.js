// A plot of lines over time, drawn as SVG. Missing values are gaps.

import { h } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 84;
const MOST = 120; // points that are shown
const LEAST = 30; // points that fill the width

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** The next number that is 1, 2 or 5 times a power of ten. */
export function round(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((step) => step * power >= value);
}

export class Plot {
  /** `lines` are [key of a point, name]; `format` makes a value readable; `most` is the end of the scale, if it is fixed,
   * else it is a round number of units. */
  constructor({ title, lines, format, most = null, unit = 1 }) {
    Object.assign(this, { title, lines, format, most, unit });
    this.value = h("div", { class: "tile-value" });
    this.note = h("div", { class: "tile-note" });
    this.scale = h("span", { class: "tile-scale", "aria-hidden": true });
    this.svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "plot", role: "img" });
    this.paths = lines.map((_, index) => shape("path", { class: `line line-${index}`, "vector-effect": "non-scaling-stroke" }));
    this.area = shape("path", { class: "area" });
    this.svg.append(shape("path", { class: "grid", d: `M0 1H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}` }), this.area, ...this.paths);
    this.element = h("section", { class: "card tile" }, h("h2", {}, title), this.value, this.note, h("div", { class: "tile-plot" }, this.scale, this.svg));
  }

  /** Draw the last points, and tell the latest values. */
  draw(points) {
    const shown = points.slice(-MOST);
    const values = shown.flatMap((point) => this.lines.map(([key]) => point[key])).filter((value) => value !== null);
    const most = this.most ?? this.unit * round(Math.max(0, ...values) / this.unit);
    const width = Math.max(LEAST, shown.length);
    const x = (index) => (WIDTH * (index + width - shown.length)) / (width - 1);
    const y = (value) => HEIGHT - 1 - ((HEIGHT - 2) * Math.min(value, most)) / most;
    this.lines.forEach(([key], line) => this.paths[line].setAttribute("d", path(shown.map((point) => point[key]), x, y)));
    this.area.setAttribute("d", area(shown.map((point) => point[this.lines[0][0]]), x, y));
    this.scale.textContent = this.format(most);
    const latest = shown.at(-1);
    const told = this.lines.map(([key]) => (latest?.[key] === null || latest === undefined ? "–" : this.format(latest[key])));
    this.value.textContent = told[0];
    this.note.replaceChildren(...this.lines.map(([, name], index) => h("span", { class: `key key-${index}` }, this.lines.length > 1 ? `${name} ${told[index]}` : name)));
    this.svg.setAttribute("aria-label", `${this.title}: ${this.lines.map(([, name], index) => `${name} ${told[index]}`).join(", ")}`);
  }
}

function path(values, x, y) {
  let pen = "M";
  return values
    .map((value, index) => {
      if (value === null) {
        pen = "M";
        return "";
      }
      const part = `${pen}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
      return part;
    })
    .join("");
}

/** What is below the first line, from its first value to its last. */
function area(values, x, y) {
  const known = values.map((value, index) => [index, value]).filter(([, value]) => value !== null);
  if (known.length < 2) return "";
  const top = known.map(([index, value]) => `L${x(index).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  return `M${x(known[0][0]).toFixed(1)} ${HEIGHT}${top}L${x(known.at(-1)[0]).toFixed(1)} ${HEIGHT}Z`;
}
