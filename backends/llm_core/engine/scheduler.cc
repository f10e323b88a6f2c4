// Token budget, admission, preemption.
#include "backends/llm_core/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "backends/llm_core/engine/batch_entry.h"

namespace nereid::llm {
namespace {

constexpr size_t kSequencesAhead = Sequence::kAhead;

// A step may have this part of the prompts that wait, where that is more than its bound: one long
// prompt does not hold up those who decode for whole steps, a long queue is worked off in full
// ones.
constexpr int64_t kQueueSteps = 8;

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, const ExecutorLimits& limits,
                     const ExecutorFeatures& features)
    : options_(options),
      limits_(limits),
      ledger_({options.policy == CapacityPolicy::kGuaranteedNoEvict, options.prefix_cache,
               features.block_copies},
              limits) {
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
  const int64_t needed = ledger_.NumNeeded(num_prompt, total, num_sequences);
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
  // Several sequences of a request share blocks: they are what the longest of them can become.
  sequence->is_long = limits_.long_positions > 0 && sequence->is_one_of_several() &&
                      sequence->num_max_tokens > limits_.long_positions;
  for (const auto& companion : sequence->companions) {
    companion->is_long = sequence->is_long;
    companion->rank = {due, next_number_++};
    companion->num_min_tokens = sequence->num_min_tokens;
    companion->num_max_tokens = sequence->num_max_tokens;
  }
  Wait(std::move(sequence));
}

void Scheduler::Wait(std::unique_ptr<Sequence> sequence) {
  num_waiting_prompts_ += sequence->num_prompt;
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
  const std::span<const BlockCopy> copies = ledger_.SubmitCopies();
  batch.block_copies.assign(copies.begin(), copies.end());
}

// Sequences that decode come before those with prompt left, whatever their rank, so that a long
// prompt never delays the next token of the others.
void Scheduler::ScheduleRunning(Batch& batch) {
  prefilling_.clear();
  step_limit_ = limits_.max_num_tokens;
  for (size_t i = 0; i < running_.size();) {
    if (i + 2 * kSequencesAhead < running_.size()) {
      running_[i + 2 * kSequencesAhead]->Prefetch();
      running_[i + kSequencesAhead]->PrefetchTokens();
      PrefetchEntry(batch, kSequencesAhead);
    }
    Sequence& sequence = *running_[i];
    const int32_t left = sequence.num_tokens() - sequence.num_cached;
    if (sequence.num_pending > 0 && sequence.num_tokens() >= sequence.num_max_tokens) {
      ++i;  // ends with the token that is pending
    } else if (Outgrew(sequence)) {
      Preempt(i);  // another one stands at i; this one is admitted again, with what it needs now
    } else if (left != 1 || sequence.is_dormant) {
      if (left > 1 && !sequence.is_dormant) prefilling_.push_back(&sequence);
      ++i;
    } else if (ChunkSize(sequence, 1, batch) == 0) {
      ++i;
    } else if (EnsureBlocks(sequence, 1)) {
      AppendToBatch(sequence, 1, batch);
      ++i;  // whoever gave way stood behind
    }       // else: the sequence itself gave way, and another one stands at i
  }
  LimitPrompts(batch);
  for (Sequence* sequence : prefilling_) {
    if (sequence->slot < 0) continue;  // gave way
    const int32_t left = sequence->num_tokens() - sequence->num_cached;
    const int32_t chunk = ChunkSize(*sequence, left, batch);
    if (chunk > 0 && EnsureBlocks(*sequence, chunk)) AppendToBatch(*sequence, chunk, batch);
  }
}

void Scheduler::LimitPrompts(const Batch& batch) {
  if (options_.mixed_step_tokens == 0 || !options_.chunked_prefill || batch.sequences.empty())
    return;
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

void Scheduler::AdmitWaiting(Batch& batch) {
  while (!waiting_.empty()) {  // in order: nobody overtakes
    Sequence& first = *waiting_.begin()->second;
    first.is_long |= Outgrew(first);
    if (free_slots_.size() < 1 + first.companions.size()) return;
    if (first.num_pending > 0) return;  // gave way while a step drew its next token
    const int32_t num_free = ledger_.num_unpromised();
    if (&first == refused_ && num_free == refused_free_ && !running_.empty()) return;
    if (!ledger_.Plan(first, grant_)) {
      refused_ = &first;
      refused_free_ = num_free;
      return;
    }
    const int32_t num_reused = static_cast<int32_t>(grant_.prefix.size()) * limits_.block_size;
    const int32_t chunk = ChunkSize(first, first.num_tokens() - num_reused, batch);
    if (chunk == 0) return;
    Admit(chunk, batch);
  }
}

void Scheduler::Admit(int32_t chunk, Batch& batch) {
  auto node = waiting_.extract(waiting_.begin());
  std::unique_ptr<Sequence> owned = std::move(node.mapped());
  Sequence& sequence = *owned;
  num_waiting_prompts_ -= sequence.num_prompt;
  ledger_.Take(grant_, sequence);
  if (ledger_.keeps_prefixes()) {
    ++counts_.num_prefix_lookups;
    counts_.num_reused_blocks += sequence.num_reused_blocks;
  }
  if (sequence.num_preemptions > 0) --counts_.num_paused;
  std::vector<std::unique_ptr<Sequence>> companions = std::move(sequence.companions);
  Run(std::move(owned));
  for (std::unique_ptr<Sequence>& companion : companions) {
    companion->is_dormant = true;
    ++num_dormant_;
    ledger_.Promise(*companion);
    Run(std::move(companion));
  }
  // Can not fail, and preempts nobody: there is room.
  EnsureBlocks(sequence, chunk);
  AppendToBatch(sequence, chunk, batch);
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
  const int32_t budget = step_limit_ - static_cast<int32_t>(batch.token_ids.size());
  if (num_left <= budget) return num_left;
  // A preempted sequence recomputes prompt and output: its chunks may be split in any case.
  const bool may_split = options_.chunked_prefill || sequence.num_output() > 0;
  return may_split ? budget : 0;
}

bool Scheduler::EnsureBlocks(Sequence& sequence, int32_t num_tokens) {
  while (!ledger_.Cover(sequence, num_tokens)) {
    // The last by rank that is not yet part of this step gives way; the caller's sequence at worst.
    size_t last = running_.size() - 1;
    while (running_[last].get() != &sequence &&
           (running_[last]->scheduled_at == step_ || running_[last]->is_one_of_several())) {
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
  Wait(std::move(sequence));
}

void Scheduler::AppendToBatch(Sequence& sequence, int32_t num_tokens, Batch& batch) {
  sequence.scheduled_at = step_;
  AppendEntry(sequence, num_tokens, batch);
  scheduled_.push_back(&sequence);
  sequence.num_cached += num_tokens;
  if (ledger_.has_new_prefix(sequence)) {
    filled_.push_back(&sequence);
    ledger_.PrefetchNewPrefix(sequence);
  }
  if (num_tokens == 1 && sequence.num_output() > 0) {
    ++counts_.num_decode_sequences;
  } else {
    ++counts_.num_prefill_sequences;
    counts_.num_prefill_tokens += num_tokens;
  }
}

void Scheduler::MarkComputed() {
  ledger_.FinishSubmittedCopies();
  for (size_t i = 0; i < filled_.size(); ++i) {
    if (i + kSequencesAhead < filled_.size()) filled_[i + kSequencesAhead]->Prefetch();
    ledger_.NotePrefix(*filled_[i]);
  }
  filled_.clear();
  ledger_.KeepNotedPrefixes();
  if (num_dormant_ == 0 && limits_.attention_window == 0) return;
  for (Sequence* sequence : scheduled_) {
    if (num_dormant_ > 0 && sequence->index == 0 && sequence->is_one_of_several()) {
      if (sequence->num_cached < sequence->num_prompt) continue;  // all of it is still to be shared
      if (!sequence->request->uses_beams()) WakeCompanions(*sequence);
    }
    if (limits_.attention_window > 0) ledger_.ReleasePassed(*sequence);
  }
}

void Scheduler::WakeCompanions(Sequence& first) {
  for (const auto& sequence : running_) {
    if (!sequence->is_dormant || sequence->request != first.request) continue;
    sequence->is_dormant = false;
    --num_dormant_;
    ledger_.Share(first, *sequence);
  }
}

void Scheduler::Rest(Sequence& sequence) {
  ledger_.Rest(sequence);
  sequence.is_dormant = true;
  ++num_dormant_;
}

void Scheduler::Fork(const Sequence& from, int32_t next_token, Sequence& to) {
  to.token_ids = from.token_ids;
  to.token_ids.push_back(next_token);
  to.is_dormant = false;
  --num_dormant_;
  ledger_.Share(from, to);
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
  refused_ = nullptr;
  if (running_.empty()) ledger_.FinishCopies();  // there is no next step to make them
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
    auto node = waiting_.extract(sequence->rank);  // gave way while its last token was drawn
    --counts_.num_paused;
    num_waiting_prompts_ -= node.mapped()->num_prompt;
    removed.push_back(std::move(node.mapped()));
  }
  // They are few, and most often in the order in which they run: one walk finds them.
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
  refused_ = nullptr;
  if (running_.empty()) ledger_.FinishCopies();  // there is no next step to make them
  return removed;
}

void Scheduler::ReleaseSlot(Sequence& sequence) {
  ledger_.Release(sequence);
  if (std::exchange(sequence.is_dormant, false)) --num_dormant_;
  free_slots_.push_back(std::exchange(sequence.slot, -1));
}

SchedulerCounts Scheduler::counts() const {
  SchedulerCounts counts = counts_;
  counts.num_new_blocks = ledger_.num_new_blocks();
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
  int64_t num_waiting_prompts = 0;
  for (const auto& [rank, sequence] : waiting_) {
    sequences.push_back(sequence.get());
    num_waiting_prompts += sequence->num_prompt;
  }
  if (num_waiting_prompts != num_waiting_prompts_) {
    return InternalError("prompts that wait: ", num_waiting_prompts, " tokens, counted ",
                         num_waiting_prompts_);
  }
  return ledger_.CheckInvariants(sequences);
}

}  // namespace nereid::llm
