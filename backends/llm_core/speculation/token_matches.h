/// \file
/// Finds earlier occurrences of a sequence's last tokens in the sequence itself: the shared part of
/// the drafters that need no weights. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nereid::llm {

/// An earlier occurrence of the last tokens of a sequence.
struct TokenMatch {
  int32_t next = 0;    ///< index of the token that followed the occurrence
  int32_t length = 0;  ///< number of equal tokens before `next`, up to TokenMatches::kMaxLength
};

/// An index of the pairs of consecutive tokens. It takes 8 bytes a token, for kMaxTokens tokens at
/// most; the pairs of later tokens replace those of the oldest ones.
class TokenMatches {
 public:
  static constexpr int32_t kMaxLength = 32;
  static constexpr int32_t kMaxTokens = 1 << 16;
  /// Tokens that one Update adds at most, so that a long prompt does not delay a step.
  static constexpr int32_t kMaxTokensAtOnce = 4096;

  /// Adds the tokens that came since the last call. `tokens` only grow between the calls.
  void Update(std::span<const int32_t> tokens);
  /// Stores in `matches` up to `max_matches` earlier occurrences of the last `min_length` >= 2 or
  /// more tokens, newest first.
  void Find(std::span<const int32_t> tokens, int32_t min_length, int32_t max_matches,
            std::vector<TokenMatch>& matches) const;

 private:
  uint32_t Bucket(int32_t first, int32_t second) const;
  void Grow(int32_t num_tokens);

  std::vector<int32_t> newest_;    ///< by bucket: index of the newest pair's second token, or -1
  std::vector<int32_t> previous_;  ///< by index modulo its size: the pair before of that bucket
  int32_t num_indexed_ = 0;        ///< tokens whose pairs are in the index
};

}  // namespace nereid::llm
