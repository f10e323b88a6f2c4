// The scheduler of models with sequence_batching. A sequence occupies one slot of one instance from
// its first request to its last. While all slots are occupied, it waits in the backlog. Each
// instance thread forms batches from the slots of its instance:
//   direct   a slot is an entry of the batch; null requests fill the entries without work
//   oldest   the requests that have waited longest, one per sequence, batched like the dynamic
//            batcher does
// A sequence ends with its END request, after the idle timeout, when one of its requests is
// cancelled, and when the model is unloaded. [any thread; Take: instance threads]
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/request/sequence_states.h"
#include "host/core/scheduling/queue_timeout_thread.h"
#include "host/core/scheduling/response_reorder_buffer.h"
#include "host/core/scheduling/scheduler.h"
#include "host/core/scheduling/sequence_controls.h"
#include "host/core/scheduling/sequence_slots.h"
#include "host/core/scheduling/sequence_strategy.h"

namespace nereid::core {

class SequenceBatcher final : public Scheduler,
                              public ReleaseHook,
                              public std::enable_shared_from_this<SequenceBatcher> {
 public:
  // `config` must have sequence_batching. `timeout_thread` must outlive the scheduler.
  SequenceBatcher(const ModelConfig& config, std::vector<StateSpec> states, size_t num_instances,
                  QueueTimeoutThread* timeout_thread);
  ~SequenceBatcher() override;

  Status Enqueue(InferRequest* request) override;
  bool Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) override;
  void OnCancelled(InferRequest* request) override;
  void AddInstance() override;
  // The instance keeps its open sequences until they end.
  void RetireInstance(size_t instance) override;
  void StopIntake() override;
  void Stop() override;
  uint64_t num_pending() const override { return num_pending_.load(std::memory_order_relaxed); }
  uint64_t num_open_sequences() const override;
  void OnRelease(InferRequest* request, uint32_t release_flags) override;

 private:
  using Choice = SequenceStrategy::Choice;

  Status Check(const InferRequest& request) const;
  // The functions below require mutex_.
  // Returns the request's sequence; starts one if needed.
  Result<Sequence*> SequenceOf(InferRequest* request);
  Sequence* StartSequence(const CorrelationId& id);
  void Append(Sequence* sequence, InferRequest* request);
  // Direct strategy: all instances share one start delay. Ends it once enough requests wait in
  // slots and in the backlog.
  void UpdateStartDelay();
  Choice Choose(InstanceSlots& instance, uint64_t now_ns) const;
  void Dispatch(InstanceSlots* instance, const Choice& choice, std::vector<InferRequest*>* batch);
  InferRequest* TakeFirst(Sequence* sequence);
  // Adds slots to the instance until one is free or the maximum is reached.
  void EnsureFreeSlot(size_t instance_index);
  // Moves the first sequence of the backlog into a free slot.
  void FillSlotFromBacklog(size_t slot, size_t instance_index);
  // Ends the sequence if it is closing and has no queued and no in-flight request.
  void EndIfDone(Sequence* sequence);
  // Erases the sequence and gives its slot to the first sequence of the backlog.
  void End(Sequence* sequence);
  bool IsFinished(const InstanceSlots& instance) const;
  void ScheduleTimeoutCheck(uint64_t deadline_ns);
  uint64_t ReapIdle(uint64_t now_ns);
  uint64_t TakeExpired(uint64_t now_ns, std::vector<InferRequest*>* expired);
  void UpdatePending(int64_t change);

  // Ends idle sequences and fails requests that waited too long in the backlog. [timeout thread]
  void HandleTimeouts(uint64_t deadline_ns);
  // Puts null requests into the batch entries without work. [instance thread]
  void FillWithNullRequests(std::vector<InferRequest*>* batch) const;

  const std::string model_name_;
  const SequenceBatching config_;
  const std::vector<StateSpec> states_;
  const SequenceControls controls_;
  const SequenceStrategy strategy_;
  const bool tracks_releases_;  // true: a sequence has at most one request in flight
  const uint64_t max_idle_ns_;
  QueueTimeoutThread* const timeout_thread_;
  ResponseReorderBuffer reorder_buffer_;
  std::atomic<uint64_t> num_pending_{0};

  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<InstanceSlots>> instances_;
  std::set<std::pair<size_t, size_t>> free_slots_;  // (slot, instance index)
  std::list<std::unique_ptr<Sequence>> backlog_;
  std::map<CorrelationId, Sequence*> open_sequences_;  // sequences that accept further requests
  uint64_t next_timeout_check_ns_ = UINT64_MAX;
  uint64_t next_generated_id_ = 1;
  bool draining_ = false;
  bool stopped_ = false;
};

}  // namespace nereid::core
