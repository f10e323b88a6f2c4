// Writes the parts of an answer that a parser has recognised into its deltas: numbers the calls,
// makes their ids, and removes the markers around the content and the white space between the
// parts. [one thread at a time]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backends/tokenizer/lib/chat/parsers/chat_parser.h"
#include "backends/tokenizer/lib/chat/parsers/text_input.h"

namespace nereid::tokenizer::parsers {

enum class CallIdStyle {
  kPrefixed,       // "call_" and 24 hexadecimal digits
  kNineCharacters  // what Mistral's templates require
};

class AnswerWriter {
 public:
  // `options` gives the seed of ids, and whether calls can follow, so that white space before them
  // is held back. `wrappers` are dropped where the content contains them; arguments may contain
  // them. Their texts outlive the writer.
  AnswerWriter(const ParserOptions& options, CallIdStyle id_style, Markers wrappers = {})
      : id_seed_(options.id_seed),
        expects_calls_(options.tools != nullptr),
        id_style_(id_style),
        wrappers_(wrappers) {}

  // Sets where the following calls write to.
  void SetTarget(AnswerDelta& delta) { delta_ = &delta; }

  // White space at both ends of a stretch of reasoning is dropped.
  void Reasoning(std::string_view text);
  void EndReasoning();
  // White space after reasoning and around calls is dropped, unless content follows on both sides.
  void Content(std::string_view text);
  // Begins a call. `id` may be empty.
  void BeginCall(std::string_view name, std::string_view id = {});
  void Arguments(std::string_view json);
  void EndCall();
  // Ends the answer.
  void Finish();

 private:
  void WriteContent(std::string_view text);
  // Writes content that was held back, because it might have been the beginning of a wrapper.
  void WriteHeldContent();
  std::string MakeId() const;

  const uint64_t id_seed_;
  const bool expects_calls_;
  const CallIdStyle id_style_;
  const Markers wrappers_;
  TextInput content_;  // if there are wrappers: content that is not written
  AnswerDelta* delta_ = nullptr;
  size_t num_calls_ = 0;
  bool has_arguments_ = false;  // of the current call
  bool has_reasoning_ = false;  // some was written
  bool skips_space_ = false;    // at the beginning of the next content
  bool begins_reasoning_ = true;
  std::string reasoning_space_, content_space_;  // white space that is held back
};

}  // namespace nereid::tokenizer::parsers
