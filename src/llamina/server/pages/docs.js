"use strict";

// Shows /openapi.json: every operation with the fields of its body and of its answers, and a form that sends one.

function make(tag, text, ...children) {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
}

function resolve(api, schema) {
  while (schema && schema.$ref) schema = api.components.schemas[schema.$ref.split("/").pop()];
  return schema || {};
}

function typeName(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(typeName).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.type === "array") return "list of " + (schema.items ? typeName(schema.items) : "anything");
  return Array.isArray(schema.type) ? schema.type.join(" | ") : schema.type || "anything";
}

function fields(schema) {
  const required = new Set(schema.required || []);
  const table = make("table", "", make("tr", "", make("th", "field"), make("th", "type"), make("th", "default")));
  for (const [name, field] of Object.entries(schema.properties || {})) {
    const fallback = required.has(name) ? "required" : "default" in field ? JSON.stringify(field.default) : "";
    table.append(make("tr", "", make("td", "", make("code", name)), make("td", typeName(field)), make("td", fallback)));
  }
  return table;
}

function example(schema) {
  const values = { string: "", integer: 0, number: 0, boolean: false, array: [], object: {} };
  const body = {};
  for (const name of schema.required || []) body[name] = values[(schema.properties[name] || {}).type] ?? null;
  if ("messages" in body) body.messages = [{ role: "user", content: "Hello!" }];
  return body;
}

function form(method, path, schema) {
  const inputs = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => {
    const input = make("input");
    input.name = input.placeholder = name;
    return input;
  });
  const body = schema ? make("textarea") : null;
  if (body) body.value = JSON.stringify(example(schema), null, 2);
  const button = make("button", "Send");
  const answer = make("pre");
  answer.hidden = true;
  button.addEventListener("click", async () => {
    let url = path;
    for (const input of inputs) url = url.replace(`{${input.name}}`, encodeURIComponent(input.value));
    const key = document.getElementById("key").value;
    const headers = key ? { authorization: `Bearer ${key}` } : {};
    if (body) headers["content-type"] = "application/json";
    answer.hidden = false;
    answer.textContent = "…";
    try {
      const response = await fetch(url, { method, headers, body: body ? body.value : undefined });
      answer.textContent = `${response.status}\n`;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read()) answer.textContent += part.value;
    } catch (error) {
      answer.textContent = String(error);
    }
  });
  return [...inputs, ...(body ? [body] : []), button, answer];
}

function operation(api, method, path, facts) {
  const content = facts.requestBody && facts.requestBody.content["application/json"];
  const schema = content ? resolve(api, content.schema) : null;
  const verb = make("span", method.toUpperCase());
  verb.className = "method";
  const inside = make("div", "", make("p", facts.summary));
  if (schema) inside.append(fields(schema));
  for (const [status, told] of Object.entries(facts.responses)) {
    for (const [media, { schema }] of Object.entries(told.content || {})) {
      const title = `${status === "default" ? "error" : status}, ${media}: ${typeName(schema)}`;
      inside.append(make("details", "", make("summary", title), fields(resolve(api, schema))));
    }
  }
  inside.append(...form(method.toUpperCase(), path, schema));
  return make("details", "", make("summary", "", verb, make("code", path)), inside);
}

async function show() {
  const main = document.getElementById("operations");
  const response = await fetch("/openapi.json");
  if (!response.ok) {
    main.textContent = `/openapi.json answers ${response.status}`;
    return;
  }
  const api = await response.json();
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, facts] of Object.entries(methods)) {
      const tag = facts.tags[0];
      if (!groups.has(tag)) groups.set(tag, make("section", "", make("h2", tag)));
      groups.get(tag).append(operation(api, method, path, facts));
    }
  }
  main.replaceChildren(...groups.values());
}

show();
