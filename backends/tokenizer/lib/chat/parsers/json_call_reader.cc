// See json_call_reader.h.
#include "backends/tokenizer/lib/chat/parsers/json_call_reader.h"

#include "backends/tokenizer/lib/chat/parsers/text_machine.h"

namespace nereid::tokenizer::parsers {

size_t JsonCallReader::Read(std::string_view text) {
  size_t num_read = 0;
  while (num_read < text.size() && !is_done() && !is_broken()) {
    num_read += ReadSome(text.substr(num_read));
  }
  if (is_written_) {
    text_.clear();
  } else {
    text_ += text.substr(0, num_read);
  }
  return num_read;
}

// Consumes a byte, a stretch of a string or of a value. `text` is not empty.
size_t JsonCallReader::ReadSome(std::string_view text) {
  if (step_ == Step::kKey) return ReadString(text);
  if (step_ == Step::kValue) return ReadValue(text);
  if (IsSpace(text[0])) return 1;
  if (step_ == Step::kValueBegin) {
    step_ = BeginValue(text[0]) ? Step::kValue : Step::kBroken;
    return 0;
  }
  step_ = AfterByte(text[0]);
  if (step_ == Step::kBroken || step_ == Step::kKey) return 0;
  if (step_ == Step::kDone) {
    if (!is_written_ && !name_.empty()) Write();
    if (!is_written_) step_ = Step::kBroken;
  }
  return 1;
}

JsonCallReader::Step JsonCallReader::AfterByte(char byte) {
  switch (step_) {
    case Step::kOpen:
      return byte == '{' ? Step::kKeyOrClose : Step::kBroken;
    case Step::kKeyOrClose:
      if (byte == '}') return Step::kDone;
      if (byte != '"') return Step::kBroken;
      key_.clear();
      scanner_ = {};
      return Step::kKey;
    case Step::kColon:
      return byte == ':' ? Step::kValueBegin : Step::kBroken;
    case Step::kCommaOrClose:
      if (byte == ',') return Step::kKeyOrClose;
      return byte == '}' ? Step::kDone : Step::kBroken;
    default:
      return Step::kBroken;
  }
}

size_t JsonCallReader::ReadString(std::string_view text) {
  const size_t size = scanner_.Scan(text);
  key_ += text.substr(0, size);
  if (!scanner_.is_done()) return size;
  member_ = Member::kOther;
  if (key_ == "\"name\"" && name_.empty()) member_ = Member::kName;
  if ((key_ == "\"arguments\"" || key_ == "\"parameters\"") && !has_arguments_) {
    member_ = Member::kArguments;
  }
  if (key_ == "\"id\"") member_ = Member::kId;
  step_ = Step::kColon;
  return size;
}

// Decides by its first byte what becomes of a value. False if it makes no call.
bool JsonCallReader::BeginValue(char byte) {
  scanner_ = {};
  value_.clear();
  keeps_value_ = false;
  if (std::string_view(",:}]").find(byte) != std::string_view::npos) return false;
  if (member_ == Member::kName) {
    keeps_value_ = true;
    return byte == '"';
  }
  if (member_ == Member::kId) {
    keeps_value_ = byte == '"';
    return true;
  }
  if (member_ != Member::kArguments) return true;
  if (byte == '{') {
    has_arguments_ = true;
    if (!name_.empty()) Write();
    return true;
  }
  keeps_value_ = true;  // the arguments as a text with JSON, or null for none
  return byte == '"' || byte == 'n';
}

size_t JsonCallReader::ReadValue(std::string_view text) {
  const size_t size = scanner_.Scan(text);
  const std::string_view piece = text.substr(0, size);
  if (keeps_value_) {
    value_ += piece;
  } else if (member_ == Member::kArguments && is_written_) {
    writer_->Arguments(piece);
  } else if (member_ == Member::kArguments) {
    arguments_ += piece;
  }
  if (scanner_.is_done()) step_ = EndValue() ? Step::kCommaOrClose : Step::kBroken;
  return size;
}

bool JsonCallReader::EndValue() {
  std::string text;
  switch (member_) {
    case Member::kName:
      if (!ReadJsonString(value_, name_) || !IsFunctionName(name_)) return false;
      if (known_ != nullptr && !known_->Has(name_)) return false;
      if (has_arguments_) Write();
      return true;
    case Member::kId:
      if (keeps_value_ && ReadJsonString(value_, text) && text.size() <= kMaxNameBytes) id_ = text;
      return true;
    case Member::kArguments:
      if (!keeps_value_) return true;
      if (value_ != "null") {
        if (!ReadJsonString(value_, text)) return false;
        arguments_ = TrimSpace(text);
        if (!arguments_.starts_with('{')) return false;
      }
      has_arguments_ = true;
      if (!name_.empty()) Write();
      return true;
    case Member::kOther:
      return true;
  }
  return true;
}

void JsonCallReader::Write() {
  is_written_ = true;
  writer_->BeginCall(name_, id_);
  writer_->Arguments(arguments_);
  arguments_.clear();
}

}  // namespace nereid::tokenizer::parsers
