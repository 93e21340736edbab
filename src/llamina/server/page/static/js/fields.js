// Every option of /v1/chat/completions that a person may set: one row each. Empty: the model's default.

const number = (name, label, hint, min, max, step = "any") => ({ name, label, hint, kind: "number", min, max, step });
const whole = (name, label, hint, min, max) => ({ ...number(name, label, hint, min, max, 1) });
const lines = (name, label, hint) => ({ name, label, hint, kind: "lines" });
const json = (name, label, hint) => ({ name, label, hint, kind: "json" });
const flag = (name, label, hint) => ({ name, label, hint, kind: "flag" });
const text = (name, label, hint) => ({ name, label, hint, kind: "text" });
const choice = (name, label, hint, choices) => ({ name, label, hint, kind: "choice", choices });

export const GROUPS = [
  {
    title: "Sampling",
    open: true,
    fields: [
      number("temperature", "Temperature", "Higher is more varied; 0 always takes the likeliest token.", 0, 5, 0.05),
      number("top_p", "Top-p", "The likeliest tokens up to this mass; 1 is off.", 0, 1, 0.01),
      whole("top_k", "Top-k", "The k likeliest tokens; 0 is off.", 0),
      number("min_p", "Min-p", "Tokens at least so likely, relative to the likeliest; 0 is off.", 0, 1, 0.01),
      whole("max_tokens", "Longest answer", "In tokens.", 1),
      whole("seed", "Seed", "The same seed draws the same answer."),
      lines("stop", "Stop strings", "One a line. The answer ends before the first that comes."),
    ],
  },
  {
    title: "Repetition",
    fields: [
      number("repeat_penalty", "Repeat penalty", "Divides the logits of tokens that occurred; 1 is off.", 0.01, 5, 0.01),
      whole("repeat_last_n", "Penalty window", "How many tokens back penalties look; −1 is all.", -1),
      number("presence_penalty", "Presence penalty", "For each token that occurred; 0 is off.", -2, 2, 0.05),
      number("frequency_penalty", "Frequency penalty", "Times how often a token occurred; 0 is off.", -2, 2, 0.05),
      number("dry_multiplier", "DRY multiplier", "Penalty for prolonging a repetition; 0 is off.", 0, 10, 0.05),
      number("dry_base", "DRY base", "How fast the penalty grows with the repetition.", 1, 10, 0.05),
      whole("dry_allowed_length", "DRY allowed length", "Repetitions up to so many tokens are free.", 1),
      whole("dry_penalty_last_n", "DRY window", "How many tokens back DRY looks; −1 is all.", -1),
      lines("dry_sequence_breakers", "DRY breakers", "One a line. A repetition does not go past them."),
    ],
  },
  {
    title: "More samplers",
    fields: [
      number("typical_p", "Typical-p", "The most typical tokens up to this mass; 1 is off.", 0, 1, 0.01),
      number("top_n_sigma", "Top-n-sigma", "Logits within so many standard deviations of the largest; 0 is off.", 0, 20, 0.1),
      number("top_a", "Top-a", "Tokens at least as likely as this times the square of the likeliest; 0 is off.", 0, 1, 0.01),
      number("epsilon_cutoff", "Epsilon cutoff", "Tokens at least so likely; 0 is off.", 0, 1),
      number("eta_cutoff", "Eta cutoff", "The same, lower where the model is unsure; 0 is off.", 0, 1),
      number("xtc_probability", "XTC probability", "How often the likeliest tokens are left out; 0 is off.", 0, 1, 0.01),
      number("xtc_threshold", "XTC threshold", "Which tokens count as likely; above 0.5 is off.", 0, 1, 0.01),
      number("dynatemp_range", "Dynamic temperature range", "Temperature plus and minus this, by entropy; 0 is off.", 0, 5, 0.05),
      number("dynatemp_exponent", "Dynamic temperature exponent", "Exponent of the entropy-to-temperature curve.", 0, 10, 0.1),
      choice("mirostat", "Mirostat", "Holds the surprise at a target, in the place of other cutoffs.", [["0", "off"], ["1", "1"], ["2", "2"]]),
      number("mirostat_tau", "Mirostat tau", "The target surprise.", 0, 20, 0.1),
      number("mirostat_eta", "Mirostat eta", "The learning rate.", 0, 1, 0.01),
      lines("samplers", "Order of samplers", "One a line: penalties, dry, top_n_sigma, top_k, typical_p, top_p, min_p, top_a, epsilon_cutoff, eta_cutoff, xtc, temperature. One that is not listed is left out."),
      json("logit_bias", "Logit bias", 'JSON: token ids and what is added, {"42": -5}.'),
      json("banned_tokens", "Banned tokens", "JSON: a list of token ids, [42, 43]."),
      lines("bad_words", "Bad words", "One a line: none of them is written, by itself or after a space."),
      flag("ignore_eos", "Ignore end of text", "Go on until the longest answer."),
    ],
  },
  {
    title: "Reasoning and tools",
    fields: [
      choice("reasoning_effort", "Reasoning effort", "For models that think; none turns it off where the template can.", [
        ["none", "none"], ["minimal", "minimal"], ["low", "low"], ["medium", "medium"], ["high", "high"],
      ]),
      json("tools", "Tools", "JSON: a list of OpenAI's tool definitions. You type the results of calls."),
      choice("tool_choice", "Tool choice", "Whether the model must call a tool.", [["auto", "auto"], ["required", "required"], ["none", "none"]]),
      flag("parallel_tool_calls", "Several calls at once", "Whether one answer may have several calls."),
      json("chat_template_kwargs", "Template variables", "JSON: passed to the model's chat template."),
    ],
  },
  {
    title: "Context and engine",
    fields: [
      flag("truncate", "Drop old tokens of a long prompt", "Else a prompt that does not fit is refused."),
      flag("context_shift", "Drop old tokens of a full context", "Else the answer ends when the context is full."),
      whole("n_keep", "Tokens to keep", "At the start, when old ones are dropped.", 0),
      flag("cache_prompt", "Reuse the KV cache", "Of an earlier prompt with the same start."),
      text("speculate", "Draft tokens", "auto, ngram, draft, off, or how many in every step."),
      whole("priority", "Priority", "A head start in the queue, before requests with less."),
      text("lora", "LoRA adapter", "The name of a loaded one."),
    ],
  },
];

