// The server's APIs. The key, if the server wants one, is kept in this browser.

import { events } from "./sse.js";

const KEY = "llamina.key";

export const getKey = () => localStorage.getItem(KEY) ?? "";
export const setKey = (key) => (key ? localStorage.setItem(KEY, key) : localStorage.removeItem(KEY));

/** An answer of the server that is an error; `status` is HTTP's, 0 if there was no answer. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function request(path, options = {}) {
  const headers = { "Content-Type": "application/json" };
  if (getKey()) headers.Authorization = `Bearer ${getKey()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Is it running?", 0);
  }
  if (!response.ok) throw new ApiError(await reason(response), response.status);
  return response;
}

async function reason(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return error.message ?? String(error);
  } catch {
    return text || `The server answered ${response.status}.`;
  }
}

/** The models that the server knows, with `meta.status` and what is known of loaded ones. */
export async function listModels() {
  return (await (await request("v1/models")).json()).data;
}

/** Load a model; comes back when it is ready. */
export async function loadModel(model) {
  await (await request("api/generate", { method: "POST", body: JSON.stringify({ model, stream: false }) })).text();
}

/** Snapshots of what the models do, one a second, until the server ends the stream. */
export async function* watchServer(signal) {
  const response = await request("dashboard/events", { signal });
  for await (const data of events(response.body)) yield JSON.parse(data);
}

/** End an answer of a model. */
export async function cancelRequest(model, id) {
  await request(`dashboard/requests/${encodeURIComponent(model)}/${id}`, { method: "DELETE" });
}

/** The chunks of a streamed answer. Throws ApiError; leaving the loop ends the answer. */
export async function* streamChat(body, signal) {
  const response = await request("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.message, 200);
    yield chunk;
  }
}
