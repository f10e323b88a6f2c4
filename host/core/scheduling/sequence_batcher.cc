#include "host/core/scheduling/sequence_batcher.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "host/core/observe/log.h"
#include "host/core/request/null_request.h"
#include "host/core/scheduling/queue_errors.h"

namespace nereid {
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
                                 size_t num_instances, QueueAttendant* attendant)
    : model_name_(config.name),
      config_(*config.sequence_batching),
      states_(std::move(states)),
      controls_(config_, config.max_batch_size > 0),
      strategy_(config),
      follows_releases_(!strategy_.is_direct() || config_.iterative_sequence),
      max_idle_ns_(UsToNs(config_.max_sequence_idle_us)),
      attendant_(attendant) {
  while (lanes_.size() < num_instances) SequenceBatcher::AddInstance();
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
  if (sequence->lane == Sequence::kBacklog && request->timeout_us() != 0) {
    request->queue_deadline_ns = AddNs(request->queue_start_ns, UsToNs(request->timeout_us()));
    ScheduleAttendance(request->queue_deadline_ns);
  }
  Append(sequence, request);
  ScheduleAttendance(AddNs(request->queue_start_ns, max_idle_ns_));
  return Status::Ok();
}

Result<Sequence*> SequenceBatcher::SequenceOf(InferRequest* request) {
  if (config_.iterative_sequence) {
    // A sequence of its own, which no other request joins.
    if (!IsCorrelationId(request->correlation_id())) {
      request->set_correlation_id(next_generated_id_++);
    }
    Sequence* sequence = StartSequence(request->correlation_id());
    sequence->closing = true;
    return sequence;
  }
  const CorrelationId& id = request->correlation_id();
  const auto known = by_id_.find(id);
  const bool starts = Starts(*request);
  if (known == by_id_.end() && !starts) {
    return InvalidArgError("inference request for sequence ", CorrelationIdText(id), " to model '",
                           model_name_,
                           "' must specify the START flag on the first request of the sequence");
  }
  if (known != by_id_.end() && starts) {
    NEREID_LOG_WARN("sequence ", CorrelationIdText(id), " for model '", model_name_,
                    "' has a conflict. The previous sequence did not end before this sequence "
                    "start. Previous sequence will be terminated early.");
  }
  Sequence* sequence = known != by_id_.end() ? known->second : StartSequence(id);
  if (Ends(*request)) {
    by_id_.erase(id);
  } else {
    by_id_[id] = sequence;
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
  std::tie(raw->slot, raw->lane) = *free_slots_.begin();
  free_slots_.erase(free_slots_.begin());
  lanes_[raw->lane]->slots[raw->slot] = std::move(sequence);
  OpenSlots(raw->lane);
  return raw;
}

void SequenceBatcher::Append(Sequence* sequence, InferRequest* request) {
  sequence->PushBack(request);
  sequence->last_active_ns = request->queue_start_ns;
  UpdatePending(1);
  EndDelayWhenEnoughWait();
  if (sequence->lane != Sequence::kBacklog) lanes_[sequence->lane]->changed.notify_one();
}

void SequenceBatcher::EndDelayWhenEnoughWait() {
  if (!strategy_.is_direct() || lanes_[0]->delay.is_over()) return;
  const auto count = [](size_t sum, const auto& sequence) {
    return sequence != nullptr ? sum + sequence->size() : sum;
  };
  size_t num_waiting = 0;
  for (const auto& lane : lanes_) {
    num_waiting = std::accumulate(lane->slots.begin(), lane->slots.end(), num_waiting, count);
  }
  const size_t num_behind = std::accumulate(backlog_.begin(), backlog_.end(), size_t{0}, count);
  if (lanes_[0]->delay.Holds(num_waiting, num_behind)) return;
  for (const auto& lane : lanes_) {
    lane->delay.End();
    lane->changed.notify_one();
  }
}

bool SequenceBatcher::Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) {
  batch->clear();
  std::unique_lock lock(mutex_);
  Lane& lane = *lanes_[instance];
  while (true) {
    const Choice choice = Choose(lane, SteadyNowNs());
    if (!choice.sequences.empty()) {
      if (Leaves(mode)) return true;
      Dispatch(&lane, choice, batch);
      lock.unlock();
      if (strategy_.is_direct()) FillWithNulls(batch);
      return true;
    }
    if (!Waits(mode) || IsOver(lane)) return false;
    if (choice.wait_until_ns == UINT64_MAX) {
      lane.changed.wait(lock);
    } else {
      lane.changed.wait_until(lock, SteadyDeadline(choice.wait_until_ns));
    }
  }
}

