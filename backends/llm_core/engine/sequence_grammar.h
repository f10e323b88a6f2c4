// Where the output of a sequence is in the grammar of its request, and the mask of its next token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/llm_core/grammar/matcher.h"
#include "backends/llm_core/sampling/sampling_params.h"
#include "nereid/status.h"

namespace nereid::llm {

// [one thread at a time: the engine's, or a thread of MaskThreads during a step]
class SequenceGrammar {
 public:
  // `end_ids`: of the request, borrowed. They, and no other ids, end its sequences.
  SequenceGrammar(std::shared_ptr<const grammar::Grammar> grammar, const TokenIds& end_ids);

  // Appends a token that is not an end id. An error means that the grammar does not allow it, or
  // that following the text exceeds a limit.
  Status Accept(int32_t token);
  // Whether the text may end, and whether it has no continuation.
  bool CanEnd() const { return matcher_.CanEnd(); }
  bool MustEnd() const { return matcher_.MustEnd(); }
  // Computes mask() for the next token, unless it is known from an earlier step.
  void ComputeMask();
  // As a row of BatchEntry::token_masks. Its address never changes.
  std::span<const uint32_t> mask() const { return mask_; }
  // An error if a limit was exceeded. No token is allowed then.
  const Status& status() const { return matcher_.status(); }

 private:
  void SetBit(int32_t id, bool is_set);

  grammar::Matcher matcher_;
  const TokenIds& end_ids_;
  std::vector<uint32_t> mask_;
  bool is_mask_current_ = false;
};

}  // namespace nereid::llm
