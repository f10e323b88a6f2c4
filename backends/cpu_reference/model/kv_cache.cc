// Anonymous memory for keys and values, layer after layer.
#include "cpu_reference/model/kv_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace nereid::cpu {
namespace {

KvCacheView LayoutOf(const llm::DecoderSpec& spec) {
  KvCacheView layout;
  layout.num_kv_heads = spec.num_kv_heads;
  layout.head_dim = spec.head_dim;
  layout.value_size = (spec.head_dim + 15) / 16 * 16;
  return layout;
}

int64_t LayerBlockFloats(const KvCacheView& layout) {
  return (layout.key_block_size() + layout.value_block_size()) * layout.num_kv_heads;
}

}  // namespace

int64_t KvCache::BlockBytes(const llm::DecoderSpec& spec) {
  return LayerBlockFloats(LayoutOf(spec)) * spec.num_layers() * static_cast<int64_t>(sizeof(float));
}

Result<KvCache> KvCache::Allocate(const llm::DecoderSpec& spec, int32_t num_blocks) {
  KvCache cache;
  cache.layout_ = LayoutOf(spec);
  cache.num_layers_ = spec.num_layers();
  cache.num_blocks_ = num_blocks;
  cache.size_bytes_ = BlockBytes(spec) * num_blocks;
  void* data = ::mmap(nullptr, cache.size_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return UnavailableError("cannot allocate a KV cache of ", num_blocks, " blocks x ",
                            BlockBytes(spec), " bytes = ", cache.size_bytes_,
                            " bytes: ", std::strerror(errno));
  }
  cache.data_ = static_cast<float*>(data);
  return cache;
}

KvCache::KvCache(KvCache&& other) noexcept
    : layout_(other.layout_),
      num_layers_(other.num_layers_),
      num_blocks_(other.num_blocks_),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(other.size_bytes_) {}

KvCache::~KvCache() {
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
}

KvCacheView KvCache::Layer(int32_t layer) const {
  KvCacheView view = layout_;
  const int64_t keys = layout_.key_block_size() * layout_.num_kv_heads * num_blocks_;
  view.keys = data_ + layer * LayerBlockFloats(layout_) * num_blocks_;
  view.values = view.keys + keys;
  return view;
}

void KvCache::CopyBlock(int32_t from, int32_t to) const {
  const int64_t keys = layout_.key_block_size() * layout_.num_kv_heads;
  const int64_t values = layout_.value_block_size() * layout_.num_kv_heads;
  for (int32_t layer = 0; layer < num_layers_; ++layer) {
    const KvCacheView view = Layer(layer);
    std::copy_n(view.KeyBlock(from, 0), keys, view.KeyBlock(to, 0));
    std::copy_n(view.ValueBlock(from, 0), values, view.ValueBlock(to, 0));
  }
}

}  // namespace nereid::cpu
