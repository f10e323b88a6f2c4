// What the running sequences compute in a step, and how they leave the scheduler.
#include "backends/llm_core/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "backends/llm_core/engine/sequence_step.h"

namespace nereid::llm {
namespace {

constexpr size_t kSequencesAhead = Sequence::kPrefetchDistance;

// A mixed step may take 1 / kQueueSteps of all waiting prompt tokens, if that exceeds its other
// bounds. A single long prompt then delays decoding sequences little, and a long queue is still
// processed in full steps.
constexpr int64_t kQueueSteps = 8;

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, const ExecutorLimits& limits,
                     const ExecutorFeatures& features)
    : options_(options),
      limits_(limits),
      kv_cache_({.reserves_all = options.policy == CapacityPolicy::kGuaranteedNoEvict,
                 .prefix_cache = options.prefix_cache,
                 .block_copies = features.block_copies,
                 .storage = options.storage},
                limits),
      running_adapters_(limits.adapter_bytes, options.prepare_adapter) {
  for (int32_t slot = limits.max_num_sequences - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

void Scheduler::Schedule(StepBatch& batch) {
  batch.Clear();
  scheduled_.clear();
  ++step_;
  counts_.num_prefill_tokens = 0;
  counts_.num_prefill_sequences = 0;
  counts_.num_decode_sequences = 0;
  counts_.num_decode_further_beams = 0;
  kv_cache_.fetches().Collect(/*waits=*/false);
  ScheduleRunning(batch);
  if (!waiting_.empty()) AdmitWaiting(batch);
  const std::span<const BlockCopy> copies = kv_cache_.copies().Submit();
  batch.block_copies.assign(copies.begin(), copies.end());
}

// Decoding sequences are scheduled before prompts, whatever their rank, so that a long prompt never
// delays the next token of the others.
void Scheduler::ScheduleRunning(StepBatch& batch) {
  prefilling_.clear();
  step_limit_ = limits_.max_num_tokens;
  draft_budget_ = DraftBudget();
  for (size_t i = 0; i < running_.size();) {
    if (i + 2 * kSequencesAhead < running_.size()) {
      running_[i + 2 * kSequencesAhead]->Prefetch();
      running_[i + kSequencesAhead]->PrefetchTokens();
      PrefetchEntry(batch, kSequencesAhead);
    }
    Sequence& sequence = *running_[i];
    const int32_t left = sequence.num_tokens() - sequence.num_cached;
    if (sequence.num_pending > 0 && sequence.num_tokens() >= sequence.num_max_tokens) {
      ++i;  // ends with the pending token
    } else if (OutgrewShortRope(sequence)) {
      Preempt(i);  // another sequence is now at index i; this one is readmitted with its new needs
    } else if (left != 1 || sequence.is_suspended) {
      if (left > 1 && !sequence.is_suspended) prefilling_.push_back(&sequence);
      ++i;
    } else if (ChunkSize(sequence, 1, batch) == 0) {
      ++i;
    } else if (EnsureBlocks(sequence, 1)) {
      if (sequence.num_drafts > 0) LimitDrafts(sequence);
      AppendToBatch(sequence, 1, batch);
      ++i;  // a preempted sequence was at a higher index
    }       // otherwise the sequence itself was preempted, and another is now at index i
  }
  LimitPrefillTokens(batch);
  for (Sequence* sequence : prefilling_) {
    if (sequence->slot < 0) continue;  // was preempted
    const int32_t left = sequence->num_tokens() - sequence->num_cached;
    const int32_t chunk = ChunkSize(*sequence, left, batch);
    if (chunk > 0 && EnsureBlocks(*sequence, chunk)) AppendToBatch(*sequence, chunk, batch);
  }
}

int32_t Scheduler::DraftBudget() const {
  const int32_t budget = (limits_.max_num_tokens - static_cast<int32_t>(running_.size())) / 2;
  if (limits_.max_num_sampled == 0) return budget;
  // Every sequence that may be in the step can sample.
  const size_t most = running_.size() + std::min(waiting_.size(), free_slots_.size());
  return std::min(budget, limits_.max_num_sampled - static_cast<int32_t>(most));
}

// Every position of the entry is sampled by the same rules: it does not cross the length from which
// end ids are allowed. Drafts neither take tokens of the step from other sequences nor blocks that
// those may need soon.
void Scheduler::LimitDrafts(Sequence& sequence) {
  const int32_t num_tokens = sequence.num_tokens();
  int32_t most = std::min(draft_budget_, sequence.max_drafts());
  if (num_tokens < sequence.num_min_tokens) {
    most = std::min(most, sequence.num_min_tokens - num_tokens - 1);
  }
  if (limits_.long_rope_positions > 0 && !sequence.uses_long_rope) {
    most = std::min(most, limits_.long_rope_positions - num_tokens);
  }
  most = std::clamp<int32_t>(most, 0, sequence.num_drafts);
  const bool has_spare_blocks = sequence.num_reserved > 0 ||
                                kv_cache_.num_unreserved() > static_cast<int32_t>(running_.size());
  if (!has_spare_blocks || !kv_cache_.AllocateFor(sequence, 1 + most)) {
    const auto covered = static_cast<int32_t>(sequence.block_table.size()) * limits_.block_size;
    most = std::min(most, covered - sequence.num_cached - 1);
  }
  sequence.num_drafts = static_cast<uint8_t>(most);
  draft_budget_ -= most;
}

void Scheduler::LimitPrefillTokens(const StepBatch& batch) {
  if (options_.mixed_step_tokens == 0 || !options_.chunked_prefill || batch.entries.empty()) return;
  int64_t backlog = num_waiting_prompts_;
  for (const Sequence* sequence : prefilling_) {
    if (sequence->slot >= 0) backlog += sequence->num_tokens() - sequence->num_cached;
  }
  const auto num_decode = static_cast<int64_t>(batch.token_ids.size());
  const int64_t least = std::max<int64_t>((options_.mixed_step_tokens + 1) / 2, num_decode);
  const int64_t bound =
      std::max({int64_t{options_.mixed_step_tokens}, num_decode + least, backlog / kQueueSteps});
  step_limit_ = static_cast<int32_t>(std::min<int64_t>(step_limit_, bound));
}

int32_t Scheduler::ChunkSize(const Sequence& sequence, int32_t num_left,
                             const StepBatch& batch) const {
  const int32_t budget = step_limit_ - static_cast<int32_t>(batch.token_ids.size());
  if (num_left <= budget) return num_left;
  // A preempted sequence recomputes prompt and output, so that its chunks may be split in any case.
  const bool may_split = options_.chunked_prefill || sequence.num_output() > 0;
  return may_split ? budget : 0;
}

bool Scheduler::EnsureBlocks(Sequence& sequence, int32_t num_tokens) {
  while (!kv_cache_.AllocateFor(sequence, num_tokens)) {
    // Preempt the last sequence by rank that is not yet part of this step; in the worst case the
    // caller's own.
    size_t last = running_.size() - 1;
    while (running_[last].get() != &sequence &&
           (running_[last]->scheduled_at == static_cast<uint32_t>(step_) ||
            running_[last]->has_siblings())) {
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
  sequence->num_drafts = 0;
  ++counts_.num_preemptions;
  ++counts_.num_paused;
  ++sequence->num_preemptions;
  EnqueueWaiting(std::move(sequence));
}

void Scheduler::AppendToBatch(Sequence& sequence, int32_t num_tokens, StepBatch& batch) {
  sequence.scheduled_at = static_cast<uint32_t>(step_);
  AppendBatchEntry(sequence, num_tokens, batch);
  scheduled_.push_back(&sequence);
  sequence.num_cached += num_tokens;
  if (kv_cache_.has_new_prefix(sequence)) {
    with_full_blocks_.push_back(&sequence);
    kv_cache_.PrefetchNewPrefix(sequence);
  }
  CountPart(sequence, num_tokens, 1);
}

void Scheduler::CountPart(const Sequence& sequence, int32_t num_tokens, int32_t change) {
  if (num_tokens == 1 && sequence.num_output() > 0) {
    counts_.num_decode_sequences += change;
    counts_.num_decode_further_beams += sequence.is_further_beam() ? change : 0;
  } else {
    counts_.num_prefill_sequences += change;
    counts_.num_prefill_tokens += change * num_tokens;
  }
}

void Scheduler::MarkComputed() {
  kv_cache_.copies().FinishSubmitted();
  for (size_t i = 0; i < with_full_blocks_.size(); ++i) {
    if (i + kSequencesAhead < with_full_blocks_.size())
      with_full_blocks_[i + kSequencesAhead]->Prefetch();
    kv_cache_.QueuePrefixInsert(*with_full_blocks_[i]);
  }
  with_full_blocks_.clear();
  kv_cache_.InsertQueuedPrefixes();
  if (num_suspended_ == 0 && limits_.attention_window == 0) return;
  for (Sequence* sequence : scheduled_) {
    if (num_suspended_ > 0 && sequence->index == 0 && sequence->has_siblings()) {
      if (sequence->num_cached < sequence->num_prompt)
        continue;  // the rest of the prompt is not computed yet and still to be shared
      if (!sequence->request->uses_beams()) ResumeSiblings(*sequence);
    }
    if (limits_.attention_window > 0) kv_cache_.ReleaseOutOfWindow(*sequence);
  }
}

void Scheduler::ResumeSiblings(Sequence& first) {
  for (const auto& sequence : running_) {
    if (!sequence->is_suspended || sequence->request != first.request) continue;
    sequence->is_suspended = false;
    --num_suspended_;
    kv_cache_.ShareBlocks(first, *sequence);
  }
}

void Scheduler::Suspend(Sequence& sequence) {
  kv_cache_.Suspend(sequence);
  sequence.is_suspended = true;
  ++num_suspended_;
}

void Scheduler::Fork(const Sequence& from, int32_t next_token, Sequence& to) {
  to.token_ids = from.token_ids;
  to.token_ids.push_back(next_token);
  to.is_suspended = false;
  --num_suspended_;
  kv_cache_.ShareBlocks(from, to);
}

std::vector<std::unique_ptr<Sequence>> Scheduler::Remove(
    const std::function<bool(const Sequence&)>& finished) {
  std::vector<std::unique_ptr<Sequence>> removed;
  size_t kept = 0;
  for (size_t i = 0; i < running_.size(); ++i) {
    if (i + kSequencesAhead < running_.size()) running_[i + kSequencesAhead]->Prefetch();
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
    num_waiting_prompts_ -= it->second->num_prompt;
    removed.push_back(std::move(it->second));
    it = waiting_.erase(it);
  }
  blocked_head_ = nullptr;
  if (running_.empty()) kv_cache_.copies().Finish();  // no further step will make them
  return removed;
}

std::vector<std::unique_ptr<Sequence>> Scheduler::Remove(
    std::span<const Sequence* const> finished) {
  std::vector<std::unique_ptr<Sequence>> removed;
  size_t num_running = 0;
  for (const Sequence* sequence : finished) {
    if (sequence->slot >= 0) {
      ++num_running;
      continue;
    }
    auto node = waiting_.extract(sequence->rank);  // was preempted while its last token was sampled
    --counts_.num_paused;
    num_waiting_prompts_ -= node.mapped()->num_prompt;
    removed.push_back(std::move(node.mapped()));
  }
  // Finished sequences are few and usually in running order, so that one pass finds them.
  auto from = running_.begin();
  for (const Sequence* sequence : finished) {
    if (sequence->slot < 0) continue;
    const auto is_it = [&](const auto& other) { return other.get() == sequence; };
    auto place = std::find_if(from, running_.end(), is_it);
    if (place == running_.end()) place = std::find_if(running_.begin(), from, is_it);
    ReleaseSlot(**place);
    removed.push_back(std::move(*place));
    from = place;
  }
  if (num_running > 0) std::erase(running_, nullptr);
  blocked_head_ = nullptr;
  if (running_.empty()) kv_cache_.copies().Finish();  // no further step will make them
  return removed;
}

// What the step would have written is not computed, so that none of it enters the prefix cache.
std::vector<std::unique_ptr<Sequence>> Scheduler::RemoveUsers(const LoraAdapter& adapter,
                                                              StepBatch& batch) {
  const auto uses_it = [&](const Sequence& sequence) {
    return sequence.slot >= 0 && sequence.request->adapter.get() == &adapter;
  };
  std::vector<bool> is_removed;
  for (size_t i = 0; i < scheduled_.size(); ++i) {
    is_removed.push_back(uses_it(*scheduled_[i]));
    const BatchEntry& entry = batch.entries[i];
    if (is_removed[i]) CountPart(*scheduled_[i], entry.num_tokens - entry.num_draft_tokens, -1);
  }
  RemoveBatchEntries(is_removed, batch);
  const auto is_user = [&](const Sequence* sequence) { return uses_it(*sequence); };
  std::erase_if(scheduled_, is_user);
  std::erase_if(with_full_blocks_, is_user);
  return Remove(uses_it);
}

void Scheduler::ReleaseSlot(Sequence& sequence) {
  kv_cache_.Release(sequence);
  running_adapters_.Remove(*sequence.request);
  counts_.num_further_beams -= sequence.is_further_beam() ? 1 : 0;
  if (std::exchange(sequence.is_suspended, false)) --num_suspended_;
  free_slots_.push_back(std::exchange(sequence.slot, -1));
}

SchedulerCounts Scheduler::counts() const {
  SchedulerCounts counts = counts_;
  counts.num_new_blocks = kv_cache_.num_new_blocks();
  counts.num_kept_blocks = kv_cache_.blocks().num_moved_out();
  counts.num_fetched_blocks = kv_cache_.fetches().num_fetched();
  counts.num_outside_blocks = kv_cache_.blocks().num_outside();
  counts.num_waiting = static_cast<int32_t>(waiting_.size());
  counts.num_running = static_cast<int32_t>(running_.size());
  return counts;
}

Status Scheduler::CheckInvariants() const {
  if (free_slots_.size() + running_.size() != static_cast<size_t>(limits_.max_num_sequences)) {
    return InternalError("slots: ", free_slots_.size(), " free, ", running_.size(), " in use, ",
                         limits_.max_num_sequences, " in all");
  }
  std::vector<const Sequence*> sequences;
  for (const auto& sequence : running_) sequences.push_back(sequence.get());
  const auto num_further = std::count_if(sequences.begin(), sequences.end(),
                                         [](const auto* each) { return each->is_further_beam(); });
  if (num_further != counts_.num_further_beams) {
    return InternalError("further beams: ", num_further, ", counted ", counts_.num_further_beams);
  }
  int64_t num_waiting_prompts = 0;
  for (const auto& [rank, sequence] : waiting_) {
    sequences.push_back(sequence.get());
    num_waiting_prompts += sequence->num_prompt;
  }
  if (num_waiting_prompts != num_waiting_prompts_) {
    return InternalError("waiting prompts: ", num_waiting_prompts, " tokens, counted ",
                         num_waiting_prompts_);
  }
  return kv_cache_.CheckInvariants(sequences);
}

}  // namespace nereid::llm
