// Conversations and messages in IndexedDB. Messages name their parent, so a conversation is a tree.

const STORES = ["conversations", "messages"];
let opened;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("llamina", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("conversations", { keyPath: "id" });
      request.result.createObjectStore("messages", { keyPath: "id" }).createIndex("conversation", "conversation");
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

/** Run `work` in one transaction of both stores; the result of the request that it returns. */
async function transact(mode, work) {
  const transaction = (await database()).transaction(STORES, mode);
  const [conversations, messages] = STORES.map((name) => transaction.objectStore(name));
  return new Promise((resolve, reject) => {
    const request = work(conversations, messages);
    transaction.oncomplete = () => resolve(request?.result);
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

/** All conversations, the latest changed first. */
export async function allConversations() {
  const all = await transact("readonly", (conversations) => conversations.getAll());
  return all.sort((a, b) => b.updated - a.updated);
}

export const getConversation = (id) => transact("readonly", (conversations) => conversations.get(id));

export const getMessages = (id) => transact("readonly", (_, messages) => messages.index("conversation").getAll(id));

/** Write a conversation and some of its messages, all or none. */
export function save(conversation, changed = []) {
  return transact("readwrite", (conversations, messages) => {
    if (conversation) conversations.put(conversation);
    for (const message of changed) messages.put(message);
  });
}

/** Delete a conversation with its messages. */
export function remove(id) {
  return transact("readwrite", (conversations, messages) => {
    conversations.delete(id);
    messages.index("conversation").getAllKeys(id).onsuccess = (event) => {
      for (const key of event.target.result) messages.delete(key);
    };
  });
}

/** The ids of conversations whose messages have a text, in any branch. */
export async function search(text) {
  const wanted = text.toLowerCase();
  const found = new Set();
  await transact("readonly", (_, messages) => {
    messages.openCursor().onsuccess = ({ target: { result: cursor } }) => {
      if (!cursor) return;
      if (cursor.value.content.toLowerCase().includes(wanted)) found.add(cursor.value.conversation);
      cursor.continue();
    };
  });
  return found;
}
