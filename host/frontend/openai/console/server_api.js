// Requests to the server that the page came from, and the line that shows what happened.

// Kept in memory only: it is gone when the page is closed.
const key = document.getElementById("api-key");

// Relative to the page, which a proxy may serve below another path.
function urlOf(path) {
  return new URL(`..${path}`, document.baseURI);
}

export async function call(path, { method = "GET", body, signal } = {}) {
  const headers = {};
  if (key.value !== "") headers.Authorization = `Bearer ${key.value}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const reply = await fetch(urlOf(path), {
    method, headers, signal, credentials: "omit", cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (reply.ok) return reply;
  const text = await reply.text();
  let message = text;
  try {
    const { error } = JSON.parse(text);
    message = typeof error === "string" ? error : error.message;
  } catch {
    // The text says what it says.
  }
  throw new Error(`${reply.status}: ${message}`);
}

export async function callForJson(path, options) {
  const text = await (await call(path, options)).text();
  return text === "" ? null : JSON.parse(text);
}

// Yields the data of each server-sent event as JSON.
export async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const event = rest.slice(0, end);
      rest = rest.slice(end + 2);
      if (!event.startsWith("data: ")) continue;
      if (event === "data: [DONE]") return;
      yield JSON.parse(event.slice(6));
    }
  }
}

const line = document.getElementById("status");

// Screen readers read a text that changes.
export function report(text, isError = false) {
  if (line.textContent !== text) line.textContent = text;
  line.classList.toggle("error", isError);
}

export function reportError(what, error) {
  report(`${what}: ${error.message}`, true);
}

// Every text of a server becomes a text node: none of it is interpreted.
export function element(name, { text = "", className = "", ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  if (text !== "") made.textContent = text;
  if (className !== "") made.className = className;
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  made.append(...children);
  return made;
}

// Makes the rows of a table those of `items`, without touching rows that stay: a button keeps the focus.
export function updateRows(body, items, idOf, newRow, fill) {
  const rows = new Map([...body.rows].map((row) => [row.dataset.id, row]));
  let previous = null;
  for (const item of items) {
    const id = idOf(item);
    let row = rows.get(id);
    if (row === undefined) {
      row = newRow(item);
      row.dataset.id = id;
    }
    rows.delete(id);
    fill(row, item);
    const next = previous === null ? body.firstElementChild : previous.nextElementSibling;
    if (next !== row) body.insertBefore(row, next);
    previous = row;
  }
  for (const row of rows.values()) row.remove();
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
