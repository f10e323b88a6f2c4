/// \file
/// The n-grams that lookahead decoding has seen in one sequence. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nereid::llm {

/// A bounded set of n-grams of one length, which are found by their first token. That token
/// determines the group of places that an n-gram may take. A new n-gram takes a free place of its
/// group, or that of the n-gram there that was not seen for the longest time.
class NgramPool {
 public:
  static constexpr int32_t kMaxNgrams = 4096;
  static constexpr size_t kMaxBytes = size_t{128} << 10;

  /// `ngram_size`: tokens of an n-gram, 2 to 129. `max_found`: the most that Find is asked for, up
  /// to 127.
  NgramPool(int32_t ngram_size, int32_t max_found);

  /// Adds an n-gram, or makes it the newest one if the pool has it.
  void Insert(std::span<const int32_t> ngram);
  /// Stores up to `most` n-grams that begin with `first` in `found`, newest first, each without
  /// `first`. They are valid until the next Insert.
  void Find(int32_t first, int32_t most, std::vector<std::span<const int32_t>>& found) const;

  int32_t ngram_size() const { return static_cast<int32_t>(ngram_size_); }
  int32_t capacity() const { return num_groups_ * group_size_; }

 private:
  int32_t FirstPlace(int32_t token) const;
  std::span<const int32_t> NgramAt(int32_t place) const {
    return std::span(tokens_).subspan(static_cast<size_t>(place) * ngram_size_, ngram_size_);
  }

  size_t ngram_size_;
  int32_t group_size_;
  int32_t num_groups_;
  uint64_t num_inserted_ = 0;
  std::vector<uint64_t> seen_;   // by place: the last insertion of its n-gram; 0: the place is free
  std::vector<int32_t> tokens_;  // [places, ngram_size]
};

}  // namespace nereid::llm
