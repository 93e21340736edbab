// Where a message is written: text, files, send and stop.

import { toast } from "./announce.js";
import { attachmentList, readAttachment } from "./attachments.js";
import { byId } from "./dom.js";

export class Composer {
  #attachments = [];

  /**
   * `send` gets the text and the attachments, and returns false to keep them here; `refusal` says why the model cannot take one of
   * these, or "".
   */
  constructor(chat, { send, refusal, editLast }) {
    this.chat = chat;
    this.area = byId("input");
    this.form = byId("composer");
    this.sendButton = byId("send");
    this.stopButton = byId("stop");
    this.send = send;
    this.refusal = refusal;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.area.addEventListener("input", () => this.#changed());
    this.area.addEventListener("keydown", (event) => this.#key(event, editLast));
    this.area.addEventListener("paste", (event) => this.#take(event, event.clipboardData));
    this.stopButton.addEventListener("click", () => chat.stop());
    byId("attach").addEventListener("click", () => byId("files").click());
    byId("files").addEventListener("change", async (event) => {
      await this.attach(event.target.files);
      event.target.value = "";
    });
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => this.#take(event, event.dataTransfer));
    chat.addEventListener("running", () => this.#changed());
    this.#changed();
  }

  #key(event, editLast) {
    const enter = event.key === "Enter" && !event.isComposing;
    const plain = !event.shiftKey && !event.altKey && matchMedia("(pointer: fine)").matches;
    if (enter && (event.ctrlKey || event.metaKey || plain)) {
      event.preventDefault();
      this.submit();
    } else if (event.key === "ArrowUp" && this.area.value === "" && !this.chat.generation) {
      event.preventDefault();
      editLast();
    }
  }

  #take(event, data) {
    if (!data?.files.length) return;
    event.preventDefault();
    this.attach(data.files);
  }

  /** Add files to the message. */
  async attach(files) {
    for (const file of files) {
      try {
        const attachment = await readAttachment(file);
        if (this.refusal(attachment)) throw new Error(this.refusal(attachment));
        this.#attachments.push(attachment);
      } catch (error) {
        toast(error.message, { error: true });
      }
    }
    this.#changed();
    this.area.focus();
  }

  #changed() {
    const running = this.chat.generation !== null;
    this.sendButton.hidden = running;
    this.stopButton.hidden = !running;
    this.sendButton.disabled = !this.area.value.trim() && !this.#attachments.length;
    this.area.style.height = "auto";
    this.area.style.height = `${this.area.scrollHeight}px`;
    byId("chips").replaceChildren(...attachmentList(this.#attachments, (index) => {
      this.#attachments.splice(index, 1);
      this.#changed();
      this.area.focus();
    }));
  }

  /** Put a text in and send it as it is. */
  async submit(text = this.area.value) {
    if (this.chat.generation || (!text.trim() && !this.#attachments.length)) return;
    const refused = this.#attachments.map((attachment) => this.refusal(attachment)).find(Boolean);
    if (refused) return void toast(refused, { error: true });
    if (!this.send(text.trim(), this.#attachments)) return;
    this.area.value = "";
    this.#attachments = [];
    this.#changed();
  }

  focus() {
    this.area.focus();
  }
}
