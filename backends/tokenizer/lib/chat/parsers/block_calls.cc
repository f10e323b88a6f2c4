// See block_calls.h.
#include "backends/tokenizer/lib/chat/parsers/block_calls.h"

#include "backends/tokenizer/lib/chat/parsers/json_text.h"

namespace nereid::tokenizer::parsers {
namespace {

bool BeginsPythonName(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}

bool IsPythonNameByte(char byte) {
  return BeginsPythonName(byte) || (byte >= '0' && byte <= '9') || byte == '.' || byte == '-';
}

}  // namespace

bool BlockCalls::Step() {
  switch (state_) {
    case State::kAnswerBegin:
      return StepAnswerBegin();
    case State::kContent:
      return StepContent();
    case State::kBlockBegin:
      return StepBlockBegin();
    case State::kElement:
      return StepElement();
    case State::kJsonCall:
      return StepJsonCall();
    case State::kPythonName:
      return StepPythonName();
    case State::kPythonCall:
      return StepPythonCall();
    case State::kCallEnd:
      return StepCallEnd();
    case State::kBlockEnd:
      return StepBlockEnd();
  }
  return false;
}

// What was held is content.
void BlockCalls::Reject() {
  writer_.Content(held_);
  held_.clear();
  state_ = State::kContent;
}

bool BlockCalls::StepAnswerBegin() {
  if (!TakeSpace(&held_)) return false;
  const char byte = input_.rest()[0];
  if (byte == '{' || byte == '[') {
    state_ = State::kBlockBegin;
  } else {
    Reject();
  }
  return true;
}

bool BlockCalls::StepContent() {
  const TextInput::Hit hit = input_.Find(format_.begins);
  writer_.Content(input_.Take(hit.position));
  if (hit.which == TextInput::kNone) return false;
  held_ = input_.Take(format_.begins[hit.which].size());
  has_marker_ = true;
  state_ = State::kBlockBegin;
  return true;
}

bool BlockCalls::StepBlockBegin() {
  // A text may begin with a bracket that is part of a marker.
  if (!has_marker_) {
    size_t which = TextInput::kNone;
    const TextInput::Match match = input_.BeginsWith(format_.begins, which);
    if (match == TextInput::Match::kUnknown) return false;
    if (match == TextInput::Match::kYes) {
      Reject();
      return true;
    }
  }
  if (!TakeSpace(&held_)) return false;
  is_list_ = is_python_ = false;
  const char byte = input_.rest()[0];
  if (byte == '[' && (format_.has_lists || format_.has_python_lists)) {
    held_ += input_.Take(1);
    is_list_ = true;
    state_ = State::kElement;
  } else if (!BeginCall(byte)) {
    Reject();
  }
  return true;
}

// Enters the state that reads a call, if `byte` can begin one here.
bool BlockCalls::BeginCall(char byte) {
  if (byte == '{' && (is_list_ ? format_.has_lists : format_.has_objects)) {
    json_call_.emplace(writer_, has_marker_ ? nullptr : tools_.get());
    state_ = State::kJsonCall;
    return true;
  }
  if (!BeginsPythonName(byte)) return false;
  if (is_list_ ? !format_.has_python_lists : !(format_.has_python_calls && has_marker_)) {
    return false;
  }
  python_name_.clear();
  is_python_ = true;
  state_ = State::kPythonName;
  return true;
}

bool BlockCalls::StepElement() {
  if (!TakeSpace(&held_)) return false;
  if (!BeginCall(input_.rest()[0])) Reject();
  return true;
}

bool BlockCalls::StepJsonCall() {
  input_.Take(json_call_->Read(input_.rest()));
  if (json_call_->is_done()) {
    writer_.EndCall();
    held_.clear();
    state_ = State::kCallEnd;
    return true;
  }
  if (!json_call_->is_broken()) return false;
  if (json_call_->is_written()) {
    writer_.EndCall();
    held_.clear();
    state_ = State::kContent;
  } else {
    held_ += json_call_->text();
    Reject();
  }
  return true;
}

bool BlockCalls::StepPythonName() {
  const std::string_view rest = input_.rest();
  size_t size = 0;
  while (size < rest.size() && IsPythonNameByte(rest[size])) ++size;
  python_name_ += input_.Take(size);
  const bool is_too_long = python_name_.size() > kMaxNameBytes;
  if (input_.empty() && !is_too_long) return false;
  // `name.call(...)` is how Llama writes calls of its built-in tools.
  std::string_view name = python_name_;
  if (has_marker_ && !tools_->Has(name) && name.ends_with(".call")) name.remove_suffix(5);
  held_ += python_name_;
  if (is_too_long || input_.rest()[0] != '(' || (!has_marker_ && !tools_->Has(name))) {
    Reject();
    return true;
  }
  python_name_ = std::string(name);
  held_ += input_.Take(1);
  python_arguments_.clear();
  python_scanner_ = {};
  state_ = State::kPythonCall;
  return true;
}

// A call is written when it has ended: only then it is certain that it can be converted.
bool BlockCalls::StepPythonCall() {
  python_arguments_ += input_.Take(python_scanner_.Scan(input_.rest()));
  if (!python_scanner_.is_done()) return false;
  std::string json;
  const std::string_view inside(python_arguments_.data(), python_arguments_.size() - 1);
  if (!IsFunctionName(python_name_) || !PythonArgumentsToJson(inside, json)) {
    held_ += python_arguments_;
    Reject();
    return true;
  }
  held_.clear();
  writer_.BeginCall(python_name_);
  writer_.Arguments(json);
  writer_.EndCall();
  state_ = State::kCallEnd;
  return true;
}

bool BlockCalls::StepCallEnd() {
  if (!TakeSpace(nullptr)) return false;
  const char byte = input_.rest()[0];
  if (byte == ',' || (byte == ';' && !is_list_)) {
    input_.Take(1);
    state_ = State::kElement;
    return true;
  }
  if (is_list_) {
    if (byte == ']') input_.Take(1);
    state_ = byte == ']' ? State::kBlockEnd : State::kContent;
    return true;
  }
  // Objects and calls may also follow each other without a comma.
  if (byte == '{' ? !is_python_ : is_python_ && BeginsPythonName(byte)) {
    state_ = State::kElement;
  } else {
    state_ = State::kBlockEnd;
  }
  return true;
}

bool BlockCalls::StepBlockEnd() {
  size_t which = TextInput::kNone;
  if (!ReadNext(format_.ends, which)) return false;
  if (which != TextInput::kNone) input_.Take(format_.ends[which].size());
  state_ = State::kContent;
  return true;
}

void BlockCalls::OnEnd() {
  if (state_ == State::kJsonCall) {
    if (json_call_->is_written()) {
      writer_.EndCall();
      return;
    }
    held_ += json_call_->text();
  }
  if (state_ == State::kPythonName) held_ += python_name_;
  if (state_ == State::kPythonCall) held_ += python_arguments_;
  writer_.Content(held_);
  held_.clear();
}

}  // namespace nereid::tokenizer::parsers
