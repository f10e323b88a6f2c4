// The engine's loop.
#include "llm_core/engine/engine.h"

#include <set>
#include <utility>

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
  for (int32_t i = 1; i < shared->num_sequences; ++i) {
    first->companions.push_back(MakeSequence(shared, i));
  }
  return first;
}

}  // namespace

Engine::Engine(EngineOptions options, std::unique_ptr<Executor> executor)
    : options_(std::move(options)),
      executor_(std::move(executor)),
      limits_(executor_->limits()),
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
  NEREID_RETURN_IF_ERROR(scheduler_.CheckFits(static_cast<int64_t>(request->prompt.size()),
                                              request->stop.max_tokens, request->num_sequences));
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
  while (Admit()) {
    DropCancelled();
    if (!scheduler_.is_empty()) {
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
    if (scheduler_.is_empty() && inbox_.empty() && !stop_ && health_.ok()) {
      health_ = scheduler_.CheckInvariants();  // nothing is in use: every block must be free
      if (!health_.ok()) health_ = std::move(health_).WithContext("KV cache bookkeeping is broken");
    }
    inbox_changed_.wait(lock,
                        [this] { return stop_ || !inbox_.empty() || !scheduler_.is_empty(); });
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
  for (const auto& sequence : scheduler_.Remove(is_cancelled)) {
    Cancel(*sequence);
    for (const auto& companion : sequence->companions) Cancel(*companion);
  }
}

void Engine::Cancel(Sequence& sequence) {
  sequence.finish = FinishReason::kCancelled;
  EmitTo(sequence, sequence.num_output());
}

Status Engine::Step() {
  scheduler_.Schedule(batch_);
  for (Sequence* sequence : scheduler_.scheduled()) {
    if (!std::exchange(sequence->was_scheduled, true)) sequence->request->sink->OnScheduled();
  }
  NEREID_RETURN_IF_ERROR(executor_->Submit(batch_));
  NEREID_ASSIGN_OR_RETURN(const StepResult result, executor_->Collect());
  scheduler_.MarkComputed();
  ++num_steps_;
  bool any_finished = false;
  for (size_t i = 0; i < batch_.sequences.size(); ++i) {
    if (!batch_.sequences[i].samples) continue;
    Sequence& sequence = *scheduler_.scheduled()[i];
    ApplyToken(sequence, result.tokens[i]);
    any_finished |= sequence.finish != FinishReason::kNone;
  }
  if (any_finished) {
    scheduler_.Remove([](const Sequence& s) { return s.finish != FinishReason::kNone; });
  }
  return Status::Ok();
}

void Engine::ApplyToken(Sequence& sequence, const SampledToken& token) {
  ++num_output_tokens_;
  sequence.token_ids.push_back(token.id);
  if (sequence.request->sampling.want_log_probs) sequence.log_probs.push_back(token.log_prob);
  const StopVerdict verdict = CheckStop(sequence.request->stop, sequence.output_ids());
  sequence.finish = verdict.finish;
  EmitTo(sequence, verdict.num_visible);
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
  stats.num_steps = num_steps_;
  stats.num_output_tokens = num_output_tokens_;
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
}

}  // namespace nereid::llm
