// The settings panel: every option of the conversation, presets, the API key, the theme.

import { getKey, setKey } from "./api.js";
import { toast } from "./announce.js";
import { askText } from "./dialogs.js";
import { byId, h, iconButton } from "./dom.js";
import { FIELDS, FORMATS, GROUPS, readValue } from "./fields.js";
import { keepPreset, presets, removePreset } from "./settings.js";
import { currentTheme, setTheme } from "./theme.js";

export class Panel {
  #inputs = new Map();

  constructor(chat, onKey) {
    this.chat = chat;
    this.onKey = onKey;
    this.dialog = byId("settings");
    byId("open-settings").addEventListener("click", () => this.open());
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
    this.dialog.append(h("div", { class: "panel" }, this.#head(), h("div", { class: "panel-body" }, ...this.#sections())));
    chat.addEventListener("settings", () => this.#fill());
    this.#fill();
  }

  open(name = null) {
    this.#fill();
    if (!this.dialog.open) this.dialog.showModal();
    if (name) this.#inputs.get(name)?.focus();
  }

  #head() {
    return h("div", { class: "panel-head" }, h("h2", { id: "settings-title" }, "Settings"), iconButton("close", "Close settings", () => this.dialog.close()));
  }

  #sections() {
    return [
      this.#presets(),
      section("Conversation", true, this.#system(), ...this.#format(), this.#logprobs()),
      ...GROUPS.map(({ title, open, fields }) => section(title, open, ...fields.map((field) => this.#field(field)))),
      section("This browser", true, this.#theme(), this.#key()),
    ];
  }

  #presets() {
    this.presetSelect = h("select", { class: "input", id: "preset" });
    this.presetSelect.addEventListener("change", () => {
      const preset = presets()[this.presetSelect.value];
      if (preset) this.chat.keepSettings({ ...preset });
    });
    const keep = async () => {
      const name = await askText("Keep these settings", "Name of the preset", this.presetSelect.value);
      if (!name) return;
      keepPreset(name, this.chat.conversation.settings);
      this.#fill();
    };
    const drop = () => {
      removePreset(this.presetSelect.value);
      this.#fill();
    };
    this.dropPreset = h("button", { type: "button", class: "button", onclick: drop }, "Delete");
    return h(
      "div",
      { class: "presets" },
      h("label", { for: "preset" }, "Preset"),
      this.presetSelect,
      h("button", { type: "button", class: "button", onclick: keep }, "Keep as…"),
      this.dropPreset,
      h("button", { type: "button", class: "button", onclick: () => this.chat.keepSettings({}) }, "Reset all"),
    );
  }

  #system() {
    const area = h("textarea", { class: "input", rows: 4, placeholder: "You are a helpful assistant." });
    return this.#bind("system", labelled("System prompt", area, "Said to the model before the conversation."), area);
  }

  #format() {
    const select = h("select", { class: "input" }, ...FORMATS.map(([value, text]) => h("option", { value }, text)));
    this.formatText = h("textarea", { class: "input mono", rows: 6, spellcheck: false, "aria-label": "Schema, grammar or expression" });
    this.formatText.addEventListener("input", () => this.#checkFormat());
    this.formatError = h("p", { class: "field-error", hidden: true });
    const box = h("div", { class: "field" }, this.formatText, this.formatError);
    this.formatBox = box;
    return [this.#bind("format", labelled("The answer must be", select, ""), select), this.#bind("formatText", box, this.formatText)];
  }

  #checkFormat() {
    const { format = "" } = this.chat.conversation.settings;
    this.formatBox.hidden = !format || format === "json_object";
    const wrong = format === "json_schema" && !isJson(this.formatText.value);
    mark(this.formatText, this.formatError, wrong ? "A JSON schema must be JSON." : "");
  }

  #logprobs() {
    const box = h("input", { type: "checkbox" });
    this.#inputs.set("logprobs", box);
    box.addEventListener("change", () => this.#keep("logprobs", box.checked));
    return h("label", { class: "check" }, box, h("span", {}, "Ask for log-probabilities"), h("small", {}, "An answer then has a button that shows its tokens: point at one to see what else could have been."));
  }

  #theme() {
    const select = h("select", { class: "input" }, ...[["system", "as the system has it"], ["light", "light"], ["dark", "dark"]].map(([value, text]) => h("option", { value }, text)));
    select.addEventListener("change", () => setTheme(select.value));
    this.themeSelect = select;
    return labelled("Theme", select, "");
  }

  #key() {
    const input = h("input", { class: "input", type: "password", autocomplete: "off", value: getKey(), placeholder: "none" });
    input.addEventListener("change", () => {
      setKey(input.value.trim());
      this.onKey();
    });
    this.#inputs.set("key", input);
    const label = labelled("API key", input, "If the server needs one. It is kept in this browser only.");
    return h("form", { onsubmit: (event) => event.preventDefault() }, label);
  }

  #field(field) {
    const input = control(field);
    const error = h("p", { class: "field-error", hidden: true });
    const element = labelled(field.label, input, field.hint);
    element.append(error);
    const check = () => {
      let problem = "";
      try {
        readValue(field, input.value);
      } catch (found) {
        problem = found.message;
      }
      mark(input, error, problem);
    };
    input.addEventListener("input", check);
    return this.#bind(field.name, element, input, check);
  }

  #bind(name, element, input, check = () => {}) {
    this.#inputs.set(name, input);
    input.addEventListener("change", () => this.#keep(name, input.value));
    input.check = check;
    return element;
  }

  #keep(name, value) {
    const { [name]: _, ...others } = this.chat.conversation.settings;
    this.chat.keepSettings(value === "" || value === false ? others : { ...others, [name]: value });
  }

