#include "host/core/scheduling/sequence_batcher.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "host/core/observe/log.h"
#include "host/core/request/null_request.h"
#include "host/core/scheduling/scheduler.h"

namespace nereid::core {
namespace {

bool HasFlag(const InferRequest& request, uint32_t flag) {
  return (request.flags() & flag) != 0;
}
bool Starts(const InferRequest& request) {
  return HasFlag(request, TRITONSERVER_REQUEST_FLAG_SEQUENCE_START);
}
bool Ends(const InferRequest& request) {
  return HasFlag(request, TRITONSERVER_REQUEST_FLAG_SEQUENCE_END);
}

}  // namespace

SequenceBatcher::SequenceBatcher(const ModelConfig& config, std::vector<StateSpec> states,
                                 size_t num_instances, QueueTimeoutThread* timeout_thread)
    : model_name_(config.name),
      config_(*config.sequence_batching),
      states_(std::move(states)),
      controls_(config_, config.max_batch_size > 0),
      strategy_(config),
      tracks_releases_(!strategy_.is_direct() || config_.iterative_sequence),
      max_idle_ns_(UsToNs(config_.max_sequence_idle_us)),
      timeout_thread_(timeout_thread) {
  while (instances_.size() < num_instances) SequenceBatcher::AddInstance();
}

SequenceBatcher::~SequenceBatcher() = default;

Status SequenceBatcher::Check(const InferRequest& request) const {
  if (request.batch_size() > 1) {
    return InvalidArgError("inference request to model '", model_name_,
                           "' must specify batch-size 1 due to requirements of sequence batcher");
  }
  const bool has_id = IsCorrelationId(request.correlation_id());
  if (has_id) return controls_.CheckId(request.correlation_id(), model_name_);
  if (config_.iterative_sequence) return Status::Ok();
  return InvalidArgError("inference request to model '", model_name_,
                         "' must specify a non-zero or non-empty correlation ID");
}

Status SequenceBatcher::Enqueue(InferRequest* request) {
  NEREID_RETURN_IF_ERROR(Check(*request));
  std::lock_guard lock(mutex_);
  if (stopped_) return StoppedError(*request);
  request->queue_start_ns = SteadyNowNs();
  NEREID_ASSIGN_OR_RETURN(Sequence * sequence, SequenceOf(request));
  if (sequence->instance_index == Sequence::kBacklog && request->timeout_us() != 0) {
    request->queue_deadline_ns = AddNs(request->queue_start_ns, UsToNs(request->timeout_us()));
    ScheduleTimeoutCheck(request->queue_deadline_ns);
  }
  Append(sequence, request);
  ScheduleTimeoutCheck(AddNs(request->queue_start_ns, max_idle_ns_));
  return Status::Ok();
}

Result<Sequence*> SequenceBatcher::SequenceOf(InferRequest* request) {
  if (config_.iterative_sequence) {
    // Each request forms a sequence of its own.
    if (!IsCorrelationId(request->correlation_id())) {
      request->set_correlation_id(next_generated_id_++);
    }
    Sequence* sequence = StartSequence(request->correlation_id());
    sequence->closing = true;
    return sequence;
  }
  const CorrelationId& id = request->correlation_id();
  const auto known = open_sequences_.find(id);
  const bool starts = Starts(*request);
  if (known == open_sequences_.end() && !starts) {
    return InvalidArgError("inference request for sequence ", CorrelationIdText(id), " to model '",
                           model_name_,
                           "' must specify the START flag on the first request of the sequence");
  }
  if (known != open_sequences_.end() && starts) {
    NEREID_LOG_WARN("sequence ", CorrelationIdText(id), " for model '", model_name_,
                    "' has a conflict. The previous sequence did not end before this sequence "
                    "start. Previous sequence will be terminated early.");
  }
  Sequence* sequence = known != open_sequences_.end() ? known->second : StartSequence(id);
  if (Ends(*request)) {
    open_sequences_.erase(id);
  } else {
    open_sequences_[id] = sequence;
  }
  return sequence;
}

Sequence* SequenceBatcher::StartSequence(const CorrelationId& id) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  if (!states_.empty()) sequence->states = std::make_shared<SequenceStates>(states_);
  Sequence* raw = sequence.get();
  if (free_slots_.empty()) {
    backlog_.push_back(std::move(sequence));
    return raw;
  }
  std::tie(raw->slot, raw->instance_index) = *free_slots_.begin();
  free_slots_.erase(free_slots_.begin());
  instances_[raw->instance_index]->slots[raw->slot] = std::move(sequence);
  EnsureFreeSlot(raw->instance_index);
  return raw;
}

