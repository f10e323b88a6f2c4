#include "host/frontend/openai/routes/chunk_format.h"

#include "host/frontend/http/json/json_writer.h"

namespace nereid::openai {

ChunkFormat::ChunkFormat(const GenerationRequest& request)
    : has_log_probs_(request.has_log_probs),
      has_token_ids_(request.has_token_ids),
      has_prompt_log_probs_(request.has_prompt_log_probs),
      has_usage_event_(request.has_usage_event),
      has_usage_everywhere_(request.has_usage_everywhere) {}

void ChunkFormat::AppendClosing(std::string& events, const Answers& answers) {
  if (has_usage_event_) {
    if (head_.empty()) AppendBegin(events, answers);
    events += "data: " + head_ + "],\"usage\":";
    AppendUsage(events, answers.TotalUsage());
    events += "}\n\n";
  }
  events += "data: [DONE]\n\n";
}

void ChunkFormat::AppendError(std::string& events, const ApiError& error) {
  events += "data: " + ErrorJson(error) + "\n\ndata: [DONE]\n\n";
}

void ChunkFormat::AppendHead(std::string& json, const Answers& answers, std::string_view object) {
  json += "{\"id\":\"";
  json += answers.id;
  json += "\",\"object\":\"";
  json += object;
  json += "\",\"created\":";
  http::AppendJsonInt(json, answers.created);
  json += ",\"model\":";
  http::AppendLossyJsonString(json, answers.model);
  json += ",\"choices\":[";
}

void ChunkFormat::AppendFinishReason(std::string& json, std::string_view reason) {
  json += ",\"finish_reason\":";
  json += reason.empty() ? "null" : StrCat('"', reason, '"');
}

void ChunkFormat::AppendStopReason(std::string& json, std::string_view stop) {
  json += ",\"stop_reason\":";
  if (stop.empty()) {
    json += "null";
  } else {
    http::AppendLossyJsonString(json, stop);
  }
}

void ChunkFormat::EndChunk(std::string& events, const Answers& answers) const {
  if (has_usage_everywhere_) {
    events += ",\"usage\":";
    AppendUsage(events, answers.TotalUsage());
  } else if (has_usage_event_) {
    events += ",\"usage\":null";
  }
  events += "}\n\n";
}

}  // namespace nereid::openai
