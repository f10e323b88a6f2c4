// See answer_parsing.h.
#include "backends/tokenizer/answer_parsing.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace nereid::tokenizer {

Result<const ParserFamily*> ChooseParserFamily(std::string_view chat_parser,
                                               std::string_view chat_template) {
  const ParserFamily* none = nullptr;
  if (chat_parser == "none") return none;
  if (chat_parser.empty() || chat_parser == "auto") return ParserFamilyOfTemplate(chat_template);
  if (const ParserFamily* family = FindParserFamily(chat_parser)) return family;
  std::string names = "auto, none";
  for (const ParserFamily* family : ParserFamilies()) names.append(", ").append(family->name);
  return InvalidArgError("parameter 'chat_parser': expected one of ", names, ", got '", chat_parser,
                         "'");
}

ParsedAnswer::ParsedAnswer(const Tokenizer& tokenizer, const std::unordered_set<int32_t>* skipped,
                           DecodeOptions options, std::unique_ptr<ChatParser> parser)
    : decoder_(tokenizer, options, kMaxPendingIds), skipped_(skipped), parser_(std::move(parser)) {}

AnswerDelta ParsedAnswer::Push(std::span<const int32_t> ids, bool is_final,
                               int32_t* num_reasoning) {
  AnswerDelta delta;
  if (num_reasoning == nullptr) {
    PushIds(ids, delta);
  } else {
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool was_reasoning = parser_->IsReasoning();
      PushIds(ids.subspan(i, 1), delta);
      if (was_reasoning || parser_->IsReasoning()) ++*num_reasoning;
    }
  }
  if (!is_final) return delta;
  std::string text;
  decoder_.Finish(text);
  parser_->Push(text, delta);
  parser_->Finish(delta);
  return delta;
}

void ParsedAnswer::PushIds(std::span<const int32_t> ids, AnswerDelta& delta) {
  std::string text;
  if (skipped_ == nullptr) {
    decoder_.Push(ids, text);
  } else {
    std::vector<int32_t> kept;
    kept.reserve(ids.size());
    std::copy_if(ids.begin(), ids.end(), std::back_inserter(kept),
                 [&](int32_t id) { return !skipped_->contains(id); });
    decoder_.Push(kept, text);
  }
  parser_->Push(text, delta);
}

AnswerParsing::AnswerParsing(std::shared_ptr<const Tokenizer> tokenizer, const ParserFamily& family)
    : tokenizer_(std::move(tokenizer)), family_(family) {
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    if (tokenizer_->IsSpecial(id)) skipped_.insert(id);
  }
  for (const std::string_view marker : family.markers) {
    if (const auto id = tokenizer_->TokenToId(marker)) skipped_.erase(*id);
  }
}

std::unique_ptr<ParsedAnswer> AnswerParsing::Begin(const ParserOptions& parser_options,
                                                   const DecodeOptions& options) const {
  DecodeOptions visible = options;
  visible.skip_special_tokens = false;
  return std::make_unique<ParsedAnswer>(*tokenizer_,
                                        options.skip_special_tokens ? &skipped_ : nullptr, visible,
                                        family_.make(parser_options));
}

}  // namespace nereid::tokenizer
