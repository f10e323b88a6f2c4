// gpt-oss: messages in channels. <|channel|>analysis is reasoning, `final` and `commentary` are
// content, and a message to=functions.NAME is a call whose text is the arguments.
#include <algorithm>
#include <array>

#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/json_text.h"
#include "backends/tokenizer/lib/chat/parsers/text_machine.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kHarmonyMarkers[] = {"<|start|>",     "<|channel|>", "<|message|>",
                                                "<|constrain|>", "<|end|>",     "<|call|>",
                                                "<|return|>"};
constexpr std::string_view kHarmonyHeaderBegins[] = {"<|start|>", "<|channel|>", "<|message|>",
                                                     "<|constrain|>", "to="};
constexpr std::string_view kHarmonyHeaderEnds[] = {"<|message|>", "<|end|>", "<|call|>",
                                                   "<|return|>"};
constexpr std::string_view kHarmonyEnds[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>",
                                             "<|channel|>"};
constexpr size_t kHarmonyNumEnds = 3;  // of kHarmonyEnds; the others begin the next message
constexpr size_t kMaxHarmonyHeaderBytes = 4 * kMaxNameBytes;

class HarmonyMessages : public TextMachine {
 public:
  HarmonyMessages(AnswerWriter& writer, bool has_tools)
      : TextMachine(writer), has_tools_(has_tools) {}

  bool IsReasoning() const { return state_ == State::kBody && kind_ == Kind::kReasoning; }

 protected:
  bool Step() override {
    switch (state_) {
      case State::kBegin:
        return StepBegin();
      case State::kHeader:
        return StepHeader();
      case State::kBody:
        return StepBody();
    }
    return false;
  }

  void OnEnd() override {
    if (state_ == State::kHeader) {
      writer_.Content(header_);
    } else if (state_ == State::kBody) {
      EndBody();
    }
  }

 private:
  enum class State { kBegin, kHeader, kBody };
  enum class Kind { kReasoning, kContent, kCall };

  // The prompt ends with <|start|>assistant, so that the answer begins within a header. Other text
  // is content.
  bool StepBegin() {
    input_.Take(CountSpace(input_.rest()));
    if (input_.empty()) return false;
    size_t which = TextInput::kNone;
    const TextInput::Match match = input_.BeginsWith(kHarmonyHeaderBegins, which);
    if (match == TextInput::Match::kUnknown) return false;
    header_.clear();
    kind_ = Kind::kContent;
    state_ = match == TextInput::Match::kYes ? State::kHeader : State::kBody;
    return true;
  }

  bool StepHeader() {
    const TextInput::Hit hit = input_.Find(kHarmonyHeaderEnds);
    const size_t room =
        kMaxHarmonyHeaderBytes + 1 - std::min(kMaxHarmonyHeaderBytes + 1, header_.size());
    header_ += input_.Take(std::min(hit.position, room));
    if (header_.size() > kMaxHarmonyHeaderBytes) {
      kind_ = Kind::kContent;
      writer_.Content(header_);
      state_ = State::kBody;
      return true;
    }
    if (hit.which == TextInput::kNone) return false;
    const std::string_view marker = input_.Take(kHarmonyHeaderEnds[hit.which].size());
    if (hit.which != 0) {  // a message without a text
      writer_.Content(header_);
      state_ = State::kBegin;
      return true;
    }
    ReadHeader();
    held_ = header_;
    held_ += marker;
    is_written_ = false;
    space_.clear();
    state_ = State::kBody;
    return true;
  }

  // Finds the channel and the recipient, which may stand before or behind it.
  void ReadHeader() {
    constexpr std::string_view kChannel = "<|channel|>",
                               kRecipient = "to=", kFunctions = "functions.";
    const auto word_behind = [&](std::string_view marker) -> std::string_view {
      const size_t at = header_.find(marker);
      if (at == std::string::npos) return {};
      const std::string_view rest = std::string_view(header_).substr(at + marker.size());
      return rest.substr(0, rest.find_first_of(" <\n\t\r"));
    };
    name_ = word_behind(kRecipient);
    const bool is_function = name_.starts_with(kFunctions);
    if (is_function) name_.erase(0, kFunctions.size());
    if (is_function && has_tools_ && IsFunctionName(name_)) {
      kind_ = Kind::kCall;
    } else {
      kind_ = word_behind(kChannel) == "analysis" ? Kind::kReasoning : Kind::kContent;
    }
  }

