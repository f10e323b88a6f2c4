// Conversations with a model, and completions of a text.
import { call, callForJson, element, eventsOf, report, reportError, setText } from "./server_api.js";

const kNumbers = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty"];

const at = (id) => document.getElementById(id);
const conversation = at("conversation");
const models = at("model");
const form = at("form");

const turns = [];  // messages of the conversation
let running = null;  // AbortController of the request in flight
let isListed = false;

function isChat() {
  return form.value === "chat";
}

function showForm() {
  setText(at("message-label"), isChat() ? "Message" : "Prompt");
  at("tools").disabled = at("system").disabled = !isChat();
}

// A model without a chat template only completes texts.
async function chooseForm() {
  if (models.value === "") return;
  try {
    await callForJson("/apply-template", { method: "POST", body: { model: models.value, messages: [{ role: "user", content: "a" }] } });
    form.value = "chat";
  } catch {
    form.value = "completion";
  }
  showForm();
}

async function update() {
  if (isListed) return;
  isListed = true;
  try {
    const { data } = await callForJson("/v1/models");
    models.replaceChildren(...data.map(({ id }) => element("option", { text: id, value: id })));
    if (data.length === 0) report("No language model is ready");
    await chooseForm();
  } catch (error) {
    reportError("The models can not be listed", error);
  }
}

function commonFields() {
  const fields = { model: models.value };
  for (const name of kNumbers) {
    if (at(name).value !== "") fields[name] = Number(at(name).value);
  }
  const stop = at("stop_texts").value.split("\n").filter((text) => text !== "");
  if (stop.length > 0) fields.stop = stop;
  if (at("stream").checked) {
    fields.stream = true;
    fields.stream_options = { include_usage: true };
  }
  return fields;
}

function messagesSoFar() {
  const system = at("system").value;
  return system === "" ? turns : [{ role: "system", content: system }, ...turns];
}

function chatBody() {
  const body = { ...commonFields(), messages: messagesSoFar() };
  if (at("logprobs").checked) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  if (at("tools").value.trim() !== "") body.tools = JSON.parse(at("tools").value);
  return body;
}

function completionBody(prompt) {
  const body = { ...commonFields(), prompt };
  if (at("logprobs").checked) body.logprobs = 5;
  return body;
}

// A turn as it is shown. Texts are only ever added as text nodes.
function addTurn(role) {
  const text = element("p", { className: "text" });
  const turn = element("article", { className: `turn ${role}` }, element("h2", { text: role }), text);
  conversation.append(turn);
  conversation.scrollTop = conversation.scrollHeight;
  return { turn, text };
}

function percent(logProb) {
  return `${(100 * Math.exp(logProb)).toFixed(1)} %`;
}

// A token with its probability as colour. Its alternatives are shown when it is chosen.
function tokenOf(token, logProb, alternatives) {
  const level = Math.min(9, Math.floor(10 * Math.sqrt(Math.exp(logProb))));
  const others = alternatives.map(([text, each]) => `${JSON.stringify(text)} ${percent(each)}`).join(", ");
  const made = element("span", { text: token, className: `token p${level}`, title: percent(logProb) });
  made.dataset.detail = `${JSON.stringify(token)}: ${percent(logProb)}${others === "" ? "" : `; likely here: ${others}`}`;
  return made;
}

function tokensOf(logprobs) {
  if (!logprobs) return [];
  if (logprobs.content) {
    return logprobs.content.map((each) => tokenOf(each.token, each.logprob, each.top_logprobs.map((top) => [top.token, top.logprob])));
  }
  return (logprobs.tokens ?? []).map((token, index) =>
    tokenOf(token, logprobs.token_logprobs[index] ?? 0, Object.entries(logprobs.top_logprobs?.[index] ?? {})));
}

