// ShardedBlockStorage: what is true of all parts is true of a block.
#include "backends/gpu_llm/sharded_block_storage.h"

#include <algorithm>
#include <set>
#include <utility>

namespace nereid::gpu {

ShardedBlockStorage::ShardedBlockStorage(std::vector<llm::BlockStorage*> ranks)
    : ranks_(std::move(ranks)), num_taken_(ranks_.size()) {}

int32_t ShardedBlockStorage::num_file_places() const {
  int32_t fewest = ranks_[0]->num_file_places();
  for (const llm::BlockStorage* rank : ranks_) fewest = std::min(fewest, rank->num_file_places());
  return fewest;
}

std::vector<llm::BlockStorage::StoredBlock> ShardedBlockStorage::TakeStored() {
  std::vector<StoredBlock> blocks = ranks_[0]->TakeStored();
  for (size_t rank = 1; rank < ranks_.size(); ++rank) {
    std::set<std::pair<int32_t, uint64_t>> others;  // places and serials
    for (const StoredBlock& block : ranks_[rank]->TakeStored())
      others.insert({block.place, block.content.serial});
    std::erase_if(blocks, [&](const StoredBlock& block) {
      return !others.contains({block.place, block.content.serial});
    });
  }
  std::vector<StoredBlock> kept;
  std::set<uint64_t> serials = {0};  // 0: a content without a parent
  for (StoredBlock& block : blocks) {
    if (!serials.contains(block.content.parent)) continue;
    serials.insert(block.content.serial);
    kept.push_back(std::move(block));
  }
  return num_file_places() > 0 ? kept : std::vector<StoredBlock>();
}

uint64_t ShardedBlockStorage::first_serial() const {
  uint64_t first = 1;
  for (const llm::BlockStorage* rank : ranks_) first = std::max(first, rank->first_serial());
  return first;
}

bool ShardedBlockStorage::FileAccepts() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const llm::BlockStorage* rank) { return rank->FileAccepts(); });
}

void ShardedBlockStorage::Store(int32_t from, int32_t to, const llm::BlockContent& content) {
  for (llm::BlockStorage* rank : ranks_) rank->Store(from, to, content);
}

void ShardedBlockStorage::Fetch(uint64_t ticket, std::vector<Transfer> transfers) {
  ++num_begun_;
  Open& open = open_[ticket];
  open.num_left = ranks_.size();
  open.fetched.ticket = ticket;
  for (llm::BlockStorage* rank : ranks_) rank->Fetch(ticket, transfers);
}

void ShardedBlockStorage::Take(size_t rank, bool waits, std::vector<Fetched>& ended) {
  for (const Fetched& part : ranks_[rank]->Collect(waits)) {
    ++num_taken_[rank];
    const auto found = open_.find(part.ticket);
    Fetched& all = found->second.fetched;
    all.seconds = std::max(all.seconds, part.seconds);
    for (const int32_t place : part.lost) {
      if (std::find(all.lost.begin(), all.lost.end(), place) == all.lost.end())
        all.lost.push_back(place);
    }
    if (--found->second.num_left > 0) continue;
    ++num_ended_;
    ended.push_back(std::move(all));
    open_.erase(found);
  }
}

// On each GPU fetches end in the order in which they began. So a GPU on which no more of them have
// ended than on all GPUs holds up the next one, and is waited for.
std::vector<llm::BlockStorage::Fetched> ShardedBlockStorage::Collect(bool waits) {
  std::vector<Fetched> ended;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) Take(rank, false, ended);
  while (waits && ended.empty() && num_ended_ < num_begun_) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      if (ended.empty() && num_taken_[rank] == num_ended_) Take(rank, true, ended);
  }
  return ended;
}

void ShardedBlockStorage::Finish() {
  for (llm::BlockStorage* rank : ranks_) rank->Finish();
}

}  // namespace nereid::gpu
