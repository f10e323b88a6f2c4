// See tagged_calls.h.
#include "backends/tokenizer/lib/chat/parsers/tagged_calls.h"

#include <algorithm>
#include <array>

#include "backends/tokenizer/lib/chat/parsers/json_text.h"
#include "base/concat.h"

namespace nereid::tokenizer::parsers {

namespace {

// Replaces the entities of attributes by their characters.
std::string WithoutEntities(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, char>, 2> kEntities = {
      {{"&quot;", '"'}, {"&amp;", '&'}}};
  std::string plain;
  while (!text.empty()) {
    char byte = text.front();
    size_t size = 1;
    for (const auto& [entity, character] : kEntities) {
      if (!text.starts_with(entity)) continue;
      byte = character;
      size = entity.size();
    }
    plain += byte;
    text.remove_prefix(size);
  }
  return plain;
}

}  // namespace

TaggedCalls::TaggedCalls(AnswerWriter& writer, const TaggedFormat& format,
                         std::shared_ptr<const ToolSchemas> tools)
    : TextMachine(writer),
      format_(format),
      tools_(std::move(tools)),
      value_line_end_(format.has_value_lines ? Concat("\n", format.value_end) : "") {}

bool TaggedCalls::Step() {
  switch (state_) {
    case State::kContent:
      return StepContent();
    case State::kCallBegin:
      return StepCallBegin();
    case State::kName:
      return StepName();
    case State::kMember:
      return StepMember();
    case State::kKey:
      return StepKey();
    case State::kValueTag:
      return StepValueTag();
    case State::kValueBegin:
      return StepValueBegin();
    case State::kValue:
      return StepValue();
    case State::kCallEnd:
      return StepCallEnd();
  }
  return false;
}

// What was held is content. A call that was written ends here.
void TaggedCalls::Reject() {
  if (is_written_) EndCall();
  writer_.Content(held_);
  held_.clear();
  state_ = State::kContent;
}

void TaggedCalls::EndCall() {
  if (!is_written_) writer_.BeginCall(name_);
  if (num_arguments_ > 0) writer_.Arguments("}");
  writer_.EndCall();
  is_written_ = false;
}

bool TaggedCalls::StepContent() {
  const std::array begins = {format_.begin, format_.name_begin};
  const TextInput::Hit hit = input_.Find(Markers(begins.data(), format_.has_bare_calls ? 2 : 1));
  writer_.Content(input_.Take(hit.position));
  if (hit.which == TextInput::kNone) return false;
  if (hit.which == 1) return BeginName();
  held_ = input_.Take(format_.begin.size());
  state_ = State::kCallBegin;
  return true;
}

bool TaggedCalls::StepCallBegin() {
  if (!TakeSpace(&held_)) return false;
  return BeginName();
}

// Begins a name at its tag. False if more text is needed.
bool TaggedCalls::BeginName() {
  if (!format_.name_begin.empty()) {
    const TextInput::Match match = input_.BeginsWith(format_.name_begin);
    if (match == TextInput::Match::kUnknown) return false;
    if (match == TextInput::Match::kNo) {
      Reject();
      return true;
    }
    held_ += input_.Take(format_.name_begin.size());
  }
  name_.clear();
  num_arguments_ = 0;
  is_written_ = false;
  state_ = State::kName;
  return true;
}

bool TaggedCalls::StepName() {
  // A name without a tag ends with its line, or where the first argument or the end of the call
  // begins; these are read again.
  const std::array line_ends = {std::string_view("\n"), format_.key_begin, format_.end};
  const std::array tag_ends = {format_.name_end};
  const Markers ends = format_.name_end.empty() ? Markers(line_ends) : Markers(tag_ends);
  const TextInput::Hit hit = input_.Find(ends);
  const size_t room = kMaxNameBytes + 1 - std::min(kMaxNameBytes + 1, name_.size());
  const std::string_view piece = input_.Take(std::min(hit.position, room));
  name_ += piece;
  held_ += piece;
  if (name_.size() <= kMaxNameBytes) {
    if (hit.which == TextInput::kNone) return false;
    if (hit.which == 0) held_ += input_.Take(ends[0].size());
    if (format_.name_begin.ends_with('"')) name_.resize(std::min(name_.find('"'), name_.size()));
    name_ = format_.has_entities ? WithoutEntities(TrimSpace(name_)) : TrimSpace(name_);
  }
  if (IsFunctionName(name_)) {
    state_ = State::kMember;
  } else {
    Reject();
  }
  return true;
}

bool TaggedCalls::StepMember() {
  if (!TakeSpace(&held_)) return false;
  std::array<std::string_view, 3> nexts = {format_.key_begin, format_.end, format_.call_end};
  const Markers markers(nexts.data(), format_.call_end.empty() ? 2 : 3);
  if (is_written_ && input_.EndsWithin(markers)) return false;
  size_t which = TextInput::kNone;
  const TextInput::Match match = input_.BeginsWith(markers, which);
  if (match == TextInput::Match::kUnknown) return false;
  if (match == TextInput::Match::kNo) {
    Reject();
    return true;
  }
  held_ += input_.Take(nexts[which].size());
  if (which == 0) {
    key_.clear();
    state_ = State::kKey;
    return true;
  }
  EndCall();
  held_.clear();
  state_ = which == 1 ? State::kContent : State::kCallEnd;
  return true;
}

bool TaggedCalls::StepKey() {
  const TextInput::Hit hit = input_.Find(Markers(&format_.key_end, 1));
  const size_t room = kMaxNameBytes + 1 - std::min(kMaxNameBytes + 1, key_.size());
  const std::string_view piece = input_.Take(std::min(hit.position, room));
  key_ += piece;
  if (key_.size() <= kMaxNameBytes && hit.which == TextInput::kNone) return false;
  if (key_.size() > kMaxNameBytes || TrimSpace(key_).empty()) {
    held_ += key_;
    Reject();
    return true;
  }
  input_.Take(format_.key_end.size());
  state_ = State::kValueTag;
  return true;
}

bool TaggedCalls::StepValueTag() {
  if (!format_.value_begin.empty()) {
    space_ += input_.Take(CountSpace(input_.rest()));
    if (input_.empty()) return false;
    const Markers begin(&format_.value_begin, 1);
    if (is_written_ && input_.EndsWithin(begin)) return false;
    const TextInput::Match match = input_.BeginsWith(format_.value_begin);
    if (match == TextInput::Match::kUnknown) return false;
    if (match == TextInput::Match::kNo) {
      held_ += key_;
      held_ += format_.key_end;
      held_ += space_;
      space_.clear();
      Reject();
      return true;
    }
    input_.Take(format_.value_begin.size());
    space_.clear();
  }
  EndKey();
  state_ = State::kValueBegin;
  return true;
}

// The call is certain: writes its name, and the name of the argument.
void TaggedCalls::EndKey() {
  if (!is_written_) writer_.BeginCall(name_);
  is_written_ = true;
  held_.clear();
  std::string_view key = TrimSpace(key_);
  const size_t type_at =
      format_.type_begin.empty() ? std::string_view::npos : key.find(format_.type_begin);
  if (type_at == std::string_view::npos) {
    types_ = tools_->TypesOf(name_, key);
  } else {
    constexpr uint8_t kOthers = ArgumentTypes::kNumber | ArgumentTypes::kBoolean |
                                ArgumentTypes::kNull | ArgumentTypes::kStructured;
    const std::string_view type = key.substr(type_at + format_.type_begin.size());
    types_.bits = type.starts_with(format_.string_type) ? uint8_t{ArgumentTypes::kString} : kOthers;
    key = key.substr(0, type_at);
  }
  const std::string name =
      JsonString(format_.has_entities ? WithoutEntities(key) : std::string(key));
  writer_.Arguments(
      Concat(num_arguments_++ == 0 ? "{" : ", ", name, types_.IsOnlyString() ? ": \"" : ": "));
  value_.clear();
}

bool TaggedCalls::StepValueBegin() {
  if (input_.empty()) return false;
  if (format_.has_value_lines && input_.rest()[0] == '\n') {
    // The line break before the end of an empty value is its only one.
    const TextInput::Match match = input_.BeginsWith(value_line_end_);
    if (match == TextInput::Match::kUnknown) return false;
    if (match == TextInput::Match::kNo) input_.Take(1);
  }
  state_ = State::kValue;
  return true;
}

bool TaggedCalls::StepValue() {
  const std::array ends = {format_.value_end, std::string_view(value_line_end_)};
  const Markers markers(ends.data(), value_line_end_.empty() ? 1 : 2);
  const TextInput::Hit hit = input_.Find(markers);
  const std::string_view piece = input_.Take(hit.position);
  if (types_.IsOnlyString()) {
    std::string json;
    AppendEscaped(piece, json);
    writer_.Arguments(json);
  } else {
    value_ += piece;
  }
  if (hit.which == TextInput::kNone) return false;
  input_.Take(ends[hit.which].size());
  writer_.Arguments(types_.IsOnlyString() ? "\"" : ArgumentJson(value_, types_));
  state_ = State::kMember;
  return true;
}

bool TaggedCalls::StepCallEnd() {
  const std::array nexts = {format_.end, format_.name_begin};
  size_t which = TextInput::kNone;
  if (!ReadNext(nexts, which)) return false;
  if (which == 1) return BeginName();
  if (which == 0) input_.Take(format_.end.size());
  state_ = State::kContent;
  return true;
}

// The arguments of a call that was written end where the text ends.
void TaggedCalls::OnEnd() {
  if (is_written_) {
    if (state_ == State::kValue && !types_.IsOnlyString()) writer_.Arguments(value_);
    writer_.EndCall();
    return;
  }
  if (state_ == State::kKey || state_ == State::kValueTag) held_ += key_;
  if (state_ == State::kValueTag) {
    held_ += format_.key_end;
    held_ += space_;
  }
  writer_.Content(held_);
}

}  // namespace nereid::tokenizer::parsers
