// Hashes first tokens to groups of places, and searches in them.
#include "backends/llm_core/speculation/ngram_pool.h"

#include <algorithm>
#include <bit>

namespace nereid::llm {
namespace {

constexpr int32_t kMinGroupSize = 16;

}  // namespace

NgramPool::NgramPool(int32_t ngram_size, int32_t max_found)
    : ngram_size_(ngram_size),
      group_size_(std::max(kMinGroupSize,
                           static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(max_found))))) {
  const size_t bytes_of_ngram = ngram_size_ * sizeof(int32_t) + sizeof(uint64_t);
  const auto fitting = static_cast<uint32_t>(kMaxBytes / bytes_of_ngram);
  const auto capacity = std::min(kMaxNgrams, static_cast<int32_t>(std::bit_floor(fitting)));
  num_groups_ = std::max(1, capacity / group_size_);
}

int32_t NgramPool::FirstPlace(int32_t token) const {
  const uint64_t hash = static_cast<uint32_t>(token) * 0x9e3779b97f4a7c15u;
  return static_cast<int32_t>(hash >> 40) % num_groups_ * group_size_;
}

void NgramPool::Insert(std::span<const int32_t> ngram) {
  if (seen_.empty()) {
    seen_.assign(capacity(), 0);
    tokens_.resize(static_cast<size_t>(capacity()) * ngram_size_);
  }
  const int32_t first = FirstPlace(ngram.front());
  int32_t place = first;
  for (int32_t i = first; i < first + group_size_; ++i) {
    if (seen_[i] > 0 && std::ranges::equal(NgramAt(i), ngram)) {
      place = i;
      break;
    }
    if (seen_[i] < seen_[place]) place = i;
  }
  seen_[place] = ++num_inserted_;
  std::ranges::copy(ngram, tokens_.begin() + static_cast<ptrdiff_t>(place * ngram_size_));
}

void NgramPool::Find(int32_t first, int32_t most,
                     std::vector<std::span<const int32_t>>& found) const {
  found.clear();
  if (seen_.empty()) return;
  const int32_t begin = FirstPlace(first);
  for (int32_t i = begin; i < begin + group_size_; ++i) {
    if (seen_[i] > 0 && NgramAt(i).front() == first) found.push_back(NgramAt(i));
  }
  const auto seen = [&](std::span<const int32_t> ngram) {
    return seen_[(ngram.data() - tokens_.data()) / static_cast<ptrdiff_t>(ngram_size_)];
  };
  std::ranges::sort(found, [&](const auto& a, const auto& b) { return seen(a) > seen(b); });
  if (static_cast<int32_t>(found.size()) > most) found.resize(most);
  for (std::span<const int32_t>& ngram : found) ngram = ngram.subspan(1);
}

}  // namespace nereid::llm
