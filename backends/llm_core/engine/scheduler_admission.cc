// Whether a request can run at all, and when it starts.
#include <algorithm>
#include <utility>

#include "backends/llm_core/engine/scheduler.h"

namespace nereid::llm {

Status Scheduler::CheckFits(int64_t num_prompt, int64_t max_tokens, int32_t num_sequences) const {
  const int64_t total = num_prompt + max_tokens;
  if (num_prompt >= limits_.max_positions) {
    return InvalidArgError("prompt of ", num_prompt, " tokens: the model's limit is ",
                           limits_.max_positions, " tokens, prompt and output together");
  }
  if (total > limits_.max_positions) {
    return InvalidArgError("prompt of ", num_prompt, " tokens and max_tokens (request_output_len) ",
                           max_tokens, " make ", total, " tokens, over the model's limit of ",
                           limits_.max_positions);
  }
  if (num_sequences > limits_.max_num_sequences) {
    return InvalidArgError("request of ", num_sequences, " sequences: at most ",
                           limits_.max_num_sequences, " can run at a time");
  }
  const int64_t capacity = int64_t{limits_.num_blocks} * limits_.block_size;
  const int64_t needed = kv_cache_.NumNeeded(num_prompt, total, num_sequences);
  if (needed > limits_.num_blocks) {
    return InvalidArgError(
        "prompt of ", num_prompt, " tokens and max_tokens (request_output_len) ", max_tokens,
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

int32_t Scheduler::FittingTokens(int64_t num_prompt, int32_t max_tokens,
                                 int32_t num_sequences) const {
  int64_t fits = 1;
  int64_t too_many = std::min<int64_t>(max_tokens, limits_.max_positions - num_prompt) + 1;
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    const int64_t needed = kv_cache_.NumNeeded(num_prompt, num_prompt + middle, num_sequences);
    (needed <= limits_.num_blocks ? fits : too_many) = middle;
  }
  return static_cast<int32_t>(fits);
}

void Scheduler::Add(std::unique_ptr<Sequence> sequence) {
  const int64_t due = step_ + int64_t{sequence->request->priority} * options_.steps_per_priority;
  sequence->rank = {due, next_number_++};
  const StopCriteria& stop = sequence->request->stop;
  sequence->num_max_tokens = sequence->num_prompt + stop.max_tokens;
  sequence->num_min_tokens = sequence->num_prompt + std::min(stop.min_tokens, stop.max_tokens);
  // Sequences of one request share blocks, so that all use the kind of keys that the longest of
  // them can need.
  sequence->uses_long_rope = limits_.long_rope_positions > 0 && sequence->has_siblings() &&
                             sequence->num_max_tokens > limits_.long_rope_positions;
  for (const auto& sibling : sequence->siblings) {
    sibling->uses_long_rope = sequence->uses_long_rope;
    sibling->rank = {due, next_number_++};
    sibling->num_min_tokens = sequence->num_min_tokens;
    sibling->num_max_tokens = sequence->num_max_tokens;
  }
  EnqueueWaiting(std::move(sequence));
}

void Scheduler::EnqueueWaiting(std::unique_ptr<Sequence> sequence) {
  num_waiting_prompts_ += sequence->num_prompt;
  waiting_.emplace(sequence->rank, std::move(sequence));
}

// In order of rank. A sequence that waits for blocks to be fetched or for its adapter lets those
// behind it start. Any other that cannot start ends the search: none is overtaken because it needs
// more memory than others.
void Scheduler::AdmitWaiting(StepBatch& batch) {
  using Turn = RunningAdapters::Turn;
  running_adapters_.BeginStep(waiting_, !running_.empty());
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    Sequence& sequence = *next->second;
    const Turn turn = PlanStart(sequence);
    if (turn == Turn::kWaitAll) return;
    if (turn == Turn::kWait) {
      ++next;
      continue;
    }
    const int32_t num_reused = static_cast<int32_t>(admission_.prefix.size()) * limits_.block_size;
    const int32_t chunk = ChunkSize(sequence, sequence.num_tokens() - num_reused, batch);
    if (chunk == 0) return;
    running_adapters_.NoteStart(sequence);
    Admit(next++, chunk, batch);
  }
}

RunningAdapters::Turn Scheduler::PlanStart(Sequence& sequence) {
  using Turn = RunningAdapters::Turn;
  if (kv_cache_.is_fetching(sequence)) return Turn::kWait;
  const Turn turn = running_adapters_.TurnOf(sequence, !running_.empty());
  if (turn != Turn::kStart) return turn;
  sequence.uses_long_rope |= OutgrewShortRope(sequence);
  if (free_slots_.size() < 1 + sequence.siblings.size()) return Turn::kWaitAll;
  if (sequence.num_pending > 0) return Turn::kWaitAll;  // was preempted while a step sampled for it
  const int32_t num_free = kv_cache_.num_unreserved();
  const bool was_blocked = &sequence == blocked_head_ && num_free == blocked_head_free_;
  if (was_blocked && !running_.empty()) return Turn::kWaitAll;
  if (!kv_cache_.PlanAdmission(sequence, admission_)) {
    blocked_head_ = &sequence;
    blocked_head_free_ = num_free;
    return Turn::kWaitAll;
  }
  return kv_cache_.BeginFetch(sequence, admission_) ? Turn::kWait : Turn::kStart;
}

void Scheduler::Admit(std::map<SequenceRank, std::unique_ptr<Sequence>>::iterator waiting,
                      int32_t chunk, StepBatch& batch) {
  auto node = waiting_.extract(waiting);
  std::unique_ptr<Sequence> owned = std::move(node.mapped());
  Sequence& sequence = *owned;
  num_waiting_prompts_ -= sequence.num_prompt;
  kv_cache_.Admit(admission_, sequence);
  // A preempted sequence also finds its own blocks again.
  if (sequence.num_preemptions == 0) sequence.request->num_cached_tokens = sequence.num_cached;
  if (kv_cache_.has_prefix_cache()) {
    ++counts_.num_prefix_lookups;
    counts_.num_reused_blocks += sequence.num_reused_blocks;
  }
  if (sequence.num_preemptions > 0) --counts_.num_paused;
  std::vector<std::unique_ptr<Sequence>> siblings = std::move(sequence.siblings);
  StartRunning(std::move(owned));
  for (std::unique_ptr<Sequence>& sibling : siblings) {
    sibling->is_suspended = true;
    ++num_suspended_;
    kv_cache_.Reserve(*sibling);
    StartRunning(std::move(sibling));
  }
  // Cannot fail and preempts nobody, because the blocks were planned.
  EnsureBlocks(sequence, chunk);
  AppendToBatch(sequence, chunk, batch);
}

void Scheduler::StartRunning(std::unique_ptr<Sequence> sequence) {
  running_adapters_.Add(*sequence->request);
  counts_.num_further_beams += sequence->is_further_beam() ? 1 : 0;
  sequence->slot = free_slots_.back();
  free_slots_.pop_back();
  const auto place = std::upper_bound(
      running_.begin(), running_.end(), sequence->rank,
      [](const SequenceRank& rank, const auto& other) { return rank < other->rank; });
  running_.insert(place, std::move(sequence));
}

}  // namespace nereid::llm
