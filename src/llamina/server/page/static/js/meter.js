// How full the context is, and how fast the answer comes.

import { byId, count, duration, rate } from "./dom.js";

/** Keep the line below the composer up to date. */
export function watch(chat, models) {
  let frame = 0;
  const show = () => {
    frame = 0;
    const path = chat.path;
    const answer = path.findLast((message) => message.role === "assistant");
    showContext(path, models.context);
    byId("speed").textContent = chat.generation && answer ? speed(answer) : "";
  };
  const soon = () => (frame ||= requestAnimationFrame(show));
  for (const type of ["thread", "message", "running"]) chat.addEventListener(type, soon);
  models.addEventListener("change", soon);
}

function speed({ speed, firstToken }) {
  if (firstToken === undefined) return "";
  return speed ? `${rate(speed)} · first after ${duration(firstToken)}` : `first after ${duration(firstToken)}`;
}

function showContext(path, context) {
  const used = path.findLast((message) => message.usage)?.usage;
  const box = byId("context");
  box.hidden = !used || !context;
  if (box.hidden) return;
  const total = used.prompt + used.completion;
  const meter = byId("context-meter");
  Object.assign(meter, { max: context, high: 0.85 * context, value: Math.min(total, context) });
  const text = `${count(total)} of ${count(context)} tokens`;
  meter.setAttribute("aria-label", `Context: ${text}`);
  byId("context-text").textContent = text;
}
