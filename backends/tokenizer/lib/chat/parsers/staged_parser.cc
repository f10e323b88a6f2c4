// See staged_parser.h.
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"

#include <vector>

#include "backends/tokenizer/lib/chat/parsers/json_text.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kThinkOpen[] = {"<think>"};
constexpr std::string_view kThinkClose[] = {"</think>"};
constexpr ReasoningFormat kThinkTags = {kThinkOpen, kThinkClose};

bool EndsInside(std::string_view prompt_end, Markers opens) {
  while (!prompt_end.empty() && IsSpace(prompt_end.back())) prompt_end.remove_suffix(1);
  for (const std::string_view marker : opens) {
    if (prompt_end.ends_with(marker)) return true;
  }
  return false;
}

}  // namespace

const ReasoningFormat& ThinkTags() {
  return kThinkTags;
}

class StagedParser::Splitter : public TextMachine {
 public:
  // `calls` may be null and outlives the machine.
  Splitter(AnswerWriter& writer, const ReasoningFormat& format, bool begins_inside,
           TextMachine* calls)
      : TextMachine(writer),
        format_(format),
        ends_(format.closes.begin(), format.closes.end()),
        begins_inside_(begins_inside),
        calls_(calls) {
    ends_.insert(ends_.end(), format.ends_before.begin(), format.ends_before.end());
  }

  bool IsReasoning() const {
    return state_ == State::kReasoning || (state_ == State::kBegin && begins_inside_);
  }

 protected:
  bool Step() override {
    switch (state_) {
      case State::kBegin:
        return StepBegin();
      case State::kReasoning:
        return StepReasoning();
      case State::kContent:
        return StepContent();
    }
    return false;
  }
  void OnEnd() override {}

 private:
  enum class State { kBegin, kReasoning, kContent };

  // Reasoning begins the answer, or there is none: a marker in the middle of content may be a
  // quotation.
  bool StepBegin() {
    const size_t num_spaces = CountSpace(input_.rest());
    space_ += input_.Take(num_spaces);
    size_t which = TextInput::kNone;
    if (input_.empty() && !input_.is_ended()) return false;
    const TextInput::Match match = input_.BeginsWith(format_.opens, which);
    if (match == TextInput::Match::kUnknown) return false;
    if (match == TextInput::Match::kYes) {
      input_.Take(format_.opens[which].size());
      state_ = State::kReasoning;
    } else if (begins_inside_) {
      state_ = State::kReasoning;
    } else {
      Pass(space_);
      state_ = State::kContent;
    }
    return true;
  }

  bool StepReasoning() {
    const TextInput::Hit hit = input_.Find(ends_);
    writer_.Reasoning(input_.Take(hit.position));
    if (hit.which == TextInput::kNone) return false;
    if (hit.which < format_.closes.size()) input_.Take(ends_[hit.which].size());
    writer_.EndReasoning();
    state_ = State::kContent;
    return true;
  }

  bool StepContent() {
    Pass(input_.Take(input_.rest().size()));
    return false;
  }

  void Pass(std::string_view text) {
    if (text.empty()) return;
    if (calls_ != nullptr) {
      calls_->Push(text);
    } else {
      writer_.Content(text);
    }
  }

  const ReasoningFormat& format_;
  std::vector<std::string_view> ends_;  // format_.closes, then format_.ends_before
  const bool begins_inside_;
  TextMachine* const calls_;
  State state_ = State::kBegin;
  std::string space_;  // before the first text
};

StagedParser::StagedParser(const ParserOptions& options, const ReasoningFormat& reasoning,
                           const MakeCalls& make_calls, CallIdStyle id_style)
    : writer_(options, id_style, reasoning.wrappers) {
  if (options.tools != nullptr && make_calls) calls_ = make_calls(writer_);
  splitter_ = std::make_unique<Splitter>(
      writer_, reasoning, EndsInside(options.prompt_end, reasoning.opens), calls_.get());
}

StagedParser::~StagedParser() = default;

bool StagedParser::IsReasoning() const {
  return splitter_->IsReasoning();
}

void StagedParser::Push(std::string_view text, AnswerDelta& delta) {
  writer_.SetTarget(delta);
  splitter_->Push(text);
}

void StagedParser::Finish(AnswerDelta& delta) {
  writer_.SetTarget(delta);
  splitter_->Finish();
  if (calls_ != nullptr) calls_->Finish();
  writer_.Finish();
}

}  // namespace nereid::tokenizer::parsers
