// One message: what was said, what can be done with it, and how it came about.

import { attachmentList } from "./attachments.js";
import { callViews, resultForm } from "./calls-view.js";
import { copyText, count, duration, h, icon, iconButton, rate } from "./dom.js";
import { StreamedMarkdown } from "./streamed.js";
import { tokenView } from "./tokens-view.js";

const ENDINGS = {
  length: "The answer was cut: it is as long as it may be.",
  stopped: "Stopped.",
  cancelled: "Stopped.",
};
const SPEAKERS = { user: "You", assistant: "Model", tool: "Tool" };

export class MessageView {
  /** `actions` are what buttons do: edit, regenerate, choose, giveResults, changed. */
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.body = h("div", { class: "message-body" });
    this.foot = h("div", { class: "message-foot" });
    this.heading = h("h2", { class: "hidden" });
    this.element = h("article", { class: `message message-${message.role}`, id: `m-${message.id}`, tabIndex: -1 }, this.heading, this.body, this.foot);
    this.showTokens = false;
    this.#build();
  }

  #build() {
    const { message } = this;
    this.heading.textContent = message.role === "assistant" ? (message.model ?? SPEAKERS.assistant) : SPEAKERS[message.role];
    this.body.replaceChildren();
    this.callState = null;
    if (message.role === "assistant") this.#buildAnswer();
    else if (message.role === "tool") this.body.append(toolResult(message));
    else this.body.append(...attachmentList(message.attachments), h("div", { class: "bubble" }, message.content));
  }

  #buildAnswer() {
    const { message } = this;
    this.reasoningText = h("div", { class: "reasoning-text" });
    this.reasoningTitle = h("span", {});
    this.reasoning = h("details", { class: "fold reasoning" }, h("summary", {}, icon("thought"), this.reasoningTitle), this.reasoningText);
    this.content = h("div", { class: "markdown" });
    this.waiting = h("div", { class: "waiting" }, h("span", { class: "dots", "aria-hidden": true }, h("i"), h("i"), h("i")), h("span"));
    this.calls = h("div", { class: "calls" });
    this.note = h("div", { class: "note", hidden: true });
    this.body.append(this.reasoning, this.content, this.waiting, this.calls, this.note);
    this.markdown = new StreamedMarkdown(this.content, () => this.actions.changed());
    this.thoughts = new StreamedMarkdown(this.reasoningText, () => this.actions.changed());
    if (message.finish === null) return; // it is being made
    this.markdown.show(message.content);
    this.thoughts.show(message.reasoning);
    this.finished = Promise.resolve();
  }

  /** Show the message as it is now. `generation`: the one that is making it; `branch`: which of how many. */
  update({ generation = null, branch = { index: 0, total: 1 }, isLast = false } = {}) {
    if (this.message.role === "assistant") this.#updateAnswer(generation, isLast);
    const { usage, logprobs } = this.message;
    const state = JSON.stringify([Boolean(generation), branch, usage, logprobs?.length, this.element.className]);
    if (state === this.footState) return; // a button that has the focus keeps it
    this.footState = state;
    if (generation) this.foot.replaceChildren();
    else this.#updateFoot(branch);
  }

  #updateAnswer(generation, isLast) {
    const { message } = this;
    if (generation) {
      this.element.setAttribute("aria-busy", "true");
      this.markdown.push(message.content);
      this.thoughts.push(message.reasoning);
    } else {
      this.finished ??= Promise.all([this.markdown.finish(message.content), this.thoughts.finish(message.reasoning)]);
      this.finished.then(() => this.element.setAttribute("aria-busy", "false"));
    }
    this.reasoning.hidden = !message.reasoning;
    this.reasoningTitle.textContent = generation && !message.content ? "Thinking…" : "Thoughts";
    this.waiting.hidden = !generation || Boolean(message.content || message.reasoning || message.calls.length);
    this.waiting.lastChild.textContent = this.waiting.hidden ? "" : waitingFor(generation, this.actions.modelState());
    this.#updateCalls(!generation && isLast && message.finish === "tool_calls");
    this.#updateNote(generation);
  }

  /** Made anew only when they changed: what a person opened stays open. */
  #updateCalls(unanswered) {
    const { calls } = this.message;
    const state = JSON.stringify([calls, unanswered]);
    if (state === this.callState) return;
    this.callState = state;
    this.calls.replaceChildren(...callViews(calls));
    if (unanswered) this.calls.append(resultForm(calls, (results) => this.actions.giveResults(this.message, results)));
  }

  #updateNote(generation) {
    const { message, note } = this;
    const interrupted = !generation && message.finish === null;
    const text = message.error ?? (interrupted ? "The page was closed before the answer ended." : ENDINGS[message.finish]);
    note.hidden = !text;
    note.className = message.error ? "note note-error" : "note";
    note.replaceChildren(text ?? "");
    if (message.error && [401, 403].includes(message.status)) {
      note.append(" ", h("button", { type: "button", class: "text-button", onclick: this.actions.askKey }, "Give an API key"));
    }
  }

  #updateFoot(branch) {
    const { message, actions } = this;
    const answer = message.role === "assistant";
    this.foot.replaceChildren(
      ...[
        branch.total > 1 && branches(branch, (step) => actions.choose(message, step)),
        iconButton("copy", "Copy text", (event) => copied(event.currentTarget, message.content)),
        message.role !== "tool" && iconButton("edit", "Edit", () => this.edit()),
        answer && iconButton("again", "Answer again", () => actions.regenerate(message)),
        answer && message.logprobs?.length > 0 &&
          iconButton("tokens", "Show tokens with their probabilities", () => this.toggleTokens(), { "aria-pressed": String(this.showTokens) }),
        answer && h("span", { class: "stats" }, statistics(message)),
      ].filter(Boolean),
    );
  }

  /** Show the answer's tokens in the place of its Markdown, or the other way round. */
  toggleTokens() {
    this.showTokens = !this.showTokens;
    this.tokens ??= tokenView(this.message.logprobs);
    if (this.showTokens) this.content.replaceWith(this.tokens);
    else this.tokens.replaceWith(this.content);
    this.foot.querySelector("[aria-pressed]")?.setAttribute("aria-pressed", String(this.showTokens));
  }

  /** Put an editor in the place of the text. */
  edit() {
    const { message, actions } = this;
    const close = () => {
      this.element.classList.remove("editing");
      this.#build();
      actions.refresh();
      this.element.querySelector("[aria-label=Edit]")?.focus();
    };
    const keep = () => {
      const text = area.value;
      if (!text.trim() && !message.attachments?.length) return;
      close();
      actions.edit(message, text);
    };
    const area = h("textarea", { class: "editor", value: message.content, "aria-label": "Edit the message", rows: Math.min(14, message.content.split("\n").length + 1) });
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) keep();
      else if (event.key === "Escape") close();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    const buttons = h(
      "div",
      { class: "editor-buttons" },
      h("button", { type: "button", class: "button", onclick: close }, "Cancel"),
      h("button", { type: "button", class: "button button-main", onclick: keep }, message.role === "user" ? "Send" : "Keep"),
    );
    this.element.classList.add("editing");
    this.body.replaceChildren(area, buttons);
    this.foot.replaceChildren();
    this.footState = null;
    area.focus();
  }
}

