// From a conversation and its settings to the body of /v1/chat/completions.

import { FIELDS, readValue } from "./fields.js";

/** The request's body for the messages from the first to the last. */
export function chatBody(model, path, settings) {
  const messages = path.filter((message) => !message.error || message.content).map(apiMessage);
  if (settings.system) messages.unshift({ role: "system", content: settings.system });
  const body = { model, messages, stream: true, stream_options: { include_usage: true }, return_progress: true };
  for (const field of FIELDS) {
    const value = readValue(field, settings[field.name] ?? "");
    if (value !== undefined) body[field.name] = value;
  }
  if (body.tools === undefined) delete body.tool_choice;
  if (settings.logprobs) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  return Object.assign(body, constraint(settings));
}

/** The grammar that an answer must follow. */
function constraint({ format, formatText = "" }) {
  switch (format) {
    case "json_object":
      return { response_format: { type: "json_object" } };
    case "json_schema":
      return { response_format: { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(formatText) } } };
    case "choices":
      return { choices: formatText.split("\n").filter(Boolean) };
    case "grammar":
    case "regex":
    case "lark":
      return { [format]: formatText };
    default:
      return {};
  }
}

/** A message as the API has it: pictures as image_url parts with data URLs, sounds as input_audio parts, text files as text. */
export function apiMessage(message) {
  if (message.role === "tool") return { role: "tool", tool_call_id: message.call, content: message.content };
  if (message.role === "assistant") {
    const answer = { role: "assistant", content: message.content };
    if (message.calls?.length) {
      answer.tool_calls = message.calls.map(({ id, name, arguments: text }) => ({
        id,
        type: "function",
        function: { name, arguments: text },
      }));
    }
    return answer;
  }
  const attachments = message.attachments ?? [];
  const texts = attachments.filter((a) => a.kind === "text").map((a) => `${a.name}:\n${fenced(a.data)}`);
  const text = [...texts, message.content].filter(Boolean).join("\n\n");
  const parts = attachments.filter((a) => a.kind !== "text").map(part);
  if (!parts.length) return { role: "user", content: text };
  return { role: "user", content: text ? [{ type: "text", text }, ...parts] : parts };
}

function part({ kind, data }) {
  if (kind === "image") return { type: "image_url", image_url: { url: data } };
  const [, format, base64] = /^data:audio\/(\w+);base64,(.*)$/.exec(data);
  return { type: "input_audio", input_audio: { data: base64, format } };
}

/** A text between fences that are longer than any in it. */
export function fenced(text) {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${text}\n${fence}`;
}