SequenceBatcher::Choice SequenceBatcher::Choose(Lane& lane, uint64_t now_ns) const {
  const bool ends = stopped_ || draining_;
  if (ends) lane.delay.End();
  Choice choice = strategy_.Choose(lane, now_ns);
  const bool waits = choice.wait_until_ns != UINT64_MAX && !ends;
  if (waits) choice.sequences.clear();
  return choice;
}

void SequenceBatcher::Dispatch(Lane* lane, const Choice& choice,
                               std::vector<InferRequest*>* batch) {
  if (strategy_.is_direct()) {
    size_t num_rows = lane->slots.size();
    while (lane->slots[num_rows - 1] == nullptr) --num_rows;
    batch->assign(num_rows, nullptr);
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
  values.start = config_.iterative_sequence ? sequence->fresh : Starts(*request);
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
  const bool first_time = !config_.iterative_sequence || sequence->fresh;
  if (strategy_.preserves_ordering() && first_time)
    request->sink()->set_gate(&gate_, gate_.TakeTicket());
  if (follows_releases_) {
    request->AddReleaseHook(this);
    request->scheduler_note = sequence;
    sequence->in_flight = true;
  }
  sequence->fresh = false;
  sequence->last_active_ns = SteadyNowNs();
  if (values.end) sequence->closing = true;
  return request;
}

void SequenceBatcher::FillWithNulls(std::vector<InferRequest*>* batch) const {
  const InferRequest* like = *std::find_if(batch->begin(), batch->end(),
                                           [](const InferRequest* request) { return request; });
  for (InferRequest*& row : *batch) {
    if (row != nullptr) continue;
    row = NewNullRequest(*like);
    auto inputs = std::make_unique<HostInputs>();
    controls_.AddInputs({}, inputs.get());
    if (!states_.empty()) {
      inputs->states = like->host_inputs()->states->Zeros();
      inputs->states->AddInputs(inputs.get());
    }
    row->SetHostInputs(std::move(inputs));
  }
}

void SequenceBatcher::OnRelease(InferRequest* request, uint32_t release_flags) {
  const bool again = release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE;
  const bool cancelled = again && request->IsCancelled();
  {
    std::lock_guard lock(mutex_);
    auto* sequence = static_cast<Sequence*>(std::exchange(request->scheduler_note, nullptr));
    sequence->in_flight = false;
    sequence->last_active_ns = SteadyNowNs();
    Lane& lane = *lanes_[sequence->lane];
    if (again && !cancelled) {
      request->set_flags(0);
      request->queue_start_ns = sequence->last_active_ns;
      Append(sequence, request);
    } else {
      EndIfDone(sequence);
    }
    lane.changed.notify_one();
  }
  if (cancelled) FailCancelled(request);
}

void SequenceBatcher::EndIfDone(Sequence* sequence) {
  if ((sequence->closing || draining_) && sequence->idle()) End(sequence);
}

void SequenceBatcher::End(Sequence* sequence) {
  if (const auto it = by_id_.find(sequence->id); it != by_id_.end() && it->second == sequence) {
    by_id_.erase(it);
  }
  if (sequence->lane == Sequence::kBacklog) {
    backlog_.remove_if([&](const auto& one) { return one.get() == sequence; });
    return;
  }
  const size_t slot = sequence->slot, lane = sequence->lane;
  std::unique_ptr<Sequence>& place = lanes_[lane]->slots[slot];
  place.reset();
  if (lanes_[lane]->retired) {
    lanes_[lane]->changed.notify_one();
  } else {
    Fill(slot, lane);
  }
}

void SequenceBatcher::OpenSlots(size_t lane) {
  auto& slots = lanes_[lane]->slots;
  while (slots.size() < strategy_.slots_per_lane() && (slots.empty() || slots.back() != nullptr)) {
    slots.emplace_back();
    Fill(slots.size() - 1, lane);
  }
}

void SequenceBatcher::Fill(size_t slot, size_t lane) {
  std::unique_ptr<Sequence>& place = lanes_[lane]->slots[slot];
  if (backlog_.empty()) {
    free_slots_.emplace(slot, lane);
    for (const auto& other : lanes_) other->changed.notify_one();  // one may be over now
    return;
  }
  place = std::move(backlog_.front());
  backlog_.pop_front();
  place->lane = lane;
  place->slot = slot;
  lanes_[lane]->changed.notify_one();
}

bool SequenceBatcher::IsOver(const Lane& lane) const {
  const auto taken = [](const auto& one) { return one != nullptr; };
  if (lane.retired && std::none_of(lane.slots.begin(), lane.slots.end(), taken)) return true;
  const auto has_work = [](const auto& one) { return one != nullptr && !one->empty(); };
  return stopped_ && backlog_.empty() &&
         std::none_of(lane.slots.begin(), lane.slots.end(), has_work);
}

// From the cancelled request to the end of its sequence nothing is executed any more.
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
      if (const auto it = by_id_.find(sequence->id); it != by_id_.end() && it->second == sequence) {
        by_id_.erase(it);
      }
      EndIfDone(sequence);
    }
  }
  attendant_->Post([cancelled = std::move(cancelled)] {
    for (InferRequest* one : cancelled) FailCancelled(one);
  });
}

