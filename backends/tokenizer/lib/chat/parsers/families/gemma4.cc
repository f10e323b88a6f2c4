// Gemma 4: <|tool_call>call:f{city:<|"|>x<|"|>,days:3}<tool_call|>, whose arguments are almost
// JSON: keys stand without quotes, and strings between tokens. A call is written when it is
// complete.
#include <algorithm>
#include <array>

#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/json_text.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"
#include "backends/tokenizer/lib/chat/parsers/text_machine.h"
#include "base/concat.h"
#include "base/json_reader.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kGemma4Quote = "<|\"|>";
constexpr std::string_view kGemma4Begin = "<|tool_call>", kGemma4End = "<tool_call|>";
constexpr std::string_view kGemma4Markers[] = {"<|channel>", "<channel|>", kGemma4Begin, kGemma4End,
                                               kGemma4Quote};
constexpr std::string_view kGemma4Opens[] = {"<|channel>thought"};
constexpr std::string_view kGemma4Closes[] = {"<channel|>"};
constexpr std::string_view kGemma4EndsBefore[] = {kGemma4Begin};
constexpr ReasoningFormat kGemma4Reasoning = {
    .opens = kGemma4Opens, .closes = kGemma4Closes, .ends_before = kGemma4EndsBefore};

// Converts the arguments of a call to JSON.
class Gemma4Arguments {
 public:
  explicit Gemma4Arguments(std::string_view text) : rest_(text) {}

  // False if the text is anything else than one object.
  bool Read(std::string& json) {
    return Peek() == '{' && ReadValue(json, 0) && (SkipSpace(), rest_.empty());
  }

 private:
  static constexpr int kMaxDepth = 1000;

  char Peek() {
    SkipSpace();
    return rest_.empty() ? '\0' : rest_.front();
  }
  void SkipSpace() { rest_.remove_prefix(CountSpace(rest_)); }
  bool TakeByte(char byte) {
    if (Peek() != byte) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool ReadValue(std::string& json, int depth) {
    if (depth == kMaxDepth) return false;
    if (Peek() == '{') return ReadList('{', '}', json, depth);
    if (Peek() == '[') return ReadList('[', ']', json, depth);
    if (rest_.starts_with(kGemma4Quote)) return ReadString(json);
    return ReadBare(json);
  }

  // The members of an object or the elements of a list.
  bool ReadList(char open, char close, std::string& json, int depth) {
    TakeByte(open);
    json += open;
    for (bool is_first = true; !TakeByte(close); is_first = false) {
      if (!is_first && !TakeByte(',')) return false;
      if (!is_first) json += ", ";
      if (open == '{' && !ReadKey(json)) return false;
      if (!ReadValue(json, depth + 1)) return false;
    }
    json += close;
    return true;
  }

  bool ReadKey(std::string& json) {
    SkipSpace();
    if (rest_.starts_with(kGemma4Quote)) {
      if (!ReadString(json) || !TakeByte(':')) return false;
    } else {
      const size_t end = rest_.find_first_of(":,{}[]");
      if (end == std::string_view::npos || rest_[end] != ':') return false;
      json += JsonString(TrimSpace(rest_.substr(0, end)));
      rest_.remove_prefix(end + 1);
    }
    json += ": ";
    return true;
  }

  bool ReadString(std::string& json) {
    rest_.remove_prefix(kGemma4Quote.size());
    const size_t end = rest_.find(kGemma4Quote);
    if (end == std::string_view::npos) return false;
    json += JsonString(rest_.substr(0, end));
    rest_.remove_prefix(end + kGemma4Quote.size());
    return true;
  }

  // A number, a constant of JSON or Python, or a string that the model has not quoted.
  bool ReadBare(std::string& json) {
    const size_t end = std::min(rest_.find_first_of(",{}[]"), rest_.size());
    const std::string_view text = TrimSpace(rest_.substr(0, end));
    if (text.empty()) return false;
    rest_.remove_prefix(end);
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kConstants = {
        {{"True", "true"}, {"False", "false"}, {"None", "null"}}};
    for (const auto& [python, constant] : kConstants) {
      if (text != python) continue;
      json += constant;
      return true;
    }
    const bool is_quoted = text.front() == '"';
    json += !is_quoted && CheckJson(text, "").ok() ? std::string(text) : JsonString(text);
    return true;
  }

  std::string_view rest_;
};

class Gemma4Calls : public TextMachine {
 public:
  using TextMachine::TextMachine;

 protected:
  bool Step() override {
    const std::string_view marker = is_inside_ ? kGemma4End : kGemma4Begin;
    if (is_inside_ && input_.EndsWithin(Markers(&marker, 1))) {
      end_ = input_.Take(input_.rest().size());
      return false;
    }
    const TextInput::Hit hit = input_.Find(Markers(&marker, 1));
    const std::string_view text = input_.Take(hit.position);
    if (is_inside_) {
      call_ += text;
    } else {
      writer_.Content(text);
    }
    if (hit.which == TextInput::kNone) return false;
    input_.Take(marker.size());
    if (is_inside_ && !WriteCall()) {
      writer_.Content(kGemma4Begin);
      writer_.Content(call_);
      writer_.Content(kGemma4End);
    }
    call_.clear();
    is_inside_ = !is_inside_;
    return true;
  }

  void OnEnd() override {
    // A call may be complete without its end marker.
    if (!is_inside_ || WriteCall()) return;
    writer_.Content(kGemma4Begin);
    writer_.Content(call_);
    writer_.Content(end_);
  }

 private:
  // call:NAME{...}
  bool WriteCall() {
    constexpr std::string_view kCall = "call:";
    const std::string_view call = TrimSpace(call_);
    const size_t brace = call.find('{');
    if (!call.starts_with(kCall) || brace == std::string_view::npos) return false;
    const std::string_view name = TrimSpace(call.substr(kCall.size(), brace - kCall.size()));
    std::string json;
    if (!IsFunctionName(name) || !Gemma4Arguments(call.substr(brace)).Read(json)) return false;
    writer_.BeginCall(name);
    writer_.Arguments(json);
    writer_.EndCall();
    return true;
  }

  bool is_inside_ = false;  // behind kGemma4Begin
  std::string call_;        // so far
  std::string end_;         // a part of kGemma4End, with which the text has ended
};

CallForm Gemma4CallForm(std::string_view) {
  return {.call_begin = Concat(kGemma4Begin, "call:"),
          .call_end = std::string(kGemma4End),
          .reasoning_end = std::string(kGemma4Closes[0]),
          .notation = {{"quote", kGemma4Quote},
                       {"has_bare_names", true},
                       {"has_small_numbers", true},
                       {"excluded", {kGemma4End}}}};
}

std::unique_ptr<ChatParser> MakeGemma4(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, kGemma4Reasoning, [](AnswerWriter& writer) {
    return std::make_unique<Gemma4Calls>(writer);
  });
}

}  // namespace

constexpr ParserFamily kGemma4 = {
    "gemma4",
    "calls whose strings stand between tokens, the channel thought as reasoning (Gemma 4)",
    kGemma4Markers,
    [](std::string_view source) { return Contains(source, kGemma4End); },
    MakeGemma4,
    Gemma4CallForm,
    {"<|channel>thought", "<channel|>"}};

}  // namespace nereid::tokenizer::parsers
