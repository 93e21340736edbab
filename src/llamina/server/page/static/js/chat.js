// The open conversation and what can be done with it. Views hear of changes by events:
// `thread` (other messages are shown), `message` (one changed), `list` (conversations), `running`, `settings`.

import { Generation } from "./generation.js";
import { newId } from "./ids.js";
import { chatBody } from "./request.js";
import * as settings from "./settings.js";
import * as store from "./store.js";
import { Tree } from "./tree.js";

const SAVE_EVERY = 1000; // milliseconds between saves of an answer that is being made
const TITLE = 60;

export class Chat extends EventTarget {
  #running = new Map(); // by conversation: {generation, tree, conversation}; answers go on while another is open

  constructor() {
    super();
    this.#show(fresh(), new Tree());
  }

  #show(conversation, tree) {
    this.conversation = conversation;
    this.tree = tree;
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  /** The messages that are shown, first to last. */
  get path() {
    return this.tree.path(this.conversation.leaf);
  }

  /** The answer that the open conversation is waiting for. */
  get generation() {
    return this.#running.get(this.conversation.id)?.generation ?? null;
  }

  isRunning(id) {
    return this.#running.has(id);
  }

  /** Begin an empty conversation; it is kept once something is said. */
  start() {
    this.#show(fresh(), new Tree());
    this.#opened();
  }

  /** Open a conversation; false if there is none of that id. */
  async open(id) {
    const running = this.#running.get(id);
    if (running) {
      this.#show(running.conversation, running.tree);
    } else {
      const conversation = await store.getConversation(id);
      if (!conversation) return false;
      this.#show(conversation, new Tree(await store.getMessages(id)));
    }
    this.#opened();
    return true;
  }

  #opened() {
    this.#tell("thread", { opened: true });
    this.#tell("settings");
    this.#tell("running");
  }

  /** Say something at the end of the shown branch, and have it answered. */
  async send(text, attachments, model) {
    const { conversation } = this;
    conversation.title ||= titleOf(text || attachments[0]?.name);
    await this.#say("user", { content: text, attachments });
    await this.answer(model);
  }

  async #say(role, fields, parent = this.conversation.leaf) {
    const message = { ...blank(this.conversation.id, role, parent), ...fields };
    await this.#add(message);
    return message;
  }

  async #add(message) {
    const { conversation } = this;
    this.tree.add(message);
    Object.assign(conversation, { leaf: message.id, updated: Date.now() });
    await store.save(conversation, [message]);
    this.#tell("thread", {});
    this.#tell("list");
  }

  /** Have the last message answered. Settings that are no values throw before anything is said. */
  async answer(model) {
    const { conversation, tree } = this;
    const body = chatBody(model, this.path, conversation.settings);
    const message = { ...blank(conversation.id, "assistant", conversation.leaf), model };
    let saved = performance.now();
    const changed = () => {
      if (performance.now() - saved > SAVE_EVERY) {
        saved = performance.now();
        store.save(conversation, [message]);
      }
      this.#tell("message", message);
    };
    const generation = new Generation(body, message, changed);
    this.#running.set(conversation.id, { generation, tree, conversation });
    try {
      await this.#add(message);
      this.#tell("running");
      await generation.run();
    } finally {
      this.#running.delete(conversation.id);
    }
    await store.save(conversation, [message]);
    this.#tell("message", message);
    this.#tell("running", message);
    this.#tell("list");
  }

  stop() {
    this.generation?.stop();
  }

  /** Another answer beside this one. */
  async regenerate(message, model) {
    if (this.generation) return;
    this.conversation.leaf = message.parent;
    await this.answer(model);
  }

  /** Another version beside a message; one of the user's is answered. */
  async edit(message, text, model) {
    if (this.generation) return;
    if (message.role === "user") {
      await this.#say("user", { content: text, attachments: message.attachments }, message.parent);
      await this.answer(model);
    } else {
      const { calls, reasoning } = message;
      await this.#say(message.role, { content: text, calls, reasoning, model: message.model, finish: "edited" }, message.parent);
    }
  }

  /** Give the results of an answer's calls, and have them answered. */
  async giveResults(message, results, model) {
    if (this.generation) return;
    let parent = message.id;
    for (const [index, call] of message.calls.filter(Boolean).entries()) {
      parent = (await this.#say("tool", { call: call.id, name: call.name, content: results[index] }, parent)).id;
    }
    await this.answer(model);
  }

  /** Show the branch of the sibling `step` further. */
  async choose(message, step) {
    if (this.generation) return;
    const siblings = this.tree.siblings(message);
    const other = siblings[siblings.indexOf(message) + step];
    if (!other) return;
    this.conversation.leaf = this.tree.leafBelow(other).id;
    await store.save(this.conversation);
    this.#tell("thread", { at: other.id });
  }

  /** Keep changed settings, with the conversation and for new ones. */
  async keepSettings(changed) {
    this.conversation.settings = changed;
    settings.keepLast(changed);
    if (this.conversation.leaf) await store.save(this.conversation);
    this.#tell("settings");
  }

  async rename(id, title) {
    const conversation = await this.#find(id);
    conversation.title = title;
    await store.save(conversation);
    this.#tell("list");
  }

  async remove(id) {
    this.#running.get(id)?.generation.stop();
    await store.remove(id);
    this.#running.delete(id);
    if (id === this.conversation.id) this.start();
    this.#tell("list");
  }

  /** The record of a conversation, the open one's own if it is that. */
  async #find(id) {
    if (id === this.conversation.id) return this.conversation;
    return this.#running.get(id)?.conversation ?? (await store.getConversation(id));
  }
}

function fresh() {
  const now = Date.now();
  return { id: newId(), title: "", created: now, updated: now, leaf: null, settings: settings.last() };
}

let latest = 0;

/** A message with nothing in it. Times differ, so that siblings have an order. */
function blank(conversation, role, parent) {
  latest = Math.max(Date.now(), latest + 1);
  const message = { id: newId(), conversation, parent, role, content: "", created: latest };
  return role === "assistant" ? { ...message, reasoning: "", calls: [], logprobs: [], finish: null } : message;
}

function titleOf(text) {
  const line = text.trim().split("\n")[0];
  return line.length <= TITLE ? line : `${line.slice(0, TITLE - 1).trimEnd()}…`;
}