void SequenceBatcher::Append(Sequence* sequence, InferRequest* request) {
  sequence->PushBack(request);
  sequence->last_active_ns = request->queue_start_ns;
  UpdatePending(1);
  UpdateStartDelay();
  if (sequence->instance_index != Sequence::kBacklog)
    instances_[sequence->instance_index]->changed.notify_one();
}

void SequenceBatcher::UpdateStartDelay() {
  if (!strategy_.is_direct() || instances_[0]->delay.is_over()) return;
  const auto count = [](size_t sum, const auto& sequence) {
    return sequence != nullptr ? sum + sequence->size() : sum;
  };
  size_t num_waiting = 0;
  for (const auto& instance : instances_) {
    num_waiting =
        std::accumulate(instance->slots.begin(), instance->slots.end(), num_waiting, count);
  }
  const size_t num_backlog = std::accumulate(backlog_.begin(), backlog_.end(), size_t{0}, count);
  if (instances_[0]->delay.ShouldDelay(num_waiting, num_backlog)) return;
  for (const auto& instance : instances_) {
    instance->delay.End();
    instance->changed.notify_one();
  }
}

bool SequenceBatcher::Take(size_t index, TakeMode mode, std::vector<InferRequest*>* batch) {
  batch->clear();
  std::unique_lock lock(mutex_);
  InstanceSlots& instance = *instances_[index];
  while (true) {
    const Choice choice = Choose(instance, SteadyNowNs());
    if (!choice.sequences.empty()) {
      if (IsPeek(mode)) return true;
      Dispatch(&instance, choice, batch);
      lock.unlock();
      if (strategy_.is_direct()) FillWithNullRequests(batch);
      return true;
    }
    if (!IsBlocking(mode) || IsFinished(instance)) return false;
    if (choice.wait_until_ns == UINT64_MAX) {
      instance.changed.wait(lock);
    } else {
      instance.changed.wait_until(lock, SteadyDeadline(choice.wait_until_ns));
    }
  }
}

SequenceBatcher::Choice SequenceBatcher::Choose(InstanceSlots& instance, uint64_t now_ns) const {
  const bool ends = stopped_ || draining_;
  if (ends) instance.delay.End();
  Choice choice = strategy_.Choose(instance, now_ns);
  const bool is_waiting = choice.wait_until_ns != UINT64_MAX && !ends;
  if (is_waiting) choice.sequences.clear();
  return choice;
}

void SequenceBatcher::Dispatch(InstanceSlots* instance, const Choice& choice,
                               std::vector<InferRequest*>* batch) {
  if (strategy_.is_direct()) {
    size_t num_entries = instance->slots.size();
    while (instance->slots[num_entries - 1] == nullptr) --num_entries;
    batch->assign(num_entries, nullptr);
    for (Sequence* sequence : choice.sequences) (*batch)[sequence->slot] = TakeFirst(sequence);
  } else {
    for (Sequence* sequence : choice.sequences) batch->push_back(TakeFirst(sequence));
  }
  for (Sequence* sequence : choice.sequences) EndIfDone(sequence);
}

InferRequest* SequenceBatcher::TakeFirst(Sequence* sequence) {
  InferRequest* request = sequence->PopFront();
  UpdatePending(-1);
  SequenceControls::Values values;
  values.start = config_.iterative_sequence ? sequence->is_new : Starts(*request);
  values.end = !config_.iterative_sequence && Ends(*request);
  values.ready = true;
  values.id = sequence->id;
  auto inputs = std::make_unique<HostInputs>();
  controls_.AddInputs(values, inputs.get());
  if (sequence->states != nullptr) {
    if (values.start) sequence->states->Reset();
    sequence->states->AddInputs(inputs.get());
    inputs->states = sequence->states;
  }
  request->SetHostInputs(std::move(inputs));
  const bool first_time = !config_.iterative_sequence || sequence->is_new;
  if (strategy_.preserves_ordering() && first_time)
    request->sink()->set_reorderer(&reorder_buffer_, reorder_buffer_.TakeTicket());
  if (tracks_releases_) {
    request->AddReleaseHook(this);
    request->scheduler_data = sequence;
    sequence->in_flight = true;
  }
  sequence->is_new = false;
  sequence->last_active_ns = SteadyNowNs();
  if (values.end) sequence->closing = true;
  return request;
}

