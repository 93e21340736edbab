// The messages of the open conversation, and where the reader is in them.

import { say } from "./announce.js";
import { byId, h } from "./dom.js";
import { MessageView } from "./message-view.js";

const NEAR = 80; // pixels from the end within which new text is followed
const SAID = 800; // characters of an answer that a screen reader is given at once

export class Thread {
  #views = new Map();
  #follow = true;
  #changed = new Set();
  #frame = 0;

  constructor(chat, actions) {
    this.chat = chat;
    this.scroller = byId("scroller");
    this.list = byId("thread");
    this.actions = { ...actions, changed: () => this.#followEnd(), refresh: () => this.refresh() };
    this.scroller.addEventListener("scroll", () => (this.#follow = this.#distance() < NEAR), { passive: true });
    byId("to-end").addEventListener("click", () => this.toEnd());
    this.scroller.addEventListener("scroll", () => (byId("to-end").hidden = this.#distance() < 2 * NEAR), { passive: true });
    chat.addEventListener("thread", ({ detail }) => this.#rebuild(detail));
    chat.addEventListener("message", ({ detail }) => this.#update(detail));
    chat.addEventListener("running", ({ detail }) => this.#ran(detail));
  }

  #distance() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  #followEnd() {
    if (this.#follow) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  toEnd() {
    this.#follow = true;
    this.#followEnd();
  }

  /** Show the path: views of messages that stay are kept. */
  #rebuild({ opened = false, at = null }) {
    const path = this.chat.path;
    const views = new Map();
    for (const message of path) {
      const kept = this.#views.get(message.id);
      views.set(message.id, kept?.message === message ? kept : new MessageView(message, this.actions));
    }
    this.#views = views;
    this.list.replaceChildren(...[...views.values()].map((view) => view.element));
    document.body.classList.toggle("empty", path.length === 0);
    this.refresh();
    if (at) {
      this.#views.get(at)?.element.scrollIntoView({ block: "nearest" });
      this.#views.get(at)?.element.focus({ preventScroll: true });
      say("Another version is shown.");
    } else {
      this.toEnd();
    }
    if (opened) requestAnimationFrame(() => this.toEnd());
  }

  /** Bring every message's buttons and notes up to date. */
  refresh() {
    for (const view of this.#views.values()) if (!view.element.classList.contains("editing")) this.#refresh(view);
  }

  #refresh(view) {
    const { message } = view;
    const siblings = this.chat.tree.siblings(message);
    const generation = this.chat.generation?.message === message ? this.chat.generation : null;
    const branch = { index: siblings.indexOf(message), total: siblings.length };
    view.update({ generation, branch, isLast: message.id === this.chat.conversation.leaf });
  }

  /** News of an answer come faster than frames: it is shown once in each. */
  #update(message) {
    this.#changed.add(message.id);
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      for (const id of this.#changed) if (this.#views.has(id)) this.#refresh(this.#views.get(id));
      this.#changed.clear();
      this.#followEnd();
    });
  }

  async #ran(message) {
    this.refresh();
    this.#followEnd();
    if (!message) return;
    const view = this.#views.get(message.id);
    await view?.finished;
    const text = view?.content.textContent ?? "";
    say(message.error ? `Error: ${message.error}` : text.length > SAID ? `${text.slice(0, SAID)}…` : text || "The answer is there.");
  }

  /** The view that has the focus, or else the last that a button of this name is in. */
  near(label) {
    const focused = document.activeElement?.closest(".message");
    const views = [...this.#views.values()];
    return views.find((v) => v.element === focused) ?? views.findLast((v) => v.element.querySelector(`[aria-label="${label}"]`));
  }

  /** Edit the user's last message. */
  editLast() {
    [...this.#views.values()].findLast((view) => view.message.role === "user")?.edit();
  }
}

/** The empty conversation's greeting, with things to begin with. */
export function greeting(begin) {
  const ideas = ["Explain how a transformer predicts the next token", "Write a Python function that merges two sorted lists", "Plan a quiet weekend in the mountains", "Prove that √2 is irrational"];
  return h("div", { class: "ideas" }, ...ideas.map((idea) => h("button", { type: "button", class: "idea", onclick: () => begin(idea) }, idea)));
}
