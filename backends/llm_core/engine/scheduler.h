// Decides what each step computes: which waiting sequences start, how many prompt tokens each gets,
// and which sequence is preempted when the cache is full. Knows blocks, but not the executor.
// [engine thread]
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/engine/kv_cache_manager.h"
#include "backends/llm_core/engine/running_adapters.h"
#include "backends/llm_core/engine/sequence.h"
#include "nereid/status.h"

namespace nereid::llm {

enum class CapacityPolicy : uint8_t {
  // A sequence starts when all blocks that it can ever need are reserved. It is never preempted.
  kGuaranteedNoEvict,
  // A sequence starts when its prompt fits. When blocks run out, the last running sequence by rank
  // is preempted: it releases its blocks and recomputes them later. The tokens stay the same.
  // Requests of several sequences are treated as under kGuaranteedNoEvict.
  kMaxUtilization,
};

struct SchedulerOptions {
  CapacityPolicy policy = CapacityPolicy::kGuaranteedNoEvict;
  bool chunked_prefill = true;  // false: a prompt is computed in one step, whatever its length
  // Token limit of a step that mixes decoding sequences and prompts, so that it does not delay the
  // next tokens of the decoding ones. Prompts get at least half of it, at least as many tokens as
  // decode, and at least an eighth of all waiting prompt tokens. 0: no limit. Ignored without
  // chunked_prefill.
  int32_t mixed_step_tokens = 0;
  bool prefix_cache = false;  // keep blocks of finished sequences for prompts with the same prefix
  int32_t steps_per_priority = 1000;
  // Keeps the content of evicted prefix blocks; null: nothing does. Must outlive the scheduler.
  BlockStorage* storage = nullptr;
  // Executor::PrepareAdapter(); empty: adapters are always ready.
  RunningAdapters::Prepare prepare_adapter = {};
};

struct SchedulerCounts {
  int32_t num_waiting = 0;         // requests
  int32_t num_paused = 0;          // preempted requests among the waiting ones
  int32_t num_running = 0;         // sequences
  int32_t num_further_beams = 0;   // of these, all but the first beam of each request
  int32_t num_prefill_tokens = 0;  // of the last step
  int32_t num_prefill_sequences = 0;
  int32_t num_decode_sequences = 0;
  int32_t num_decode_further_beams = 0;
  int64_t num_preemptions = 0;
  int64_t num_prefix_lookups = 0;  // admissions with a prefix cache
  int64_t num_reused_blocks = 0;   // found in the prefix cache
  int64_t num_new_blocks = 0;      // allocated
  int64_t num_kept_blocks = 0;     // moved out of the KV cache instead of being evicted
  int64_t num_fetched_blocks = 0;  // moved back
  int32_t num_outside_blocks = 0;  // outside the KV cache now
};

class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, const ExecutorLimits& limits,
            const ExecutorFeatures& features = {});

  // Checks whether such a request can run at all; the error message contains the numbers. [any
  // thread]
  Status CheckFits(int64_t num_prompt, int64_t max_tokens, int32_t num_sequences = 1) const;
  // Returns the greatest number of output tokens up to `max_tokens` with which the request fits the
  // context and the KV cache; 1 if none does. [any thread]
  int32_t FittingTokens(int64_t num_prompt, int32_t max_tokens, int32_t num_sequences = 1) const;

  // Queues the first sequence of a request, which owns its siblings. The request must have passed
  // CheckFits.
  void Add(std::unique_ptr<Sequence> sequence);
  // Waits until what a waiting sequence fetches is in the KV cache, if any does. Only allowed if no
  // step is in flight.
  void WaitForFetch() { kv_cache_.fetches().Collect(/*waits=*/true); }
  void FinishFetches() {
    while (kv_cache_.fetches().any_open()) WaitForFetch();
  }
  void NoteEvents() { kv_cache_.NoteEvents(); }  // see BlockPool
  std::vector<KvEvent> TakeEvents() { return kv_cache_.TakeEvents(); }
  void RecordComputed(int64_t num_prompt_tokens, double seconds) {
    kv_cache_.fetches().costs().RecordComputed(num_prompt_tokens, seconds);
  }
  // Copies the cached content to the storage's file. No step is in flight, and none follows.
  void SaveCache() {
    FinishFetches();
    kv_cache_.SaveToFile();
  }
  void SetTime(int64_t now_ms) { kv_cache_.SetTime(now_ms); }  // see BlockPool
  // How many draft tokens all sequences together may have in the next step.
  int32_t DraftBudget() const;
  // Plans the next step into `batch`: decodes with their drafts first, then prompts, by rank. The
  // batch is empty only if nothing can be computed before pending tokens are known. Afterwards,
  // scheduled() is parallel to batch.entries.
  void Schedule(StepBatch& batch);
  const std::vector<Sequence*>& scheduled() const { return scheduled_; }
  std::span<const std::unique_ptr<Sequence>> running() const { return running_; }
  // The step is done, or will be done before the next one begins. Inserts full blocks into the
  // prefix cache and resumes siblings whose prompt is computed.
  void MarkComputed();
  // Beam search: releases the blocks of a beam. The sequence keeps its slot and can be resumed by
  // Fork.
  void Suspend(Sequence& sequence);
  // Beam search: makes the suspended `to` continue like `from`, followed by `next_token`. All
  // tokens of `from` must be in the cache.
  void Fork(const Sequence& from, int32_t next_token, Sequence& to);
  // Removes every sequence for which `finished` returns true, waiting ones included (with their
  // siblings). Their blocks are released.
  std::vector<std::unique_ptr<Sequence>> Remove(
      const std::function<bool(const Sequence&)>& finished);
  // The same for the given sequences; visits no others.
  std::vector<std::unique_ptr<Sequence>> Remove(std::span<const Sequence* const> finished);

  // After Schedule(batch): removes the running sequences that use the adapter, also from the batch.
  std::vector<std::unique_ptr<Sequence>> RemoveUsers(const LoraAdapter& adapter, StepBatch& batch);

  bool is_empty() const { return waiting_.empty() && running_.empty(); }
  SchedulerCounts counts() const;
  const BlockPool& blocks() const { return kv_cache_.blocks(); }
  Status CheckInvariants() const;

 private:
  void ScheduleRunning(StepBatch& batch);
  // Lowers the number of a decoding sequence's draft tokens to what this step can verify.
  void LimitDrafts(Sequence& sequence);
  // Called once the decoding sequences are in the batch.
  void LimitPrefillTokens(const StepBatch& batch);
  // Starts waiting sequences, as many as slots, blocks and the step's tokens allow.
  void AdmitWaiting(StepBatch& batch);
  // Whether a waiting sequence may start in this step. If so, admission_ has its blocks.
  RunningAdapters::Turn PlanStart(Sequence& sequence);
  void EnqueueWaiting(std::unique_ptr<Sequence> sequence);
  // Starts a waiting sequence with `chunk` tokens, as planned in admission_.
  void Admit(std::map<SequenceRank, std::unique_ptr<Sequence>>::iterator waiting, int32_t chunk,
             StepBatch& batch);
  void StartRunning(std::unique_ptr<Sequence> sequence);
  // Number of tokens, of `num_left`, that `sequence` may compute in this step. 0: none.
  int32_t ChunkSize(const Sequence& sequence, int32_t num_left, const StepBatch& batch) const;
  // Makes the block table cover the next `num_tokens` tokens and preempts others if needed. Returns
  // false if `sequence` itself was preempted.
  bool EnsureBlocks(Sequence& sequence, int32_t num_tokens);
  void Preempt(size_t running_index);
  void AppendToBatch(Sequence& sequence, int32_t num_tokens, StepBatch& batch);
  // Adds `change` (1 or -1) times the sequence's part of a step to the counts.
  void CountPart(const Sequence& sequence, int32_t num_tokens, int32_t change);
  // Whether the sequence has become too long for its kind of keys.
  bool OutgrewShortRope(const Sequence& sequence) const {
    return limits_.long_rope_positions > 0 && !sequence.uses_long_rope &&
           sequence.num_tokens() > limits_.long_rope_positions && !sequence.has_siblings();
  }
  void ResumeSiblings(Sequence& first);
  void ReleaseSlot(Sequence& sequence);

  SchedulerOptions options_;
  ExecutorLimits limits_;
  KvCacheManager kv_cache_;
  int32_t num_suspended_ = 0;
  int64_t step_ = 0;
  uint64_t next_number_ = 0;
  std::map<SequenceRank, std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // by rank
  std::vector<Sequence*> scheduled_;
  int32_t step_limit_ = 0;                   // token limit of this step
  int32_t draft_budget_ = 0;                 // draft tokens that this step may still take
  int64_t num_waiting_prompts_ = 0;          // sum over the prompts in waiting_
  std::vector<Sequence*> prefilling_;        // scratch memory of ScheduleRunning
  std::vector<Sequence*> with_full_blocks_;  // scheduled sequences with a newly filled block
  KvCacheManager::Admission admission_;      // scratch memory of AdmitWaiting
  std::vector<int32_t> free_slots_;
  // The first waiting sequence, if it did not fit. It is tried again when the number of free blocks
  // has changed.
  const Sequence* blocked_head_ = nullptr;
  int32_t blocked_head_free_ = 0;
  RunningAdapters running_adapters_;
  SchedulerCounts counts_;
};

}  // namespace nereid::llm