  bool StepBody() {
    const TextInput::Hit hit = input_.Find(kHarmonyEnds);
    WriteBody(input_.Take(hit.position));
    if (hit.which == TextInput::kNone) return false;
    EndBody();
    if (hit.which < kHarmonyNumEnds) input_.Take(kHarmonyEnds[hit.which].size());
    state_ = State::kBegin;
    return true;
  }

  void WriteBody(std::string_view text) {
    if (kind_ == Kind::kReasoning) {
      writer_.Reasoning(text);
    } else if (kind_ == Kind::kContent) {
      writer_.Content(text);
    } else {
      WriteArguments(text);
    }
  }

  void WriteArguments(std::string_view text) {
    if (!is_written_) {
      const size_t num_spaces = CountSpace(text);
      held_ += text.substr(0, num_spaces);
      text.remove_prefix(num_spaces);
      if (text.empty()) return;
      if (text[0] != '{') {  // no arguments: the message is content
        kind_ = Kind::kContent;
        writer_.Content(held_);
        writer_.Content(text);
        return;
      }
      writer_.BeginCall(name_);
      is_written_ = true;
    }
    const std::string_view trimmed = text.substr(0, text.find_last_not_of(" \n\t\r") + 1);
    if (!trimmed.empty()) {
      writer_.Arguments(space_);
      writer_.Arguments(trimmed);
      space_.clear();
    }
    space_ += text.substr(trimmed.size());
  }

  void EndBody() {
    if (kind_ == Kind::kReasoning) writer_.EndReasoning();
    if (kind_ != Kind::kCall) return;
    if (!is_written_) writer_.BeginCall(name_);
    writer_.EndCall();
  }

  const bool has_tools_;
  State state_ = State::kBegin;
  Kind kind_ = Kind::kContent;
  std::string header_, name_;
  std::string held_;   // the beginning of a call that is not written
  std::string space_;  // at the end of the arguments so far
  bool is_written_ = false;
};

class HarmonyParser : public ChatParser {
 public:
  explicit HarmonyParser(const ParserOptions& options)
      : writer_(options, CallIdStyle::kPrefixed), messages_(writer_, options.tools != nullptr) {}

  void Push(std::string_view text, AnswerDelta& delta) override {
    writer_.SetTarget(delta);
    messages_.Push(text);
  }
  bool IsReasoning() const override { return messages_.IsReasoning(); }
  void Finish(AnswerDelta& delta) override {
    writer_.SetTarget(delta);
    messages_.Finish();
    writer_.Finish();
  }

 private:
  AnswerWriter writer_;
  HarmonyMessages messages_;
};

// <|call|> ends the generation, so that there is no second call, and the end is not written.
CallForm HarmonyCallForm(std::string_view) {
  return {.call_begin = "<|channel|>commentary to=functions.",
          .arguments_begin = " <|constrain|>json<|message|>",
          .reasoning_end = "<|end|><|start|>assistant",
          .has_one_call = true,
          .notation = JsonWithout({kHarmonyEnds[0], kHarmonyEnds[1], kHarmonyEnds[2],
                                   kHarmonyEnds[3], kHarmonyEnds[4]})};
}

std::unique_ptr<ChatParser> MakeHarmony(const ParserOptions& options) {
  return std::make_unique<HarmonyParser>(options);
}

}  // namespace

constexpr ParserFamily kHarmony = {
    "harmony",
    "messages in channels: analysis, commentary, final (gpt-oss)",
    kHarmonyMarkers,
    [](std::string_view source) {
      return Contains(source, "<|channel|>") && Contains(source, "<|message|>");
    },
    MakeHarmony,
    HarmonyCallForm,
    {"<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"}};

}  // namespace nereid::tokenizer::parsers
