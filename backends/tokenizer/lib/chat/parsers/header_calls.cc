// See header_calls.h.
#include "backends/tokenizer/lib/chat/parsers/header_calls.h"

#include <algorithm>
#include <array>

#include "backends/tokenizer/lib/chat/parsers/json_text.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr size_t kMaxHeaderBytes = 2 * kMaxNameBytes;

}  // namespace

bool HeaderCalls::Step() {
  switch (state_) {
    case State::kContent:
      return StepContent();
    case State::kSectionBegin:
      return StepSectionBegin();
    case State::kHeader:
      return StepHeader();
    case State::kArgumentsBegin:
      return StepArgumentsBegin();
    case State::kArguments:
      return StepArguments();
    case State::kCallEnd:
      return StepCallEnd();
  }
  return false;
}

void HeaderCalls::Reject() {
  writer_.Content(held_);
  held_.clear();
  state_ = State::kContent;
}

bool HeaderCalls::StepContent() {
  const std::array begins = {format_.section_begin, format_.call_begin};
  const TextInput::Hit hit = input_.Find(begins);
  writer_.Content(input_.Take(hit.position));
  if (hit.which == TextInput::kNone) return false;
  held_ = input_.Take(begins[hit.which].size());
  header_.clear();
  state_ = hit.which == 0 ? State::kSectionBegin : State::kHeader;
  return true;
}

bool HeaderCalls::StepSectionBegin() {
  if (!TakeSpace(&held_)) return false;
  const TextInput::Match match = input_.BeginsWith(format_.call_begin);
  if (match == TextInput::Match::kUnknown) return false;
  if (match == TextInput::Match::kNo) {
    Reject();
    return true;
  }
  held_ += input_.Take(format_.call_begin.size());
  header_.clear();
  state_ = State::kHeader;
  return true;
}

bool HeaderCalls::StepHeader() {
  const TextInput::Hit hit = input_.Find(Markers(&format_.header_end, 1));
  // A longer header makes no call. No more of it is taken, however much there is.
  const size_t room = kMaxHeaderBytes + 1 - std::min(kMaxHeaderBytes + 1, header_.size());
  const std::string_view piece = input_.Take(std::min(hit.position, room));
  header_ += piece;
  held_ += piece;
  if (header_.size() > kMaxHeaderBytes) {
    Reject();
    return true;
  }
  if (hit.which == TextInput::kNone) return false;
  std::string_view name, id;
  held_ += input_.Take(format_.header_end.size());
  if (!format_.read_header(header_, name, id) || !IsFunctionName(name)) {
    Reject();
  } else {
    state_ = State::kArgumentsBegin;
  }
  return true;
}

bool HeaderCalls::StepArgumentsBegin() {
  if (!TakeSpace(&held_)) return false;
  size_t which = TextInput::kNone;
  const TextInput::Match match = input_.BeginsWith(format_.call_ends, which);
  if (match == TextInput::Match::kUnknown) return false;
  if (match == TextInput::Match::kNo && input_.rest()[0] != '{') {
    Reject();
    return true;
  }
  std::string_view name, id;
  format_.read_header(header_, name, id);
  writer_.BeginCall(name, id);
  held_.clear();
  space_.clear();
  state_ = State::kArguments;
  return true;
}

bool HeaderCalls::StepArguments() {
  if (input_.EndsWithin(format_.call_ends)) {
    input_.Take(input_.rest().size());
    return false;
  }
  const TextInput::Hit hit = input_.Find(format_.call_ends);
  std::string_view piece = input_.Take(hit.position);
  const std::string_view trimmed = piece.substr(0, piece.find_last_not_of(" \n\t\r") + 1);
  if (!trimmed.empty()) {
    writer_.Arguments(space_);
    writer_.Arguments(trimmed);
    space_.clear();
  }
  space_ += piece.substr(trimmed.size());
  if (hit.which == TextInput::kNone) return false;
  input_.Take(format_.call_ends[hit.which].size());
  writer_.EndCall();
  state_ = State::kCallEnd;
  return true;
}

bool HeaderCalls::StepCallEnd() {
  const std::array nexts = {format_.section_end, format_.call_begin};
  size_t which = TextInput::kNone;
  if (!ReadNext(nexts, which)) return false;
  if (which == 0) input_.Take(format_.section_end.size());
  state_ = State::kContent;
  return true;
}

void HeaderCalls::OnEnd() {
  if (state_ == State::kArguments) writer_.EndCall();
  writer_.Content(held_);
  held_.clear();
}

}  // namespace nereid::tokenizer::parsers
