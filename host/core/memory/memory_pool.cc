#include "host/core/memory/memory_pool.h"

#include <algorithm>
#include <iterator>

namespace nereid::core {
namespace {

constexpr size_t kAlignment = 256;

}  // namespace

MemoryPool::MemoryPool(void* base, size_t size_bytes)
    : base_(static_cast<char*>(base)), size_bytes_(size_bytes) {
  if (size_bytes > 0) free_[0] = size_bytes;
}

void* MemoryPool::Allocate(size_t byte_size) {
  if (byte_size > size_bytes_) return nullptr;
  const std::lock_guard lock(mutex_);
  const size_t rounded =
      (std::max<size_t>(byte_size, 1) + kAlignment - 1) / kAlignment * kAlignment;
  const auto block =
      std::find_if(free_.begin(), free_.end(), [&](const auto& f) { return f.second >= rounded; });
  if (block == free_.end()) return nullptr;
  const auto [offset, block_bytes] = *block;
  free_.erase(block);
  if (block_bytes > rounded) free_[offset + rounded] = block_bytes - rounded;
  allocated_[offset] = rounded;
  used_bytes_ += rounded;
  return base_ + offset;
}

bool MemoryPool::Free(void* buffer) {
  const auto distance = reinterpret_cast<uintptr_t>(buffer) - reinterpret_cast<uintptr_t>(base_);
  const std::lock_guard lock(mutex_);
  const auto found = allocated_.find(distance);
  if (found == allocated_.end()) return false;
  size_t offset = found->first;
  size_t byte_size = found->second;
  allocated_.erase(found);
  used_bytes_ -= byte_size;
  const auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      byte_size += before->second;
      free_.erase(before);
    }
  }
  if (next != free_.end() && offset + byte_size == next->first) {
    byte_size += next->second;
    free_.erase(next);
  }
  free_[offset] = byte_size;
  return true;
}

size_t MemoryPool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace nereid::core
