// Markdown that grows: closed blocks stay as they are, only the last one is rendered again, at most once a frame.

import { blocks, normalized, renderBlock, visible } from "./markdown.js";

const SHARE = 4; // rendering takes at most a fifth of the time

export class StreamedMarkdown {
  /** Renders into `element`, which must be empty; `onrender` is called after each change. */
  constructor(element, onrender = () => {}) {
    this.element = element;
    this.onrender = onrender;
    this.closed = []; // {raw, node} of blocks that cannot change any more
    this.length = 0; // characters in them
    this.open = null; // the node of the last block
    this.text = "";
    this.next = 0; // when the next rendering may be
    this.frame = 0;
  }

  /** Show a text that begins with the one before. */
  push(text) {
    this.text = text;
    this.frame ||= requestAnimationFrame(() => this.#tick());
  }

  #tick() {
    const begun = performance.now();
    this.frame = 0;
    if (begun < this.next) {
      this.frame = requestAnimationFrame(() => this.#tick());
      return;
    }
    this.#render(normalized(this.text));
    this.onrender();
    this.next = performance.now() + SHARE * (performance.now() - begun);
  }

  #render(text) {
    const tokens = blocks(text.slice(this.length));
    const last = tokens.findLastIndex(visible);
    this.open?.remove();
    this.open = null;
    tokens.forEach((token, index) => {
      if (index < last) this.#close(token, tokens.links);
      else if (index === last) this.#append((this.open = renderBlock(token, tokens.links, true)));
    });
  }

  #close(token, links) {
    const node = visible(token) ? renderBlock(token, links) : null;
    this.closed.push({ raw: token.raw, node });
    this.length += token.raw.length;
    if (node) this.#append(node);
  }

  #append(node) {
    this.element.append(node);
  }

  /** Show the whole text. Blocks are rendered again from the first that turned out to be another. */
  finish(text) {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.text = text;
    const tokens = blocks(normalized(text));
    const linked = Object.keys(tokens.links).length > 0; // a definition at the end changes links before it
    let same = 0;
    while (!linked && same < this.closed.length && this.closed[same].raw === tokens[same]?.raw) same++;
    for (const { node } of this.closed.splice(same)) node?.remove();
    this.open?.remove();
    this.open = null;
    for (const token of tokens.slice(same)) this.#close(token, tokens.links);
    this.onrender();
  }
}
