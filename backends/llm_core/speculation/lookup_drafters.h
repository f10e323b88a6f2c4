/// \file
/// Drafters without weights: they propose what followed earlier occurrences of the sequence's last
/// tokens in its prompt and answer. [engine thread]
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "backends/llm_core/speculation/drafter.h"
#include "backends/llm_core/speculation/method.h"
#include "backends/llm_core/speculation/token_matches.h"

namespace nereid::llm {

/// Proposes the tokens behind the newest occurrence of the last kLongest tokens, or of fewer, down
/// to kShortest.
class NgramDrafter : public Drafter {
 public:
  static constexpr int32_t kLongest = 4;
  static constexpr int32_t kShortest = 2;

  std::string_view name() const override { return "ngram"; }
  bool reads_virtual_tokens() const override { return true; }
  void Propose(std::span<DraftQuery> queries) override;

 private:
  std::vector<TokenMatch> matches_;  // scratch memory
};

/// Compares many occurrences, prefers those that share the longest run of tokens with the end of
/// the sequence, and proposes in turn the token that most of them continue with. A proposal ends
/// where they disagree, and it is no longer than twice the run that they share.
class SuffixDrafter : public Drafter {
 public:
  std::string_view name() const override { return "suffix"; }
  bool reads_virtual_tokens() const override { return true; }
  void Propose(std::span<DraftQuery> queries) override;

 private:
  // The token that most of `candidates_` have at `offset` behind their run, with the part of the
  // weight that agrees with it; -1 if none has one.
  int32_t Vote(const DraftQuery& query, int32_t offset, float& agreement);

  std::vector<TokenMatch> candidates_;  // scratch memory
  std::vector<std::pair<int32_t, float>> votes_;
};

/// The drafter of a method without weights. Requires that there is one: not "off".
std::shared_ptr<Drafter> MakeLookupDrafter(const SpeculationMethod& method);

}  // namespace nereid::llm
