// The paged KV cache in host memory: reserved whole, backed by pages as blocks are first written.
// [engine thread]
#pragma once

#include <cstdint>

#include "cpu_reference/ops/kv_cache_view.h"
#include "llm_core/model/decoder_spec.h"
#include "nereid/status.h"

namespace nereid::cpu {

class KvCache {
 public:
  static Result<KvCache> Allocate(const llm::DecoderSpec& spec, int32_t num_blocks);
  // Bytes of one block, all layers.
  static int64_t BlockBytes(const llm::DecoderSpec& spec);

  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&&) = delete;
  ~KvCache();

  int64_t size_bytes() const { return size_bytes_; }
  KvCacheView Layer(int32_t layer) const;
  // Keys and values of all layers.
  void CopyBlock(int32_t from, int32_t to) const;

 private:
  KvCache() = default;

  KvCacheView layout_;  // without addresses
  int32_t num_layers_ = 0;
  int32_t num_blocks_ = 0;
  float* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

}  // namespace nereid::cpu
