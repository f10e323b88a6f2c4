#include "host/core/memory/memory_pool.h"

#include <algorithm>
#include <iterator>

namespace nereid {
namespace {

constexpr size_t kAlignment = 256;

}  // namespace

MemoryPool::MemoryPool(void* base, size_t size_bytes)
    : base_(static_cast<char*>(base)), size_bytes_(size_bytes) {
  if (size_bytes > 0) gaps_[0] = size_bytes;
}

void* MemoryPool::Allocate(size_t byte_size) {
  if (byte_size > size_bytes_) return nullptr;
  const std::lock_guard lock(mutex_);
  const size_t wanted = (std::max<size_t>(byte_size, 1) + kAlignment - 1) / kAlignment * kAlignment;
  const auto gap =
      std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& g) { return g.second >= wanted; });
  if (gap == gaps_.end()) return nullptr;
  const auto [offset, gap_bytes] = *gap;
  gaps_.erase(gap);
  if (gap_bytes > wanted) gaps_[offset + wanted] = gap_bytes - wanted;
  taken_[offset] = wanted;
  used_bytes_ += wanted;
  return base_ + offset;
}

bool MemoryPool::Free(void* buffer) {
  const auto distance = reinterpret_cast<uintptr_t>(buffer) - reinterpret_cast<uintptr_t>(base_);
  const std::lock_guard lock(mutex_);
  const auto found = taken_.find(distance);
  if (found == taken_.end()) return false;
  size_t offset = found->first;
  size_t byte_size = found->second;
  taken_.erase(found);
  used_bytes_ -= byte_size;
  const auto next = gaps_.lower_bound(offset);
  if (next != gaps_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      byte_size += before->second;
      gaps_.erase(before);
    }
  }
  if (next != gaps_.end() && offset + byte_size == next->first) {
    byte_size += next->second;
    gaps_.erase(next);
  }
  gaps_[offset] = byte_size;
  return true;
}

size_t MemoryPool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace nereid
