// Addresses within the memory, which holds keys and values layer by layer.
#include "backends/cpu_reference/model/kv_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "backends/cpu_reference/model/tree_attention.h"

namespace nereid::cpu {
namespace {

KvCacheView LayoutOf(const llm::DecoderSpec& spec) {
  KvCacheView layout;
  layout.num_kv_heads = spec.num_kv_heads;
  layout.head_dim = spec.head_dim;
  layout.value_size = (spec.head_dim + 15) / 16 * 16;
  return layout;
}

// Two scales, key and value. Rounded up so that the next entry's scales are aligned.
int64_t EntryBytes(const KvCacheView& layout) {
  return (2 * static_cast<int64_t>(sizeof(float)) + 2 * layout.head_dim + 3) / 4 * 4;
}

// Size of one block of one layer.
int64_t LayerBlockBytes(const KvCacheView& layout, KvFormat format) {
  if (format != KvFormat::kFloat) return EntryBytes(layout) * kBlockSize * layout.num_kv_heads;
  return (layout.key_block_size() + layout.value_block_size()) * layout.num_kv_heads *
         static_cast<int64_t>(sizeof(float));
}

}  // namespace

int64_t KvCache::BlockBytes(const llm::DecoderSpec& spec, KvFormat format) {
  return LayerBlockBytes(LayoutOf(spec), format) * spec.num_layers();
}

Result<KvCache> KvCache::Allocate(const llm::DecoderSpec& spec, int32_t num_blocks, KvFormat format,
                                  int32_t num_spare_blocks) {
  KvCache cache;
  num_blocks += num_spare_blocks;
  cache.format_ = format;
  cache.layout_ = LayoutOf(spec);
  cache.num_layers_ = spec.num_layers();
  cache.num_blocks_ = num_blocks;
  cache.num_spare_blocks_ = num_spare_blocks;
  cache.size_bytes_ = BlockBytes(spec, format) * num_blocks;
  void* data = ::mmap(nullptr, cache.size_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return UnavailableError("cannot allocate a KV cache of ", num_blocks, " blocks x ",
                            BlockBytes(spec, format), " bytes = ", cache.size_bytes_,
                            " bytes: ", std::strerror(errno));
  }
  cache.data_ = static_cast<uint8_t*>(data);
  return cache;
}

KvCache::KvCache(KvCache&& other) noexcept
    : format_(other.format_),
      layout_(other.layout_),
      num_layers_(other.num_layers_),
      num_blocks_(other.num_blocks_),
      num_spare_blocks_(other.num_spare_blocks_),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(other.size_bytes_) {}

KvCache::~KvCache() {
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
}

KvCacheView KvCache::Layer(int32_t layer) const {
  KvCacheView view = layout_;
  const int64_t keys = layout_.key_block_size() * layout_.num_kv_heads * num_blocks_;
  view.keys =
      reinterpret_cast<float*>(data_ + layer * LayerBlockBytes(layout_, format_) * num_blocks_);
  view.values = view.keys + keys;
  return view;
}

std::vector<std::span<std::byte>> KvCache::RunsOf(int32_t block) const {
  std::vector<std::span<std::byte>> runs;
  const auto add = [&](void* data, int64_t num_bytes) {
    runs.emplace_back(static_cast<std::byte*>(data), static_cast<size_t>(num_bytes));
  };
  constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));
  for (int32_t layer = 0; layer < num_layers_; ++layer) {
    if (is_encoded()) {
      add(Entry(layer, block, 0, 0), LayerBlockBytes(layout_, format_));
      continue;
    }
    const KvCacheView view = Layer(layer);
    add(view.KeyBlock(block, 0), layout_.key_block_size() * layout_.num_kv_heads * kFloatBytes);
    add(view.ValueBlock(block, 0), layout_.value_block_size() * layout_.num_kv_heads * kFloatBytes);
  }
  return runs;
}

void KvCache::CopyBlock(int32_t from, int32_t to) const {
  const std::vector<std::span<std::byte>> source = RunsOf(from), target = RunsOf(to);
  for (size_t i = 0; i < source.size(); ++i)
    std::copy(source[i].begin(), source[i].end(), target[i].begin());
}

void KvCache::CopyToken(int32_t from_block, int32_t from_index, int32_t to_block,
                        int32_t to_index) const {
  for (int32_t layer = 0; layer < num_layers_; ++layer) {
    for (int32_t head = 0; head < layout_.num_kv_heads; ++head) {
      if (is_encoded()) {
        std::copy_n(Entry(layer, from_block, head, from_index), EntryBytes(layout_),
                    Entry(layer, to_block, head, to_index));
      } else {
        cpu::CopyToken(Layer(layer), head, from_block, from_index, to_block, to_index);
      }
    }
  }
}

void KvCache::ReadBlock(int32_t block, std::span<std::byte> to) const {
  for (const std::span<std::byte> run : RunsOf(block)) {
    std::copy(run.begin(), run.end(), to.begin());
    to = to.subspan(run.size());
  }
}

void KvCache::WriteBlock(int32_t block, std::span<const std::byte> from) const {
  for (const std::span<std::byte> run : RunsOf(block)) {
    std::copy_n(from.begin(), run.size(), run.begin());
    from = from.subspan(run.size());
  }
}

uint8_t* KvCache::Entry(int32_t layer, int32_t block, int32_t head, int32_t index) const {
  const int64_t blocks = int64_t{layer} * num_blocks_ + block;
  const int64_t tokens = (blocks * layout_.num_kv_heads + head) * kBlockSize + index;
  return data_ + tokens * EntryBytes(layout_);
}

void KvCache::Encode(int32_t layer, int32_t block, int32_t head, int32_t index, const float* key,
                     const float* value) const {
  uint8_t* entry = Entry(layer, block, head, index);
  auto* scales = reinterpret_cast<float*>(entry);
  uint8_t* codes = entry + 2 * sizeof(float);
  EncodeKv(format_, key, layout_.head_dim, codes, scales[0]);
  EncodeKv(format_, value, layout_.head_dim, codes + layout_.head_dim, scales[1]);
}

void KvCache::EncodeTokens(int32_t layer, int32_t head, const int32_t* block_table,
                           int32_t first_position, int32_t num_tokens, const float* keys,
                           const float* values) const {
  for (int32_t token = 0; token < num_tokens; ++token) {
    const int32_t position = first_position + token;
    const int64_t from = (int64_t{token} * layout_.num_kv_heads + head) * layout_.head_dim;
    Encode(layer, block_table[position / kBlockSize], head, position % kBlockSize, keys + from,
           values + from);
  }
}

void KvCache::Decode(int32_t layer, int32_t block, int32_t head, const KvCacheView& view,
                     int32_t to) const {
  for (int32_t index = 0; index < kBlockSize; ++index) {
    const uint8_t* entry = Entry(layer, block, head, index);
    const auto* scales = reinterpret_cast<const float*>(entry);
    const uint8_t* codes = entry + 2 * sizeof(float);
    DecodeKv(format_, codes, scales[0], layout_.head_dim, view.KeyBlock(to, 0) + index, kBlockSize);
    DecodeKv(format_, codes + layout_.head_dim, scales[1], layout_.head_dim,
             view.ValueBlock(to, 0) + int64_t{index} * layout_.value_size, 1);
  }
}

KvCacheView KvCache::DecodedView(float* floats, int64_t num_blocks) const {
  KvCacheView view = layout_;
  view.num_kv_heads = 1;
  view.keys = floats;
  view.values = floats + layout_.key_block_size() * num_blocks;
  return view;
}

}  // namespace nereid::cpu
