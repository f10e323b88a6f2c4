// The engine's loop.
#include "llm_core/engine/engine.h"

#include <algorithm>
#include <set>
#include <utility>

#include "llm_core/engine/beam_search.h"
#include "llm_core/engine/stop_criteria.h"
#include "llm_core/sampling/philox.h"

namespace nereid::llm {
namespace {

constexpr int32_t kMaxPriority = 1000;

Status CheckIds(const char* name, const TokenIds& ids, int32_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return InvalidArgError("'", name, "': token id ", ids[i], " at index ", i, ", expected 0 to ",
                             vocab_size - 1);
    }
  }
  return Status::Ok();
}

Status CheckBeams(const GenerationRequest& request) {
  const BeamParams& beams = request.beams;
  if (beams.width < 1) {
    return InvalidArgError("'beam_width' is ", beams.width, ", expected 1 or more");
  }
  if (!(std::abs(beams.length_penalty) <= 100.0f)) {
    return InvalidArgError("'len_penalty' is ", beams.length_penalty, ", expected -100 to 100");
  }
  if (!(beams.diversity_rate >= 0.0f && beams.diversity_rate <= 1e6f)) {
    return InvalidArgError("'beam_search_diversity_rate' is ", beams.diversity_rate,
                           ", expected 0 to 1e6");
  }
  if (!request.uses_beams()) return Status::Ok();
  if (request.num_sequences > beams.width) {
    return InvalidArgError("'num_return_sequences' is ", request.num_sequences,
                           ", expected at most the beam_width, ", beams.width);
  }
  if (request.want_generation_logits) {
    return UnsupportedError("'return_generation_logits' with beam_width ", beams.width,
                            ": not supported with beam search");
  }
  return Status::Ok();
}

Status CheckFeatures(const GenerationRequest& request, const ExecutorFeatures& features) {
  const auto refuse = [](const char* name) {
    return UnsupportedError("'", name, "': this backend's executor does not support it");
  };
  if (request.uses_beams() && !features.candidates) return refuse("beam_width");
  if (request.want_context_logits && !features.logits) return refuse("return_context_logits");
  if (request.want_generation_logits && !features.logits) return refuse("return_generation_logits");
  if (request.want_prompt_log_probs && !features.prompt_log_probs) {
    return refuse("return_prompt_log_probs");
  }
  return Status::Ok();
}

Status CheckRequest(const GenerationRequest& request, const ExecutorLimits& limits) {
  if (request.prompt.empty()) return InvalidArgError("'input_ids': the prompt is empty");
  NEREID_RETURN_IF_ERROR(CheckIds("input_ids", request.prompt, limits.vocab_size));
  if (request.stop.max_tokens < 1) {
    return InvalidArgError("'request_output_len' is ", request.stop.max_tokens,
                           ", expected 1 or more");
  }
  if (request.stop.min_tokens < 0) {
    return InvalidArgError("'min_tokens' is ", request.stop.min_tokens, ", expected 0 or more");
  }
  if (request.num_sequences < 1) {
    return InvalidArgError("'num_return_sequences' is ", request.num_sequences,
                           ", expected 1 or more");
  }
  if (std::abs(request.priority) > kMaxPriority) {
    return InvalidArgError("priority ", request.priority, ", expected ", -kMaxPriority, " to ",
                           kMaxPriority);
  }
  NEREID_RETURN_IF_ERROR(CheckBeams(request));
  NEREID_RETURN_IF_ERROR(CheckIds("end_id", request.stop.end_ids, limits.vocab_size));
  for (const TokenIds& word : request.stop.stop_words) {
    NEREID_RETURN_IF_ERROR(CheckIds("stop_words_list", word, limits.vocab_size));
  }
  return CheckSamplingParams(request.sampling, limits.vocab_size);
}

std::unique_ptr<Sequence> MakeSequence(std::shared_ptr<GenerationRequest> request, int32_t index) {
  auto sequence = std::make_unique<Sequence>();
  sequence->num_prompt = static_cast<int32_t>(request->prompt.size());
  sequence->token_ids = request->prompt;
  sequence->index = index;
  if (index == 0 && (request->needs_whole_prompt() || request->want_generation_logits)) {
    sequence->rows = std::make_unique<SequenceRows>();
  } else if (request->want_generation_logits) {
    sequence->rows = std::make_unique<SequenceRows>();
    sequence->rows->num_prompt_rows = sequence->num_prompt;  // the first sequence's to put out
  }
  sequence->is_special = request->uses_beams() || sequence->rows != nullptr;
  if (index > 0 && !request->sampling.is_greedy()) {
    sequence->own_sampling = std::make_unique<SamplingParams>(request->sampling);
    sequence->own_sampling->seed =
        SequenceSeed(request->sampling.seed, static_cast<uint32_t>(index));
  }
  sequence->request = std::move(request);
  return sequence;
}

