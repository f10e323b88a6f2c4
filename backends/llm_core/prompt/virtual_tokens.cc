// See virtual_tokens.h.
#include "backends/llm_core/prompt/virtual_tokens.h"

#include <random>
#include <utility>
#include <vector>

#include "base/blake2b.h"

namespace nereid::llm {
namespace {

uint64_t RandomKey() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) | 1;
}

// A cryptographic hash, so that no client can construct a row with the cached prefixes of another
// one.
std::string DigestOf(const PromptEmbeddings& embeddings, int32_t row) {
  Blake2b hash;
  const std::span<const float> values = embeddings.Row(row);
  const uint64_t extra_id = embeddings.extra_ids[row];
  hash.Add(embeddings.is_table ? "t" : "e");
  hash.Add(&extra_id, sizeof(extra_id));
  hash.Add(values.data(), values.size_bytes());
  return hash.HexDigest();
}

}  // namespace

VirtualTokens::VirtualTokens(int32_t vocab_size, int64_t end)
    : vocab_size_(vocab_size), end_(end), cache_key_(RandomKey()), next_(vocab_size) {}

void VirtualTokens::Assign(PromptEmbeddings& embeddings) {
  std::vector<std::string> digests;
  for (int32_t row = 0; row < embeddings.num_rows(); ++row) {
    digests.push_back(DigestOf(embeddings, row));
  }
  const std::lock_guard lock(mutex_);
  if (next_ + static_cast<int64_t>(digests.size()) > end_) {
    cache_key_ = RandomKey();
    next_ = vocab_size_;
    recent_.clear();
    older_.clear();
  }
  embeddings.ids.clear();
  for (const std::string& digest : digests) embeddings.ids.push_back(NumberOf(digest));
  embeddings.cache_key = cache_key_;
  if (recent_.size() < kMaxRemembered / 2) return;
  older_ = std::move(recent_);
  recent_.clear();
}

int32_t VirtualTokens::NumberOf(const std::string& digest) {
  if (const auto known = recent_.find(digest); known != recent_.end()) return known->second;
  const auto old = older_.find(digest);
  const int32_t number = old != older_.end() ? old->second : static_cast<int32_t>(next_++);
  recent_.emplace(digest, number);
  return number;
}

}  // namespace nereid::llm
