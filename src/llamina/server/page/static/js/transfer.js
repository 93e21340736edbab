// Conversations out of the browser and into it: JSON with every branch, or Markdown of the branch that is shown.

import { newId } from "./ids.js";
import { fenced } from "./request.js";
import * as store from "./store.js";
import { Tree } from "./tree.js";

const FORMAT = "llamina.conversations";
const MARK = /^<!-- message: (user|assistant|tool) -->$/;
const ROLES = { user: "You", assistant: "Model", tool: "Tool" };
const PICTURE = /^data:image\/(png|jpeg|webp|gif|bmp);base64,[A-Za-z0-9+/=]*$/;
const SOUND = /^data:audio\/(wav|mp3|flac);base64,[A-Za-z0-9+/=]*$/;
const MEDIA = { image: "picture", audio: "sound" };

/** Save conversations (all, if no ids are given) as a JSON file. */
export async function exportConversations(ids = null) {
  const all = (await store.allConversations()).filter(({ id }) => ids === null || ids.includes(id));
  const conversations = await Promise.all(all.map(async (c) => ({ ...c, messages: await store.getMessages(c.id) })));
  const name = all.length === 1 ? fileName(all[0].title) : "conversations";
  download(`${name}.json`, JSON.stringify({ format: FORMAT, version: 1, conversations }, null, 1), "application/json");
}

/** Save the shown branch of a conversation as Markdown. */
export function exportMarkdown(conversation, path) {
  download(`${fileName(conversation.title)}.md`, toMarkdown(conversation, path), "text/markdown");
}

export function toMarkdown({ title, settings }, path) {
  const parts = [`# ${title}`];
  if (settings.system) parts.push(`> ${settings.system.replaceAll("\n", "\n> ")}`);
  for (const { role, content, attachments = [], model, calls = [], name } of path) {
    const who = role === "assistant" ? (model ?? ROLES.assistant) : role === "tool" ? `${ROLES.tool} ${name}` : ROLES.user;
    const files = (attachments ?? []).map((a) => (a.kind === "text" ? `${a.name}:\n\n${fenced(a.data)}` : `(${MEDIA[a.kind]} ${a.name})`));
    const called = calls.filter(Boolean).map((call) => `Calls \`${call.name}\`:\n\n${fenced(call.arguments)}`);
    const text = [...files, content, ...called].filter(Boolean).join("\n\n");
    parts.push(`<!-- message: ${role} -->\n## ${who}`, text.replace(/^(\\*<!-- message: )/gm, "\\$1"));
  }
  return `${parts.join("\n\n")}\n`;
}

/** Conversations of a file; how many came in. Throws for a file that has none. */
export async function importFile(file) {
  const text = await file.text();
  const found = text.trimStart().startsWith("{") ? fromJson(text) : [fromMarkdown(text, file.name)];
  for (const { conversation, messages } of found) await store.save(conversation, messages);
  return found.map(({ conversation }) => conversation.id);
}

function fromJson(text) {
  const data = JSON.parse(text);
  if (data.format !== FORMAT || data.version !== 1 || !Array.isArray(data.conversations)) {
    throw new Error(`It is not a file of ours: "format" must be "${FORMAT}", and "version" 1.`);
  }
  return data.conversations.map(checked);
}

/** A conversation with ids of its own, so that nothing that is here is overwritten. */
function checked({ messages, title, created, updated, leaf, settings }) {
  const id = newId();
  const ids = new Map(messages.map((message) => [message.id, newId()]));
  const list = messages.map((message) => ({
    ...message,
    id: ids.get(message.id),
    conversation: id,
    parent: ids.get(message.parent) ?? null,
    role: one(message.role, Object.keys(ROLES), "role"),
    content: string(message.content, "content"),
    created: Number(message.created) || 0,
    attachments: (message.attachments ?? []).map(checkedAttachment),
    ...(message.role === "assistant" && {
      reasoning: String(message.reasoning ?? ""),
      calls: (message.calls ?? []).filter(Boolean).map((c) => ({ id: String(c.id), name: String(c.name), arguments: String(c.arguments) })),
      logprobs: Array.isArray(message.logprobs) ? message.logprobs : [],
      finish: message.finish ?? null,
    }),
  }));
  const now = Date.now();
  const conversation = {
    id,
    title: string(title, "title"),
    created: Number(created) || now,
    updated: Number(updated) || now,
    leaf: ids.get(leaf) ?? new Tree(list).leafBelow({ id: null, created: 0 }).id,
    settings: settings !== null && typeof settings === "object" ? settings : {},
  };
  return { conversation, messages: list };
}

function checkedAttachment({ kind, name, size, data }) {
  one(kind, ["text", "image", "audio"], "kind of an attachment");
  if (kind === "image" && !PICTURE.test(data)) throw new Error("A picture in it is no data URL of a PNG, JPEG, WebP, GIF or BMP.");
  if (kind === "audio" && !SOUND.test(data)) throw new Error("A sound in it is no data URL of a WAV, MP3 or FLAC.");
  return { kind, name: string(name, "name of an attachment"), size: Number(size) || 0, data: string(data, "data of an attachment") };
}

function fromMarkdown(text, name) {
  const id = newId();
  const messages = [];
  const heads = [];
  for (const line of text.replace(/\r\n?/g, "\n").split("\n")) {
    const role = MARK.exec(line)?.[1];
    if (role) messages.push({ role, lines: [] });
    else if (messages.length) messages.at(-1).lines.push(line.replace(/^\\(\\*<!-- message: )/, "$1"));
    else heads.push(line);
  }
  if (!messages.length) throw new Error("It has no line like <!-- message: user -->, which begins each message of an exported file.");
  const now = Date.now();
  const title = heads.find((line) => line.startsWith("# "))?.slice(2) || name.replace(/\.\w+$/, "");
  const system = heads.filter((line) => line.startsWith(">")).map((line) => line.replace(/^> ?/, "")).join("\n");
  let parent = null;
  const list = messages.map(({ role, lines }, index) => {
    const who = lines[0]?.startsWith("## ") ? lines.shift().slice(3) : "";
    const message = { id: newId(), conversation: id, parent, role, content: lines.join("\n").trim(), created: now + index };
    parent = message.id;
    if (role === "assistant") Object.assign(message, { model: who, reasoning: "", calls: [], logprobs: [], finish: "stop" });
    if (role === "tool") Object.assign(message, { name: who.replace(/^Tool /, ""), call: "" });
    return message;
  });
  return { conversation: { id, title, created: now, updated: now, leaf: parent, settings: system ? { system } : {} }, messages: list };
}

function string(value, what) {
  if (typeof value !== "string") throw new Error(`The ${what} must be a text.`);
  return value;
}

function one(value, allowed, what) {
  if (!allowed.includes(value)) throw new Error(`The ${what} must be one of ${allowed.join(", ")}.`);
  return value;
}

const fileName = (title) => title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "conversation";

function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
