// A hash table of block contents.
#include "backends/llm_core/engine/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace nereid::llm {
namespace {

// Prefetch distances of a lookup. A prompt of tens of thousands of tokens touches thousands of
// scattered cache lines.
constexpr int32_t kSlotsAhead = 16;
constexpr int32_t kEntriesAhead = 8;

// Combines both halves of a 64 x 64 bit product.
uint64_t Fold(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t Pair(const int32_t* token_ids) {
  uint64_t pair;
  std::memcpy(&pair, token_ids, sizeof(pair));
  return pair;
}

}  // namespace

PrefixCache::PrefixCache(std::span<KvBlock> blocks, int32_t block_size)
    : blocks_(blocks),
      block_size_(block_size),
      mask_(std::bit_ceil(std::max<uint64_t>(blocks.size(), 1) * 2) - 1),
      table_(mask_ + 1),
      token_ids_(blocks.size() * block_size),
      families_(blocks.size()) {}

uint64_t PrefixCache::HashAfter(uint64_t parent, const int32_t* token_ids) const {
  constexpr uint64_t kOdd[] = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu, 0x165667b19e3779f9u};
  uint64_t sum = 0;
  int32_t i = 0;
  for (; i + 4 <= block_size_;
       i += 4) {  // independent products, so that only the final fold is a dependency chain
    sum += Fold(Pair(token_ids + i) ^ (kOdd[0] + static_cast<uint64_t>(i)),
                Pair(token_ids + i + 2) ^ kOdd[1]);
  }
  for (; i < block_size_; ++i) {
    sum +=
        Fold(static_cast<uint64_t>(token_ids[i]) ^ (kOdd[0] + static_cast<uint64_t>(i)), kOdd[1]);
  }
  return Fold(parent ^ kOdd[2], sum ^ kOdd[0]);
}

void PrefixCache::Match(std::span<const int32_t> token_ids, int32_t max_blocks, PrefixChain& chain,
                        std::vector<int32_t>& blocks) {
  max_blocks = std::min(max_blocks, static_cast<int32_t>(token_ids.size()) / block_size_);
  hashes_.resize(std::max<size_t>(hashes_.size(), max_blocks));
  int32_t hashed = 0, looked_up = 0;
  uint64_t hash = chain.hash;
  for (int32_t i = 0; i < max_blocks; ++i) {
    for (; hashed < std::min(i + kSlotsAhead, max_blocks); ++hashed) {
      hash = HashAfter(hash, token_ids.data() + static_cast<size_t>(hashed) * block_size_);
      hashes_[hashed] = hash;
      __builtin_prefetch(&table_[hash & mask_]);
    }
    for (; looked_up < std::min(i + kEntriesAhead, hashed); ++looked_up) {
      const int32_t block = table_[hashes_[looked_up] & mask_].block;
      if (block < 0) continue;
      __builtin_prefetch(&blocks_[block]);
      __builtin_prefetch(&token_ids_[static_cast<size_t>(block) * block_size_]);
    }
    const int32_t block =
        Find(hashes_[i], chain, token_ids.data() + static_cast<size_t>(i) * block_size_);
    if (block < 0) return;
    blocks.push_back(block);
    chain.hash = hashes_[i];
    chain.serial = blocks_[block].serial;
    chain.block = block;
    ++chain.num_blocks;
  }
}

uint64_t PrefixCache::Prepare(const int32_t* token_ids, int32_t block,
                              const PrefixChain& chain) const {
  const uint64_t hash = HashAfter(chain.hash, token_ids);
  __builtin_prefetch(&table_[hash & mask_], 1);
  __builtin_prefetch(&blocks_[block], 1);
  __builtin_prefetch(&token_ids_[static_cast<size_t>(block) * block_size_], 1);
  __builtin_prefetch(&families_[block], 1);
  if (chain.block >= 0) {
    __builtin_prefetch(&families_[chain.block], 1);
    __builtin_prefetch(&blocks_[chain.block]);
  }
  return hash;
}

bool PrefixCache::Insert(const int32_t* token_ids, int32_t block, uint64_t hash,
                         PrefixChain& chain) {
  if (chain.num_blocks > 0) {
    const bool is_there = chain.block >= 0 && blocks_[chain.block].serial == chain.serial;
    if (!is_there) chain.block = FindSerial(chain.hash, chain.serial);
    if (chain.block < 0) {  // no prompt could find the block
      chain.serial = 0;
      ++chain.num_blocks;
      return false;
    }
  }
  const int32_t known = Find(hash, chain, token_ids);
  const bool is_new = known < 0;
  if (is_new) Enter(token_ids, block, hash, chain, next_serial_++);
  chain.hash = hash;
  chain.block = is_new ? block : known;
  chain.serial = blocks_[chain.block].serial;
  ++chain.num_blocks;
  return is_new;
}

void PrefixCache::Enter(const int32_t* token_ids, int32_t block, uint64_t hash,
                        const PrefixChain& chain, uint64_t serial) {
  KvBlock& entered = blocks_[block];
  entered.hash = hash;
  entered.salt = chain.salt;
  entered.parent = chain.serial;
  entered.serial = serial;
  entered.priority = kDefaultRetentionPriority;
  entered.duration_ms = 0;
  std::copy_n(token_ids, block_size_,
              token_ids_.begin() + static_cast<ptrdiff_t>(block) * block_size_);
  uint64_t slot = hash & mask_;
  while (table_[slot].block >= 0) slot = (slot + 1) & mask_;
  table_[slot] = {static_cast<uint32_t>(hash), block};
  ++size_;
  if (chain.num_blocks > 0) Adopt(chain.block, block);
}

