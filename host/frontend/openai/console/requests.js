// Requests in flight, and their cancellation.
import { callForJson, element, report, reportError, setText, updateRows } from "./server_api.js";

const rows = document.getElementById("request-rows");
const count = document.getElementById("request-count");

async function cancel(id) {
  try {
    await callForJson(`/requests/${encodeURIComponent(id)}/cancel`, { method: "POST" });
    report(`${id} is cancelled`);
  } catch (error) {
    reportError(`${id} is not cancelled`, error);
  }
  await update();
}

function newRow(request) {
  const button = element("button", { text: "Cancel", type: "button", "aria-label": `Cancel ${request.id}` });
  button.addEventListener("click", () => cancel(request.id));
  const cells = Array.from({ length: 5 }, () => element("td"));
  return element("tr", {}, element("th", { scope: "row" }), ...cells, element("td", {}, button));
}

function fill(row, request) {
  const texts = [request.id, request.model, request.route, request.seconds.toFixed(1), String(request.prompt_tokens), String(request.output_tokens)];
  for (const [index, text] of texts.entries()) setText(row.cells[index], text);
}

async function update() {
  try {
    const { num_requests: total, requests } = await callForJson("/requests");
    setText(count, String(total));
    updateRows(rows, requests, (request) => request.id, newRow, fill);
  } catch (error) {
    reportError("The requests can not be listed", error);
  }
}

export function startRequests() {
  return { update };
}
