// The scheduler of models with sequence_batching. A sequence belongs to one slot of one instance
// from its first request to its last; where all slots are taken it waits in the backlog. Each
// instance's thread forms its batches from its own slots:
//   direct   a slot is a row of the batch; rows without work are filled with null requests
//   oldest   the requests that wait longest, one a sequence, as the dynamic batcher would
// A sequence ends with its END request, when it is idle too long, when one of its requests is
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
#include "host/core/scheduling/ordered_gate.h"
#include "host/core/scheduling/queue_attendant.h"
#include "host/core/scheduling/scheduler.h"
#include "host/core/scheduling/sequence_controls.h"
#include "host/core/scheduling/sequence_lane.h"
#include "host/core/scheduling/sequence_strategy.h"

namespace nereid {

class SequenceBatcher final : public Scheduler,
                              public ReleaseHook,
                              public std::enable_shared_from_this<SequenceBatcher> {
 public:
  // `config` has sequence_batching. `attendant` outlives the scheduler.
  SequenceBatcher(const ModelConfig& config, std::vector<StateSpec> states, size_t num_instances,
                  QueueAttendant* attendant);
  ~SequenceBatcher() override;

  Status Enqueue(InferRequest* request) override;
  bool Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) override;
  void OnCancelled(InferRequest* request) override;
  void AddInstance() override;
  // Its open sequences stay with it until they end.
  void RetireInstance(size_t instance) override;
  void StopIntake() override;
  void Stop() override;
  uint64_t num_pending() const override { return num_pending_.load(std::memory_order_relaxed); }
  uint64_t num_open_sequences() const override;
  void OnRelease(InferRequest* request, uint32_t release_flags) override;

 private:
  using Lane = SequenceLane;
  using Choice = SequenceStrategy::Choice;

  Status Check(const InferRequest& request) const;
  // All that follows requires mutex_.
  Result<Sequence*> SequenceOf(InferRequest* request);
  Sequence* StartSequence(const CorrelationId& id);
  void Append(Sequence* sequence, InferRequest* request);
  // Direct: one delay for all lanes, over once enough requests wait in them and in the backlog.
  void EndDelayWhenEnoughWait();
  Choice Choose(Lane& lane, uint64_t now_ns) const;
  void Dispatch(Lane* lane, const Choice& choice, std::vector<InferRequest*>* batch);
  InferRequest* TakeFirst(Sequence* sequence);
  // A slot of the lane is open, or all are taken.
  void OpenSlots(size_t lane);
  // Gives a slot that is free to the backlog's first.
  void Fill(size_t slot, size_t lane);
  // Ends the sequence if it is to end and nothing of it is left.
  void EndIfDone(Sequence* sequence);
  // Forgets the sequence, gives its slot to the backlog's first.
  void End(Sequence* sequence);
  bool IsOver(const Lane& lane) const;
  void ScheduleAttendance(uint64_t deadline_ns);
  uint64_t ReapIdle(uint64_t now_ns);
  uint64_t TakeExpired(uint64_t now_ns, std::vector<InferRequest*>* expired);
  void UpdatePending(int64_t change);

  // Ends idle sequences, answers what waited too long in the backlog. [attendant]
  void Attend(uint64_t deadline_ns);
  // Requests for the rows without work. [instance thread]
  void FillWithNulls(std::vector<InferRequest*>* batch) const;

  const std::string model_name_;
  const SequenceBatching config_;
  const std::vector<StateSpec> states_;
  const SequenceControls controls_;
  const SequenceStrategy strategy_;
  const bool follows_releases_;  // a sequence has at most one request in flight
  const uint64_t max_idle_ns_;
  QueueAttendant* const attendant_;
  OrderedGate gate_;
  std::atomic<uint64_t> num_pending_{0};

  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::set<std::pair<size_t, size_t>> free_slots_;  // slot, lane: the lowest slot first
  std::list<std::unique_ptr<Sequence>> backlog_;
  std::map<CorrelationId, Sequence*> by_id_;  // those that take further requests
  uint64_t next_attendance_ns_ = UINT64_MAX;
  uint64_t next_generated_id_ = 1;
  bool draining_ = false;
  bool stopped_ = false;
};

}  // namespace nereid
