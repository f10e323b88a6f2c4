// Promises, sharing, release of KV blocks.
#include "backends/llm_core/engine/block_ledger.h"

#include <utility>

namespace nereid::llm {

BlockLedger::BlockLedger(const BlockLedgerOptions& options, const ExecutorLimits& limits)
    : options_(options),
      blocks_(limits.num_blocks, limits.block_size, options.prefix_cache),
      block_size_(limits.block_size),
      window_(limits.attention_window),
      dynamic_positions_(limits.dynamic_positions),
      num_sink_tokens_(limits.num_sink_tokens),
      num_sink_blocks_(blocks_.BlocksFor(limits.num_sink_tokens)),
      peak_blocks_(num_sink_blocks_ +
                   blocks_.BlocksFor(int64_t{limits.attention_window} + limits.max_num_tokens) + 1),
      // Shared blocks are not free when one sequence gives them back: then nothing less than the
      // whole length can be promised.
      bounds_by_window_(limits.attention_window > 0 && !options.prefix_cache) {}

int64_t BlockLedger::NumNeeded(int64_t num_prompt, int64_t num_tokens,
                               int32_t num_sequences) const {
  const int64_t shared = num_sequences > 1 ? (num_prompt - 1) / block_size_ : 0;
  const int64_t needed = shared + (blocks_.BlocksFor(num_tokens) - shared) * num_sequences;
  return num_sequences == 1 && bounds_by_window_ ? std::min<int64_t>(needed, peak_blocks_) : needed;
}

int32_t BlockLedger::Outstanding(const Sequence& sequence, int32_t covered, int32_t held) const {
  const int32_t left = blocks_.BlocksFor(sequence.num_max_tokens) - covered;
  if (!bounds_by_window_ || sequence.is_one_of_several()) return std::max(0, left);
  return std::max(0, std::min(left, peak_blocks_ - held));
}

uint64_t BlockLedger::KeyKind(const Sequence& sequence) const {
  constexpr uint64_t kLong = 0xd6e8feb86659fd93u;
  constexpr uint64_t kDynamic = 0xa0761d6478bd642fu;
  const bool is_dynamic = dynamic_positions_ > 0 && sequence.num_prompt > dynamic_positions_;
  return (sequence.is_long ? kLong : 0) ^
         (is_dynamic ? kDynamic * static_cast<uint64_t>(sequence.num_prompt) : 0);
}

bool BlockLedger::Plan(const Sequence& sequence, Grant& grant) {
  grant.prefix.clear();
  grant.chain = PrefixChain::Start(sequence.request->cache_salt ^ KeyKind(sequence));
  grant.num_promised = 0;
  if (!sequence.request->needs_whole_prompt()) {  // else nothing of it may be skipped
    // At least one token is left to compute: its logits are needed.
    blocks_.MatchPrefix(sequence.token_ids, (sequence.num_tokens() - 1) / block_size_, grant.chain,
                        grant.prefix);
  }
  const auto num_kept = static_cast<int32_t>(  // that count as free so far
      std::count_if(grant.prefix.begin(), grant.prefix.end(),
                    [this](int32_t block) { return !blocks_.is_referenced(block); }));
  const auto num_prefix = static_cast<int32_t>(grant.prefix.size());
  int32_t needed = 0;
  if (is_promised_all(sequence)) {
    const int32_t shared = (sequence.num_prompt - 1) / block_size_;
    const auto num_companions = static_cast<int32_t>(sequence.companions.size());
    grant.num_promised = Outstanding(sequence, num_prefix, num_prefix);
    needed = grant.num_promised + num_companions * Outstanding(sequence, shared, shared);
  } else {
    // One more than the tokens at hand, so that one that comes back does not give way at once; with
    // a window, no more than it can hold.
    needed = blocks_.BlocksFor(sequence.num_tokens() + 1) - num_prefix;
    if (bounds_by_window_) needed = std::min(needed, peak_blocks_);
  }
  return num_kept + needed <= num_unpromised();
}

void BlockLedger::Take(Grant& grant, Sequence& sequence) {
  for (const int32_t block : grant.prefix) blocks_.AddReference(block);
  sequence.num_reused_blocks = static_cast<int32_t>(grant.prefix.size());
  sequence.num_cached = sequence.num_reused_blocks * block_size_;
  sequence.block_table.swap(grant.prefix);
  sequence.chain = grant.chain;
  SetPromise(sequence, grant.num_promised);
}

void BlockLedger::Promise(Sequence& companion) {
  const int32_t shared = (companion.num_prompt - 1) / block_size_;
  SetPromise(companion, Outstanding(companion, shared, shared));
}

int32_t BlockLedger::Allocate(Sequence& sequence) {
  if (sequence.num_promised > 0) SetPromise(sequence, sequence.num_promised - 1);
  ++sequence.num_new_blocks;
  ++num_new_blocks_;
  return blocks_.Allocate();
}

void BlockLedger::SetPromise(Sequence& sequence, int32_t num_blocks) {
  num_promised_ += num_blocks - sequence.num_promised;
  sequence.num_promised = num_blocks;
}

void BlockLedger::Release(Sequence& sequence) {
  blocks_.ReleaseAll(sequence.block_table, num_sink_blocks_, sequence.end_released);
  sequence.end_released = 0;
  SetPromise(sequence, 0);
}

void BlockLedger::Rest(Sequence& sequence) {
  const int32_t num_free = blocks_.num_free();
  blocks_.ReleaseAll(sequence.block_table, num_sink_blocks_, sequence.end_released);
  // What it gave back it may need again; blocks that other beams hold too will be shared again.
  SetPromise(sequence, sequence.num_promised + blocks_.num_free() - num_free);
  sequence.end_released = 0;
  sequence.num_cached = 0;
}

void BlockLedger::Share(const Sequence& from, Sequence& to) {
  const int32_t num_shared = std::min(from.num_cached, to.num_tokens() - 1);
  const int32_t num_full = num_shared / block_size_;
  to.block_table.assign(from.block_table.begin(), from.block_table.begin() + num_full);
  to.end_released = std::min(from.end_released, num_full);
  for (int32_t i = 0; i < num_full; ++i) {
    if (i < num_sink_blocks_ || i >= to.end_released) blocks_.AddReference(to.block_table[i]);
  }
  to.num_cached = num_full * block_size_;
  // A chain can not be shortened: where it is longer, `to` leaves the rest to others.
  to.keeps_prefix = from.keeps_prefix && from.chain.num_blocks == num_full;
  if (to.keeps_prefix) to.chain = from.chain;
  SetPromise(to, Outstanding(to, num_full, NumHeld(to)));
  if (options_.block_copies && num_shared > to.num_cached) {
    const int32_t source = from.block_table[num_full];
    const int32_t copy = Allocate(to);
    to.block_table.push_back(copy);
    to.num_cached = num_shared;
    copies_.push_back({source, copy});
    blocks_.AddReference(source);
    blocks_.AddReference(copy);
  }
}

void BlockLedger::ReleasePassed(Sequence& sequence) {
  // The next token stands at num_cached and sees itself too.
  int32_t recent = window_ - num_sink_tokens_;
  // Without copies, another may have to compute from the beginning of the newest block on.
  if (!options_.block_copies && sequence.is_one_of_several()) recent += block_size_;
  const int32_t end = (sequence.num_cached + 1 - recent) / block_size_;
  if (end <= sequence.end_released || end <= num_sink_blocks_) return;
  for (int32_t i = std::max(num_sink_blocks_, sequence.end_released); i < end; ++i) {
    blocks_.Release(sequence.block_table[i]);
    sequence.block_table[i] = BlockManager::kReleased;
  }
  sequence.end_released = end;
  if (!is_promised_all(sequence)) return;
  const auto covered = static_cast<int32_t>(sequence.block_table.size());
  SetPromise(sequence, Outstanding(sequence, covered, NumHeld(sequence)));
}

void BlockLedger::NotePrefix(Sequence& sequence) {
  const int32_t block = sequence.chain.num_blocks;
  const int32_t num_known = std::min(sequence.num_cached, sequence.num_known());
  if ((block + 1) * block_size_ > num_known || !sequence.keeps_prefix) return;
  if (block >= num_sink_blocks_ && block < sequence.end_released) {  // passed while it was pending
    sequence.keeps_prefix = false;
    return;
  }
  const int32_t* tokens = sequence.token_ids.data() + static_cast<size_t>(block) * block_size_;
  new_prefixes_.push_back(
      {&sequence, blocks_.PreparePrefix(tokens, sequence.block_table[block], sequence.chain)});
}

void BlockLedger::KeepNotedPrefixes() {
  for (auto& [sequence, hash] : new_prefixes_) {
    const int32_t end = std::min(sequence->num_cached, sequence->num_known()) / block_size_;
    for (int32_t i = sequence->chain.num_blocks; i < end; ++i) {
      const int32_t* tokens = sequence->token_ids.data() + static_cast<size_t>(i) * block_size_;
      blocks_.KeepPrefix(tokens, sequence->block_table[i], hash, sequence->chain);
      if (i + 1 == end) break;
      hash = blocks_.PreparePrefix(tokens + block_size_, sequence->block_table[i + 1],
                                   sequence->chain);
    }
  }
  new_prefixes_.clear();
}

void BlockLedger::FinishCopies() {
  for (const BlockCopy& copy : copies_) {
    blocks_.Release(copy.from);
    blocks_.Release(copy.to);
  }
  copies_.clear();
  copies_are_submitted_ = false;
}

Status BlockLedger::CheckInvariants(std::span<const Sequence* const> sequences) const {
  std::vector<std::vector<int32_t>> held;
  int32_t promised = 0;
  for (const Sequence* sequence : sequences) {
    std::vector<int32_t>& blocks = held.emplace_back(sequence->block_table);
    if (sequence->end_released > num_sink_blocks_) {
      blocks.erase(blocks.begin() + num_sink_blocks_, blocks.begin() + sequence->end_released);
    }
    promised += sequence->num_promised;
    if (sequence->num_cached > static_cast<int32_t>(sequence->block_table.size()) * block_size_) {
      return InternalError("sequence in slot ", sequence->slot, ": ", sequence->num_cached,
                           " cached tokens in ", sequence->block_table.size(), " blocks");
    }
  }
  for (const BlockCopy& copy : copies_) held.push_back({copy.from, copy.to});
  if (promised != num_promised_ || promised > blocks_.num_free()) {
    return InternalError("promised KV blocks: ", num_promised_, " counted, ", promised, " held, ",
                         blocks_.num_free(), " free");
  }
  const std::vector<std::span<const int32_t>> tables(held.begin(), held.end());
  return blocks_.CheckInvariants(tables);
}

}  // namespace nereid::llm
