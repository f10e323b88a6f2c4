// Begins and ends fetches, whose blocks and places are referenced meanwhile.
#include "backends/llm_core/engine/prefix_fetches.h"

#include <algorithm>
#include <utility>

namespace nereid::llm {

bool PrefixFetches::Pays(std::span<const int32_t> prefix) {
  int64_t num_outside = 0, num_of_file = 0, num_saved = 0;
  for (const int32_t place : prefix) {
    if (blocks_.is_outside(place)) ++num_outside;
    if (blocks_.is_in_file(place)) ++num_of_file;
    if (num_outside > 0) ++num_saved;  // a block behind one that is missing is of no use alone
  }
  return costs_.Pays(num_outside, num_of_file, num_saved * blocks_.block_size());
}

uint64_t PrefixFetches::Begin(std::span<const int32_t> prefix) {
  for (const int32_t place : prefix) {
    if (!blocks_.is_outside(place) || !blocks_.is_referenced(place)) continue;
    for (const auto& [ticket, fetch] : fetches_) {
      const auto is_it = [&](const Move& move) { return move.place == place; };
      if (std::any_of(fetch.moves.begin(), fetch.moves.end(), is_it)) return ticket;
    }
  }
  if (fetches_.size() >= kMaxOpen || !Pays(prefix)) return 0;
  Fetch fetch;
  fetch.held.assign(prefix.begin(), prefix.end());
  for (const int32_t place : prefix) blocks_.AddReference(place);
  std::vector<BlockStorage::Transfer> transfers;
  for (int32_t& place : fetch.held) {
    if (!blocks_.is_outside(place)) continue;
    const int32_t block = blocks_.Allocate();
    fetch.moves.push_back({place, block, blocks_.SerialOf(place)});
    transfers.push_back({place, block, blocks_.SerialOf(place)});
    place = block;
  }
  const uint64_t ticket = next_ticket_++;
  fetches_.emplace(ticket, std::move(fetch));
  storage_->Fetch(ticket, std::move(transfers));
  return ticket;
}

void PrefixFetches::Collect(bool waits) {
  if (fetches_.empty()) return;
  for (const BlockStorage::Fetched& fetched : storage_->Collect(waits)) {
    auto node = fetches_.extract(fetched.ticket);
    if (!node.empty()) End(node.mapped(), fetched);
  }
}

void PrefixFetches::End(const Fetch& fetch, const BlockStorage::Fetched& fetched) {
  for (const int32_t place : fetched.lost) blocks_.Forget(place);
  int64_t num_of_file = 0;
  for (const Move& move : fetch.moves) {
    if (blocks_.is_in_file(move.place)) ++num_of_file;
    // The content may have been erased meanwhile.
    if (move.serial != 0 && blocks_.SerialOf(move.place) == move.serial) {
      blocks_.MoveIn(move.place, move.block);
      ++num_fetched_;
    }
    blocks_.Release(move.place);
  }
  costs_.RecordFetched(static_cast<int64_t>(fetch.moves.size()), num_of_file, fetched.seconds);
  for (size_t i = fetch.held.size(); i-- > 0;) blocks_.Release(fetch.held[i]);
}

void PrefixFetches::AppendHeld(std::vector<std::vector<int32_t>>& held) const {
  for (const auto& [ticket, fetch] : fetches_) {
    held.push_back(fetch.held);
    for (const Move& move : fetch.moves) held.push_back({move.place});
  }
}

}  // namespace nereid::llm
