#include "backends/python_like_scripted/offers.h"

#include <algorithm>
#include <utility>

namespace nereid::scripted {

struct Offers::Given {
  std::shared_ptr<Offers> offers;
  Block block;

  ~Given() {
    if (block.mapping != nullptr) block.DropReader();
  }
};

Offers::Offers(uint64_t region_max_bytes) : max_bytes_(region_max_bytes == 0 ? kMaxBytes : 0) {}

Offers::Offer Offers::Make(SharedRegion& region, uint64_t size_bytes) {
  if (size_bytes < kMinBlockBytes || size_bytes > kMaxBlockBytes) return {};
  std::lock_guard lock(mutex_);
  if (given_.size() == kMaxBlocks || size_bytes > max_bytes_ - num_bytes_) return {};
  std::unique_ptr<Given> given(new Given{shared_from_this(), {}});
  std::optional<Block> block = region.AllocateAtOnce(size_bytes);
  if (!block.has_value()) return {};
  given->block = std::move(*block);
  given->block.AddReader();
  given->block.Release();  // the worker does not have it yet
  // A worker that says that nobody reads what is still given could have it given twice.
  const auto overlaps = [&](const auto& other) {
    return given->block.offset <
               other.second.offset + other.second.size_bytes + kBlockHeaderBytes &&
           other.second.offset < given->block.offset + size_bytes + kBlockHeaderBytes;
  };
  if (std::any_of(given_.begin(), given_.end(), overlaps)) return {};
  given_.emplace(given->block.data(), given->block);
  num_bytes_ += size_bytes;
  std::byte* const base = given->block.data();
  return {base, &GiveBack, given.release()};
}

std::optional<Block> Offers::Find(std::span<const std::byte> bytes) {
  std::lock_guard lock(mutex_);
  const auto next = given_.upper_bound(bytes.data());
  if (next == given_.begin()) return std::nullopt;
  const Block& block = std::prev(next)->second;
  const auto offset = static_cast<uint64_t>(bytes.data() - block.data());
  if (offset > block.size_bytes || bytes.size() > block.size_bytes - offset) return std::nullopt;
  return block;
}

void Offers::GiveBack(void* given) {
  const std::unique_ptr<Given> ended(static_cast<Given*>(given));
  std::lock_guard lock(ended->offers->mutex_);
  ended->offers->given_.erase(ended->block.data());
  ended->offers->num_bytes_ -= ended->block.size_bytes;
}

}  // namespace nereid::scripted
