// Parses answers into reasoning, content and tool calls while their ids are decoded. The parser
// sees the family's markers, even where special tokens are skipped. No Triton header, so that tests
// can link it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "backends/tokenizer/lib/chat/parsers/chat_parser.h"
#include "backends/tokenizer/lib/chat/parsers/parser_family.h"
#include "backends/tokenizer/lib/tokenizer.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

// Returns the family that the parameter `chat_parser` names: auto (or ""), none, or a family's
// name. `chat_template` is the template's text, for auto. Null: answers are not parsed. INVALID_ARG
// lists the names.
Result<const ParserFamily*> ChooseParserFamily(std::string_view chat_parser,
                                               std::string_view chat_template);

// One answer that is being parsed. [one thread at a time]
class ParsedAnswer {
 public:
  ParsedAnswer(const Tokenizer& tokenizer, const std::unordered_set<int32_t>* skipped,
               DecodeOptions options, std::unique_ptr<ChatParser> parser);

  // Returns what the next ids add. If `num_reasoning` is not null, the number of ids that belong to
  // the reasoning, with its markers, is added to it. The object must not be used after the final
  // ids.
  AnswerDelta Push(std::span<const int32_t> ids, bool is_final, int32_t* num_reasoning = nullptr);

 private:
  void PushIds(std::span<const int32_t> ids, AnswerDelta& delta);

  IncrementalDecoder decoder_;
  const std::unordered_set<int32_t>* skipped_;  // special ids that are no markers; null: none
  const std::unique_ptr<ChatParser> parser_;
};

// How the answers of a model are parsed. Immutable. [any thread]
class AnswerParsing {
 public:
  AnswerParsing(std::shared_ptr<const Tokenizer> tokenizer, const ParserFamily& family);

  // `options.skip_special_tokens` drops all special tokens but the markers of the family. The
  // object must outlive the answer.
  std::unique_ptr<ParsedAnswer> Begin(const ParserOptions& parser_options,
                                      const DecodeOptions& options) const;
  const ParserFamily& family() const { return family_; }

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const ParserFamily& family_;
  std::unordered_set<int32_t> skipped_;
};

}  // namespace nereid::tokenizer