function toolResult(message) {
  return h("details", { class: "fold" }, h("summary", {}, icon("tool"), h("span", {}, `Result of ${message.name}`)), h("pre", { tabIndex: 0 }, message.content));
}

function branches({ index, total }, choose) {
  const at = h("span", { class: "branch-at", "aria-label": `Version ${index + 1} of ${total}`, role: "img" }, `${index + 1}/${total}`);
  return h(
    "span",
    { class: "branches", role: "group", "aria-label": "Versions" },
    iconButton("left", "Earlier version", () => choose(-1), { disabled: index === 0 }),
    at,
    iconButton("right", "Later version", () => choose(1), { disabled: index === total - 1 }),
  );
}

function waitingFor(generation, state) {
  if (state) return state;
  if (!generation.progress) return "";
  const { processed, total } = generation.progress;
  return total ? `Reading ${count(total)} tokens: ${Math.floor((100 * processed) / total)} %` : "";
}

function statistics({ usage, speed, firstToken }) {
  const parts = [];
  if (usage) parts.push(`${count(usage.completion)} tokens`);
  if (speed) parts.push(rate(speed));
  if (firstToken !== undefined) parts.push(`first after ${duration(firstToken)}`);
  return parts.join(" · ");
}

async function copied(button, text) {
  const done = await copyText(text);
  button.title = done ? "Copied" : "The browser does not allow it";
  button.classList.toggle("done", done);
  setTimeout(() => {
    button.title = "Copy text";
    button.classList.remove("done");
  }, 1500);
}
