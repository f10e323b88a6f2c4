// See answer_writer.h.
#include "backends/tokenizer/lib/chat/parsers/answer_writer.h"

#include "backends/tokenizer/lib/chat/parsers/json_text.h"
#include "base/concat.h"

namespace nereid::tokenizer {

std::string ToolCallsJson(std::span<const ToolCallDelta> deltas) {
  if (deltas.empty()) return "";
  std::string json = "[";
  for (const ToolCallDelta& delta : deltas) {
    if (json.size() > 1) json.append(", ");
    json.append(Concat("{\"index\": ", delta.index));
    if (!delta.name.empty()) {
      json.append(Concat(", \"id\": ", parsers::JsonString(delta.id), ", \"type\": \"function\""));
    }
    json.append(", \"function\": {");
    if (!delta.name.empty()) {
      json.append(Concat("\"name\": ", parsers::JsonString(delta.name), ", "));
    }
    json.append("\"arguments\": \"");
    parsers::AppendEscaped(delta.arguments, json);
    json.append("\"}}");
  }
  json += ']';
  return json;
}

namespace parsers {
namespace {

// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
uint64_t SplitMix(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// Appends `text` after `space`, the white space before it; keeps the white space at its end in
// `space`.
void AppendWithoutSpace(std::string_view text, std::string& space, std::string& to) {
  size_t end = text.size();
  while (end > 0 && IsSpace(text[end - 1])) --end;
  if (end > 0) {
    to += space;
    to += text.substr(0, end);
    space.clear();
  }
  space += text.substr(end);
}

}  // namespace

void AnswerWriter::Reasoning(std::string_view text) {
  if (begins_reasoning_) text.remove_prefix(CountSpace(text));
  if (text.empty()) return;
  if (begins_reasoning_ && has_reasoning_) delta_->reasoning += '\n';
  begins_reasoning_ = false;
  has_reasoning_ = true;
  AppendWithoutSpace(text, reasoning_space_, delta_->reasoning);
}

void AnswerWriter::EndReasoning() {
  reasoning_space_.clear();
  begins_reasoning_ = true;
  skips_space_ = true;
}

void AnswerWriter::Content(std::string_view text) {
  if (wrappers_.empty()) {
    WriteContent(text);
    return;
  }
  content_.Append(text);
  while (true) {
    const TextInput::Hit hit = content_.Find(wrappers_);
    WriteContent(content_.Take(hit.position));
    if (hit.which == TextInput::kNone) break;
    content_.Take(wrappers_[hit.which].size());
  }
  content_.Compact();
}

void AnswerWriter::WriteHeldContent() {
  WriteContent(content_.Take(content_.rest().size()));
}

void AnswerWriter::WriteContent(std::string_view text) {
  if (skips_space_) text.remove_prefix(CountSpace(text));
  if (text.empty()) return;
  skips_space_ = false;
  if (expects_calls_) {
    AppendWithoutSpace(text, content_space_, delta_->content);
  } else {
    delta_->content += text;
  }
}

void AnswerWriter::BeginCall(std::string_view name, std::string_view id) {
  WriteHeldContent();
  ToolCallDelta& call = delta_->tool_calls.emplace_back();
  call.index = num_calls_++;
  call.id = id.empty() ? MakeId() : std::string(id);
  call.name = name;
  has_arguments_ = false;
}

void AnswerWriter::Arguments(std::string_view json) {
  if (json.empty()) return;
  has_arguments_ = true;
  const size_t index = num_calls_ - 1;
  if (delta_->tool_calls.empty() || delta_->tool_calls.back().index != index) {
    delta_->tool_calls.emplace_back().index = index;
  }
  delta_->tool_calls.back().arguments += json;
}

void AnswerWriter::EndCall() {
  if (!has_arguments_) Arguments("{}");
  skips_space_ = true;
}

void AnswerWriter::Finish() {
  WriteHeldContent();
  if (num_calls_ == 0) delta_->content += content_space_;
  content_space_.clear();
}

std::string AnswerWriter::MakeId() const {
  uint64_t bits = SplitMix(id_seed_ ^ SplitMix(num_calls_));
  std::string id;
  if (id_style_ == CallIdStyle::kNineCharacters) {
    constexpr std::string_view kCharacters =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for (int i = 0; i < 9; ++i, bits /= kCharacters.size()) {
      id += kCharacters[bits % kCharacters.size()];
    }
    return id;
  }
  id = "call_";
  for (int i = 0; i < 24; ++i) {
    id += "0123456789abcdef"[bits & 15];
    bits = i == 15 ? SplitMix(bits ^ id_seed_ ^ num_calls_) : bits >> 4;
  }
  return id;
}

}  // namespace parsers
}  // namespace nereid::tokenizer