// A request's first sequence, the others within it.
std::unique_ptr<Sequence> MakeSequences(std::unique_ptr<GenerationRequest> request) {
  std::shared_ptr<GenerationRequest> shared = std::move(request);
  std::unique_ptr<Sequence> first = MakeSequence(shared, 0);
  for (int32_t i = 1; i < shared->num_running(); ++i) {
    first->companions.push_back(MakeSequence(shared, i));
  }
  if (!shared->uses_beams()) return first;
  first->beams = std::make_shared<BeamGroup>(*shared);
  first->beams->beams.push_back(first.get());
  first->beams->rows = first->rows.get();
  for (const auto& companion : first->companions) {
    companion->beams = first->beams;
    first->beams->resting.push_back(companion.get());
  }
  return first;
}

}  // namespace

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
  NEREID_RETURN_IF_ERROR(CheckRequest(*request, limits_));
  NEREID_RETURN_IF_ERROR(CheckFeatures(*request, executor_->features()));
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
    if (!scheduler_.is_empty() || !flights_.empty()) {
      if (const Status status = Step(); !status.ok()) Fail(status);
    }
    PublishStats();
    if (options_.on_step_end) options_.on_step_end(stats_);
  }
  Fail(UnavailableError("the engine is shutting down"));
}

bool Engine::Admit() {
  std::vector<std::unique_ptr<GenerationRequest>> arrived;
  {
    std::unique_lock lock(inbox_mutex_);
    if (scheduler_.is_empty() && flights_.empty() && inbox_.empty() && !stop_ && health_.ok()) {
      health_ = scheduler_.CheckInvariants();  // nothing is in use: every block must be free
      if (!health_.ok()) health_ = std::move(health_).WithContext("KV cache bookkeeping is broken");
    }
    inbox_changed_.wait(lock, [this] {
      return stop_ || !inbox_.empty() || !scheduler_.is_empty() || !flights_.empty();
    });
    if (stop_) return false;
    arrived.swap(inbox_);
    num_waiting_ = scheduler_.counts().num_waiting + static_cast<int32_t>(arrived.size());
  }
  for (std::unique_ptr<GenerationRequest>& request : arrived) {
    scheduler_.Add(MakeSequences(std::move(request)));
  }
  return true;
}

void Engine::DropCancelled() {
  const auto is_cancelled = [](const Sequence& sequence) {
    return sequence.request->sink->IsCancelled();
  };
  std::vector<std::unique_ptr<Sequence>> removed = scheduler_.Remove(is_cancelled);
  for (const auto& sequence : removed) {
    Cancel(*sequence);
    for (const auto& companion : sequence->companions) Cancel(*companion);
  }
  Retire(std::move(removed));
}

// The request goes at once: nothing more is put out.
void Engine::Retire(std::vector<std::unique_ptr<Sequence>> removed) {
  for (std::unique_ptr<Sequence>& sequence : removed) {
    if (sequence->num_in_flight == 0) continue;
    sequence->request.reset();
    retired_.push_back(std::move(sequence));
  }
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
  EmitTo(sequence, static_cast<int32_t>(sequence.output_ids().size()));
}

Status Engine::Step() {
  const size_t num_running = flights_.size();
  if (flights_.empty() || flights_.back().may_overlap) NEREID_RETURN_IF_ERROR(Launch());
  if (flights_.empty()) return Status::Ok();
  const bool is_first = num_running == 0 && flights_.back().may_overlap;
  return is_first ? Status::Ok() : Collect();  // the first one gets another beside it
}

Status Engine::Launch() {
  scheduler_.Schedule(batch_);
  if (batch_.sequences.empty()) return Status::Ok();
  for (Sequence* sequence : scheduler_.scheduled()) {
    if (!std::exchange(sequence->was_scheduled, true)) sequence->request->sink->OnScheduled();
  }
  const auto began = std::chrono::steady_clock::now();
  NEREID_RETURN_IF_ERROR(executor_->Submit(batch_));
  Flight& flight = flights_.emplace_back();
  flight.began = began;
  flight.sequences = scheduler_.scheduled();
  flight.may_overlap = overlaps_;
  for (size_t i = 0; i < flight.sequences.size(); ++i) {
    Sequence& sequence = *flight.sequences[i];
    ++sequence.num_in_flight;
    flight.samples.push_back(batch_.sequences[i].samples);
    // Beams and kept rows are planned by their results, some rules read every token.
    flight.may_overlap &=
        !sequence.is_special && !(flight.samples[i] && sequence.sampling().reads_output());
  }
  if (!overlaps_) return Status::Ok();
  scheduler_.MarkComputed();
  if (!flight.may_overlap) return Status::Ok();
  for (size_t i = 0; i < flight.sequences.size(); ++i) {
    if (!flight.samples[i]) continue;
    Sequence& sequence = *flight.sequences[i];
    sequence.token_ids.push_back(PendingTokenId(sequence.slot));
    ++sequence.num_pending;
  }
  return Status::Ok();
}

