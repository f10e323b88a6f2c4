// The engine's loop.
#include "backends/llm_core/engine/engine.h"

#include <algorithm>
#include <set>
#include <utility>

#include "backends/llm_core/engine/beam_group.h"
#include "backends/llm_core/engine/grammar_drafts.h"
#include "backends/llm_core/engine/request.h"
#include "backends/llm_core/engine/sequence_step.h"
#include "backends/llm_core/engine/stop_criteria.h"
#include "base/thread.h"

namespace nereid::llm {
namespace {

SchedulerOptions WithExecutor(SchedulerOptions options, Executor& executor) {
  options.storage = executor.block_storage();
  options.prepare_adapter = [&executor](const auto& adapter) {
    return executor.PrepareAdapter(adapter);
  };
  return options;
}

double Seconds(EngineClock::TimePoint::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

SpeculationOptions WithFeatures(SpeculationOptions options, const ExecutorFeatures& features) {
  options.masks_drafts = features.draft_masks;
  options.verifies_trees = features.draft_trees;
  options.max_hidden_state_sequences = features.max_hidden_state_sequences;
  return options;
}

}  // namespace

Engine::Engine(EngineOptions options, std::unique_ptr<Executor> executor)
    : options_(std::move(options)),
      executor_(std::move(executor)),
      limits_(executor_->limits()),
      memory_(executor_->memory()),
      overlaps_(options_.overlaps_steps && executor_->features().overlap),
      scheduler_(WithExecutor(options_.scheduler, *executor_), limits_, executor_->features()),
      draft_planner_(WithFeatures(options_.speculation, executor_->features()),
                     executor_->features().draft_tokens, executor_->typical_step_costs(),
                     [this] { return Seconds(options_.clock->Now().time_since_epoch()); }) {
  PublishStats();
  thread_ = StartThread([this] { Run(); });
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
  int64_t adapter_bytes = 0;
  if (request->adapter != nullptr) {
    NEREID_ASSIGN_OR_RETURN(adapter_bytes, executor_->AdapterBytes(*request->adapter));
  }
  const auto num_prompt = static_cast<int64_t>(request->prompt.size());
  int32_t max_tokens = request->stop.max_tokens;
  if (request->output_fills_cache)
    max_tokens = scheduler_.FittingTokens(num_prompt, max_tokens, request->num_running());
  NEREID_RETURN_IF_ERROR(scheduler_.CheckFits(num_prompt, max_tokens, request->num_running()));
  const std::lock_guard lock(inbox_mutex_);
  NEREID_RETURN_IF_ERROR(health_);
  if (stop_) return UnavailableError("the engine is shutting down");
  const int32_t num_waiting = num_waiting_ + static_cast<int32_t>(inbox_.size());
  if (options_.max_queue_size > 0 && num_waiting >= options_.max_queue_size) {
    return UnavailableError("Exceeds maximum queue size of ", options_.max_queue_size,
                            " waiting requests");
  }
  request->stop.max_tokens = max_tokens;
  request->adapter_bytes = adapter_bytes;
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
  if (options_.kv_events != nullptr) {
    options_.kv_events->Publish({KvEvent()});  // what an earlier process had is gone
    scheduler_.NoteEvents();
    PublishEvents();
  }
  if (options_.on_step_end) options_.on_step_end(stats_);
  while (AdmitRequests()) {
    RemoveCancelled();
    if (has_work()) {
      if (const Status status = RunStep(); !status.ok()) Fail(status);
    }
    if (options_.on_check) options_.on_check(scheduler_.CheckInvariants());
    PublishStats();
    PublishEvents();
    if (options_.on_step_end) options_.on_step_end(stats_);
  }
  bool is_sound = health().ok();
  if (executor_->block_storage() != nullptr) {  // what is saved must be computed
    while (is_sound && !steps_in_flight_.is_empty()) is_sound = CollectStep().ok();
  }
  Fail(UnavailableError("the engine is shutting down"));
  if (is_sound) scheduler_.SaveCache();
  if (options_.kv_events != nullptr) options_.kv_events->Publish({KvEvent()});
  if (options_.on_check) options_.on_check(scheduler_.CheckInvariants());
}

bool Engine::AdmitRequests() {
  if (!has_work()) scheduler_.FinishFetches();
  std::vector<std::unique_ptr<GenerationRequest>> arrived;
  {
    std::unique_lock lock(inbox_mutex_);
    if (!has_work() && inbox_.empty() && !stop_ && health_.ok()) {
      health_ = scheduler_.CheckInvariants();  // the engine is idle: every block must be free
      if (!health_.ok()) health_ = std::move(health_).WithContext("KV cache bookkeeping is broken");
    }
    if (!has_work()) planning_timer_.Reset();
    inbox_changed_.wait(lock, [this] { return stop_ || !inbox_.empty() || has_work(); });
    if (const auto latest = NextPlanningTime(); latest > options_.clock->Now())
      options_.clock->WaitUntil(lock, inbox_changed_, latest, [this] { return stop_; });
    if (stop_) return false;
    arrived.swap(inbox_);
    num_waiting_ = scheduler_.counts().num_waiting + static_cast<int32_t>(arrived.size());
  }
  if (!arrived.empty()) planning_timer_.RecordArrival(options_.clock->Now());
  for (std::unique_ptr<GenerationRequest>& request : arrived) {
    // CheckCancellations may have been called before the request was in the scheduler.
    if (!options_.polls_sinks && request->sink->IsCancelled()) CheckCancellations();
    std::unique_ptr<Sequence> sequence = MakeSequences(std::move(request));
    draft_planner_.Add(*sequence);
    scheduler_.Add(std::move(sequence));
  }
  return true;
}

// With requests waiting for capacity, a new arrival could not join the step, so that waiting has no
// use.
EngineClock::TimePoint Engine::NextPlanningTime() const {
  const auto now = options_.clock->Now();
  if (steps_in_flight_.size() != 1 || !steps_in_flight_.may_overlap() ||
      scheduler_.counts().num_waiting > 0)
    return now;
  return planning_timer_.Deadline(std::max(collected_, steps_in_flight_.newest().began), now);
}

// A sink may report a cancellation at any time. Each request is asked once, so that all of
// its sequences see the same answer.
void Engine::RemoveCancelled() {
  if (!cancellation_pending_.exchange(false, std::memory_order_acquire) && !options_.polls_sinks) {
    return;
  }
  ++num_cancel_checks_;
  const auto is_cancelled = [this](const Sequence& sequence) {
    GenerationRequest& request = *sequence.request;
    if (request.last_cancel_check != num_cancel_checks_) {
      request.last_cancel_check = num_cancel_checks_;
      request.is_cancelled = request.sink->IsCancelled();
    }
    return request.is_cancelled;
  };
  std::vector<std::unique_ptr<Sequence>> removed = scheduler_.Remove(is_cancelled);
  for (const auto& sequence : removed) {
    EmitCancellation(*sequence, limits_.vocab_size);
    for (const auto& sibling : sequence->siblings) EmitCancellation(*sibling, limits_.vocab_size);
  }
  steps_in_flight_.Retire(std::move(removed));
}

Status Engine::RunStep() {
  const bool is_first = steps_in_flight_.is_empty();
  if (steps_in_flight_.may_overlap()) NEREID_RETURN_IF_ERROR(SubmitStep());
  if (steps_in_flight_.is_empty()) {  // all that could start waits for its blocks
    scheduler_.WaitForFetch();
    return Status::Ok();
  }
  // After the first step, submit a second one before collecting.
  return is_first && steps_in_flight_.may_overlap() ? Status::Ok() : CollectStep();
}

Status Engine::SubmitStep() {
  planned_ = options_.clock->Now();
  scheduler_.SetTime(
      std::chrono::duration_cast<std::chrono::milliseconds>(planned_.time_since_epoch()).count());
  draft_planner_.Plan(scheduler_.running(), scheduler_.DraftBudget());
  FitDraftsToGrammars(scheduler_.running());
  scheduler_.Schedule(batch_);
  if (!batch_.adapters.empty()) NEREID_RETURN_IF_ERROR(LoadAdapters());
  if (batch_.entries.empty()) return Status::Ok();
  for (Sequence* sequence : scheduler_.scheduled()) {
    if (!std::exchange(sequence->was_scheduled, true)) sequence->request->sink->OnScheduled();
  }
  const auto began = options_.clock->Now();
  if (batch_.has_token_masks) mask_threads_.Start(batch_, scheduler_.scheduled());
  const Status submitted = executor_->Submit(batch_);
  if (batch_.has_token_masks) mask_threads_.Wait();  // nothing else may use the sequences before
  NEREID_RETURN_IF_ERROR(submitted);
  const auto submitted_at = options_.clock->Now();
  planning_timer_.RecordPlanning(submitted_at - planned_);
  steps_in_flight_.Add(batch_, scheduler_.scheduled(), overlaps_, began, submitted_at);
  if (!overlaps_) return Status::Ok();
  scheduler_.MarkComputed();
  if (steps_in_flight_.may_overlap()) steps_in_flight_.AddPendingTokens();
  return Status::Ok();
}

// Requests whose adapter is not on the device end, and the others go on.
Status Engine::LoadAdapters() {
  NEREID_ASSIGN_OR_RETURN(const std::vector<FailedAdapter> failed,
                          executor_->LoadAdapters(batch_.adapters));
  for (const FailedAdapter& each : failed) {
    std::vector<std::unique_ptr<Sequence>> removed = scheduler_.RemoveUsers(*each.adapter, batch_);
    std::set<const GenerationRequest*> notified;  // a request may have several sequences
    for (const auto& sequence : removed) {
      sequence->finish = FinishReason::kStop;
      if (notified.insert(sequence->request.get()).second) {
        sequence->request->sink->OnError(each.error);
      }
    }
    steps_in_flight_.Retire(std::move(removed));
  }
  if (batch_.entries.empty()) scheduler_.MarkComputed();  // no step makes its copies
  return Status::Ok();
}

// The thread sleeps while the step runs: an executor may spin while it waits for a result.
void Engine::SleepDuringStep() {
  const auto until =
      planning_timer_.CollectTime(std::max(collected_, steps_in_flight_.oldest().began));
  if (until <= options_.clock->Now()) return;
  std::unique_lock lock(inbox_mutex_);
  options_.clock->WaitUntil(lock, inbox_changed_, until, [this] { return stop_; });
}

Status Engine::CollectStep() {
  SleepDuringStep();
  const auto collect_began = options_.clock->Now();
  NEREID_ASSIGN_OR_RETURN(StepResult result, executor_->Collect());
  const StepInFlight step = steps_in_flight_.TakeCompleted();
  if (!overlaps_) scheduler_.MarkComputed();
  MeasureStep(step, result, collect_began);
  std::vector<const Sequence*> finished;
  bool any_retired = false;
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    if (i + 2 * Sequence::kPrefetchDistance < step.sequences.size()) {
      step.sequences[i + 2 * Sequence::kPrefetchDistance]->Prefetch();
      step.sequences[i + Sequence::kPrefetchDistance]->PrefetchTokens();
    }
    if (step.sequences[i]->finish != FinishReason::kNone) {  // ended while the step ran
      any_retired = true;
    } else {
      ApplyEntry(*step.sequences[i], i, step.samples[i], result, finished);
    }
  }
  if (result.has_hidden_states()) draft_planner_.FinishHiddenStates();
  if (!finished.empty()) steps_in_flight_.Retire(scheduler_.Remove(finished));
  stuck_.Fail(limits_.vocab_size, scheduler_, steps_in_flight_);
  if (any_retired) steps_in_flight_.FreeRetired();
  was_busy_ = !scheduler_.is_empty();
  return Status::Ok();
}

void Engine::MeasureStep(const StepInFlight& step, const StepResult& result,
                         EngineClock::TimePoint collect_began) {
  ++num_steps_;
  const auto previous = std::exchange(collected_, options_.clock->Now());
  const auto took = collected_ - std::max(previous, step.began);
  step_seconds_ += Seconds(took);
  planning_timer_.RecordStep(step.is_decode, took, collected_ - collect_began);
  const bool was_kept = std::exchange(was_kept_by_drafts_, step.is_kept_by_drafts);
  if (step.is_prefill) scheduler_.RecordComputed(step.num_tokens, Seconds(took));
  if (!draft_planner_.is_on() || !step.decodes_with_drafts) return;
  // Steps that do not overlap also take the time of drafting and planning.
  const auto all = was_busy_ ? collected_ - previous : overlaps_ ? took : collected_ - planned_;
  size_t num_accepted = 0;
  for (const auto& accepted : result.accepted) num_accepted += accepted.size();
  DraftPlanner::StepOutcome outcome;
  outcome.num_sequences = static_cast<int32_t>(step.sequences.size());
  outcome.num_drafts = step.num_drafts;
  outcome.num_accepted = static_cast<int32_t>(num_accepted);
  outcome.seconds = Seconds(all);
  outcome.is_typical = result.is_typical;
  if (was_kept && was_busy_) outcome.idle_seconds = Seconds(step.submitted - previous);
  draft_planner_.RecordStep(outcome);
}

void Engine::ApplyEntry(Sequence& sequence, size_t i, bool samples, StepResult& result,
                        std::vector<const Sequence*>& finished) {
  // Sequences with beams or kept logits prevent overlap, so that batch_ is the batch of this step.
  // A drafter that reads hidden states prevents it, too.
  if (sequence.kept_logits != nullptr) {
    KeepLogits(batch_.entries[i], i, result, limits_.vocab_size, sequence);
  }
  if (result.has_hidden_states() && batch_.entries[i].returns_hidden_states) {
    draft_planner_.RecordHiddenStates(sequence, batch_.entries[i], i, result);
  }
  if (!samples) return;
  if (sequence.beams == nullptr) {
    ApplySampled(sequence, i, result);
    if (sequence.finish != FinishReason::kNone) finished.push_back(&sequence);
    return;
  }
  BeamGroup& beams = *sequence.beams;
  num_output_tokens_ += beams.Apply(sequence, std::move(result.candidates[i]), scheduler_);
  if (beams.is_stuck()) {
    stuck_.Add(sequence.request, sequence.num_output() + 1);
  } else if (beams.is_over()) {
    beams.AppendSequences(finished);
  }
}

void Engine::ApplySampled(Sequence& sequence, size_t i, const StepResult& result) {
  Status applied;
  if (sequence.num_drafts > 0) {
    draft_planner_.RecordVerified(sequence, std::exchange(sequence.num_drafts, 0), i, result);
    applied = ApplyAccepted(sequence, result.accepted[i]);
  } else if (sequence.drafts != nullptr) {
    draft_planner_.RecordUnverified(sequence, result.tokens[i].id);
  }
  if (sequence.finish != FinishReason::kNone) return;  // an accepted draft ended the sequence
  const int32_t number = sequence.num_output() - sequence.num_pending + 1;
  if (applied.ok() && result.tokens[i].id != kNoToken) {
    applied = ApplyToken(sequence, result.tokens[i]);
  } else if (applied.ok()) {
    if (EndWithoutToken(sequence)) return;
    stuck_.Add(sequence.request, number,
               sequence.has_grammar ? sequence.grammar->status() : Status::Ok());
  }
  if (!applied.ok()) stuck_.Add(sequence.request, number, applied);
}

Status Engine::ApplyToken(Sequence& sequence, const SampledToken& sampled) {
  ++num_output_tokens_;
  const SampledToken token =
      sequence.has_reasoning_budget ? ApplyReasoningBudget(sampled, sequence) : sampled;
  if (sequence.num_pending > 0) {
    sequence.token_ids[sequence.num_known()] = token.id;
    --sequence.num_pending;
  } else {
    sequence.token_ids.push_back(token.id);
  }
  if (sequence.request->sampling.returns_log_probs) sequence.log_probs.push_back(token.log_prob);
  const GenerationRequest& request = *sequence.request;
  StopResult stop = Combine(CheckStop(request.stop, sequence.output_ids()),
                            request.sink->OnToken(sequence.index, sequence.output_ids()));
  if (sequence.has_grammar && stop.finish != FinishReason::kStop) {
    NEREID_RETURN_IF_ERROR(sequence.grammar->Accept(token.id));
    if (sequence.grammar->MustEnd()) {
      stop = {FinishReason::kStop, static_cast<int32_t>(sequence.output_ids().size())};
    }
  }
  sequence.finish = stop.finish;
  EmitOutput(sequence, stop, limits_.vocab_size);
  return Status::Ok();
}

// A request without end ids, or whose end ids are banned before min_tokens, has no token for the
// end of its text.
bool Engine::EndWithoutToken(Sequence& sequence) {
  if (!sequence.has_grammar || !sequence.grammar->CanEnd()) return false;
  sequence.finish = FinishReason::kStop;
  EmitOutput(sequence, {FinishReason::kStop, static_cast<int32_t>(sequence.output_ids().size())},
             limits_.vocab_size);
  return true;
}

Status Engine::ApplyAccepted(Sequence& sequence, std::span<const SampledToken> accepted) {
  for (const SampledToken& token : accepted) {
    NEREID_RETURN_IF_ERROR(ApplyToken(sequence, token));
    ++sequence.num_cached;
    if (sequence.finish != FinishReason::kNone) break;
  }
  return Status::Ok();
}

void Engine::PublishStats() {
  EngineStats stats;
  stats.counts = scheduler_.counts();
  if (stats.counts.num_running == 0) {  // what the last step had is over
    stats.counts.num_prefill_tokens = stats.counts.num_prefill_sequences = 0;
    stats.counts.num_decode_sequences = stats.counts.num_decode_further_beams = 0;
  }
  stats.num_blocks = limits_.num_blocks;
  stats.num_used_blocks = scheduler_.blocks().num_used();
  stats.block_size = limits_.block_size;
  stats.max_num_sequences = limits_.max_num_sequences;
  stats.memory = memory_;
  stats.num_steps = num_steps_;
  stats.num_output_tokens = num_output_tokens_;
  stats.speculation = draft_planner_.counts();
  stats.client_drafts = draft_planner_.client_counts();
  const ExecutorCounts done = executor_->counts();
  stats.num_recorded_steps = done.num_recorded_steps;
  stats.num_failed_recordings = done.num_failed_recordings;
  stats.step_seconds = step_seconds_;
  const std::lock_guard lock(inbox_mutex_);
  stats_ = stats;
}

void Engine::PublishEvents() {
  if (options_.kv_events == nullptr) return;
  std::vector<KvEvent> events = scheduler_.TakeEvents();
  if (!events.empty()) options_.kv_events->Publish(std::move(events));
}

void Engine::Fail(const Status& status) {
  std::vector<std::unique_ptr<GenerationRequest>> arrived;
  {
    const std::lock_guard lock(inbox_mutex_);
    if (health_.ok()) health_ = status;
    arrived.swap(inbox_);
  }
  for (const auto& request : arrived) request->sink->OnError(status);
  std::set<const GenerationRequest*> notified;  // a request may have several sequences
  for (const auto& sequence : scheduler_.Remove([](const Sequence&) { return true; })) {
    if (notified.insert(sequence->request.get()).second) sequence->request->sink->OnError(status);
  }
  steps_in_flight_.Clear();
}

}  // namespace nereid::llm
