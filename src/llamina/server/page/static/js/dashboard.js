// The dashboard: snapshots of the server, as plots of the last two minutes, and what is under way.

import { say, toast } from "./announce.js";
import { cancelRequest, setKey, watchServer } from "./api.js";
import { askText } from "./dialogs.js";
import { byId, count, duration, h, size } from "./dom.js";
import { History, combined } from "./history.js";
import { Plot } from "./plot.js";
import { toggleTheme } from "./theme.js";

const ALL = ""; // the choice that stands for all models
const AGAIN = 1500; // milliseconds before a lost connection is tried again

const few = (value) => (value < 10 ? String(Math.round(10 * value) / 10) : count(value));
const percent = (value) => `${Math.round(value)} %`;
const time = (seconds) => duration(1000 * seconds);

const plots = [
  new Plot({ title: "Generation", lines: [["generated", "tokens/s"]], format: few }),
  new Plot({ title: "Prompts", lines: [["prompt", "tokens/s computed"]], format: few }),
  new Plot({ title: "First token", lines: [["firstMedian", "median"], ["firstSlow", "95 %"]], format: time }),
  new Plot({ title: "Each further token", lines: [["eachMedian", "median"], ["eachSlow", "95 %"]], format: time }),
  new Plot({ title: "Requests", lines: [["running", "running"], ["waiting", "waiting"]], format: few }),
  new Plot({ title: "Batch", lines: [["batch", "sequences a step"]], format: few }),
  new Plot({ title: "KV cache pages", lines: [["pages", "in use"], ["kept", "kept for reuse"]], format: percent, most: 100 }),
  new Plot({ title: "Prefix hits", lines: [["hits", "of prompt tokens"]], format: percent, most: 100 }),
  new Plot({ title: "Requests done", lines: [["ended", "a second"]], format: few }),
  new Plot({ title: "Memory", lines: [["resident", "resident"]], format: size, unit: 1 << 20 }),
];
byId("tiles").append(...plots.map((plot) => plot.element));

const histories = new Map(); // by model; ALL has all of them together

function historyOf(name) {
  if (!histories.has(name)) histories.set(name, new History());
  return histories.get(name);
}

function take({ time: now, models }) {
  const known = Object.entries(models).filter(([, model]) => model.stats);
  for (const [id, { stats, sequences }] of known) historyOf(id).add(now, stats, sequences);
  const together = known.map(([, model]) => model);
  if (known.length) historyOf(ALL).add(now, combined(together.map((m) => m.stats)), together.flatMap((m) => m.sequences));
  showChoice(Object.keys(models));
  showModels(models);
  draw();
  showRequests(models);
}

function draw() {
  const { points } = historyOf(byId("model").value);
  for (const plot of plots) plot.draw(points);
}

function showChoice(ids) {
  const select = byId("model");
  const wanted = [ALL, ...ids];
  if (wanted.join("\n") === [...select.options].map((option) => option.value).join("\n")) return;
  const { value } = select;
  select.replaceChildren(...wanted.map((id) => h("option", { value: id }, id || "All models")));
  select.value = wanted.includes(value) ? value : ALL;
}

function showModels(models) {
  const items = Object.entries(models).map(([id, { status, stats, sequences = [], max_sequences: most }]) => {
    const running = sequences.filter(({ state }) => state === "running").length;
    const facts = stats ? `${size(stats.memory.resident)} · ${running} of ${most} sequences` : "";
    return h("li", {}, h("span", { class: "dot", "data-status": status, "aria-hidden": true }), h("strong", {}, id), h("span", { class: "faint" }, [status, facts].filter(Boolean).join(" · ")));
  });
  byId("models").replaceChildren(...items);
}

function showRequests(models) {
  const chosen = byId("model").value;
  const all = Object.entries(models).flatMap(([id, { sequences = [] }]) => sequences.map((sequence) => ({ model: id, ...sequence })));
  const rows = all.filter(({ model }) => chosen === ALL || model === chosen).map(row);
  const focused = document.activeElement?.dataset?.request;
  byId("requests").replaceChildren(...(rows.length ? rows : [h("tr", {}, h("td", { colSpan: 7, class: "faint" }, "None."))]));
  if (focused) byId("requests").querySelector(`[data-request="${CSS.escape(focused)}"]`)?.focus();
}

function row({ model, id, state, prompt_tokens: prompt, computed, generated, max_tokens: most, cached_tokens: cached }) {
  const read = computed < prompt ? `${count(computed)} of ${count(prompt)}` : count(prompt);
  const made = most ? `${count(generated)} of ${count(most)}` : count(generated);
  const end = async () => {
    try {
      await cancelRequest(model, id);
      say(`Request ${id} of ${model} is cancelled.`);
    } catch (error) {
      toast(error.message, { error: true });
    }
  };
  return h(
    "tr",
    {},
    h("td", {}, model),
    h("td", {}, String(id)),
    h("td", {}, h("span", { class: `chip chip-${state}` }, state)),
    h("td", { class: "number" }, read),
    h("td", { class: "number" }, count(cached)),
    h("td", { class: "number" }, made),
    h("td", {}, h("button", { type: "button", class: "button button-small", onclick: end, "aria-label": `Cancel request ${id} of ${model}`, "data-request": `${model}/${id}` }, "Cancel")),
  );
}

function showState(text, live) {
  if (byId("state").textContent !== text) byId("state").textContent = text;
  byId("state").dataset.live = String(live);
}

/** Listen for as long as the page is open; true if it is worth trying again at once. */
async function listen() {
  try {
    for await (const snapshot of watchServer()) {
      showState("live", true);
      take(snapshot);
    }
  } catch (error) {
    showState(error.message, false);
    if (error.status !== 401 && error.status !== 403) return;
    const key = await askText("The server wants a key", "API key with the scope admin:read", "", { accept: "Use", secret: true, hint: "It is kept in this browser." });
    if (key) setKey(key);
  }
}

byId("model").addEventListener("change", draw);
byId("toggle-theme").addEventListener("click", toggleTheme);
document.body.dataset.ready = "true";
for (;;) {
  await listen();
  await new Promise((done) => setTimeout(done, AGAIN));
}
