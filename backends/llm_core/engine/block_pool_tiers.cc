// The places outside the KV cache to which the content of evicted blocks moves.
#include <algorithm>

#include "backends/llm_core/engine/block_pool.h"

namespace nereid::llm {

void BlockPool::AddTier(int32_t num_places, bool is_file) {
  if (num_places == 0) return;
  const int32_t begin = tiers_.empty() ? num_blocks_ : tiers_.back().end;
  Tier& tier =
      tiers_.emplace_back(Tier{begin, begin + num_places, is_file, {}, EvictionOrder(blocks_)});
  tier.free.reserve(num_places);
  for (int32_t place = tier.end - 1; place >= tier.begin; --place) tier.free.push_back(place);
}

void BlockPool::RestoreStored() {
  for (const BlockStorage::StoredBlock& stored : storage_->TakeStored()) {
    const BlockContent& content = stored.content;
    if (prefixes_->Restore(stored.place, content.salt, content.serial, content.parent,
                           content.token_ids.data())) {
      OrderOf(stored.place).Add(stored.place, now_ms_);
    }
  }
  for (Tier& tier : tiers_)
    std::erase_if(tier.free, [this](int32_t place) { return blocks_[place].serial != 0; });
  prefixes_->FinishRestoring(storage_->first_serial());
}

bool BlockPool::MoveOut(int32_t from, size_t tier) {
  const KvBlock& moved = blocks_[from];
  const bool is_file = tiers_[tier].is_file;
  if (moved.priority < kDefaultRetentionPriority) return false;
  if (is_file && (IsOfThisProcess(moved.salt) || !storage_->FileAccepts())) return false;
  const int32_t to = TakePlace(tier);
  if (to < 0) return false;
  if (moved.serial == 0) {  // was erased to make room
    tiers_[tier].free.push_back(to);
    return true;
  }
  BlockContent content = {moved.serial, moved.parent, moved.salt, {}};
  if (is_file) {
    const std::span<const int32_t> token_ids = prefixes_->TokensOf(from);
    content.token_ids.assign(token_ids.begin(), token_ids.end());
  }
  const int64_t end_ms = OrderOf(from).EndOf(from);
  OrderOf(from).Remove(from);
  MoveContent(from, to);
  FreeListOf(from).push_back(from);
  tiers_[tier].order.AddUntil(to, end_ms);
  storage_->Store(from, to, content);
  ++num_moved_out_;
  return true;
}

int32_t BlockPool::TakePlace(size_t index) {
  Tier& tier = tiers_[index];
  if (tier.free.empty()) {
    const int32_t first = tier.order.First(now_ms_);
    if (first < 0) return -1;
    if (index + 1 == tiers_.size() || !MoveOut(first, index + 1)) EraseTree(first);
  }
  const int32_t place = tier.free.back();
  tier.free.pop_back();
  return place;
}

void BlockPool::MoveIn(int32_t place, int32_t block) {
  MoveContent(place, block);
}

void BlockPool::MoveComputed(PrefixChain& chain, int32_t block) {
  const int32_t place = chain.block;
  if (blocks_[place].references > 0) return;  // is being fetched
  OrderOf(place).Remove(place);
  MoveContent(place, block);
  FreeListOf(place).push_back(place);
  chain.block = block;
}

void BlockPool::SaveToFile() {
  if (tiers_.empty() || !tiers_.back().is_file) return;
  const size_t file = tiers_.size() - 1;
  // Parents come after their blocks in the order, and those used last after the others: what the
  // file has no room for is what was used longest ago.
  std::vector<int32_t> all = order_.Members();
  if (file > 0) {
    const std::vector<int32_t> host = tiers_.front().order.Members();
    all.insert(all.begin(), host.begin(), host.end());
  }
  for (const int32_t place : all) {
    if (!storage_->FileAccepts()) storage_->Finish();
    if (blocks_[place].serial != 0) MoveOut(place, file);
  }
  storage_->Finish();
}

int32_t BlockPool::num_outside() const {
  int32_t num_used = 0;
  for (const Tier& tier : tiers_)
    num_used += tier.end - tier.begin - static_cast<int32_t>(tier.free.size());
  return num_used;
}

}  // namespace nereid::llm