Status Engine::Collect() {
  NEREID_ASSIGN_OR_RETURN(StepResult result, executor_->Collect());
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  if (!overlaps_) scheduler_.MarkComputed();
  ++num_steps_;
  const auto previous = std::exchange(collected_, std::chrono::steady_clock::now());
  step_seconds_ +=
      std::chrono::duration<double>(collected_ - std::max(previous, flight.began)).count();
  bool any_finished = false, any_retired = false;
  for (size_t i = 0; i < flight.sequences.size(); ++i) {
    Sequence& sequence = *flight.sequences[i];
    --sequence.num_in_flight;
    if (sequence.finish != FinishReason::kNone) {  // ended while the step ran
      any_retired = true;
      continue;
    }
    if (sequence.rows != nullptr) KeepRows(sequence, i, result);
    if (!flight.samples[i]) continue;
    if (sequence.beams != nullptr) {
      any_finished |= ApplyCandidates(sequence, std::move(result.candidates[i]));
      continue;
    }
    ApplyToken(sequence, result.tokens[i]);
    any_finished |= sequence.finish != FinishReason::kNone;
  }
  if (any_finished) {
    Retire(scheduler_.Remove([](const Sequence& s) { return s.finish != FinishReason::kNone; }));
  }
  if (any_retired) {
    std::erase_if(retired_, [](const auto& sequence) { return sequence->num_in_flight == 0; });
  }
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
  EmitTo(sequence, verdict.num_visible);
}

void Engine::KeepRows(Sequence& sequence, size_t i, StepResult& result) {
  const BatchSequence& entry = batch_.sequences[i];
  SequenceRows& rows = *sequence.rows;
  const GenerationRequest& request = *sequence.request;
  const auto vocab_size = static_cast<ptrdiff_t>(limits_.vocab_size);
  if (entry.num_logits == entry.num_tokens && rows.num_prompt_rows < sequence.num_prompt) {
    // Of a recomputed sequence, those before were kept the first time, those behind are output.
    const int32_t skip = rows.num_prompt_rows - entry.num_cached;
    const int32_t end = std::min(entry.num_tokens, sequence.num_prompt - entry.num_cached);
    if (request.want_context_logits && skip < end) {
      const auto first = result.logits[i].begin();
      rows.context_logits.insert(rows.context_logits.end(), first + skip * vocab_size,
                                 first + end * vocab_size);
    }
    // The last prompt token is followed by output.
    const int32_t last = std::min(end, sequence.num_prompt - 1 - entry.num_cached);
    if (request.want_prompt_log_probs && skip < last) {
      const std::vector<float>& found = result.prompt_log_probs[i];
      rows.prompt_log_probs.insert(rows.prompt_log_probs.end(), found.begin() + skip,
                                   found.begin() + last);
    }
    rows.num_prompt_rows = std::max(rows.num_prompt_rows, entry.num_cached + end);
  }
  if (entry.samples && request.want_generation_logits) {
    const std::vector<float>& logits = result.logits[i];
    rows.generation_logits.insert(rows.generation_logits.end(), logits.end() - vocab_size,
                                  logits.end());
  }
}

bool Engine::ApplyCandidates(Sequence& sequence, std::vector<SampledToken> candidates) {
  sequence.candidates = std::move(candidates);
  BeamGroup& group = *sequence.beams;
  if (++group.num_ready < static_cast<int32_t>(group.beams.size())) return false;
  group.num_ready = 0;
  return AdvanceBeams(group);
}

bool Engine::AdvanceBeams(BeamGroup& group) {
  std::vector<BeamView> views;
  for (const Sequence* beam : group.beams) {
    views.push_back({beam->output_ids(), beam->log_probs, beam->cum_log_prob, beam->candidates});
  }
  const std::vector<BeamContinuation> next = group.search->Advance(views);
  num_output_tokens_ += static_cast<int64_t>(next.size());
  if (!next.empty()) {
    MoveBeams(group, next);
    return false;
  }
  EmitBeams(*group.beams[0]);
  for (const std::vector<Sequence*>* list : {&group.beams, &group.resting}) {
    for (Sequence* sequence : *list) sequence->finish = FinishReason::kStop;
  }
  return true;
}

