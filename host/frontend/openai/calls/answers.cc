#include "host/frontend/openai/calls/answers.h"

#include <sys/random.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/openai/calls/generation_request.h"

namespace nereid::openai {

Status ReserveAll(std::span<const http::InputTensors> prompts, ByteReservation& reservation) {
  constexpr size_t kMinBytes = 16 << 10;
  size_t num_bytes = 0;
  for (const http::InputTensors& inputs : prompts) {
    for (const http::InputTensor& input : inputs) num_bytes += input.parsed.capacity();
  }
  if (num_bytes < kMinBytes || reservation.GrowBy(num_bytes)) return Status::Ok();
  return UnavailableError("prompts of ", num_bytes,
                          " bytes exceed the free memory for requests in flight "
                          "(--max-request-memory-size)");
}

std::string_view Answer::FinishReason() const {
  if (finish_reason.empty()) return {};
  if (finish_reason == "length") return "length";
  return has_tool_calls ? "tool_calls" : "stop";
}

Usage Answers::TotalUsage() const {
  Usage usage;
  usage.completion_tokens = dropped_tokens;
  for (const int64_t count : prompt_tokens) usage.prompt_tokens += count;
  for (const Answer& answer : all) {
    usage.completion_tokens += answer.num_tokens;
    if (answer.num_reasoning_tokens) {
      usage.reasoning_tokens = usage.reasoning_tokens.value_or(0) + *answer.num_reasoning_tokens;
    }
  }
  for (const std::optional<int64_t>& count : cached_tokens) {
    if (count) usage.cached_tokens = usage.cached_tokens.value_or(0) + *count;
  }
  return usage;
}

std::string NewId(std::string_view prefix) {
  constexpr char kDigits[] = "0123456789abcdef";
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) std::abort();
  std::string id(prefix);
  for (const unsigned char byte : bytes) {
    id += kDigits[byte >> 4];
    id += kDigits[byte & 15];
  }
  return id;
}

void AppendUsage(std::string& json, const Usage& usage) {
  json += "{\"prompt_tokens\":";
  http::AppendJsonInt(json, usage.prompt_tokens);
  json += ",\"completion_tokens\":";
  http::AppendJsonInt(json, usage.completion_tokens);
  json += ",\"total_tokens\":";
  http::AppendJsonInt(json, usage.prompt_tokens + usage.completion_tokens);
  if (usage.cached_tokens) {
    json += ",\"prompt_tokens_details\":{\"cached_tokens\":";
    http::AppendJsonInt(json, *usage.cached_tokens);
    json += '}';
  }
  if (usage.reasoning_tokens) {
    json += ",\"completion_tokens_details\":{\"reasoning_tokens\":";
    http::AppendJsonInt(json, *usage.reasoning_tokens);
    json += '}';
  }
  json += '}';
}

void AppendIds(std::string& json, std::string_view name, const std::vector<int64_t>& ids) {
  json += ",\"";
  json += name;
  json += "\":[";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i != 0) json += ',';
    http::AppendJsonInt(json, ids[i]);
  }
  json += ']';
}

void AppendPromptLogProbs(std::string& json, const std::vector<PromptToken>& prompt) {
  const auto append = [&](int64_t id, float log_prob, size_t rank, std::string_view bytes) {
    json += '"';
    http::AppendJsonInt(json, id);
    json += "\":{\"logprob\":";
    AppendLogProb(json, log_prob);
    json += ",\"rank\":";
    json += rank == 0 ? "null" : StrCat(rank);
    json += ",\"decoded_token\":";
    http::AppendLossyJsonString(json, bytes);
    json += '}';
  };
  json += ",\"prompt_logprobs\":[";
  for (size_t i = 0; i < prompt.size(); ++i) {
    const PromptToken& token = prompt[i];
    if (i != 0) json += ',';
    if (!token.log_prob) {
      json += "null";
      continue;
    }
    const auto is_token = [&](const PromptToken::Candidate& each) { return each.id == token.id; };
    const auto found = std::find_if(token.top.begin(), token.top.end(), is_token);
    const bool is_top = found != token.top.end();
    json += '{';
    append(token.id, *token.log_prob,
           is_top ? static_cast<size_t>(found - token.top.begin()) + 1 : 0, token.bytes);
    for (size_t k = 0; k < token.top.size(); ++k) {
      if (is_token(token.top[k])) continue;
      json += ',';
      append(token.top[k].id, token.top[k].log_prob, k + 1, token.top[k].bytes);
    }
    json += '}';
  }
  json += ']';
}

void AppendLogProb(std::string& json, float log_prob) {
  constexpr double kLeast = -9999;
  http::AppendJsonDouble(json, std::isfinite(log_prob) ? double{log_prob} : kLeast);
}

}  // namespace nereid::openai
