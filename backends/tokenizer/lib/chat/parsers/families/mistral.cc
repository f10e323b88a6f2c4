// Mistral, both forms: [TOOL_CALLS] [{"name": "f", "arguments": {}}], and for each call
// [TOOL_CALLS]f[ARGS]{}, also with an id, [TOOL_CALLS]f[CALL_ID]abc[ARGS]{}. Reasoning is in
// [THINK] markers.
#include <algorithm>
#include <optional>

#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/json_call_reader.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kMistralMarkers[] = {"[TOOL_CALLS]", "[ARGS]",  "[CALL_ID]", "[THINK]",
                                                "[/THINK]",     "<think>", "</think>"};
constexpr std::string_view kMistralOpens[] = {"[THINK]", "<think>"};
constexpr std::string_view kMistralCloses[] = {"[/THINK]", "</think>"};
constexpr ReasoningFormat kMistralReasoning = {.opens = kMistralOpens, .closes = kMistralCloses};
constexpr std::string_view kMistralBegins[] = {"[TOOL_CALLS]"};
// Behind the name or the id. The brace belongs to the arguments.
constexpr std::string_view kMistralHeaderEnds[] = {"[ARGS]", "[CALL_ID]", "{"};

class MistralCalls : public TextMachine {
 public:
  using TextMachine::TextMachine;

 protected:
  bool Step() override {
    switch (state_) {
      case State::kContent:
        return StepContent();
      case State::kForm:
        return StepForm();
      case State::kElement:
        return StepElement();
      case State::kObject:
        return StepObject();
      case State::kObjectEnd:
        return StepObjectEnd();
      case State::kHeader:
        return StepHeader();
      case State::kArgumentsBegin:
        return StepArgumentsBegin();
      case State::kArguments:
        return StepArguments();
    }
    return false;
  }

  void OnEnd() override {
    if (state_ == State::kObject) {
      if (object_->is_written()) {
        writer_.EndCall();
        return;
      }
      held_ += object_->text();
    } else if (state_ == State::kArguments) {
      writer_.EndCall();
    }
    writer_.Content(held_);
  }

 private:
  enum class State {
    kContent,
    kForm,
    kElement,
    kObject,
    kObjectEnd,
    kHeader,
    kArgumentsBegin,
    kArguments
  };

  void Reject() {
    writer_.Content(held_);
    held_.clear();
    state_ = State::kContent;
  }

  bool StepContent() {
    const TextInput::Hit hit = input_.Find(kMistralBegins);
    writer_.Content(input_.Take(hit.position));
    if (hit.which == TextInput::kNone) return false;
    held_ = input_.Take(kMistralBegins[0].size());
    state_ = State::kForm;
    return true;
  }

  bool StepForm() {
    if (!TakeSpace(&held_)) return false;
    const char byte = input_.rest()[0];
    is_list_ = byte == '[';
    if (is_list_) held_ += input_.Take(1);
    header_.clear();
    id_.clear();
    reads_id_ = false;
    state_ = is_list_ || byte == '{' ? State::kElement : State::kHeader;
    return true;
  }

  // The form with JSON objects.
  bool StepElement() {
    if (!TakeSpace(&held_)) return false;
    if (input_.rest()[0] == '{') {
      object_.emplace(writer_, nullptr);
      state_ = State::kObject;
    } else {
      Reject();
    }
    return true;
  }

  bool StepObject() {
    input_.Take(object_->Read(input_.rest()));
    if (!object_->is_done() && !object_->is_broken()) return false;
    if (!object_->is_written()) {
      held_ += object_->text();
      Reject();
      return true;
    }
    writer_.EndCall();
    held_.clear();
    state_ = object_->is_done() ? State::kObjectEnd : State::kContent;
    return true;
  }

  bool StepObjectEnd() {
    if (!TakeSpace(nullptr)) return false;
    const char byte = input_.rest()[0];
    state_ = is_list_ && byte == ',' ? State::kElement : State::kContent;
    if (is_list_ && (byte == ',' || byte == ']')) input_.Take(1);
    return true;
  }

  // The form with a header: the name, then the id if there is one.
  bool StepHeader() {
    const TextInput::Hit hit = input_.Find(kMistralHeaderEnds);
    std::string& part = reads_id_ ? id_ : header_;
    const size_t room = kMaxNameBytes + 1 - std::min(kMaxNameBytes + 1, part.size());
    const std::string_view piece = input_.Take(std::min(hit.position, room));
    part += piece;
    held_ += piece;
    if (part.size() <= kMaxNameBytes && hit.which == TextInput::kNone) return false;
    if (!IsFunctionName(TrimSpace(part))) {
      Reject();
      return true;
    }
    if (hit.which < 2) held_ += input_.Take(kMistralHeaderEnds[hit.which].size());
    if (hit.which == 1 && !reads_id_) {
      reads_id_ = true;
    } else {
      state_ = State::kArgumentsBegin;
    }
    return true;
  }

  bool StepArgumentsBegin() {
    if (!TakeSpace(&held_)) return false;
    if (input_.rest()[0] != '{') {
      Reject();
      return true;
    }
    held_.clear();
    scanner_ = {};
    writer_.BeginCall(TrimSpace(header_), TrimSpace(id_));
    state_ = State::kArguments;
    return true;
  }

  bool StepArguments() {
    writer_.Arguments(input_.Take(scanner_.Scan(input_.rest())));
    if (!scanner_.is_done()) return false;
    writer_.EndCall();
    state_ = State::kContent;
    return true;
  }

  State state_ = State::kContent;
  std::string held_;  // text that becomes content if no call comes of it
  bool is_list_ = false;
  std::optional<JsonCallReader> object_;
  std::string header_, id_;
  bool reads_id_ = false;
  JsonValueScanner scanner_;
};

CallForm MistralCallForm(std::string_view source) {
  if (Contains(source, "[ARGS]")) {
    return {.call_begin = "[TOOL_CALLS]", .arguments_begin = "[ARGS]"};
  }
  return JsonCallForm({.section_begin = "[TOOL_CALLS] [", .separator = ", ", .section_end = "]"});
}

std::unique_ptr<ChatParser> MakeMistral(const ParserOptions& options) {
  return std::make_unique<StagedParser>(
      options, kMistralReasoning,
      [](AnswerWriter& writer) { return std::make_unique<MistralCalls>(writer); },
      CallIdStyle::kNineCharacters);
}

}  // namespace

constexpr ParserFamily kMistral = {
    "mistral",
    "[TOOL_CALLS] with JSON, or with a name and [ARGS]; [THINK] reasoning (Mistral)",
    kMistralMarkers,
    [](std::string_view source) { return Contains(source, "[TOOL_CALLS]"); },
    MakeMistral,
    MistralCallForm,
    {"[THINK]", "[/THINK]"}};

}  // namespace nereid::tokenizer::parsers