void SequenceBatcher::ScheduleAttendance(uint64_t deadline_ns) {
  if (deadline_ns >= next_attendance_ns_) return;
  next_attendance_ns_ = deadline_ns;
  attendant_->PostAt(deadline_ns, [weak = weak_from_this(), deadline_ns] {
    if (const auto self = weak.lock()) self->Attend(deadline_ns);
  });
}

void SequenceBatcher::Attend(uint64_t deadline_ns) {
  std::vector<InferRequest*> expired;
  {
    std::lock_guard lock(mutex_);
    if (deadline_ns != next_attendance_ns_) return;  // an earlier one has taken its place
    next_attendance_ns_ = UINT64_MAX;
    const uint64_t now_ns = SteadyNowNs();
    ScheduleAttendance(ReapIdle(now_ns));
    ScheduleAttendance(TakeExpired(now_ns, &expired));
  }
  for (InferRequest* request : expired) {
    request->Fail(UnavailableError("timeout of the corresponding sequence has been expired"),
                  FailureReason::kRejected);
  }
}

// Returns when to look again.
uint64_t SequenceBatcher::ReapIdle(uint64_t now_ns) {
  uint64_t next_ns = UINT64_MAX;
  for (const auto& lane : lanes_) {
    for (const auto& sequence : lane->slots) {
      if (sequence == nullptr) continue;
      const uint64_t since_ns = sequence->idle() ? sequence->last_active_ns : now_ns;
      if (now_ns - since_ns >= max_idle_ns_) {
        End(sequence.get());  // its successor from the backlog, if any, has work
        next_ns = std::min(next_ns, AddNs(now_ns, max_idle_ns_));
      } else {
        next_ns = std::min(next_ns, AddNs(since_ns, max_idle_ns_));
      }
    }
  }
  return next_ns;
}

// One request that waited too long in the backlog takes its sequence with it.
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
  const size_t lane = lanes_.size();
  lanes_.push_back(std::make_unique<Lane>());
  if (lanes_[0]->delay.is_over()) lanes_[lane]->delay.End();
  OpenSlots(lane);
}

void SequenceBatcher::RetireInstance(size_t instance) {
  std::lock_guard lock(mutex_);
  lanes_[instance]->retired = true;
  std::erase_if(free_slots_, [instance](const auto& place) { return place.second == instance; });
  lanes_[instance]->changed.notify_one();
}

uint64_t SequenceBatcher::num_open_sequences() const {
  std::lock_guard lock(mutex_);
  return by_id_.size();
}

void SequenceBatcher::StopIntake() {
  std::lock_guard lock(mutex_);
  draining_ = true;
  for (const auto& lane : lanes_) {
    for (size_t slot = 0; slot < lane->slots.size(); ++slot) {
      if (lane->slots[slot] != nullptr) EndIfDone(lane->slots[slot].get());
    }
    lane->changed.notify_one();
  }
}

void SequenceBatcher::Stop() {
  StopIntake();
  std::lock_guard lock(mutex_);
  stopped_ = true;
  for (const auto& lane : lanes_) lane->changed.notify_one();
}

}  // namespace nereid
