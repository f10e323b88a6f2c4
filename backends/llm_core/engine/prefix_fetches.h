// The blocks of prompts that are on their way from outside the KV cache into it. While they are,
// the sequence waits and others run. [engine thread]
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "backends/llm_core/engine/block_pool.h"
#include "backends/llm_core/engine/block_storage.h"
#include "backends/llm_core/engine/fetch_costs.h"

namespace nereid::llm {

class PrefixFetches {
 public:
  // `storage` may be null: then nothing is ever fetched.
  PrefixFetches(BlockPool& blocks, BlockStorage* storage) : blocks_(blocks), storage_(storage) {}

  bool is_enabled() const { return storage_ != nullptr; }
  bool is_open(uint64_t ticket) const { return fetches_.contains(ticket); }
  bool any_open() const { return !fetches_.empty(); }
  int64_t num_fetched() const { return num_fetched_; }  // blocks so far
  FetchCosts& costs() { return costs_; }

  // Begins to fetch what `prefix`, the cached blocks and places of a prompt, has outside the KV
  // cache. Takes as many free blocks. Returns the ticket, which may be that of another prompt that
  // waits for the same content; 0: fetching does not pay, or too much is on its way.
  uint64_t Begin(std::span<const int32_t> prefix);
  // Ends the fetches that are done: their content is in the KV cache, evictable. `waits`: waits for
  // one, if any is open. Only allowed if no step is in flight.
  void Collect(bool waits);

  // Appends the blocks and places that the open fetches reference.
  void AppendHeld(std::vector<std::vector<int32_t>>& held) const;

 private:
  static constexpr size_t kMaxOpen = 8;

  struct Move {
    int32_t place;
    int32_t block;
    uint64_t serial;  // of the content
  };
  struct Fetch {
    std::vector<int32_t> held;  // in the order of the prompt; of a move, the block
    std::vector<Move> moves;
  };

  bool Pays(std::span<const int32_t> prefix);
  void End(const Fetch& fetch, const BlockStorage::Fetched& fetched);

  BlockPool& blocks_;
  BlockStorage* const storage_;
  FetchCosts costs_;
  uint64_t next_ticket_ = 1;
  std::map<uint64_t, Fetch> fetches_;
  int64_t num_fetched_ = 0;
};

}  // namespace nereid::llm
