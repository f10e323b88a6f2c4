// Token budget, admission, preemption.
#include "llm_core/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "llm_core/engine/beam_search.h"

namespace nereid::llm {
namespace {

// Thousands of sequences do not stay in the nearest cache from one step to the next: each loop over
// them asks ahead for what it will touch.
constexpr size_t kSequencesAhead = 6;

void PrefetchSequence(const Sequence& sequence) {
  const auto* lines = reinterpret_cast<const char*>(&sequence);
  __builtin_prefetch(lines, 1);
  __builtin_prefetch(lines + 64, 1);
}

// Its newest token, once the sequence itself has arrived.
void PrefetchTokens(const Sequence& sequence) {
  __builtin_prefetch(sequence.token_ids.data() + sequence.token_ids.size(), 1);
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, const ExecutorLimits& limits,
                     const ExecutorFeatures& features)
    : options_(options),
      limits_(limits),
      features_(features),
      blocks_(limits.num_blocks, limits.block_size, options.prefix_cache),
      num_sink_blocks_(blocks_.BlocksFor(limits.num_sink_tokens)),
      peak_blocks_(num_sink_blocks_ +
                   blocks_.BlocksFor(int64_t{limits.attention_window} + limits.max_num_tokens) + 1),
      // Shared blocks are not free when one sequence gives them back: then nothing less than the
      // whole length can be promised.
      bounds_by_window_(limits.attention_window > 0 && !options.prefix_cache) {
  for (int32_t slot = limits.max_num_sequences - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

Status Scheduler::CheckFits(int64_t num_prompt, int64_t max_tokens, int32_t num_sequences) const {
  const int64_t total = num_prompt + max_tokens;
  if (num_prompt >= limits_.max_positions) {
    return InvalidArgError("prompt of ", num_prompt, " tokens: the model's limit is ",
                           limits_.max_positions, " tokens, prompt and output together");
  }
  if (total > limits_.max_positions) {
    return InvalidArgError("prompt of ", num_prompt, " tokens and request_output_len ", max_tokens,
                           " make ", total, " tokens, over the model's limit of ",
                           limits_.max_positions);
  }
  if (num_sequences > limits_.max_num_sequences) {
    return InvalidArgError("request of ", num_sequences, " sequences: at most ",
                           limits_.max_num_sequences, " can run at a time");
  }
  const int64_t capacity = int64_t{limits_.num_blocks} * limits_.block_size;
  const int64_t shared = num_sequences > 1 ? (num_prompt - 1) / limits_.block_size : 0;
  int64_t needed = shared + (blocks_.BlocksFor(total) - shared) * num_sequences;
  if (num_sequences == 1 && bounds_by_window_) needed = std::min<int64_t>(needed, peak_blocks_);
  if (needed > limits_.num_blocks) {
    return InvalidArgError(
        "prompt of ", num_prompt, " tokens and request_output_len ", max_tokens,
        num_sequences > 1 ? StrCat(", ", num_sequences, " sequences,") : std::string(), " need ",
        needed, " KV cache blocks of ", limits_.block_size, " tokens; the cache has ",
        limits_.num_blocks, " (", capacity, " tokens)");
  }
  if (!options_.chunked_prefill && num_prompt > limits_.max_num_tokens) {
    return InvalidArgError("prompt of ", num_prompt, " tokens is over the ", limits_.max_num_tokens,
                           " tokens of one step, and enable_chunked_context is false");
  }
  return Status::Ok();
}

void Scheduler::Add(std::unique_ptr<Sequence> sequence) {
  const int64_t due = step_ + int64_t{sequence->request->priority} * options_.steps_per_priority;
  sequence->rank = {due, next_number_++};
  sequence->num_min_tokens = sequence->num_prompt + sequence->request->stop.min_tokens;
  sequence->num_max_tokens = sequence->num_prompt + sequence->request->stop.max_tokens;
  for (const auto& companion : sequence->companions) {
    companion->rank = {due, next_number_++};
    companion->num_min_tokens = sequence->num_min_tokens;
    companion->num_max_tokens = sequence->num_max_tokens;
  }
  waiting_.emplace(sequence->rank, std::move(sequence));
}

void Scheduler::Schedule(Batch& batch) {
  batch.Clear();
  scheduled_.clear();
  ++step_;
  counts_.num_prefill_tokens = 0;
  counts_.num_prefill_sequences = 0;
  counts_.num_decode_sequences = 0;
  ScheduleRunning(batch);
  if (!waiting_.empty()) AdmitWaiting(batch);
  batch.block_copies = copies_;
  copies_are_submitted_ = true;
}

// Sequences that decode come before those with prompt left, whatever their rank, so that a long
// prompt never delays the next token of the others.
void Scheduler::ScheduleRunning(Batch& batch) {
  prefilling_.clear();
  for (size_t i = 0; i < running_.size();) {
    if (i + 2 * kSequencesAhead < running_.size()) {
      PrefetchSequence(*running_[i + 2 * kSequencesAhead]);
      PrefetchTokens(*running_[i + kSequencesAhead]);
    }
    Sequence& sequence = *running_[i];
    const int32_t left = sequence.num_tokens() - sequence.num_cached;
    if (left != 1 || sequence.is_dormant) {
      if (left > 1 && !sequence.is_dormant) prefilling_.push_back(&sequence);
      ++i;
    } else if (ChunkSize(sequence, 1, batch) == 0) {
      ++i;
    } else if (EnsureBlocks(sequence, 1)) {
      AppendToBatch(sequence, 1, batch);
      ++i;  // whoever gave way stood behind
    }       // else: the sequence itself gave way, and another one stands at i
  }
  for (Sequence* sequence : prefilling_) {
    if (sequence->slot < 0) continue;  // gave way
    const int32_t left = sequence->num_tokens() - sequence->num_cached;
    const int32_t chunk = ChunkSize(*sequence, left, batch);
    if (chunk > 0 && EnsureBlocks(*sequence, chunk)) AppendToBatch(*sequence, chunk, batch);
  }
}

void Scheduler::AdmitWaiting(Batch& batch) {
  Admission admission;
  while (!waiting_.empty()) {  // in order: nobody overtakes
    const Sequence& first = *waiting_.begin()->second;
    if (free_slots_.size() < 1 + first.companions.size()) return;
    const int32_t num_free = blocks_.num_free() - num_promised_;
    if (&first == refused_ && num_free == refused_free_ && !running_.empty()) return;
    if (!PlanAdmission(first, batch, admission)) {
      refused_ = &first;
      refused_free_ = num_free;
      return;
    }
    if (admission.chunk == 0) return;
    Admit(admission, batch);
  }
}

int32_t Scheduler::Outstanding(const Sequence& sequence, int32_t covered, int32_t held) const {
  const int32_t left = blocks_.BlocksFor(sequence.num_max_tokens) - covered;
  if (!bounds_by_window_ || sequence.is_one_of_several()) return std::max(0, left);
  return std::max(0, std::min(left, peak_blocks_ - held));
}

// False: there is not enough room yet.
bool Scheduler::PlanAdmission(const Sequence& sequence, const Batch& batch, Admission& admission) {
  admission.prefix.clear();
  admission.chain = PrefixChain::Start(sequence.request->cache_salt);
  admission.num_kept = 0;
  if (!sequence.request->needs_whole_prompt()) {  // else nothing of it may be skipped
    // At least one token is left to compute: its logits are needed.
    blocks_.MatchPrefix(sequence.token_ids, (sequence.num_tokens() - 1) / limits_.block_size,
                        admission.chain, admission.prefix);
  }
  for (const int32_t block : admission.prefix) {
    if (!blocks_.is_referenced(block)) ++admission.num_kept;
  }
  const auto num_prefix = static_cast<int32_t>(admission.prefix.size());
  const int32_t left = sequence.num_tokens() - num_prefix * limits_.block_size;
  admission.chunk = ChunkSize(sequence, left, batch);
  admission.num_promised = 0;
  int32_t needed = 0;
  if (reserves(sequence)) {
    const int32_t shared = (sequence.num_prompt - 1) / limits_.block_size;
    const auto num_companions = static_cast<int32_t>(sequence.companions.size());
    admission.num_promised = Outstanding(sequence, num_prefix, num_prefix);
    needed = admission.num_promised + num_companions * Outstanding(sequence, shared, shared);
  } else {
    // One more than the tokens at hand, so that one that comes back does not give way at once; with
    // a window, no more than it can hold.
    needed = blocks_.BlocksFor(sequence.num_tokens() + 1) - num_prefix;
    if (bounds_by_window_) needed = std::min(needed, peak_blocks_);
  }
  return admission.num_kept + needed <= blocks_.num_free() - num_promised_;
}

void Scheduler::Admit(Admission& admission, Batch& batch) {
  auto node = waiting_.extract(waiting_.begin());
  std::unique_ptr<Sequence> owned = std::move(node.mapped());
  Sequence& sequence = *owned;
  for (const int32_t block : admission.prefix) blocks_.AddReference(block);
  sequence.num_reused_blocks = static_cast<int32_t>(admission.prefix.size());
  sequence.num_cached = sequence.num_reused_blocks * limits_.block_size;
  sequence.block_table.swap(admission.prefix);
  sequence.chain = admission.chain;
  if (blocks_.keeps_prefixes()) {
    ++counts_.num_prefix_lookups;
    counts_.num_reused_blocks += sequence.num_reused_blocks;
  }
  if (sequence.num_preemptions > 0) --counts_.num_paused;
  std::vector<std::unique_ptr<Sequence>> companions = std::move(sequence.companions);
  Run(std::move(owned));
  SetPromise(sequence, admission.num_promised);
  for (std::unique_ptr<Sequence>& companion : companions) {
    Sequence& other = *companion;
    other.is_dormant = true;
    ++num_dormant_;
    Run(std::move(companion));
    const int32_t shared = (other.num_prompt - 1) / limits_.block_size;
    SetPromise(other, Outstanding(other, shared, shared));
  }
  // Can not fail, and preempts nobody: there is room.
  EnsureBlocks(sequence, admission.chunk);
  AppendToBatch(sequence, admission.chunk, batch);
}

void Scheduler::Run(std::unique_ptr<Sequence> sequence) {
  sequence->slot = free_slots_.back();
  free_slots_.pop_back();
  const auto place = std::upper_bound(
      running_.begin(), running_.end(), sequence->rank,
      [](const SequenceRank& rank, const auto& other) { return rank < other->rank; });
  running_.insert(place, std::move(sequence));
}

int32_t Scheduler::ChunkSize(const Sequence& sequence, int32_t num_left, const Batch& batch) const {
  const int32_t budget = limits_.max_num_tokens - static_cast<int32_t>(batch.token_ids.size());
  if (num_left <= budget) return num_left;
  // A preempted sequence recomputes prompt and output: its chunks may be split in any case.
  const bool may_split = options_.chunked_prefill || sequence.num_output() > 0;
  return may_split ? budget : 0;
}

int32_t Scheduler::AllocateFor(Sequence& sequence) {
  if (sequence.num_promised > 0) SetPromise(sequence, sequence.num_promised - 1);
  ++sequence.num_new_blocks;
  ++counts_.num_new_blocks;
  return blocks_.Allocate();
}

bool Scheduler::EnsureBlocks(Sequence& sequence, int32_t num_tokens) {
  const int32_t end = sequence.num_cached + num_tokens;
  while (static_cast<int32_t>(sequence.block_table.size()) * limits_.block_size < end) {
    if (NumAvailable(sequence) > 0) {
      sequence.block_table.push_back(AllocateFor(sequence));
      continue;
    }
    // The last by rank that is not yet part of this step gives way; the caller's sequence at worst.
    size_t last = running_.size() - 1;
    while (running_[last].get() != &sequence &&
           (running_[last]->num_scheduled > 0 || running_[last]->is_one_of_several())) {
      --last;
    }
    const bool is_self = running_[last].get() == &sequence;
    Preempt(last);
    if (is_self) return false;
  }
  return true;
}

void Scheduler::Preempt(size_t running_index) {
  std::unique_ptr<Sequence> sequence = std::move(running_[running_index]);
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(running_index));
  ReleaseSlot(*sequence);
  sequence->num_cached = 0;
  ++counts_.num_preemptions;
  ++counts_.num_paused;
  ++sequence->num_preemptions;
  waiting_.emplace(sequence->rank, std::move(sequence));
}

void Scheduler::AppendToBatch(Sequence& sequence, int32_t num_tokens, Batch& batch) {
  sequence.num_scheduled = num_tokens;
  const bool is_last_chunk = sequence.num_cached + num_tokens == sequence.num_tokens();
  BatchSequence& entry = batch.sequences.emplace_back();
  entry.slot = sequence.slot;
  entry.first_token = static_cast<int32_t>(batch.token_ids.size());
  entry.num_tokens = num_tokens;
  entry.num_cached = sequence.num_cached;
  entry.block_table = sequence.block_table;
  entry.num_logits = is_last_chunk ? 1 : 0;
  entry.samples = is_last_chunk;
  if (is_last_chunk) {
    entry.sampling.params = &sequence.sampling();
    entry.sampling.token_ids = sequence.token_ids;
    entry.sampling.num_prompt = sequence.num_prompt;
    if (sequence.num_tokens() < sequence.num_min_tokens) {
      entry.sampling.banned_ids = sequence.request->stop.end_ids;
    }
  }
  if (num_tokens == 1) {
    batch.token_ids.push_back(sequence.token_ids[sequence.num_cached]);
  } else {
    const auto first = sequence.token_ids.begin() + sequence.num_cached;
    batch.token_ids.insert(batch.token_ids.end(), first, first + num_tokens);
  }
  if (sequence.is_special) AskForMore(sequence, entry);
  scheduled_.push_back(&sequence);
  if (num_tokens == 1 && sequence.num_output() > 0) {
    ++counts_.num_decode_sequences;
  } else {
    ++counts_.num_prefill_sequences;
    counts_.num_prefill_tokens += num_tokens;
  }
}

void Scheduler::AskForMore(const Sequence& sequence, BatchSequence& entry) const {
  const GenerationRequest& request = *sequence.request;
  if (entry.samples && request.uses_beams()) {
    entry.num_candidates = BeamSearch::NumCandidates(request.beams, request.stop);
  }
  if (sequence.rows == nullptr) return;
  entry.returns_logits = entry.samples && request.want_generation_logits;
  if (!request.needs_whole_prompt() || sequence.rows->num_prompt_rows >= sequence.num_prompt) {
    return;
  }
  entry.num_logits = entry.num_tokens;
  entry.returns_logits |= request.want_context_logits;
  if (!request.want_prompt_log_probs) return;
  const int32_t first = sequence.num_cached + 1;
  const int32_t count = std::min(entry.num_tokens, sequence.num_tokens() - first);
  entry.next_ids = std::span<const int32_t>(sequence.token_ids).subspan(first, count);
}

void Scheduler::MarkComputed() {
  if (copies_are_submitted_) FinishCopies();
  for (size_t i = 0; i < scheduled_.size(); ++i) {
    if (i + kSequencesAhead < scheduled_.size()) PrefetchSequence(*scheduled_[i + kSequencesAhead]);
    Sequence& sequence = *scheduled_[i];
    sequence.num_cached += std::exchange(sequence.num_scheduled, 0);
    if (blocks_.keeps_prefixes()) PreparePrefix(sequence);
  }
  KeepPrefixes();
  if (num_dormant_ == 0 && limits_.attention_window == 0) return;
  for (Sequence* sequence : scheduled_) {
    if (num_dormant_ > 0 && sequence->index == 0 && sequence->is_one_of_several()) {
      if (sequence->num_cached < sequence->num_prompt) continue;  // all of it is still to be shared
      if (!sequence->request->uses_beams()) WakeCompanions(*sequence);
    }
    if (limits_.attention_window > 0) ReleasePassedBlocks(*sequence);
  }
}

void Scheduler::PreparePrefix(Sequence& sequence) {
  const int32_t block = sequence.chain.num_blocks;
  if ((block + 1) * limits_.block_size > sequence.num_cached || !sequence.keeps_prefix) return;
  const int32_t* tokens =
      sequence.token_ids.data() + static_cast<size_t>(block) * limits_.block_size;
  new_prefixes_.push_back(
      {&sequence, blocks_.PreparePrefix(tokens, sequence.block_table[block], sequence.chain)});
}

void Scheduler::KeepPrefixes() {
  const int32_t size = limits_.block_size;
  for (auto& [sequence, hash] : new_prefixes_) {
    const int32_t end = sequence->num_cached / size;
    for (int32_t i = sequence->chain.num_blocks; i < end; ++i) {
      const int32_t* tokens = sequence->token_ids.data() + static_cast<size_t>(i) * size;
      const int32_t block = sequence->block_table[i];
      blocks_.KeepPrefix(tokens, block, hash, sequence->chain);
      if (i + 1 == end) break;
      hash = blocks_.PreparePrefix(tokens + size, sequence->block_table[i + 1], sequence->chain);
    }
  }
  new_prefixes_.clear();
}

void Scheduler::ReleasePassedBlocks(Sequence& sequence) {
  // The next token stands at num_cached and sees itself too.
  int32_t recent = limits_.attention_window - limits_.num_sink_tokens;
  // Without copies, another may have to compute from the beginning of the newest block on.
  if (!features_.block_copies && sequence.is_one_of_several()) recent += limits_.block_size;
  const int32_t end = (sequence.num_cached + 1 - recent) / limits_.block_size;
  if (end <= sequence.end_released || end <= num_sink_blocks_) return;
  for (int32_t i = std::max(num_sink_blocks_, sequence.end_released); i < end; ++i) {
    blocks_.Release(sequence.block_table[i]);
    sequence.block_table[i] = BlockManager::kReleased;
  }
  sequence.end_released = end;
  if (!reserves(sequence)) return;
  const auto covered = static_cast<int32_t>(sequence.block_table.size());
  SetPromise(sequence, Outstanding(sequence, covered, NumHeld(sequence)));
}

void Scheduler::WakeCompanions(Sequence& first) {
  for (const auto& sequence : running_) {
    if (!sequence->is_dormant || sequence->request != first.request) continue;
    sequence->is_dormant = false;
    --num_dormant_;
    Share(first, *sequence);
  }
}

void Scheduler::Rest(Sequence& sequence) {
  const int32_t num_free = blocks_.num_free();
  blocks_.ReleaseAll(sequence.block_table, num_sink_blocks_, sequence.end_released);
  // What it gave back it may need again; blocks that other beams hold too will be shared again.
  SetPromise(sequence, sequence.num_promised + blocks_.num_free() - num_free);
  sequence.end_released = 0;
  sequence.num_cached = 0;
  sequence.is_dormant = true;
  ++num_dormant_;
}

void Scheduler::Fork(const Sequence& from, int32_t next_token, Sequence& to) {
  to.token_ids = from.token_ids;
  to.token_ids.push_back(next_token);
  to.is_dormant = false;
  --num_dormant_;
  Share(from, to);
}

void Scheduler::Share(const Sequence& from, Sequence& to) {
  const int32_t size = limits_.block_size;
  const int32_t num_shared = std::min(from.num_cached, to.num_tokens() - 1);
  const int32_t num_full = num_shared / size;
  to.block_table.assign(from.block_table.begin(), from.block_table.begin() + num_full);
  to.end_released = std::min(from.end_released, num_full);
  for (int32_t i = 0; i < num_full; ++i) {
    if (i < num_sink_blocks_ || i >= to.end_released) blocks_.AddReference(to.block_table[i]);
  }
  to.num_cached = num_full * size;
  // A chain can not be shortened: where it is longer, `to` leaves the rest to others.
  to.keeps_prefix = from.keeps_prefix && from.chain.num_blocks == num_full;
  if (to.keeps_prefix) to.chain = from.chain;
  SetPromise(to, Outstanding(to, num_full, NumHeld(to)));
  if (features_.block_copies && num_shared > to.num_cached) {
    const int32_t source = from.block_table[num_full];
    const int32_t copy = AllocateFor(to);
    to.block_table.push_back(copy);
    to.num_cached = num_shared;
    copies_.push_back({source, copy});
    blocks_.AddReference(source);
    blocks_.AddReference(copy);
  }
}

void Scheduler::FinishCopies() {
  for (const BlockCopy& copy : copies_) {
    blocks_.Release(copy.from);
    blocks_.Release(copy.to);
  }
  copies_.clear();
  copies_are_submitted_ = false;
}

std::vector<std::unique_ptr<Sequence>> Scheduler::Remove(
    const std::function<bool(const Sequence&)>& finished) {
  std::vector<std::unique_ptr<Sequence>> removed;
  size_t kept = 0;
  for (size_t i = 0; i < running_.size(); ++i) {
    if (i + kSequencesAhead < running_.size()) PrefetchSequence(*running_[i + kSequencesAhead]);
    if (finished(*running_[i])) {
      ReleaseSlot(*running_[i]);
      removed.push_back(std::move(running_[i]));
    } else if (i != kept++) {
      running_[kept - 1] = std::move(running_[i]);
    }
  }
  running_.resize(kept);
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (!finished(*it->second)) {
      ++it;
      continue;
    }
    if (it->second->num_preemptions > 0) --counts_.num_paused;
    removed.push_back(std::move(it->second));
    it = waiting_.erase(it);
  }
  refused_ = nullptr;
  if (running_.empty()) FinishCopies();  // there is no next step to make them
  return removed;
}

void Scheduler::ReleaseSlot(Sequence& sequence) {
  blocks_.ReleaseAll(sequence.block_table, num_sink_blocks_, sequence.end_released);
  sequence.end_released = 0;
  SetPromise(sequence, 0);
  if (std::exchange(sequence.is_dormant, false)) --num_dormant_;
  free_slots_.push_back(std::exchange(sequence.slot, -1));
}

void Scheduler::SetPromise(Sequence& sequence, int32_t num_blocks) {
  num_promised_ += num_blocks - sequence.num_promised;
  sequence.num_promised = num_blocks;
}

SchedulerCounts Scheduler::counts() const {
  SchedulerCounts counts = counts_;
  counts.num_waiting = static_cast<int32_t>(waiting_.size());
  counts.num_running = static_cast<int32_t>(running_.size());
  return counts;
}

Status Scheduler::CheckInvariants() const {
  std::vector<std::vector<int32_t>> held;
  int32_t promised = 0;
  for (const auto& sequence : running_) {
    std::vector<int32_t>& blocks = held.emplace_back(sequence->block_table);
    if (sequence->end_released > num_sink_blocks_) {
      blocks.erase(blocks.begin() + num_sink_blocks_, blocks.begin() + sequence->end_released);
    }
    promised += sequence->num_promised;
    if (sequence->num_cached >
        static_cast<int32_t>(sequence->block_table.size()) * limits_.block_size) {
      return InternalError("sequence in slot ", sequence->slot, ": ", sequence->num_cached,
                           " cached tokens in ", sequence->block_table.size(), " blocks");
    }
  }
  for (const auto& [rank, sequence] : waiting_) held.push_back(sequence->block_table);
  for (const BlockCopy& copy : copies_) held.push_back({copy.from, copy.to});
  if (promised != num_promised_ || promised > blocks_.num_free()) {
    return InternalError("promised KV blocks: ", num_promised_, " counted, ", promised, " held, ",
                         blocks_.num_free(), " free");
  }
  if (free_slots_.size() + running_.size() != static_cast<size_t>(limits_.max_num_sequences)) {
    return InternalError("slots: ", free_slots_.size(), " free, ", running_.size(), " in use, ",
                         limits_.max_num_sequences, " in all");
  }
  const std::vector<std::span<const int32_t>> tables(held.begin(), held.end());
  return blocks_.CheckInvariants(tables);
}

}  // namespace nereid::llm