void SequenceBatcher::FillWithNullRequests(std::vector<InferRequest*>* batch) const {
  const InferRequest* example = *std::find_if(batch->begin(), batch->end(),
                                              [](const InferRequest* request) { return request; });
  for (InferRequest*& entry : *batch) {
    if (entry != nullptr) continue;
    entry = NewNullRequest(*example);
    auto inputs = std::make_unique<HostInputs>();
    controls_.AddInputs({}, inputs.get());
    if (!states_.empty()) {
      inputs->states = example->host_inputs()->states->MakeZeros();
      inputs->states->AddInputs(inputs.get());
    }
    entry->SetHostInputs(std::move(inputs));
  }
}

void SequenceBatcher::OnRelease(InferRequest* request, uint32_t release_flags) {
  const bool again = release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE;
  const bool cancelled = again && request->IsCancelled();
  {
    std::lock_guard lock(mutex_);
    auto* sequence = static_cast<Sequence*>(std::exchange(request->scheduler_data, nullptr));
    sequence->in_flight = false;
    sequence->last_active_ns = SteadyNowNs();
    InstanceSlots& instance = *instances_[sequence->instance_index];
    if (again && !cancelled) {
      request->set_flags(0);
      request->queue_start_ns = sequence->last_active_ns;
      Append(sequence, request);
    } else {
      EndIfDone(sequence);
    }
    instance.changed.notify_one();
  }
  if (cancelled) FailCancelled(request);
}

void SequenceBatcher::EndIfDone(Sequence* sequence) {
  if ((sequence->closing || draining_) && sequence->idle()) End(sequence);
}

void SequenceBatcher::End(Sequence* sequence) {
  if (const auto it = open_sequences_.find(sequence->id);
      it != open_sequences_.end() && it->second == sequence) {
    open_sequences_.erase(it);
  }
  if (sequence->instance_index == Sequence::kBacklog) {
    backlog_.remove_if([&](const auto& one) { return one.get() == sequence; });
    return;
  }
  const size_t slot = sequence->slot, instance_index = sequence->instance_index;
  std::unique_ptr<Sequence>& slot_sequence = instances_[instance_index]->slots[slot];
  slot_sequence.reset();
  if (instances_[instance_index]->retired) {
    instances_[instance_index]->changed.notify_one();
  } else {
    FillSlotFromBacklog(slot, instance_index);
  }
}

void SequenceBatcher::EnsureFreeSlot(size_t instance_index) {
  auto& slots = instances_[instance_index]->slots;
  while (slots.size() < strategy_.slots_per_instance() &&
         (slots.empty() || slots.back() != nullptr)) {
    slots.emplace_back();
    FillSlotFromBacklog(slots.size() - 1, instance_index);
  }
}

void SequenceBatcher::FillSlotFromBacklog(size_t slot, size_t instance_index) {
  std::unique_ptr<Sequence>& slot_sequence = instances_[instance_index]->slots[slot];
  if (backlog_.empty()) {
    free_slots_.emplace(slot, instance_index);
    for (const auto& other : instances_)
      other->changed.notify_one();  // an instance may be finished now
    return;
  }
  slot_sequence = std::move(backlog_.front());
  backlog_.pop_front();
  slot_sequence->instance_index = instance_index;
  slot_sequence->slot = slot;
  instances_[instance_index]->changed.notify_one();
}

bool SequenceBatcher::IsFinished(const InstanceSlots& instance) const {
  const auto taken = [](const auto& one) { return one != nullptr; };
  if (instance.retired && std::none_of(instance.slots.begin(), instance.slots.end(), taken))
    return true;
  const auto has_work = [](const auto& one) { return one != nullptr && !one->empty(); };
  return stopped_ && backlog_.empty() &&
         std::none_of(instance.slots.begin(), instance.slots.end(), has_work);
}

// The cancelled request and all later requests of its sequence are not executed.
void SequenceBatcher::OnCancelled(InferRequest* request) {
  std::vector<InferRequest*> cancelled;
  {
    std::lock_guard lock(mutex_);
    if (request->queue_links.list == nullptr) return;
    auto* sequence = static_cast<Sequence*>(static_cast<RequestList*>(request->queue_links.list));
    InferRequest* next = request;
    do {
      InferRequest* current = next;
      next = RequestList::Next(current);
      sequence->Remove(current);
      UpdatePending(-1);
      cancelled.push_back(current);
    } while (next != nullptr && !Starts(*next));
    if (next == nullptr) {
      sequence->closing = true;
      if (const auto it = open_sequences_.find(sequence->id);
          it != open_sequences_.end() && it->second == sequence) {
        open_sequences_.erase(it);
      }
      EndIfDone(sequence);
    }
  }
  timeout_thread_->Post([cancelled = std::move(cancelled)] {
    for (InferRequest* one : cancelled) FailCancelled(one);
  });
}

