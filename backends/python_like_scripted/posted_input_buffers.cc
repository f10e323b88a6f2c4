#include "backends/python_like_scripted/posted_input_buffers.h"

#include <algorithm>
#include <utility>

namespace nereid::python {

struct PostedInputBuffers::Posting {
  std::shared_ptr<PostedInputBuffers> posted_input_buffers;
  SharedBlock block;

  ~Posting() {
    if (block.mapping != nullptr) block.RemoveReader();
  }
};

PostedInputBuffers::PostedInputBuffers(uint64_t region_max_bytes)
    : max_bytes_(region_max_bytes == 0 ? kMaxBytes : 0) {}

PostedInputBuffers::Buffer PostedInputBuffers::Post(SharedRegion& region, uint64_t size_bytes) {
  if (size_bytes < kMinBlockBytes || size_bytes > kMaxBlockBytes) return {};
  std::lock_guard lock(mutex_);
  if (posted_.size() == kMaxBlocks || size_bytes > max_bytes_ - num_bytes_) return {};
  std::unique_ptr<Posting> posting(new Posting{shared_from_this(), {}});
  std::optional<SharedBlock> block = region.TryAllocate(size_bytes);
  if (!block.has_value()) return {};
  posting->block = std::move(*block);
  posting->block.AddReader();
  posting->block.Release();  // not yet passed to the worker
  // A worker that wrongly marks a posted block as free must not have it posted twice.
  const auto overlaps = [&](const auto& other) {
    return posting->block.offset <
               other.second.offset + other.second.size_bytes + kBlockHeaderBytes &&
           other.second.offset < posting->block.offset + size_bytes + kBlockHeaderBytes;
  };
  if (std::any_of(posted_.begin(), posted_.end(), overlaps)) return {};
  posted_.emplace(posting->block.data(), posting->block);
  num_bytes_ += size_bytes;
  std::byte* const base = posting->block.data();
  return {base, &Release, posting.release()};
}

std::optional<SharedBlock> PostedInputBuffers::Find(std::span<const std::byte> bytes) {
  std::lock_guard lock(mutex_);
  const auto next = posted_.upper_bound(bytes.data());
  if (next == posted_.begin()) return std::nullopt;
  const SharedBlock& block = std::prev(next)->second;
  const auto offset = static_cast<uint64_t>(bytes.data() - block.data());
  if (offset > block.size_bytes || bytes.size() > block.size_bytes - offset) return std::nullopt;
  return block;
}

void PostedInputBuffers::Release(void* posting) {
  const std::unique_ptr<Posting> ended(static_cast<Posting*>(posting));
  std::lock_guard lock(ended->posted_input_buffers->mutex_);
  ended->posted_input_buffers->posted_.erase(ended->block.data());
  ended->posted_input_buffers->num_bytes_ -= ended->block.size_bytes;
}

}  // namespace nereid::python