// The first continuation of a beam is the beam itself; the others fork from it while it is as it
// was. Beams that nothing follows give their blocks back before anybody needs new ones.
void Engine::MoveBeams(BeamGroup& group, std::span<const BeamContinuation> next) {
  std::vector<const BeamContinuation*> first_of(group.beams.size(), nullptr);
  for (const BeamContinuation& continuation : next) {
    const BeamContinuation*& first = first_of[continuation.parent];
    if (first == nullptr) first = &continuation;
  }
  for (size_t i = 0; i < group.beams.size(); ++i) {
    if (first_of[i] != nullptr) continue;
    scheduler_.Rest(*group.beams[i]);
    group.resting.push_back(group.beams[i]);
  }
  const auto follow = [](Sequence& beam, const BeamContinuation& continuation) {
    beam.log_probs.push_back(continuation.token.log_prob);
    beam.cum_log_prob = continuation.cum_log_prob;
  };
  std::vector<Sequence*> beams;
  for (const BeamContinuation& continuation : next) {
    Sequence* beam = group.beams[continuation.parent];
    if (first_of[continuation.parent] != &continuation) {
      const Sequence& parent = *beam;
      beam = group.resting.back();
      group.resting.pop_back();
      scheduler_.Fork(parent, continuation.token.id, *beam);
      beam->log_probs = parent.log_probs;
      follow(*beam, continuation);
    }
    beams.push_back(beam);
  }
  for (size_t i = 0; i < group.beams.size(); ++i) {
    if (first_of[i] == nullptr) continue;
    group.beams[i]->token_ids.push_back(first_of[i]->token.id);
    follow(*group.beams[i], *first_of[i]);
  }
  group.beams = std::move(beams);
}

void Engine::EmitBeams(const Sequence& any) {
  const GenerationRequest& request = *any.request;
  const std::vector<BeamHypothesis>& finished = any.beams->search->finished();
  BeamHypothesis none;
  none.finish = FinishReason::kStop;
  for (int32_t i = 0; i < request.num_sequences; ++i) {
    const bool is_there = static_cast<size_t>(i) < finished.size();
    const BeamHypothesis& hypothesis = is_there ? finished[i] : none;
    Output output;
    output.ids = hypothesis.ids;
    if (request.sampling.want_log_probs) {
      output.log_probs = hypothesis.log_probs;
      output.cum_log_prob = hypothesis.cum_log_prob;
    }
    output.finish = hypothesis.finish;
    output.sequence_index = i;
    output.num_reused_blocks = any.num_reused_blocks;
    output.num_new_blocks = any.num_new_blocks;
    if (i == 0 && any.beams->rows != nullptr) {
      output.prompt_log_probs = any.beams->rows->prompt_log_probs;
      output.context_logits = any.beams->rows->context_logits;
    }
    request.sink->OnOutput(output);
  }
}

void Engine::EmitTo(Sequence& sequence, int32_t num_visible) {
  if (num_visible <= sequence.num_released && sequence.finish == FinishReason::kNone) return;
  Output output;
  output.ids = sequence.output_ids().first(num_visible);
  output.first_new = sequence.num_released;
  output.finish = sequence.finish;
  if (sequence.request->sampling.want_log_probs) {
    output.log_probs = std::span<const float>(sequence.log_probs).first(num_visible);
    for (int32_t i = sequence.num_released; i < num_visible; ++i) {
      sequence.cum_log_prob += sequence.log_probs[i];
    }
    output.cum_log_prob = sequence.cum_log_prob;
  }
  output.sequence_index = sequence.index;
  output.num_reused_blocks = sequence.num_reused_blocks;
  output.num_new_blocks = sequence.num_new_blocks;
  if (sequence.rows != nullptr) {
    const SequenceRows& rows = *sequence.rows;
    if (!std::exchange(sequence.was_put_out, true)) {
      output.prompt_log_probs = rows.prompt_log_probs;
      output.context_logits = rows.context_logits;
    }
    const size_t num_logits = static_cast<size_t>(num_visible) * limits_.vocab_size;
    if (rows.generation_logits.size() >= num_logits) {
      output.generation_logits = std::span<const float>(rows.generation_logits).first(num_logits);
    }
  }
  sequence.num_released = num_visible;
  sequence.request->sink->OnOutput(output);
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
  stats.num_recorded_steps = executor_->counts().num_recorded_steps;
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
  flights_.clear();
  retired_.clear();
}

}  // namespace nereid::llm