bool PrefixCache::Restore(int32_t block, uint64_t salt, uint64_t serial, uint64_t parent,
                          const int32_t* token_ids) {
  PrefixChain chain = PrefixChain::Start(salt);
  if (parent != 0) {
    const auto found = restored_.find(parent);
    if (found == restored_.end() || blocks_[found->second].salt != salt) return false;
    chain = {1, found->second, salt, blocks_[found->second].hash, parent};
  }
  const uint64_t hash = HashAfter(chain.hash, token_ids);
  if (Find(hash, chain, token_ids) >= 0) return false;
  if (!restored_.emplace(serial, block).second) return false;
  Enter(token_ids, block, hash, chain, serial);
  return true;
}

void PrefixCache::Move(int32_t from, int32_t to) {
  KvBlock& source = blocks_[from];
  KvBlock& target = blocks_[to];
  target.hash = source.hash;
  target.salt = source.salt;
  target.parent = source.parent;
  target.serial = std::exchange(source.serial, 0);
  target.priority = source.priority;
  target.duration_ms = source.duration_ms;
  std::copy_n(token_ids_.begin() + static_cast<ptrdiff_t>(from) * block_size_, block_size_,
              token_ids_.begin() + static_cast<ptrdiff_t>(to) * block_size_);
  uint64_t slot = target.hash & mask_;
  while (table_[slot].block != from) slot = (slot + 1) & mask_;
  table_[slot].block = to;
  const Family family = std::exchange(families_[from], {});
  families_[to] = family;
  if (family.previous >= 0) {
    families_[family.previous].next = to;
  } else if (family.parent >= 0) {
    families_[family.parent].first_child = to;
  }
  if (family.next >= 0) families_[family.next].previous = to;
  for (int32_t child = family.first_child; child >= 0; child = families_[child].next)
    families_[child].parent = to;
}

void PrefixCache::Erase(int32_t block) {
  if (!Contains(block)) return;
  uint64_t hole = blocks_[block].hash & mask_;
  while (table_[hole].block != block) hole = (hole + 1) & mask_;
  blocks_[block].serial = 0;
  --size_;
  Leave(block);
  for (int32_t child = std::exchange(families_[block].first_child, -1); child >= 0;) {
    const int32_t next = families_[child].next;
    families_[child] = {-1, families_[child].first_child, -1, -1};
    child = next;
  }
  // Linear probing: entries after the hole move into it, unless that would put them before their
  // home slot.
  for (uint64_t next = (hole + 1) & mask_; table_[next].block >= 0; next = (next + 1) & mask_) {
    const uint64_t home = table_[next].tag & mask_;
    if (((next - home) & mask_) < ((next - hole) & mask_)) continue;
    table_[hole] = table_[next];
    hole = next;
  }
  table_[hole] = {};
}

void PrefixCache::EraseTree(int32_t block, std::vector<int32_t>& erased) {
  const size_t begin = erased.size();
  erased.push_back(block);
  for (size_t i = begin; i < erased.size(); ++i) {
    for (int32_t child = families_[erased[i]].first_child; child >= 0;
         child = families_[child].next)
      erased.push_back(child);
  }
  for (size_t i = erased.size(); i-- > begin;) Erase(erased[i]);
}

void PrefixCache::Adopt(int32_t parent, int32_t child) {
  const int32_t first = std::exchange(families_[parent].first_child, child);
  families_[child].parent = parent;
  families_[child].next = first;
  if (first >= 0) families_[first].previous = child;
}

void PrefixCache::Leave(int32_t child) {
  Family& family = families_[child];
  if (family.parent < 0) return;
  if (family.previous >= 0) {
    families_[family.previous].next = family.next;
  } else {
    families_[family.parent].first_child = family.next;
  }
  if (family.next >= 0) families_[family.next].previous = family.previous;
  family = {-1, family.first_child, -1, -1};
}

int32_t PrefixCache::Find(uint64_t hash, const PrefixChain& parent,
                          const int32_t* token_ids) const {
  const auto tag = static_cast<uint32_t>(hash);
  for (uint64_t slot = hash & mask_; table_[slot].block >= 0; slot = (slot + 1) & mask_) {
    if (table_[slot].tag == tag && IsContent(table_[slot].block, hash, parent, token_ids)) {
      return table_[slot].block;
    }
  }
  return -1;
}

int32_t PrefixCache::FindSerial(uint64_t hash, uint64_t serial) const {
  if (serial == 0) return -1;
  for (uint64_t slot = hash & mask_; table_[slot].block >= 0; slot = (slot + 1) & mask_) {
    if (blocks_[table_[slot].block].serial == serial) return table_[slot].block;
  }
  return -1;
}

bool PrefixCache::IsContent(int32_t block, uint64_t hash, const PrefixChain& parent,
                            const int32_t* token_ids) const {
  const KvBlock& entry = blocks_[block];
  return entry.hash == hash && entry.parent == parent.serial && entry.salt == parent.salt &&
         std::memcmp(token_ids, token_ids_.data() + static_cast<size_t>(block) * block_size_,
                     static_cast<size_t>(block_size_) * sizeof(int32_t)) == 0;
}

}  // namespace nereid::llm