export const FIELDS = GROUPS.flatMap((group) => group.fields);

/** How an answer may be constrained. */
export const FORMATS = [
  ["", "free text"],
  ["json_object", "a JSON object"],
  ["json_schema", "JSON schema"],
  ["grammar", "GBNF grammar"],
  ["regex", "regular expression"],
  ["choices", "one of these (one a line)"],
  ["lark", "Lark grammar"],
];

/** What is sent for a field's text; undefined for none. Throws for text that is no such value. */
export function readValue(field, given) {
  if (given === "" || given === undefined) return undefined;
  switch (field.kind) {
    case "number": {
      const value = Number(given);
      if (!Number.isFinite(value)) throw new Error(`${field.label} must be a number.`);
      if (field.step === 1 && !Number.isInteger(value)) throw new Error(`${field.label} must be a whole number.`);
      if (value < field.min) throw new Error(`${field.label} must be at least ${field.min}.`);
      if (value > field.max) throw new Error(`${field.label} must be at most ${field.max}.`);
      return value;
    }
    case "lines":
      return given.split("\n").filter((line) => line !== "").map((line) => line.replaceAll("\\n", "\n"));
    case "json":
      try {
        return JSON.parse(given);
      } catch (error) {
        throw new Error(`${field.label} must be JSON: ${error.message}.`);
      }
    case "flag":
      return given === "on";
    case "choice":
      return /^\d+$/.test(given) ? Number(given) : given;
    default:
      return /^\d+$/.test(given) && field.name === "speculate" ? Number(given) : given;
  }
}