void SequenceBatcher::ScheduleTimeoutCheck(uint64_t deadline_ns) {
  if (deadline_ns >= next_timeout_check_ns_) return;
  next_timeout_check_ns_ = deadline_ns;
  timeout_thread_->PostAt(deadline_ns, [weak = weak_from_this(), deadline_ns] {
    if (const auto self = weak.lock()) self->HandleTimeouts(deadline_ns);
  });
}

void SequenceBatcher::HandleTimeouts(uint64_t deadline_ns) {
  std::vector<InferRequest*> expired;
  {
    std::lock_guard lock(mutex_);
    if (deadline_ns != next_timeout_check_ns_) return;  // an earlier check has replaced this one
    next_timeout_check_ns_ = UINT64_MAX;
    const uint64_t now_ns = SteadyNowNs();
    ScheduleTimeoutCheck(ReapIdle(now_ns));
    ScheduleTimeoutCheck(TakeExpired(now_ns, &expired));
  }
  for (InferRequest* request : expired) {
    request->Fail(UnavailableError("timeout of the corresponding sequence has been expired"),
                  FailureReason::kRejected);
  }
}

// Returns the time of the next check in nanoseconds.
uint64_t SequenceBatcher::ReapIdle(uint64_t now_ns) {
  uint64_t next_ns = UINT64_MAX;
  for (const auto& instance : instances_) {
    for (const auto& sequence : instance->slots) {
      if (sequence == nullptr) continue;
      const uint64_t since_ns = sequence->idle() ? sequence->last_active_ns : now_ns;
      if (now_ns - since_ns >= max_idle_ns_) {
        End(sequence.get());  // the slot's next sequence from the backlog, if any, has requests
        next_ns = std::min(next_ns, AddNs(now_ns, max_idle_ns_));
      } else {
        next_ns = std::min(next_ns, AddNs(since_ns, max_idle_ns_));
      }
    }
  }
  return next_ns;
}

// If one request of a sequence waits too long in the backlog, the whole sequence expires.
uint64_t SequenceBatcher::TakeExpired(uint64_t now_ns, std::vector<InferRequest*>* expired) {
  uint64_t next_ns = UINT64_MAX;
  for (auto it = backlog_.begin(); it != backlog_.end();) {
    Sequence* sequence = it->get();
    ++it;
    uint64_t first_ns = UINT64_MAX;
    for (const InferRequest* one = sequence->front(); one != nullptr;
         one = RequestList::Next(one)) {
      if (one->queue_deadline_ns != 0) first_ns = std::min(first_ns, one->queue_deadline_ns);
    }
    if (first_ns > now_ns) {
      next_ns = std::min(next_ns, first_ns);
      continue;
    }
    while (InferRequest* request = sequence->PopFront()) {
      UpdatePending(-1);
      expired->push_back(request);
    }
    End(sequence);
  }
  return next_ns;
}

void SequenceBatcher::UpdatePending(int64_t change) {
  num_pending_.fetch_add(static_cast<uint64_t>(change), std::memory_order_relaxed);
}

void SequenceBatcher::AddInstance() {
  std::lock_guard lock(mutex_);
  const size_t instance_index = instances_.size();
  instances_.push_back(std::make_unique<InstanceSlots>());
  if (instances_[0]->delay.is_over()) instances_[instance_index]->delay.End();
  EnsureFreeSlot(instance_index);
}

void SequenceBatcher::RetireInstance(size_t index) {
  std::lock_guard lock(mutex_);
  instances_[index]->retired = true;
  std::erase_if(free_slots_, [index](const auto& slot) { return slot.second == index; });
  instances_[index]->changed.notify_one();
}

uint64_t SequenceBatcher::num_open_sequences() const {
  std::lock_guard lock(mutex_);
  return open_sequences_.size();
}

void SequenceBatcher::StopIntake() {
  std::lock_guard lock(mutex_);
  draining_ = true;
  for (const auto& instance : instances_) {
    for (size_t slot = 0; slot < instance->slots.size(); ++slot) {
      if (instance->slots[slot] != nullptr) EndIfDone(instance->slots[slot].get());
    }
    instance->changed.notify_one();
  }
}

void SequenceBatcher::Stop() {
  StopIntake();
  std::lock_guard lock(mutex_);
  stopped_ = true;
  for (const auto& instance : instances_) instance->changed.notify_one();
}

}  // namespace nereid::core
