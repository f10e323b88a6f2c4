// The n-gram and the suffix drafter.
#include "backends/llm_core/speculation/lookup_drafters.h"

#include <algorithm>

namespace nereid::llm {
namespace {

constexpr int32_t kMaxCandidates = 16;
constexpr float kLeastAgreement = 0.55f;

struct LookupState : DrafterState {
  TokenMatches matches;
};

const TokenMatches& UpdatedMatches(const DraftQuery& query) {
  if (*query.state == nullptr) *query.state = std::make_unique<LookupState>();
  TokenMatches& matches = static_cast<LookupState&>(**query.state).matches;
  matches.Update(query.tokens);
  return matches;
}

// Longer runs are continued more often.
int32_t MatchClass(int32_t length) {
  return length >= 12 ? 3 : length >= 6 ? 2 : length >= 3 ? 1 : 0;
}

}  // namespace

void NgramDrafter::Propose(std::span<DraftQuery> queries) {
  for (DraftQuery& query : queries) {
    UpdatedMatches(query).Find(query.tokens, kShortest, kMaxCandidates, matches_);
    if (matches_.empty()) continue;
    const auto capped = [](const TokenMatch& match) { return std::min(match.length, kLongest); };
    // The first of the greatest is the newest.
    const TokenMatch& best = *std::max_element(
        matches_.begin(), matches_.end(),
        [&](const TokenMatch& a, const TokenMatch& b) { return capped(a) < capped(b); });
    const std::span<const int32_t> behind = query.tokens.subspan(best.next);
    const auto count = std::min<size_t>(behind.size(), query.max_drafts);
    query.drafts->assign(behind.begin(), behind.begin() + static_cast<ptrdiff_t>(count));
    query.match_class = MatchClass(best.length);
  }
}

void SuffixDrafter::Propose(std::span<DraftQuery> queries) {
  for (DraftQuery& query : queries) {
    UpdatedMatches(query).Find(query.tokens, 2, kMaxCandidates, candidates_);
    if (candidates_.empty()) continue;
    int32_t longest = 0;
    for (const TokenMatch& match : candidates_) longest = std::max(longest, match.length);
    // Runs of less than half the greatest length are another context.
    std::erase_if(candidates_, [&](const TokenMatch& match) { return 2 * match.length < longest; });
    const int32_t most = std::min(query.max_drafts, 2 * longest);
    float reached = 1.0f;  // the part of the weight that agrees with all tokens so far
    for (int32_t offset = 0; offset < most; ++offset) {
      float agreement = 0.0f;
      const int32_t token = Vote(query, offset, agreement);
      reached *= agreement;
      if (token < 0 || reached < kLeastAgreement) break;
      query.drafts->push_back(token);
      std::erase_if(candidates_, [&](const TokenMatch& match) {
        const auto at = static_cast<size_t>(match.next) + offset;
        return at >= query.tokens.size() || query.tokens[at] != token;
      });
    }
    query.match_class = MatchClass(longest);
  }
}

int32_t SuffixDrafter::Vote(const DraftQuery& query, int32_t offset, float& agreement) {
  votes_.clear();
  float total = 0.0f;
  for (const TokenMatch& match : candidates_) {
    const auto at = static_cast<size_t>(match.next) + offset;
    if (at >= query.tokens.size()) continue;
    const auto weight = static_cast<float>(match.length * match.length);
    total += weight;
    const auto same = [&](const auto& vote) { return vote.first == query.tokens[at]; };
    const auto found = std::find_if(votes_.begin(), votes_.end(), same);
    if (found == votes_.end()) {
      votes_.emplace_back(query.tokens[at], weight);
    } else {
      found->second += weight;
    }
  }
  if (votes_.empty()) return -1;
  const auto most =
      std::max_element(votes_.begin(), votes_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  agreement = most->second / total;
  return most->first;
}

std::shared_ptr<Drafter> MakeLookupDrafter(const SpeculationMethod& method) {
  if (method.kind == DrafterKind::kNgram) return std::make_shared<NgramDrafter>();
  return std::make_shared<SuffixDrafter>();
}

}  // namespace nereid::llm
