// A text that a draft model and a target model generate in turn: the draft model proposes the next
// tokens, and the target model verifies them in one call and adds its own next one. Knows tokens
// only; DraftedEngine calls the models. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nereid::bls {

using TokenIds = std::vector<int32_t>;

class DraftedText {
 public:
  // `max_tokens` and `num_draft_tokens` are at least 1. `overlap` is the number of newest tokens
  // that the target model verifies again, so that it notices stop words that begin in one call and
  // end in the next.
  DraftedText(TokenIds prompt, int32_t max_tokens, int32_t num_draft_tokens, int32_t overlap);

  // How many tokens the draft model shall propose now; 0: none is needed.
  int32_t NumToDraft() const;
  // Prompt and output so far: the prompt of the draft model.
  const TokenIds& ids() const { return ids_; }
  std::span<const int32_t> output() const { return std::span(ids_).subspan(num_prompt_); }

  // The next call of the target model with what the draft model proposed, which may be nothing.
  void BeginCall(std::span<const int32_t> proposed);
  // Its prompt, its draft tokens, the number of tokens that it shall generate, and how many tokens
  // of the output are part of its prompt.
  std::span<const int32_t> call_prompt() const { return std::span(ids_).first(num_call_prompt_); }
  const TokenIds& call_draft() const { return call_draft_; }
  int32_t call_length() const { return static_cast<int32_t>(call_draft_.size()) + 1; }
  size_t num_output_in_prompt() const { return num_call_prompt_ - num_prompt_; }

  // Takes what the target model generated in the call. Returns whether the text goes on: a shorter
  // output than was asked for ended by itself.
  bool EndCall(std::span<const int32_t> generated);

  int64_t num_proposed() const { return num_proposed_; }
  int64_t num_accepted() const { return num_accepted_; }

 private:
  size_t NumLeft() const { return num_prompt_ + max_tokens_ - ids_.size(); }

  const size_t num_prompt_;
  const size_t max_tokens_;
  const size_t num_draft_tokens_;
  const size_t overlap_;
  TokenIds ids_;
  size_t num_call_prompt_;
  TokenIds call_draft_;  // the overlap, then what was proposed
  int64_t num_proposed_ = 0, num_accepted_ = 0;
};

}  // namespace nereid::bls
