// Fuzzes the bodies of the OpenAI routes and the outputs of models. The first byte selects what the
// rest is: C a chat, P a completion, M messages in Anthropic's form, R a request for a response, T
// a list of tool calls, B a tensor of texts, O an origin and a host. Arbitrary bytes must not
// crash. An accepted body is JSON, its conversation stays the client's, and its answers are JSON.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "host/frontend/openai/origin_policy.h"
#include "host/frontend/openai/routes/chat_completions.h"
#include "host/frontend/openai/routes/completions.h"
#include "host/frontend/openai/routes/messages.h"
#include "host/frontend/openai/routes/responses.h"
#include "tests/host/frontend/openai/test_models.h"

namespace nereid::openai {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxDepth = 64;

void Require(bool condition) {
  if (!condition) std::abort();
}

// The messages of a body with those members that a client need not have sent removed.
Json Messages(Json messages, const Json& sent) {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!sent[i].contains("reasoning_content")) messages[i].erase("reasoning_content");
  }
  return messages;
}

void CheckAnswers(const GenerationRequest& request, AnswerFormat& format) {
  Answers answers;
  answers.id = "id";
  answers.model = "m";
  answers.all.resize(request.prompts.size() * request.answers_per_prompt);
  answers.prompts.resize(request.prompts.size());
  answers.prompt_tokens.resize(request.prompts.size());
  answers.cached_tokens.resize(request.prompts.size());
  Require(Json::accept(format.Whole(answers)));
  std::string events;
  format.AppendBegin(events, answers);
  AnswerPiece piece;
  piece.text = "\xff";
  format.AppendPiece(events, answers, answers.all.size() - 1, piece);
  format.AppendClosing(events, answers);
  Require(events.ends_with("data: [DONE]\n\n"));
}

void FuzzBody(RouteSet route, const std::string& text) {
  static const LlmSignature model = FullModel();
  ParsedBody body(text, kMaxDepth);
  GenerationRequest request;
  Status status = body.Read(route);
  if (status.ok()) Require(Json::accept(text));
  if (status.ok()) {
    status = route == kChat ? ReadChatRequest(body, model, request)
                            : ReadCompletionRequest(body, model, request);
  }
  if (!status.ok()) {
    Require(Json::accept(ErrorJson(body.ErrorOf(status))));
    return;
  }
  Require(!request.prompts.empty() && request.answers_per_prompt >= 1);
  if (request.prompts.size() * request.answers_per_prompt > 4096) std::abort();
  if (route == kChat) {
    const Json sent = Json::parse(text)["messages"];
    const std::string read = TextsOf(request.prompts[0], "messages").at(0);
    Require(Json::accept(read) && Messages(Json::parse(read), sent) == Messages(sent, sent));
    for (const std::string& kwargs : TextsOf(request.prompts[0], "chat_template_kwargs")) {
      Require(Json::accept(kwargs));
    }
  }
  CheckAnswers(request, route == kChat ? *NewChatFormat(request) : *NewCompletionFormat(request));
}

// A body in another form becomes a chat that is read like any other.
void FuzzConverted(RouteSet route, const std::string& text) {
  ParsedBody body(text, kMaxDepth);
  if (!body.Read(route).ok()) return;
  std::string chat;
  if (route == kMessages) {
    const Result<std::string> converted =
        ChatOfMessages(body, /*counts_tokens=*/false, /*limits_reasoning=*/true);
    if (converted.ok()) chat = *converted;
  } else {
    const Result<ResponseChat> converted = ChatOfResponse(body, "");
    if (!converted.ok()) return;
    chat = converted->chat;
    Require(Json::accept(converted->items) && Json::accept("{" + converted->echo + "}"));
  }
  if (chat.empty()) return;
  Require(Json::accept(chat));
  FuzzBody(kChat, chat);
}

void FuzzToolCalls(const std::string& text) {
  const Result<std::vector<ToolCallPiece>> calls = ReadToolCalls(text);
  if (calls.ok()) Require(text.empty() || Json::accept(text));
}

void FuzzTexts(const std::string& bytes) {
  const Result<std::vector<std::string_view>> texts = ReadTexts(bytes);
  if (!texts.ok()) return;
  size_t total = 0;
  for (const std::string_view text : *texts) total += sizeof(uint32_t) + text.size();
  Require(total == bytes.size());
}

void FuzzOrigin(const std::string& text) {
  const size_t end = text.find('\n');
  const std::string origin = text.substr(0, end);
  const std::string host = end == std::string::npos ? "" : text.substr(end + 1);
  const OriginPolicy policy({"https://page.example"}, true);
  (void)policy.Check(origin, host);
  if (policy.IsListed(origin)) Require(policy.Check(origin, "127.0.0.1").ok());
  (void)CheckOrigin(text);
}

}  // namespace
}  // namespace nereid::openai

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::openai;
  if (size == 0) return 0;
  // A copy of the exact size, so that sanitizers detect a read beyond the end.
  const std::string copy(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'C':
      FuzzBody(kChat, copy);
      break;
    case 'P':
      FuzzBody(kCompletions, copy);
      break;
    case 'M':
      FuzzConverted(kMessages, copy);
      break;
    case 'R':
      FuzzConverted(kResponses, copy);
      break;
    case 'T':
      FuzzToolCalls(copy);
      break;
    case 'B':
      FuzzTexts(copy);
      break;
    case 'O':
      FuzzOrigin(copy);
      break;
  }
  return 0;
}
