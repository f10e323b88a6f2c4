// The engine's loop.
#include "backends/llm_core/engine/engine.h"

#include <algorithm>
#include <set>
#include <utility>

#include "backends/llm_core/engine/beam_group.h"
#include "backends/llm_core/engine/request_check.h"
#include "backends/llm_core/engine/sequence_output.h"
#include "backends/llm_core/engine/stop_criteria.h"

namespace nereid::llm {

Engine::Engine(EngineOptions options, std::unique_ptr<Executor> executor)
    : options_(std::move(options)),
      executor_(std::move(executor)),
      limits_(executor_->limits()),
      memory_(executor_->memory()),
      overlaps_(options_.overlaps_steps && executor_->features().overlap),
      scheduler_(options_.scheduler, limits_, executor_->features()) {
  PublishStats();
  thread_ = std::thread([this] { Run(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(inbox_mutex_);
    stop_ = true;
  }
  inbox_changed_.notify_one();
  thread_.join();
}

Status Engine::Enqueue(std::unique_ptr<GenerationRequest>& request) {
  NEREID_RETURN_IF_ERROR(CheckRequest(*request, limits_, executor_->features()));
  NEREID_RETURN_IF_ERROR(scheduler_.CheckFits(static_cast<int64_t>(request->prompt.size()),
                                              request->stop.max_tokens, request->num_running()));
  const std::lock_guard lock(inbox_mutex_);
  NEREID_RETURN_IF_ERROR(health_);
  if (stop_) return UnavailableError("the engine is shutting down");
  const int32_t num_waiting = num_waiting_ + static_cast<int32_t>(inbox_.size());
  if (options_.max_queue_size > 0 && num_waiting >= options_.max_queue_size) {
    return UnavailableError("Exceeds maximum queue size of ", options_.max_queue_size,
                            " waiting requests");
  }
  inbox_.push_back(std::move(request));
  if (inbox_.size() == 1) inbox_changed_.notify_one();
  return Status::Ok();
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(inbox_mutex_);
  return stats_;
}

Status Engine::health() const {
  const std::lock_guard lock(inbox_mutex_);
  return health_;
}

void Engine::Run() {
  if (options_.on_step_end) options_.on_step_end(stats_);
  while (Admit()) {
    DropCancelled();
    if (!scheduler_.is_empty() || !flights_.is_empty()) {
      if (const Status status = Step(); !status.ok()) Fail(status);
    }
    if (options_.on_check) options_.on_check(scheduler_.CheckInvariants());
    PublishStats();
    if (options_.on_step_end) options_.on_step_end(stats_);
  }
  Fail(UnavailableError("the engine is shutting down"));
  if (options_.on_check) options_.on_check(scheduler_.CheckInvariants());
}

bool Engine::Admit() {
  std::vector<std::unique_ptr<GenerationRequest>> arrived;
  {
    std::unique_lock lock(inbox_mutex_);
    if (scheduler_.is_empty() && flights_.is_empty() && inbox_.empty() && !stop_ && health_.ok()) {
      health_ = scheduler_.CheckInvariants();  // nothing is in use: every block must be free
      if (!health_.ok()) health_ = std::move(health_).WithContext("KV cache bookkeeping is broken");
    }
    if (flights_.is_empty()) planning_clock_.Forget();
    inbox_changed_.wait(lock, [this] {
      return stop_ || !inbox_.empty() || !scheduler_.is_empty() || !flights_.is_empty();
    });
    if (const auto latest = LatestPlanning(); latest > options_.time->Now())
      options_.time->WaitUntil(lock, inbox_changed_, latest, [this] { return stop_; });
    if (stop_) return false;
    arrived.swap(inbox_);
    num_waiting_ = scheduler_.counts().num_waiting + static_cast<int32_t>(arrived.size());
  }
  if (!arrived.empty()) planning_clock_.NoteArrival(options_.time->Now());
  for (std::unique_ptr<GenerationRequest>& request : arrived) {
    // It may have been too early for LookForCancelled.
    if (!options_.asks_sinks && request->sink->IsCancelled()) LookForCancelled();
    scheduler_.Add(MakeSequences(std::move(request)));
  }
  return true;
}

// Who comes behind others that wait for room would not be in the step in any case.
EngineTime::TimePoint Engine::LatestPlanning() const {
  const auto now = options_.time->Now();
  if (flights_.size() != 1 || !flights_.may_overlap() || scheduler_.counts().num_waiting > 0)
    return now;
  return planning_clock_.Latest(std::max(collected_, flights_.newest().began), now);
}

// The sink may say so at any time: all sequences of a request go by one answer.
void Engine::DropCancelled() {
  if (!some_are_cancelled_.exchange(false, std::memory_order_acquire) && !options_.asks_sinks) {
    return;
  }
  ++num_looks_;
  const auto is_cancelled = [this](const Sequence& sequence) {
    GenerationRequest& request = *sequence.request;
    if (request.last_look != num_looks_) {
      request.last_look = num_looks_;
      request.is_cancelled = request.sink->IsCancelled();
    }
    return request.is_cancelled;
  };
  std::vector<std::unique_ptr<Sequence>> removed = scheduler_.Remove(is_cancelled);
  for (const auto& sequence : removed) {
    Cancel(*sequence);
    for (const auto& companion : sequence->companions) Cancel(*companion);
  }
  flights_.Retire(std::move(removed));
}

void Engine::Cancel(Sequence& sequence) {
  sequence.finish = FinishReason::kCancelled;
  if (sequence.request->uses_beams()) {  // there is nothing to show of an unfinished search
    if (sequence.index >= sequence.request->num_sequences) return;
    Output output;
    output.finish = sequence.finish;
    output.sequence_index = sequence.index;
    sequence.request->sink->OnOutput(output);
    return;
  }
  PutOut(sequence, static_cast<int32_t>(sequence.output_ids().size()), limits_.vocab_size);
}

Status Engine::Step() {
  const bool is_first = flights_.is_empty();
  if (flights_.may_overlap()) NEREID_RETURN_IF_ERROR(Launch());
  if (flights_.is_empty()) return Status::Ok();
  // The first one gets another beside it.
  return is_first && flights_.may_overlap() ? Status::Ok() : Collect();
}

Status Engine::Launch() {
  const auto planned = options_.time->Now();
  scheduler_.Schedule(batch_);
  if (batch_.sequences.empty()) return Status::Ok();
  for (Sequence* sequence : scheduler_.scheduled()) {
    if (!std::exchange(sequence->was_scheduled, true)) sequence->request->sink->OnScheduled();
  }
  const auto began = options_.time->Now();
  NEREID_RETURN_IF_ERROR(executor_->Submit(batch_));
  planning_clock_.NotePlanning(options_.time->Now() - planned);
  flights_.Add(batch_, scheduler_.scheduled(), overlaps_, began);
  if (!overlaps_) return Status::Ok();
  scheduler_.MarkComputed();
  if (flights_.may_overlap()) flights_.ExpectTokens();
  return Status::Ok();
}

Status Engine::Collect() {
  const auto asked = options_.time->Now();
  NEREID_ASSIGN_OR_RETURN(StepResult result, executor_->Collect());
  const Flight flight = flights_.Land();
  if (!overlaps_) scheduler_.MarkComputed();
  ++num_steps_;
  const auto previous = std::exchange(collected_, options_.time->Now());
  const auto took = collected_ - std::max(previous, flight.began);
  step_seconds_ += std::chrono::duration<double>(took).count();
  planning_clock_.NoteStep(flight.is_decode, took, collected_ - asked);
  std::vector<const Sequence*> finished;
  bool any_retired = false;
  for (size_t i = 0; i < flight.sequences.size(); ++i) {
    if (i + 2 * Sequence::kAhead < flight.sequences.size()) {
      flight.sequences[i + 2 * Sequence::kAhead]->Prefetch();
      flight.sequences[i + Sequence::kAhead]->PrefetchTokens();
    }
    Sequence& sequence = *flight.sequences[i];
    if (sequence.finish != FinishReason::kNone) {  // ended while the step ran
      any_retired = true;
      continue;
    }
    // Whoever keeps rows or has beams lets no step overlap: batch_ is this step's.
    if (sequence.rows != nullptr) {
      KeepRows(batch_.sequences[i], i, result, limits_.vocab_size, sequence);
    }
    if (!flight.samples[i]) continue;
    if (sequence.beams != nullptr) {
      BeamGroup& beams = *sequence.beams;
      num_output_tokens_ += beams.Apply(sequence, std::move(result.candidates[i]), scheduler_);
      if (beams.is_over()) beams.ListAll(finished);
      continue;
    }
    ApplyToken(sequence, result.tokens[i]);
    if (sequence.finish != FinishReason::kNone) finished.push_back(&sequence);
  }
  if (!finished.empty()) flights_.Retire(scheduler_.Remove(finished));
  if (any_retired) flights_.Sweep();
  return Status::Ok();
}

void Engine::ApplyToken(Sequence& sequence, const SampledToken& token) {
  ++num_output_tokens_;
  if (sequence.num_pending > 0) {
    sequence.token_ids[sequence.num_known()] = token.id;
    --sequence.num_pending;
  } else {
    sequence.token_ids.push_back(token.id);
  }
  if (sequence.request->sampling.want_log_probs) sequence.log_probs.push_back(token.log_prob);
  const GenerationRequest& request = *sequence.request;
  const StopVerdict verdict = Combine(CheckStop(request.stop, sequence.output_ids()),
                                      request.sink->OnToken(sequence.index, sequence.output_ids()));
  sequence.finish = verdict.finish;
  PutOut(sequence, verdict.num_visible, limits_.vocab_size);
}

void Engine::PublishStats() {
  EngineStats stats;
  stats.counts = scheduler_.counts();
  stats.num_blocks = limits_.num_blocks;
  stats.num_used_blocks = scheduler_.blocks().num_used();
  stats.block_size = limits_.block_size;
  stats.max_num_sequences = limits_.max_num_sequences;
  stats.memory = memory_;
  stats.num_steps = num_steps_;
  stats.num_output_tokens = num_output_tokens_;
  const ExecutorCounts done = executor_->counts();
  stats.num_recorded_steps = done.num_recorded_steps;
  stats.num_failed_recordings = done.num_failed_recordings;
  stats.step_seconds = step_seconds_;
  const std::lock_guard lock(inbox_mutex_);
  stats_ = stats;
}

void Engine::Fail(const Status& status) {
  std::vector<std::unique_ptr<GenerationRequest>> arrived;
  {
    const std::lock_guard lock(inbox_mutex_);
    if (health_.ok()) health_ = status;
    arrived.swap(inbox_);
  }
  for (const auto& request : arrived) request->sink->OnError(status);
  std::set<const GenerationRequest*> told;  // one may have several sequences
  for (const auto& sequence : scheduler_.Remove([](const Sequence&) { return true; })) {
    if (told.insert(sequence->request.get()).second) sequence->request->sink->OnError(status);
  }
  flights_.Clear();
}

}  // namespace nereid::llm
