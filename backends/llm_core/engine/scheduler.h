// Decides what each step computes: which waiting sequences start, how many prompt tokens each gets,
// who gives way when the cache is full. Knows blocks, never the executor. [engine thread]
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/block_ledger.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/engine/sequence.h"
#include "nereid/status.h"

namespace nereid::llm {

enum class CapacityPolicy : uint8_t {
  // A sequence starts when all blocks that it can ever need are promised to it: it is never
  // preempted.
  kGuaranteedNoEvict,
  // A sequence starts when its prompt fits. When blocks run out, the running sequence that is last
  // by rank gives its blocks back and later recomputes them: the tokens are the same, the time is
  // not. Requests of several sequences are treated as under kGuaranteedNoEvict.
  kMaxUtilization,
};

struct SchedulerOptions {
  CapacityPolicy policy = CapacityPolicy::kGuaranteedNoEvict;
  bool chunked_prefill = true;  // false: a prompt is computed in one step, however long it is
  // Tokens of a step in which sequences decode and prompts are computed, so that a long step does
  // not hold up the next tokens of those that decode; prompts get at least half of it, as many as
  // decode, and an eighth of all that wait where that is more: a long queue is worth full steps.
  // 0: always as many as fit. Not without chunked_prefill.
  int32_t mixed_step_tokens = 0;
  bool prefix_cache = false;  // keep the blocks of finished sequences for prompts that begin alike
  int32_t steps_per_priority = 1000;
};

struct SchedulerCounts {
  int32_t num_waiting = 0;         // requests
  int32_t num_paused = 0;          // of them, preempted
  int32_t num_running = 0;         // sequences
  int32_t num_prefill_tokens = 0;  // of the last step
  int32_t num_prefill_sequences = 0;
  int32_t num_decode_sequences = 0;
  int64_t num_preemptions = 0;
  int64_t num_prefix_lookups = 0;  // admissions, with a prefix cache
  int64_t num_reused_blocks = 0;   // that the prefix cache had
  int64_t num_new_blocks = 0;      // allocated
};

class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, const ExecutorLimits& limits,
            const ExecutorFeatures& features = {});

  // Whether such a request can run at all; the message holds the numbers. Thread-safe.
  Status CheckFits(int64_t num_prompt, int64_t max_tokens, int32_t num_sequences = 1) const;

  // Queues the first sequence of a request, its companions within it. The request must have passed
  // CheckFits.
  void Add(std::unique_ptr<Sequence> sequence);
  // Plans the next step into `batch`, decodes first, then prompts, by rank. Empty only when there
  // is nothing to do before pending tokens are known. Afterwards, scheduled() is parallel to
  // batch.sequences.
  void Schedule(Batch& batch);
  const std::vector<Sequence*>& scheduled() const { return scheduled_; }
  // The step is done, or will be before the next one begins: full blocks enter the prefix cache,
  // companions whose prompt is there wake up.
  void MarkComputed();
  // Of a beam search: gives the blocks of a beam back; it keeps its slot and may be woken by Fork.
  void Rest(Sequence& sequence);
  // `to`, which rests, goes on as `from` does, whose tokens are all in the cache, with
  // `next_token`.
  void Fork(const Sequence& from, int32_t next_token, Sequence& to);
  // Takes out every sequence of which `finished` is true, waiting ones too (their companions
  // within them); blocks are freed.
  std::vector<std::unique_ptr<Sequence>> Remove(
      const std::function<bool(const Sequence&)>& finished);
  // The same for sequences that are known; the others are not looked at.
  std::vector<std::unique_ptr<Sequence>> Remove(std::span<const Sequence* const> finished);

  bool is_empty() const { return waiting_.empty() && running_.empty(); }
  SchedulerCounts counts() const;
  const BlockManager& blocks() const { return ledger_.blocks(); }
  Status CheckInvariants() const;

 private:
  void ScheduleRunning(Batch& batch);
  // Once the decoding ones are in the batch.
  void LimitPrompts(const Batch& batch);
  void AdmitWaiting(Batch& batch);
  void Wait(std::unique_ptr<Sequence> sequence);
  // With what grant_ says, and `chunk` tokens.
  void Admit(int32_t chunk, Batch& batch);
  void Run(std::unique_ptr<Sequence> sequence);
  // Tokens that `sequence` may compute in this step, of `num_left`; 0: none now.
  int32_t ChunkSize(const Sequence& sequence, int32_t num_left, const Batch& batch) const;
  // Makes the block table cover the next `num_tokens` tokens; may preempt others. False when even
  // that is not enough and `sequence` itself was preempted.
  bool EnsureBlocks(Sequence& sequence, int32_t num_tokens);
  void Preempt(size_t running_index);
  void AppendToBatch(Sequence& sequence, int32_t num_tokens, Batch& batch);
  // Whether it has grown longer than keys of its kind allow.
  bool Outgrew(const Sequence& sequence) const {
    return limits_.long_positions > 0 && !sequence.is_long &&
           sequence.num_tokens() > limits_.long_positions && !sequence.is_one_of_several();
  }
  void WakeCompanions(Sequence& first);
  void ReleaseSlot(Sequence& sequence);

  SchedulerOptions options_;
  ExecutorLimits limits_;
  BlockLedger ledger_;
  int32_t num_dormant_ = 0;
  int32_t step_ = 0;
  uint64_t next_number_ = 0;
  std::map<SequenceRank, std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // by rank
  std::vector<Sequence*> scheduled_;
  int32_t step_limit_ = 0;             // tokens of this step
  int64_t num_waiting_prompts_ = 0;    // tokens of the prompts of waiting_
  std::vector<Sequence*> prefilling_;  // scratch of ScheduleRunning
  std::vector<Sequence*> filled_;      // of the step: those with a block that became full
  BlockLedger::Grant grant_;           // scratch of AdmitWaiting
  std::vector<int32_t> free_slots_;
  // The first in the queue, when it did not fit: looked at again once the number of free blocks has
  // changed.
  const Sequence* refused_ = nullptr;
  int32_t refused_free_ = 0;
  SchedulerCounts counts_;
};

}  // namespace nereid::llm
