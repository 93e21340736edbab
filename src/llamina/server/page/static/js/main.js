// The page put together.

import { say, toast } from "./announce.js";
import { Chat } from "./chat.js";
import { Composer } from "./composer.js";
import { byId, copyText } from "./dom.js";
import { listen } from "./keyboard.js";
import { watch } from "./meter.js";
import { ModelPicker, SENSES } from "./models.js";
import { Panel } from "./panel.js";
import { Sidebar } from "./sidebar.js";
import { applyTheme, toggleTheme } from "./theme.js";
import { Thread, greeting } from "./thread.js";
import { exportConversations, exportMarkdown, importFile } from "./transfer.js";

applyTheme();

const chat = new Chat();
const models = new ModelPicker((error) => {
  toast(error.message, { error: true });
  if (error.status === 401 || error.status === 403) panel.open("key");
});
const panel = new Panel(chat, () => models.refresh());

/** Do something that asks the model, if it can be asked. */
function asking(work) {
  if (!panel.check()) return false;
  if (!models.chosen) {
    toast("The server has no model: start it with one.", { error: true });
    return false;
  }
  work(models.chosen)
    .then(() => models.refresh())
    .catch((error) => toast(`The conversation cannot be kept: ${error.message}`, { error: true }));
  setTimeout(() => chat.generation && models.refresh(), 500); // one that is loaded first tells how far it is
  return true;
}

const thread = new Thread(chat, {
  edit: (message, text) => (message.role === "user" ? asking((model) => chat.edit(message, text, model)) : chat.edit(message, text)),
  regenerate: (message) => asking((model) => chat.regenerate(message, model)),
  choose: (message, step) => chat.choose(message, step),
  giveResults: (message, results) => asking((model) => chat.giveResults(message, results, model)),
  askKey: () => panel.open("key"),
  modelState: () => models.state,
});
const composer = new Composer(chat, {
  refusal: ({ kind, name }) => (models.takes(kind) === false ? `${models.chosen} does not ${SENSES[kind]}: ${name} cannot be sent to it.` : ""),
  send: (text, attachments) => asking((model) => chat.send(text, attachments, model)),
  editLast: () => thread.editLast(),
});
const sidebar = new Sidebar(chat);
watch(chat, models);
models.addEventListener("change", () => chat.generation && thread.refresh());
byId("greeting").append(greeting((idea) => composer.submit(idea)));

// ---- addresses: #/c/ID is a conversation ------------------------------------------------------------------

async function follow() {
  const id = /^#\/c\/(\w+)$/.exec(location.hash)?.[1];
  if (id && id !== chat.conversation.id && !(await chat.open(id))) {
    toast("There is no such conversation in this browser.", { error: true });
    chat.start();
  } else if (!id && chat.conversation.leaf) chat.start();
}

/** Bring the address and the title in line with what is open. */
function showAddress() {
  const { id, leaf, title } = chat.conversation;
  const hash = leaf ? `#/c/${id}` : "";
  if (location.hash !== hash) history[chat.path.length === 1 ? "replaceState" : "pushState"](null, "", hash || location.pathname);
  document.title = title ? `${title} · llamina` : "llamina";
  byId("title").textContent = title || "New conversation";
  for (const name of ["copy-link", "export-markdown"]) byId(name).disabled = !leaf;
}

for (const type of ["thread", "list"]) chat.addEventListener(type, showAddress);
addEventListener("hashchange", follow);

// ---- buttons ------------------------------------------------------------------------------------------------

function start() {
  chat.start();
  sidebar.show(false);
  composer.focus();
}

byId("new").addEventListener("click", start);
byId("toggle-theme").addEventListener("click", toggleTheme);
byId("export-all").addEventListener("click", () => exportConversations());
byId("export-markdown").addEventListener("click", () => exportMarkdown(chat.conversation, chat.path));
byId("copy-link").addEventListener("click", async () => {
  toast((await copyText(location.href)) ? "The link is copied. It opens in this browser." : `The browser does not allow it. The link: ${location.href}`);
});
byId("import").addEventListener("click", () => byId("import-file").click());
byId("import-file").addEventListener("change", async (event) => {
  for (const file of event.target.files) {
    try {
      const ids = await importFile(file);
      toast(ids.length === 1 ? "One conversation came in." : `${ids.length} conversations came in.`);
      if (ids.length) location.hash = `#/c/${ids[0]}`;
    } catch (error) {
      toast(`${file.name} cannot be imported. ${error.message}`, { error: true });
    }
  }
  event.target.value = "";
  sidebar.refresh();
});

listen({
  start,
  search: () => {
    sidebar.show(true);
    byId("search").focus();
  },
  settings: () => panel.open(),
  stop: () => chat.stop(),
  close: () => {
    if (!sidebar.isOpen) return false;
    sidebar.show(false);
    byId("open-sidebar").focus();
    return true;
  },
  choose: (step) => {
    const view = thread.near("Later version");
    if (view) chat.choose(view.message, step);
    else say("There is one version only.");
  },
});

await models.refresh();
await follow();
showAddress();
composer.focus();
document.body.dataset.ready = "true";
