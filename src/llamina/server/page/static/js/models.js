// The model that answers: chosen from those the server knows, with how far one is loaded.

import { listModels, loadModel } from "./api.js";
import { toast } from "./announce.js";
import { byId, count, h, size } from "./dom.js";

const CHOSEN = "llamina.model";
const POLL = 400; // milliseconds, while a model is being loaded
export const SENSES = { image: "see", audio: "hear" }; // by the kind of an attachment
const STATES = { ready: "ready", loading: "loading", unloaded: "not loaded", failed: "failed" };

export class ModelPicker extends EventTarget {
  #models = [];
  #timer = 0;

  constructor(onError) {
    super();
    this.onError = onError;
    this.select = byId("model");
    this.select.addEventListener("change", () => this.choose(this.select.value));
    this.select.addEventListener("focus", () => this.refresh());
  }

  /** The id of the chosen model; "" if the server has none. */
  get chosen() {
    return this.current?.id ?? "";
  }

  get current() {
    const wanted = localStorage.getItem(CHOSEN);
    return this.#models.find((model) => model.id === wanted) ?? this.#models[0];
  }

  /** Tokens that fit in the model's context; undefined until it is loaded. */
  get context() {
    return this.current?.meta?.n_ctx;
  }

  /** Whether the model takes a kind of attachment (text, image, audio); undefined until it is loaded. */
  takes(kind) {
    return this.current?.architecture?.input_modalities.includes(kind);
  }

  /** What there is to wait for, in words; "" if the model is ready. */
  get state() {
    const { id, meta } = this.current ?? {};
    if (meta?.status !== "loading") return "";
    const { stage, done, total } = meta.progress ?? {};
    return total ? `Loading ${id}: ${stage}, ${Math.floor((100 * done) / total)} %` : `Loading ${id}…`;
  }

  /** Ask the server for its models, again and again while one is being loaded. */
  async refresh() {
    clearTimeout(this.#timer);
    try {
      this.#models = await listModels();
    } catch (error) {
      this.onError(error);
      return;
    }
    this.#show();
    if (this.#models.some(({ meta }) => meta?.status === "loading")) this.#timer = setTimeout(() => this.refresh(), POLL);
  }

  #show() {
    const { current } = this;
    const options = this.#models.map(({ id, meta }) => {
      const status = meta?.status ?? "ready";
      return h("option", { value: id, selected: id === current.id }, status === "ready" ? id : `${id} (${STATES[status]})`);
    });
    const same = options.length === this.select.options.length && options.every((o, i) => o.textContent === this.select.options[i].textContent && o.value === this.select.options[i].value);
    if (!same) this.select.replaceChildren(...options);
    if (current) this.select.value = current.id;
    const status = current?.meta?.status ?? "";
    byId("model-dot").dataset.status = status;
    byId("model-facts").textContent = current ? facts(current) : "The server has no model.";
    const bar = byId("loading");
    bar.hidden = status !== "loading";
    const { done = 0, total = 0 } = current?.meta?.progress ?? {};
    if (total) bar.value = done / total;
    else bar.removeAttribute("value");
    bar.setAttribute("aria-label", this.state || "Loading");
    this.dispatchEvent(new Event("change"));
  }

  /** Choose a model and have it loaded. */
  async choose(id) {
    localStorage.setItem(CHOSEN, id);
    const status = this.current?.meta?.status;
    this.#show();
    if (!status || status === "ready") return;
    this.#timer = setTimeout(() => this.refresh(), POLL / 4);
    try {
      await loadModel(id);
    } catch (error) {
      toast(`${id} cannot be loaded: ${error.message}`, { error: true });
    }
    await this.refresh();
  }
}

function facts({ meta = {}, architecture }) {
  if (meta.status === "failed") return meta.error ?? "failed";
  if (!meta.n_ctx) return STATES[meta.status] ?? "";
  const parameters = meta.n_params >= 1e9 ? `${(meta.n_params / 1e9).toFixed(1)} B` : `${Math.round(meta.n_params / 1e6) || "<1"} M`;
  const senses = Object.keys(SENSES).filter((kind) => architecture?.input_modalities.includes(kind));
  return [`${parameters} parameters`, size(meta.size), `${count(meta.n_ctx)} tokens of context`, ...senses.map((kind) => `${SENSES[kind]}s`)].join(" · ");
}
