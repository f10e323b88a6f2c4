// Chains of equal pairs of tokens.
#include "backends/llm_core/speculation/token_matches.h"

#include <algorithm>
#include <bit>

namespace nereid::llm {
namespace {

constexpr int32_t kMinCapacity = 256;
// Pairs of a chain that one search looks at.
constexpr int32_t kMaxVisits = 128;

}  // namespace

uint32_t TokenMatches::Bucket(int32_t first, int32_t second) const {
  uint64_t hash =
      (static_cast<uint64_t>(static_cast<uint32_t>(first)) << 32) | static_cast<uint32_t>(second);
  hash *= 0x9e3779b97f4a7c15u;
  return static_cast<uint32_t>(hash >> 33) & (static_cast<uint32_t>(newest_.size()) - 1);
}

// The index is built again at twice the size, at most kMaxTokens.
void TokenMatches::Grow(int32_t num_tokens) {
  const auto capacity =
      std::clamp<int32_t>(static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(num_tokens))),
                          kMinCapacity, kMaxTokens);
  if (static_cast<int32_t>(newest_.size()) >= capacity) return;
  newest_.assign(capacity, -1);
  previous_.assign(capacity, -1);
  num_indexed_ = 0;
}

void TokenMatches::Update(std::span<const int32_t> tokens) {
  const auto num_tokens = static_cast<int32_t>(tokens.size());
  Grow(num_tokens);
  const auto capacity = static_cast<int32_t>(previous_.size());
  int32_t from = std::max({1, num_indexed_, num_tokens - capacity});
  const int32_t end = std::min(num_tokens, from + kMaxTokensAtOnce);
  for (; from < end; ++from) {
    int32_t& newest = newest_[Bucket(tokens[from - 1], tokens[from])];
    previous_[from & (capacity - 1)] = newest;
    newest = from;
  }
  num_indexed_ = end;
}

void TokenMatches::Find(std::span<const int32_t> tokens, int32_t min_length, int32_t max_matches,
                        std::vector<TokenMatch>& matches) const {
  matches.clear();
  const auto num_tokens = static_cast<int32_t>(tokens.size());
  if (num_tokens < 2 || newest_.empty()) return;
  const auto capacity = static_cast<int32_t>(previous_.size());
  const int32_t last = num_tokens - 1;
  int32_t at = newest_[Bucket(tokens[last - 1], tokens[last])];
  for (int32_t visits = 0; visits < kMaxVisits && at >= 0; ++visits) {
    if (at != last) {
      const int32_t most = std::min({kMaxLength, at + 1, num_tokens});
      int32_t length = 0;
      while (length < most && tokens[at - length] == tokens[last - length]) ++length;
      if (length >= min_length) {
        matches.push_back({at + 1, length});
        if (static_cast<int32_t>(matches.size()) == max_matches) return;
      }
    }
    const int32_t before = previous_[at & (capacity - 1)];
    if (before >= at || before <= last - capacity) return;  // replaced by a later pair
    at = before;
  }
}

}  // namespace nereid::llm
