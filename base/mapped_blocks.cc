#include "base/mapped_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <limits>
#include <mutex>
#include <utility>

namespace nereid {
namespace {

constexpr size_t kPageBytes = 4096;
// A freed block is looked for among so many of the newest ones.
constexpr size_t kMaxSearched = 16;

struct Block {
  void* memory;
  size_t size_bytes;
};

struct KeptBlocks {
  std::mutex mutex;          // guards the members below
  std::deque<Block> blocks;  // the newest at the end
  size_t size_bytes = 0;
};

// Never destroyed, because threads may free blocks while the process exits.
KeptBlocks& Kept() {
  static auto& kept = *new KeptBlocks();
  return kept;
}

// Tensors of nearly the same size use the same blocks. Up to an eighth of a block is unused.
size_t BlockBytes(size_t size_bytes) {
  const size_t granule = std::max(kPageBytes, std::bit_floor(size_bytes) / 8);
  return (size_bytes + granule - 1) / granule * granule;
}

// Removes the oldest blocks until at most `max_bytes` are kept. Requires the mutex.
std::deque<Block> TakeOldest(KeptBlocks& kept, size_t max_bytes) {
  std::deque<Block> taken;
  while (kept.size_bytes > max_bytes) {
    taken.push_back(kept.blocks.front());
    kept.blocks.pop_front();
    kept.size_bytes -= taken.back().size_bytes;
  }
  return taken;
}

void Unmap(const std::deque<Block>& blocks) {
  for (const Block& block : blocks) munmap(block.memory, block.size_bytes);
}

}  // namespace

void* MappedBlocks::Allocate(size_t size_bytes) {
  if (size_bytes > std::numeric_limits<size_t>::max() / 2) return nullptr;
  const size_t block_bytes = BlockBytes(size_bytes);
  KeptBlocks& kept = Kept();
  {
    const std::lock_guard lock(kept.mutex);
    const size_t num_searched = std::min(kept.blocks.size(), kMaxSearched);
    const auto begin = kept.blocks.rbegin();
    const auto end = begin + static_cast<ptrdiff_t>(num_searched);
    const auto found = std::find_if(
        begin, end, [block_bytes](const Block& block) { return block.size_bytes == block_bytes; });
    if (found != end) {
      void* const memory = found->memory;
      kept.blocks.erase(std::next(found).base());
      kept.size_bytes -= block_bytes;
      return memory;
    }
  }
  void* const memory =
      mmap(nullptr, block_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void MappedBlocks::Free(void* block, size_t size_bytes) {
  const size_t block_bytes = BlockBytes(size_bytes);
  std::deque<Block> oldest;
  {
    KeptBlocks& kept = Kept();
    const std::lock_guard lock(kept.mutex);
    kept.blocks.push_back({block, block_bytes});
    kept.size_bytes += block_bytes;
    oldest = TakeOldest(kept, kMaxKeptBytes);
  }
  Unmap(oldest);
}

void MappedBlocks::Trim() {
  std::deque<Block> all;
  {
    KeptBlocks& kept = Kept();
    const std::lock_guard lock(kept.mutex);
    all = TakeOldest(kept, 0);
  }
  Unmap(all);
}

size_t MappedBlocks::num_kept_bytes() {
  KeptBlocks& kept = Kept();
  const std::lock_guard lock(kept.mutex);
  return kept.size_bytes;
}

}  // namespace nereid
