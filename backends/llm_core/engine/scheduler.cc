// Token budget, admission, preemption.
#include "llm_core/engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace nereid::llm {

Scheduler::Scheduler(const SchedulerOptions& options, const ExecutorLimits& limits)
    : options_(options), limits_(limits), blocks_(limits.num_blocks, limits.block_size) {
  for (int32_t slot = limits.max_num_sequences - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

Status Scheduler::CheckFits(int64_t num_prompt, int64_t max_tokens) const {
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
  const int64_t capacity = int64_t{limits_.num_blocks} * limits_.block_size;
  if (blocks_.BlocksFor(total) > limits_.num_blocks) {
    return InvalidArgError("prompt of ", num_prompt, " tokens and request_output_len ", max_tokens,
                           " need ", blocks_.BlocksFor(total), " KV cache blocks of ",
                           limits_.block_size, " tokens; the cache has ", limits_.num_blocks, " (",
                           capacity, " tokens)");
  }
  if (!options_.chunked_prefill && num_prompt > limits_.max_num_tokens) {
    return InvalidArgError("prompt of ", num_prompt, " tokens is over the ", limits_.max_num_tokens,
                           " tokens of one step, and enable_chunked_context is false");
  }
  return Status::Ok();
}

void Scheduler::Add(std::unique_ptr<Sequence> sequence) {
  waiting_.push_back(std::move(sequence));
}

void Scheduler::Schedule(Batch& batch) {
  batch.Clear();
  scheduled_.clear();
  counts_.num_prefill_tokens = 0;
  counts_.num_decode_sequences = 0;
  ScheduleRunning(batch);
  AdmitWaiting(batch);
}

// Sequences that decode come before those with prompt left, whatever their age, so that a long
// prompt never delays the next token of the others.
void Scheduler::ScheduleRunning(Batch& batch) {
  const auto decodes = [](const Sequence& sequence) {
    return sequence.num_tokens() - sequence.num_cached == 1;
  };
  for (const bool decode_pass : {true, false}) {
    for (size_t i = 0; i < running_.size();) {
      Sequence& sequence = *running_[i];
      const int32_t chunk = decodes(sequence) == decode_pass ? ChunkSize(sequence, batch) : 0;
      if (chunk == 0) {
        ++i;
      } else if (EnsureBlocks(sequence, chunk)) {
        AppendToBatch(sequence, chunk, batch);
        ++i;  // whoever gave way stood behind
      }       // else: the sequence itself gave way, and another one stands at i
    }
  }
}

void Scheduler::AdmitWaiting(Batch& batch) {
  while (!waiting_.empty() && !free_slots_.empty()) {
    const int32_t chunk = ChunkSize(*waiting_.front(), batch);
    if (chunk == 0 || !CanAdmit(*waiting_.front())) return;  // in order: nobody overtakes
    Admit();
    Sequence& sequence = *running_.back();
    EnsureBlocks(sequence, chunk);
    AppendToBatch(sequence, chunk, batch);
  }
}

bool Scheduler::CanAdmit(const Sequence& sequence) const {
  if (options_.policy == CapacityPolicy::kGuaranteedNoEvict) {
    return num_reserved_blocks_ + blocks_.BlocksFor(sequence.max_tokens()) <= limits_.num_blocks;
  }
  // One more than the tokens at hand, so that a sequence that comes back does not give way at once.
  return blocks_.BlocksFor(sequence.num_tokens() + 1) <= blocks_.num_free();
}

void Scheduler::Admit() {
  std::unique_ptr<Sequence> sequence = std::move(waiting_.front());
  waiting_.pop_front();
  sequence->slot = free_slots_.back();
  free_slots_.pop_back();
  if (options_.policy == CapacityPolicy::kGuaranteedNoEvict) {
    sequence->num_reserved_blocks = blocks_.BlocksFor(sequence->max_tokens());
    num_reserved_blocks_ += sequence->num_reserved_blocks;
  }
  running_.push_back(std::move(sequence));
}

int32_t Scheduler::ChunkSize(const Sequence& sequence, const Batch& batch) const {
  const int32_t budget = limits_.max_num_tokens - static_cast<int32_t>(batch.token_ids.size());
  const int32_t left = sequence.num_tokens() - sequence.num_cached;
  if (left <= budget) return left;
  // A preempted sequence recomputes prompt and output: its chunks may be split in any case.
  const bool may_split = options_.chunked_prefill || sequence.num_output() > 0;
  return may_split ? budget : 0;
}

bool Scheduler::EnsureBlocks(Sequence& sequence, int32_t num_tokens) {
  const int32_t needed = blocks_.BlocksFor(sequence.num_cached + num_tokens);
  while (static_cast<int32_t>(sequence.block_table.size()) < needed) {
    if (blocks_.num_free() > 0) {
      sequence.block_table.push_back(blocks_.Allocate());
      continue;
    }
    // The youngest that is not yet part of this step gives way; the caller's sequence at worst.
    size_t youngest = running_.size() - 1;
    while (running_[youngest].get() != &sequence && running_[youngest]->num_scheduled > 0) {
      --youngest;
    }
    const bool is_self = running_[youngest].get() == &sequence;
    Preempt(youngest);
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
  waiting_.push_front(std::move(sequence));
}

void Scheduler::AppendToBatch(Sequence& sequence, int32_t num_tokens, Batch& batch) {
  sequence.num_scheduled = num_tokens;
  const bool is_last_chunk = sequence.num_cached + num_tokens == sequence.num_tokens();
  BatchSequence entry;
  entry.slot = sequence.slot;
  entry.first_token = static_cast<int32_t>(batch.token_ids.size());
  entry.num_tokens = num_tokens;
  entry.num_cached = sequence.num_cached;
  entry.block_table = sequence.block_table;
  entry.num_logits = is_last_chunk ? 1 : 0;
  entry.samples = is_last_chunk;
  if (is_last_chunk) {
    entry.sampling = {&sequence.request->sampling, sequence.token_ids, sequence.num_prompt, {}};
    if (sequence.num_output() < sequence.request->stop.min_tokens) {
      entry.sampling.banned_ids = sequence.request->stop.end_ids;
    }
  }
  const auto first = sequence.token_ids.begin() + sequence.num_cached;
  batch.token_ids.insert(batch.token_ids.end(), first, first + num_tokens);
  batch.sequences.push_back(entry);
  scheduled_.push_back(&sequence);
  if (num_tokens == 1 && sequence.num_output() > 0) {
    ++counts_.num_decode_sequences;
  } else {
    counts_.num_prefill_tokens += num_tokens;
  }
}

void Scheduler::MarkComputed() {
  for (Sequence* sequence : scheduled_) {
    sequence->num_cached += std::exchange(sequence->num_scheduled, 0);
  }
}

std::vector<std::unique_ptr<Sequence>> Scheduler::Remove(
    const std::function<bool(const Sequence&)>& finished) {
  std::vector<std::unique_ptr<Sequence>> removed;
  const auto take = [&](auto& sequences) {
    const auto kept =
        std::stable_partition(sequences.begin(), sequences.end(),
                              [&](const auto& sequence) { return !finished(*sequence); });
    for (auto it = kept; it != sequences.end(); ++it) {
      if ((*it)->slot >= 0) ReleaseSlot(**it);
      removed.push_back(std::move(*it));
    }
    sequences.erase(kept, sequences.end());
  };
  take(running_);
  take(waiting_);
  return removed;
}

void Scheduler::ReleaseSlot(Sequence& sequence) {
  blocks_.ReleaseAll(sequence.block_table);
  num_reserved_blocks_ -= std::exchange(sequence.num_reserved_blocks, 0);
  free_slots_.push_back(std::exchange(sequence.slot, -1));
}

SchedulerCounts Scheduler::counts() const {
  SchedulerCounts counts = counts_;
  counts.num_waiting = static_cast<int32_t>(waiting_.size());
  counts.num_running = static_cast<int32_t>(running_.size());
  return counts;
}

Status Scheduler::CheckInvariants() const {
  std::vector<std::span<const int32_t>> tables;
  int32_t reserved = 0;
  for (const auto& sequence : running_) {
    tables.emplace_back(sequence->block_table);
    reserved += sequence->num_reserved_blocks;
    if (sequence->num_cached >
        static_cast<int32_t>(sequence->block_table.size()) * limits_.block_size) {
      return InternalError("sequence in slot ", sequence->slot, ": ", sequence->num_cached,
                           " cached tokens in ", sequence->block_table.size(), " blocks");
    }
  }
  for (const auto& sequence : waiting_) tables.emplace_back(sequence->block_table);
  if (reserved != num_reserved_blocks_ || reserved > limits_.num_blocks) {
    return InternalError("reserved KV blocks: ", num_reserved_blocks_, " counted, ", reserved,
                         " held, ", limits_.num_blocks, " in all");
  }
  if (free_slots_.size() + running_.size() != static_cast<size_t>(limits_.max_num_sequences)) {
    return InternalError("slots: ", free_slots_.size(), " free, ", running_.size(), " in use, ",
                         limits_.max_num_sequences, " in all");
  }
  return blocks_.CheckInvariants(tables);
}

}  // namespace nereid::llm
