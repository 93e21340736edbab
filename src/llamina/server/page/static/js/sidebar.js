// The list of conversations: search, rename, delete, export.

import { askText, askYes } from "./dialogs.js";
import { byId, h, iconButton } from "./dom.js";
import * as store from "./store.js";
import { exportConversations } from "./transfer.js";

const DAY = 86_400_000;

export class Sidebar {
  constructor(chat) {
    this.chat = chat;
    this.list = byId("conversations");
    this.box = byId("search");
    this.box.addEventListener("input", () => this.refresh());
    this.box.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") this.#focus(0, event);
      if (event.key === "Escape" && this.box.value) {
        this.box.value = "";
        this.refresh();
        event.stopPropagation();
      }
    });
    this.list.addEventListener("keydown", (event) => this.#arrow(event));
    for (const type of ["list", "thread", "running"]) chat.addEventListener(type, () => this.refresh());
    byId("open-sidebar").addEventListener("click", () => this.show(true));
    byId("close-sidebar").addEventListener("click", () => this.show(false));
    byId("backdrop").addEventListener("click", () => this.show(false));
    this.list.addEventListener("click", (event) => event.target.closest("a") && this.show(false));
    this.narrow = matchMedia("(max-width: 820px)");
    this.narrow.addEventListener("change", () => this.show(false));
    this.show(false);
    this.refresh();
  }

  /** On narrow screens the list slides over the page. */
  show(open) {
    const narrow = this.narrow.matches;
    document.body.classList.toggle("sidebar-open", open && narrow);
    byId("sidebar").inert = narrow && !open;
    byId("main").inert = narrow && open;
    byId("open-sidebar").setAttribute("aria-expanded", String(open));
    if (narrow && open) byId("close-sidebar").focus();
  }

  get isOpen() {
    return document.body.classList.contains("sidebar-open");
  }

  #links() {
    return [...this.list.querySelectorAll("a")];
  }

  #focus(index, event) {
    const link = this.#links()[index];
    event.preventDefault();
    if (link) link.focus();
    else if (index < 0) this.box.focus();
  }

  #arrow(event) {
    const at = this.#links().indexOf(event.target);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (at >= 0 && step) this.#focus(at + step, event);
  }

  /** Show the conversations that fit what is searched for. The last of several calls at once wins. */
  async refresh() {
    const turn = (this.turn = {});
    const wanted = this.box.value.trim();
    let all;
    try {
      all = await found(wanted);
    } catch (error) {
      this.list.replaceChildren(h("p", { class: "faint nothing" }, `This browser cannot keep conversations: ${error.message}`));
      return;
    }
    if (turn !== this.turn) return;
    const focused = document.activeElement?.closest?.("[data-conversation]")?.dataset.conversation;
    this.list.replaceChildren(...groups(all).flatMap(([name, some]) => this.#group(name, some)));
    if (!all.length) this.list.append(h("p", { class: "faint nothing" }, wanted ? "Nothing found." : "No conversations yet."));
    if (focused) this.list.querySelector(`[data-conversation="${focused}"] a`)?.focus();
  }

  #group(name, some) {
    return [h("h3", { class: "group" }, name), h("ul", {}, ...some.map((conversation) => this.#item(conversation)))];
  }

  #item({ id, title }) {
    const { chat } = this;
    const name = title || "Untitled";
    const current = id === chat.conversation.id;
    const rename = async () => {
      const text = await askText("Rename the conversation", "Name", name);
      if (text) await chat.rename(id, text);
    };
    const remove = async () => {
      if (await askYes("Delete the conversation?", `“${name}” is deleted for good, with all of its versions.`, "Delete")) await chat.remove(id);
    };
    const running = chat.isRunning(id) && h("span", { class: "pulse", role: "img", "aria-label": "Answering" });
    return h(
      "li",
      { class: current ? "conversation current" : "conversation", "data-conversation": id },
      h("a", { href: `#/c/${id}`, "aria-current": current ? "page" : null }, running, h("span", { class: "conversation-title" }, name)),
      h(
        "span",
        { class: "conversation-buttons" },
        iconButton("edit", `Rename ${name}`, rename),
        iconButton("download", `Export ${name}`, () => exportConversations([id])),
        iconButton("trash", `Delete ${name}`, remove),
      ),
    );
  }
}

/** The conversations that have a text in their title or their messages. */
async function found(wanted) {
  const all = await store.allConversations();
  if (!wanted) return all;
  const inText = await store.search(wanted);
  return all.filter(({ id, title }) => inText.has(id) || title.toLowerCase().includes(wanted.toLowerCase()));
}

/** Conversations by when they were last changed. */
function groups(all) {
  const today = new Date().setHours(0, 0, 0, 0);
  const names = [["Today", today], ["Yesterday", today - DAY], ["Last 7 days", today - 7 * DAY], ["Earlier", -Infinity]];
  const byName = new Map();
  for (const conversation of all) {
    const [name] = names.find(([, from]) => conversation.updated >= from);
    byName.set(name, [...(byName.get(name) ?? []), conversation]);
  }
  return [...byName];
}
