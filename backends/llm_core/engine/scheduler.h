// Decides what each step computes: which waiting sequences start, how many prompt tokens each gets,
// who gives way when the cache is full. Knows blocks, never the executor. [engine thread]
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "llm_core/engine/batch.h"
#include "llm_core/engine/block_manager.h"
#include "llm_core/engine/executor.h"
#include "llm_core/engine/sequence.h"
#include "nereid/status.h"

namespace nereid::llm {

enum class CapacityPolicy : uint8_t {
  // A sequence starts when all blocks that it can ever need are its own: it is never preempted.
  kGuaranteedNoEvict,
  // A sequence starts when its prompt fits. When blocks run out, the youngest running sequence
  // gives its blocks back and later recomputes them: the tokens are the same, the time is not.
  kMaxUtilization,
};

struct SchedulerOptions {
  CapacityPolicy policy = CapacityPolicy::kGuaranteedNoEvict;
  bool chunked_prefill = true;  // false: a prompt is computed in one step, however long it is
};

struct SchedulerCounts {
  int32_t num_waiting = 0;
  int32_t num_running = 0;
  int32_t num_prefill_tokens = 0;  // of the last step
  int32_t num_decode_sequences = 0;
  int64_t num_preemptions = 0;
};

class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, const ExecutorLimits& limits);

  // Whether such a request can run at all; the message holds the numbers. Thread-safe.
  Status CheckFits(int64_t num_prompt, int64_t max_tokens) const;

  // To the end of the waiting queue. The request must have passed CheckFits.
  void Add(std::unique_ptr<Sequence> sequence);
  // Plans the next step into `batch`, decodes first, then prompts in order of arrival. Empty only
  // when there is nothing to do. Afterwards, scheduled() is parallel to batch.sequences.
  void Schedule(Batch& batch);
  const std::vector<Sequence*>& scheduled() const { return scheduled_; }
  // The step is done: its tokens are in the cache.
  void MarkComputed();
  // Takes out every sequence of which `finished` is true, waiting ones too; blocks are freed.
  std::vector<std::unique_ptr<Sequence>> Remove(
      const std::function<bool(const Sequence&)>& finished);

  bool is_empty() const { return waiting_.empty() && running_.empty(); }
  SchedulerCounts counts() const;
  const BlockManager& blocks() const { return blocks_; }
  Status CheckInvariants() const;

 private:
  void ScheduleRunning(Batch& batch);
  void AdmitWaiting(Batch& batch);
  bool CanAdmit(const Sequence& sequence) const;
  void Admit();
  // Tokens that `sequence` may compute in this step; 0: none now.
  int32_t ChunkSize(const Sequence& sequence, const Batch& batch) const;
  // Makes the block table cover the next `num_tokens` tokens; may preempt others. False when even
  // that is not enough and `sequence` itself was preempted.
  bool EnsureBlocks(Sequence& sequence, int32_t num_tokens);
  void Preempt(size_t running_index);
  void AppendToBatch(Sequence& sequence, int32_t num_tokens, Batch& batch);
  void ReleaseSlot(Sequence& sequence);

  SchedulerOptions options_;
  ExecutorLimits limits_;
  BlockManager blocks_;
  int32_t num_reserved_blocks_ = 0;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // oldest first
  std::vector<Sequence*> scheduled_;
  std::vector<int32_t> free_slots_;
  SchedulerCounts counts_;
};

}  // namespace nereid::llm
