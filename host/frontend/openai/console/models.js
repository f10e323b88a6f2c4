// The models of the repository, and their load and unload.
import { callForJson, element, report, reportError, setText, updateRows } from "./server_api.js";

const rows = document.getElementById("model-rows");

async function change(name, action, button) {
  button.disabled = true;
  report(`${name}: ${action} has begun`);
  try {
    const body = action === "unload" ? { parameters: { unload_dependents: true } } : {};
    await callForJson(`/v2/repository/models/${encodeURIComponent(name)}/${action}`, { method: "POST", body });
    report(`${name}: ${action} is complete`);
  } catch (error) {
    reportError(`${name}: ${action} failed`, error);
  } finally {
    button.disabled = false;
  }
  await update();
}

function newRow(model) {
  const button = (action, text) => {
    const made = element("button", { text, type: "button", "aria-label": `${text} ${model.name}` });
    made.addEventListener("click", () => change(model.name, action, made));
    return made;
  };
  return element("tr", {}, element("th", { scope: "row" }), element("td"), element("td"), element("td"),
                 element("td", {}, button("load", "Load"), " ", button("unload", "Unload")));
}

function fill(row, model) {
  const texts = [model.name, model.version ?? "", model.state ?? "not loaded", model.reason ?? ""];
  for (const [index, text] of texts.entries()) setText(row.cells[index], text);
}

async function update() {
  try {
    const models = await callForJson("/v2/repository/index", { method: "POST", body: {} });
    updateRows(rows, models, (model) => `${model.name}/${model.version ?? ""}`, newRow, fill);
  } catch (error) {
    reportError("The models can not be listed", error);
  }
}

export function startModels() {
  return { update };
}