  /** Show the open conversation's settings. */
  #fill() {
    const { settings } = this.chat.conversation;
    for (const [name, input] of this.#inputs) {
      if (name === "key") continue;
      if (input.type === "checkbox") input.checked = Boolean(settings[name]);
      else if (input !== document.activeElement || input.value !== (settings[name] ?? "")) input.value = settings[name] ?? "";
      input.check?.();
    }
    this.#checkFormat();
    this.themeSelect.value = currentTheme();
    const names = Object.keys(presets()).sort();
    const same = names.find((name) => JSON.stringify(sorted(presets()[name])) === JSON.stringify(sorted(settings)));
    this.presetSelect.replaceChildren(h("option", { value: "" }, names.length ? "(none)" : "(none kept yet)"), ...names.map((name) => h("option", { value: name }, name)));
    this.presetSelect.value = same ?? "";
    this.dropPreset.disabled = !same;
    byId("settings-count").textContent = Object.keys(settings).length || "";
  }

  /** Whether every setting is a value; if one is not, the panel opens at it. */
  check() {
    const { settings } = this.chat.conversation;
    try {
      for (const field of FIELDS) readValue(field, settings[field.name]);
      if (settings.format === "json_schema" && !isJson(settings.formatText ?? "")) throw new Error("The JSON schema must be JSON.");
      return true;
    } catch (error) {
      toast(error.message, { error: true });
      this.open();
      this.dialog.querySelector("[aria-invalid=true]")?.focus();
      return false;
    }
  }
}

const sorted = (settings) => Object.entries(settings).sort();

function section(title, open, ...children) {
  return h("details", { class: "section", open }, h("summary", {}, h("h3", {}, title)), h("div", { class: "fields" }, ...children));
}

function labelled(label, input, hint) {
  return h("div", { class: "field" }, h("label", {}, h("span", {}, label), input, hint && h("small", {}, hint)));
}

function control({ kind, min, max, step, choices }) {
  const common = { class: "input", autocomplete: "off" };
  if (kind === "number") return h("input", { ...common, type: "number", inputMode: "decimal", min, max, step, placeholder: "default" });
  if (kind === "lines" || kind === "json") return h("textarea", { class: "input mono", rows: 2, spellcheck: false, placeholder: "default" });
  if (kind === "text") return h("input", { ...common, type: "text", placeholder: "default" });
  const options = kind === "flag" ? [["on", "on"], ["off", "off"]] : choices;
  return h("select", common, h("option", { value: "" }, "default"), ...options.map(([value, text]) => h("option", { value }, text)));
}

function mark(input, error, problem) {
  input.setAttribute("aria-invalid", String(Boolean(problem)));
  error.textContent = problem;
  error.hidden = !problem;
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
