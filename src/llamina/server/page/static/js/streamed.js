// Markdown that grows: closed blocks stay as they are, only the last one is rendered again, at most once a frame,
// and for a few milliseconds at a time.

import { blocks, normalized, renderBlock, visible } from "./markdown.js";

const SLICE = 12; // milliseconds of rendering in a frame, if there are several blocks to render
const SHARE = 4; // rendering takes at most a fifth of the time

export class StreamedMarkdown {
  #closed = []; // {raw, node} of blocks that cannot change any more
  #length = 0; // characters in them
  #open = null; // the node of the last block
  #text = "";
  #frame = 0;
  #next = 0; // when the next rendering may be
  #ended = null; // what `finish` promised: {promise, resolve}

  /** Renders into `element`, which must be empty; `onrender` is called after each change. */
  constructor(element, onrender = () => {}) {
    this.element = element;
    this.onrender = onrender;
  }

  /** Show a text that begins with the one before. */
  push(text) {
    this.#text = normalized(text);
    this.#soon();
  }

  /** Show the whole text; comes back when it is there. */
  finish(text) {
    this.#text = normalized(text);
    this.#ended ??= Promise.withResolvers();
    this.#next = 0;
    this.#forgetChanged();
    this.#soon();
    return this.#ended.promise;
  }

  /** Show a whole text at once. */
  show(text) {
    this.#text = normalized(text);
    this.#render(Infinity, true);
  }

  #soon() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      if (performance.now() < this.#next) this.#soon();
      else this.#tick();
    });
  }

  #tick() {
    const begun = performance.now();
    const done = this.#render(begun + SLICE, this.#ended !== null);
    this.onrender();
    const spent = performance.now() - begun;
    this.#next = done ? performance.now() + SHARE * spent : 0;
    if (!done) this.#soon();
    else this.#ended?.resolve();
  }

  /** Render what is new, until the time is over; true if that is all. `ended`: the last block is closed, too. */
  #render(deadline, ended) {
    const tokens = blocks(this.#text.slice(this.#length));
    const last = ended ? tokens.length : tokens.findLastIndex(visible);
    this.#open?.remove();
    this.#open = null;
    for (const token of tokens.slice(0, Math.max(last, 0))) {
      if (performance.now() > deadline) return false;
      this.#close(token, tokens.links);
    }
    if (tokens[last]) this.element.append((this.#open = renderBlock(tokens[last], tokens.links, true)));
    return true;
  }

  #close(token, links) {
    const node = visible(token) ? renderBlock(token, links) : null;
    this.#closed.push({ raw: token.raw, node });
    this.#length += token.raw.length;
    if (node) this.element.append(node);
  }

  /** Remove blocks from the first on that is another one in the whole text. */
  #forgetChanged() {
    const tokens = blocks(this.#text);
    const linked = Object.keys(tokens.links).length > 0; // a definition at the end changes links before it
    let same = 0;
    while (!linked && same < this.#closed.length && this.#closed[same].raw === tokens[same]?.raw) same++;
    for (const { node } of this.#closed.splice(same)) node?.remove();
    this.#length = this.#closed.reduce((sum, { raw }) => sum + raw.length, 0);
  }
}