// Adds a piece of an answer, which is a whole one where nothing is streamed.
function addPiece(answer, choice) {
  const piece = choice.delta ?? choice.message ?? { content: choice.text };
  if (piece.reasoning) {
    answer.reasoning ??= answer.turn.insertBefore(element("p", { className: "text reasoning" }), answer.text);
    answer.reasoning.append(piece.reasoning);
  }
  const tokens = tokensOf(choice.logprobs);
  if (tokens.length > 0) {
    answer.text.append(...tokens);
  } else if (piece.content) {
    answer.text.append(piece.content);
  }
  answer.content += piece.content ?? "";
  for (const [position, part] of (piece.tool_calls ?? []).entries()) {
    const index = part.index ?? position;
    const known = (answer.calls[index] ??= { id: part.id, type: "function", function: { name: "", arguments: "" } });
    known.function.name += part.function?.name ?? "";
    known.function.arguments += part.function?.arguments ?? "";
  }
  if (choice.finish_reason) answer.finish = choice.finish_reason;
}

function showCalls(answer) {
  for (const each of answer.calls) {
    answer.turn.append(element("p", { className: "text", text: `calls ${each.function.name}(${each.function.arguments})` }));
  }
}

async function ask(path, body, answer) {
  running = new AbortController();
  const reply = await call(path, { method: "POST", body, signal: running.signal });
  const events = body.stream ? eventsOf(reply) : [await reply.json()];
  for await (const event of events) {
    if (event.error) throw new Error(event.error.message);
    for (const choice of event.choices ?? []) addPiece(answer, choice);
    if (event.usage) {
      setText(at("usage"), `${event.usage.prompt_tokens} prompt tokens, ${event.usage.completion_tokens} output tokens`);
    }
    conversation.scrollTop = conversation.scrollHeight;
  }
}

function keepAnswer(answer) {
  if (!isChat()) return;
  const message = { role: "assistant", content: answer.content };
  if (answer.calls.length > 0) message.tool_calls = answer.calls;
  turns.push(message);
}

async function send(event) {
  event.preventDefault();
  if (running !== null) return;
  const message = at("message").value;
  if (isChat()) turns.push({ role: "user", content: message });
  let body;
  try {
    body = isChat() ? chatBody() : completionBody(message);
  } catch (error) {
    turns.pop();
    return reportError("Tools: this is not JSON", error);
  }
  addTurn(isChat() ? "user" : "prompt").text.append(message);
  const answer = { ...addTurn(isChat() ? "assistant" : "completion"), content: "", calls: [], reasoning: null, finish: "" };
  at("send").disabled = true;
  at("stop").disabled = false;
  // Screen readers read an answer when it is complete, not each of its tokens.
  conversation.setAttribute("aria-busy", "true");
  report("The model answers");
  try {
    await ask(isChat() ? "/v1/chat/completions" : "/v1/completions", body, answer);
    at("message").value = "";
    report(`The answer is complete: ${answer.finish}`);
    keepAnswer(answer);
  } catch (error) {
    if (error.name === "AbortError") {
      report("The answer was stopped");
      keepAnswer(answer);
    } else {
      reportError("There is no answer", error);
      if (isChat()) turns.pop();
    }
  } finally {
    running = null;
    showCalls(answer);
    conversation.setAttribute("aria-busy", "false");
    at("send").disabled = false;
    at("stop").disabled = true;
    at("message").focus();
  }
}

async function showPrompt() {
  try {
    const messages = [...messagesSoFar(), { role: "user", content: at("message").value }];
    const body = { model: models.value, messages };
    if (at("tools").value.trim() !== "") body.tools = JSON.parse(at("tools").value);
    const { prompt } = await callForJson("/apply-template", { method: "POST", body });
    addTurn("prompt").text.append(prompt);
  } catch (error) {
    reportError("There is no prompt", error);
  }
}

function resetConversation() {
  running?.abort();
  turns.length = 0;
  conversation.replaceChildren();
  setText(at("usage"), "");
  setText(at("token-detail"), "");
}

export function startPlayground() {
  at("prompt-form").addEventListener("submit", send);
  at("stop").addEventListener("click", () => running?.abort());
  at("reset").addEventListener("click", resetConversation);
  at("show-prompt").addEventListener("click", showPrompt);
  at("message").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("prompt-form").requestSubmit();
  });
  models.addEventListener("change", chooseForm);
  form.addEventListener("change", showForm);
  conversation.addEventListener("click", (event) => setText(at("token-detail"), event.target.dataset.detail ?? ""));
  return { update, reset: () => { isListed = false; } };
}
