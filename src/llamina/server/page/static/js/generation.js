// One answer that is being made: chunks of the stream go into a message.

import { streamChat } from "./api.js";

export class Generation {
  /** `message` is filled in place; `changed` is called after each change of it. */
  constructor(body, message, changed) {
    this.body = body;
    this.message = message;
    this.changed = changed;
    this.progress = null; // of the prompt: {total, processed}
    this.tokens = 0;
    this.abort = new AbortController();
  }

  stop() {
    this.abort.abort();
  }

  /** Comes back when the answer has ended, however it did. */
  async run() {
    this.started = performance.now();
    try {
      for await (const chunk of streamChat(this.body, this.abort.signal)) {
        this.#take(chunk);
        this.changed();
      }
      this.message.finish ??= "stop";
    } catch (error) {
      if (this.abort.signal.aborted) this.message.finish = "stopped";
      else Object.assign(this.message, { finish: "error", error: error.message, status: error.status ?? 0 });
    }
    this.progress = null;
    this.changed();
  }

  #take(chunk) {
    const { message } = this;
    if (chunk.usage) message.usage = { prompt: chunk.usage.prompt_tokens, completion: chunk.usage.completion_tokens };
    if (chunk.timings) message.speed = chunk.timings.predicted_per_second;
    if (chunk.prompt_progress) this.progress = chunk.prompt_progress;
    const choice = chunk.choices[0];
    if (!choice) return;
    const { content, reasoning_content: reasoning, tool_calls: calls } = choice.delta;
    if (content || reasoning || calls) this.#count();
    message.content += content ?? "";
    message.reasoning += reasoning ?? "";
    for (const call of calls ?? []) this.#takeCall(call);
    for (const entry of choice.logprobs?.content ?? []) {
      message.logprobs.push([entry.token, entry.logprob, entry.top_logprobs.map((top) => [top.token, top.logprob])]);
    }
    if (choice.finish_reason) message.finish = choice.finish_reason;
  }

  #count() {
    const now = performance.now();
    if (this.tokens++ === 0) {
      this.progress = null;
      this.message.firstToken = now - this.started;
      this.first = now;
    } else if (now - this.first > 200) {
      this.message.speed = (this.tokens - 1) / ((now - this.first) / 1000); // until the server tells its own
    }
  }

  #takeCall({ index, id, function: { name, arguments: text } }) {
    const { calls } = this.message;
    calls[index] ??= { id, name, arguments: "" };
    calls[index].arguments += text ?? "";
  }
}
