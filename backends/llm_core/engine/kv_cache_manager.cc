// Reservation, sharing and release of KV blocks.
#include "backends/llm_core/engine/kv_cache_manager.h"

#include <utility>

#include "backends/llm_core/engine/cache_salt.h"

namespace nereid::llm {
namespace {

// Applies the retention of the sequence's request, if it has one, to its cached block `index`.
void Retain(const Sequence& sequence, int32_t index, int32_t block, BlockPool& blocks) {
  const auto& asked = sequence.request->retention;
  if (asked == nullptr || block < 0) return;
  const auto retention = asked->Of(index * blocks.block_size(), sequence.num_prompt);
  if (retention) blocks.SetRetention(block, *retention);
}

}  // namespace

KvCacheManager::KvCacheManager(const KvCacheManagerOptions& options, const ExecutorLimits& limits)
    : options_(options),
      blocks_(limits.num_blocks, limits.block_size, options.prefix_cache, options.storage),
      fetches_(blocks_, options.prefix_cache ? options.storage : nullptr),
      block_size_(limits.block_size),
      window_(limits.attention_window),
      dynamic_rope_positions_(limits.dynamic_rope_positions),
      num_sink_tokens_(limits.num_sink_tokens),
      num_sink_blocks_(blocks_.BlocksFor(limits.num_sink_tokens)),
      max_sequence_blocks_(
          num_sink_blocks_ +
          blocks_.BlocksFor(int64_t{limits.attention_window} + limits.max_num_tokens) + 1),
      // A shared block is not free when one sequence releases it. Only the whole length can be
      // reserved then.
      window_bounds_blocks_(limits.attention_window > 0 && !options.prefix_cache) {}

int64_t KvCacheManager::NumNeeded(int64_t num_prompt, int64_t num_tokens,
                                  int32_t num_sequences) const {
  const int64_t shared = num_sequences > 1 ? (num_prompt - 1) / block_size_ : 0;
  const int64_t needed = shared + (blocks_.BlocksFor(num_tokens) - shared) * num_sequences;
  return num_sequences == 1 && window_bounds_blocks_
             ? std::min<int64_t>(needed, max_sequence_blocks_)
             : needed;
}

int32_t KvCacheManager::MaxRemainingBlocks(const Sequence& sequence, int32_t covered,
                                           int32_t held) const {
  const int32_t left = blocks_.BlocksFor(sequence.num_max_tokens) - covered;
  if (!window_bounds_blocks_ || sequence.has_siblings()) return std::max(0, left);
  return std::max(0, std::min(left, max_sequence_blocks_ - held));
}

bool KvCacheManager::PlanAdmission(const Sequence& sequence, Admission& admission) {
  admission.prefix.clear();
  admission.outside.clear();
  admission.chain = PrefixChain::Start(CacheSaltOf(sequence, dynamic_rope_positions_));
  admission.num_reserved = 0;
  if (!sequence.request->needs_whole_prompt()) {  // otherwise no prompt token may be skipped
    // At least one token must be computed, because its logits are needed.
    blocks_.MatchPrefix(sequence.token_ids, (sequence.num_tokens() - 1) / block_size_,
                        admission.chain, admission.prefix);
    SplitPrefix(sequence, admission);
  }
  const auto num_evictable = static_cast<int32_t>(  // reused blocks that count as free so far
      std::count_if(admission.prefix.begin(), admission.prefix.end(),
                    [this](int32_t block) { return !blocks_.is_referenced(block); }));
  const auto num_prefix = static_cast<int32_t>(admission.prefix.size());
  int32_t needed = 0;
  if (is_fully_reserved(sequence)) {
    const int32_t shared = (sequence.num_prompt - 1) / block_size_;
    const auto num_companions = static_cast<int32_t>(sequence.siblings.size());
    admission.num_reserved = MaxRemainingBlocks(sequence, num_prefix, num_prefix);
    needed = admission.num_reserved + num_companions * MaxRemainingBlocks(sequence, shared, shared);
  } else {
    // One token more than the sequence has, so that a resumed sequence is not preempted again at
    // once. A window bounds the number.
    needed = blocks_.BlocksFor(sequence.num_tokens() + 1) - num_prefix;
    if (window_bounds_blocks_) needed = std::min(needed, max_sequence_blocks_);
  }
  return num_evictable + needed <= num_unreserved();
}

void KvCacheManager::SplitPrefix(const Sequence& sequence, Admission& admission) {
  if (!fetches_.is_enabled()) return;
  const auto outside = std::find_if(admission.prefix.begin(), admission.prefix.end(),
                                    [this](int32_t block) { return blocks_.is_outside(block); });
  if (outside == admission.prefix.end()) return;
  admission.outside.assign(outside, admission.prefix.end());
  const auto num_inside = static_cast<int32_t>(outside - admission.prefix.begin());
  admission.prefix.clear();
  admission.chain = PrefixChain::Start(admission.chain.salt);
  blocks_.MatchPrefix(sequence.token_ids, num_inside, admission.chain, admission.prefix);
}

bool KvCacheManager::BeginFetch(Sequence& sequence, const Admission& admission) {
  if (admission.outside.empty() || sequence.num_fetches >= kMaxFetches) return false;
  std::vector<int32_t> prefix = admission.prefix;
  prefix.insert(prefix.end(), admission.outside.begin(), admission.outside.end());
  sequence.fetch = fetches_.Begin(prefix);
  if (sequence.fetch == 0) return false;
  ++sequence.num_fetches;
  return true;
}

void KvCacheManager::Admit(Admission& admission, Sequence& sequence) {
  for (const int32_t block : admission.prefix) blocks_.AddReference(block);
  sequence.fetch = 0;
  sequence.num_fetches = 0;
  sequence.num_reused_blocks = static_cast<int32_t>(admission.prefix.size());
  sequence.num_cached = sequence.num_reused_blocks * block_size_;
  for (int32_t i = 0; i < sequence.num_reused_blocks; ++i) {
    Retain(sequence, i, admission.prefix[i], blocks_);
  }
  sequence.block_table.swap(admission.prefix);
  sequence.chain = admission.chain;
  SetReservation(sequence, admission.num_reserved);
}

void KvCacheManager::Reserve(Sequence& sibling) {
  const int32_t shared = (sibling.num_prompt - 1) / block_size_;
  SetReservation(sibling, MaxRemainingBlocks(sibling, shared, shared));
}

int32_t KvCacheManager::Allocate(Sequence& sequence) {
  if (sequence.num_reserved > 0) SetReservation(sequence, sequence.num_reserved - 1);
  ++sequence.num_new_blocks;
  ++num_new_blocks_;
  return blocks_.Allocate();
}

void KvCacheManager::SetReservation(Sequence& sequence, int32_t num_blocks) {
  num_reserved_ += num_blocks - sequence.num_reserved;
  sequence.num_reserved = num_blocks;
}

void KvCacheManager::Release(Sequence& sequence) {
  blocks_.ReleaseAll(sequence.block_table, num_sink_blocks_, sequence.end_released);
  sequence.end_released = 0;
  SetReservation(sequence, 0);
}

void KvCacheManager::Suspend(Sequence& sequence) {
  const int32_t num_free = blocks_.num_free();
  blocks_.ReleaseAll(sequence.block_table, num_sink_blocks_, sequence.end_released);
  // The sequence may need the released blocks again. Blocks that other beams still reference will
  // be shared again.
  SetReservation(sequence, sequence.num_reserved + blocks_.num_free() - num_free);
  sequence.end_released = 0;
  sequence.num_cached = 0;
}

void KvCacheManager::ShareBlocks(const Sequence& from, Sequence& to) {
  const int32_t num_shared = std::min(from.num_cached, to.num_tokens() - 1);
  const int32_t num_full = num_shared / block_size_;
  to.block_table.assign(from.block_table.begin(), from.block_table.begin() + num_full);
  to.end_released = std::min(from.end_released, num_full);
  for (int32_t i = 0; i < num_full; ++i) {
    if (i < num_sink_blocks_ || i >= to.end_released) blocks_.AddReference(to.block_table[i]);
  }
  to.num_cached = num_full * block_size_;
  // A chain cannot be shortened. If it is longer, `to` does not insert its blocks.
  to.caches_prefix = from.caches_prefix && from.chain.num_blocks == num_full;
  if (to.caches_prefix) to.chain = from.chain;
  SetReservation(to, MaxRemainingBlocks(to, num_full, NumHeld(to)));
  if (options_.block_copies && num_shared > to.num_cached) {
    const int32_t source = from.block_table[num_full];
    const int32_t copy = Allocate(to);
    to.block_table.push_back(copy);
    to.num_cached = num_shared;
    copies_.Add(source, copy);
  }
}

void KvCacheManager::ReleaseOutOfWindow(Sequence& sequence) {
  // The next token is at position num_cached and sees itself as well.
  int32_t recent = window_ - num_sink_tokens_;
  // Without block copies, a sibling may have to recompute from the beginning of the newest block.
  if (!options_.block_copies && sequence.has_siblings()) recent += block_size_;
  const int32_t end = (sequence.num_cached + 1 - recent) / block_size_;
  if (end <= sequence.end_released || end <= num_sink_blocks_) return;
  for (int32_t i = std::max(num_sink_blocks_, sequence.end_released); i < end; ++i) {
    blocks_.Release(sequence.block_table[i]);
    sequence.block_table[i] = BlockPool::kReleased;
  }
  sequence.end_released = end;
  if (!is_fully_reserved(sequence)) return;
  const auto covered = static_cast<int32_t>(sequence.block_table.size());
  SetReservation(sequence, MaxRemainingBlocks(sequence, covered, NumHeld(sequence)));
}

void KvCacheManager::QueuePrefixInsert(Sequence& sequence) {
  const int32_t block = sequence.chain.num_blocks;
  const int32_t num_known = std::min(sequence.num_cached, sequence.num_known());
  if ((block + 1) * block_size_ > num_known || !sequence.caches_prefix) return;
  if (block >= num_sink_blocks_ &&
      block < sequence.end_released) {  // left the window while its tokens were pending
    sequence.caches_prefix = false;
    return;
  }
  const int32_t* tokens = sequence.token_ids.data() + static_cast<size_t>(block) * block_size_;
  queued_prefixes_.push_back(
      {&sequence, blocks_.PreparePrefix(tokens, sequence.block_table[block], sequence.chain)});
}

void KvCacheManager::InsertQueuedPrefixes() {
  for (auto& [sequence, hash] : queued_prefixes_) {
    const int32_t end = std::min(sequence->num_cached, sequence->num_known()) / block_size_;
    for (int32_t i = sequence->chain.num_blocks; i < end; ++i) {
      const int32_t* tokens = sequence->token_ids.data() + static_cast<size_t>(i) * block_size_;
      blocks_.InsertPrefix(tokens, sequence->block_table[i], hash, sequence->chain);
      Retain(*sequence, i, sequence->chain.block, blocks_);
      if (i + 1 == end) break;
      hash = blocks_.PreparePrefix(tokens + block_size_, sequence->block_table[i + 1],
                                   sequence->chain);
    }
  }
  queued_prefixes_.clear();
}

Status KvCacheManager::CheckInvariants(std::span<const Sequence* const> sequences) const {
  std::vector<std::vector<int32_t>> held;
  int32_t reserved = 0;
  for (const Sequence* sequence : sequences) {
    std::vector<int32_t>& blocks = held.emplace_back(sequence->block_table);
    if (sequence->end_released > num_sink_blocks_) {
      blocks.erase(blocks.begin() + num_sink_blocks_, blocks.begin() + sequence->end_released);
    }
    reserved += sequence->num_reserved;
    if (sequence->num_cached > static_cast<int32_t>(sequence->block_table.size()) * block_size_) {
      return InternalError("sequence in slot ", sequence->slot, ": ", sequence->num_cached,
                           " cached tokens in ", sequence->block_table.size(), " blocks");
    }
  }
  copies_.AppendHeld(held);
  fetches_.AppendHeld(held);
  if (reserved != num_reserved_ || reserved > blocks_.num_free()) {
    return InternalError("reserved KV blocks: ", num_reserved_, " counted, ", reserved,
                         " of all sequences, ", blocks_.num_free(), " free");
  }
  const std::vector<std::span<const int32_t>> tables(held.begin(), held.end());
  return blocks_.CheckInvariants(tables);
}

}  // namespace nereid::llm
