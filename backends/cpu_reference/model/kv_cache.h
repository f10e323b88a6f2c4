// The paged KV cache in host memory. The address range is reserved as a whole; pages are allocated
// when blocks are first written. Optionally stores one byte per element; blocks are then decoded
// for each use. [engine thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backends/cpu_reference/model/kv_format.h"
#include "backends/cpu_reference/ops/kv_cache_view.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "nereid/status.h"

namespace nereid::cpu {

class KvCache {
 public:
  // `num_spare_blocks` further ones are behind the last block, and belong to no sequence.
  static Result<KvCache> Allocate(const llm::DecoderSpec& spec, int32_t num_blocks,
                                  KvFormat format = KvFormat::kFloat, int32_t num_spare_blocks = 0);
  // Bytes of one block over all layers.
  static int64_t BlockBytes(const llm::DecoderSpec& spec, KvFormat format = KvFormat::kFloat);

  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&&) = delete;
  ~KvCache();

  bool is_encoded() const { return format_ != KvFormat::kFloat; }
  int64_t size_bytes() const { return size_bytes_; }
  int32_t first_spare_block() const { return num_blocks_ - num_spare_blocks_; }
  // The view of a layer; for a cache of floats only.
  KvCacheView Layer(int32_t layer) const;
  // Copies keys and values of all layers.
  void CopyBlock(int32_t from, int32_t to) const;
  // Copies key and value of one token in all layers.
  void CopyToken(int32_t from_block, int32_t from_index, int32_t to_block, int32_t to_index) const;

  // Copies keys and values of all layers to or from [block_bytes()]. [any thread]
  int64_t block_bytes() const { return size_bytes_ / num_blocks_; }
  void ReadBlock(int32_t block, std::span<std::byte> to) const;
  void WriteBlock(int32_t block, std::span<const std::byte> from) const;

  // --- encoded cache ---
  // Encodes key and value [head_dim] of one token. [any thread; one thread per head]
  void Encode(int32_t layer, int32_t block, int32_t head, int32_t index, const float* key,
              const float* value) const;
  // The same for consecutive tokens of a sequence. `keys` and `values` [num_tokens, heads,
  // head_dim] of all heads.
  void EncodeTokens(int32_t layer, int32_t head, const int32_t* block_table, int32_t first_position,
                    int32_t num_tokens, const float* keys, const float* values) const;
  // Decodes the block of one head to block `to` of `view`, which has one head. [any thread]
  void Decode(int32_t layer, int32_t block, int32_t head, const KvCacheView& view,
              int32_t to) const;
  // A view of one head over `floats`, which has space for `num_blocks` blocks.
  KvCacheView DecodedView(float* floats, int64_t num_blocks) const;
  int64_t decoded_block_floats() const {
    return layout_.key_block_size() + layout_.value_block_size();
  }

 private:
  KvCache() = default;
  // Returns the contiguous parts of memory that together hold a block, in a fixed order.
  std::vector<std::span<std::byte>> RunsOf(int32_t block) const;
  // One token of one head: two scales, then the codes of key and value.
  uint8_t* Entry(int32_t layer, int32_t block, int32_t head, int32_t index) const;

  KvFormat format_ = KvFormat::kFloat;
  KvCacheView layout_;  // without pointers
  int32_t num_layers_ = 0;
  int32_t num_blocks_ = 0;  // spare ones included
  int32_t num_spare_blocks_ = 0;
  uint8_t* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

}  // namespace nereid::cpu
