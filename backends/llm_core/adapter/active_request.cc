// Turns the output of a request's sequences into Triton responses.
#include "backends/llm_core/adapter/active_request.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "backends/llm_core/adapter/llm_metrics.h"
#include "backends/llm_core/adapter/request_threads.h"
#include "backends/tokenizer/lib/tokenizer.h"

namespace nereid::llm {
namespace {

constexpr size_t kMaxPriorIds = tokenizer::kMaxPendingIds;
// The most updates that wait for one sequence. Further ones are merged into the newest.
constexpr size_t kMaxQueuedUpdates = 64;
// The most logits in one merged update. Ids and probabilities need no limit: the length of the
// sequence bounds them.
constexpr size_t kMaxMergedLogits = size_t{16} << 20;
constexpr int32_t kIdPadding = -1;  // pads the shorter sequences of a response

}  // namespace

Result<std::shared_ptr<ActiveRequest>> ActiveRequest::Create(Request request,
                                                             const ClientRequest& client,
                                                             const ConfiguredOutputs& outputs,
                                                             ResponseThread& responses,
                                                             LlmMetrics* metrics) {
  // The poller's thread asks for cancellation while the response thread uses the sender, so that
  // each needs its own factory.
  Result<ResponseFactoryHandle> factory = NewResponseFactoryHandle(request.handle());
  if (!factory.ok()) {
    const Status error = std::move(factory).status();
    (void)request.Fail(error);
    return error;
  }
  return std::shared_ptr<ActiveRequest>(new ActiveRequest(std::move(request), client, outputs,
                                                          responses, metrics, std::move(*factory)));
}

ActiveRequest::ActiveRequest(Request request, const ClientRequest& client,
                             const ConfiguredOutputs& outputs, ResponseThread& responses,
                             LlmMetrics* metrics, ResponseFactoryHandle factory)
    : id_(client.id),
      is_streaming_(client.is_streaming),
      exclude_input_(client.exclude_input),
      returns_num_input_tokens_(client.returns_num_input_tokens),
      returns_num_output_tokens_(client.returns_num_output_tokens),
      outputs_(outputs),
      responses_(responses),
      metrics_(metrics),
      arrival_ns_(SteadyNowNs()),
      sender_(std::move(request).IntoSender()),
      factory_(std::move(factory)),
      items_(client.items.size()) {
  for (size_t i = 0; i < items_.size(); ++i) {
    const llm::GenerationRequest& from = *client.items[i].generation;
    Item& item = items_[i];
    item.prompt = from.prompt;
    item.extras = client.items[i].extras;
    item.first_sequence = sequences_.size();
    item.num_sequences = static_cast<size_t>(from.num_sequences);
    item.is_combined = item.num_sequences > 1 && (from.uses_beams() || !outputs.is_decoupled);
    if (item.is_combined) item.final_updates.resize(item.num_sequences);
    for (int32_t index = 0; index < from.num_sequences; ++index) {
      SequenceState& sequence = sequences_.emplace_back();
      sequence.item = i;
      sequence.sequence_index = index;
    }
  }
  num_open_ = sequences_.size();
  // The response thread serves all requests of the model, so it must not wait for one client.
  if (outputs.is_decoupled) (void)sender_.DisableWaiting();
  sender_.MarkInputsRead();
}

std::unique_ptr<llm::OutputSink> ActiveRequest::MakeSink(
    size_t item, std::shared_ptr<const StopStrings> stop_strings, StopReasons stop_reasons,
    std::unique_ptr<AdapterUse> adapter_use) {
  return std::make_unique<ItemOutputSink>(shared_from_this(), item, std::move(stop_strings),
                                          std::move(stop_reasons), std::move(adapter_use),
                                          arrival_ns_);
}

bool ActiveRequest::PollClient() {
  const bool is_cancelled = PollCancellation();
  if (!is_held_) return is_cancelled;
  bool has_room = is_cancelled;
  const auto ask = FindResponseFactoryHasRoom();
  if (!has_room && ask != nullptr) (void)ToStatus(ask(factory_.get(), &has_room));
  if (has_room && is_held_.exchange(false)) responses_.Enqueue(std::move(held_self_));
  return is_cancelled;
}

// Nobody polls the request any more once the poller has seen that it is cancelled. So the
// cancellation is checked again after the request was marked as held.
bool ActiveRequest::MustHold() {
  if (!is_streaming_ || IsCancelled() || sender_.HasRoom()) return false;
  held_self_ = shared_from_this();
  is_held_ = true;
  if (!IsCancelled() || !is_held_.exchange(false)) return true;
  held_self_.reset();
  return false;
}

bool ActiveRequest::PollCancellation() {
  if (IsCancelled()) return true;
  bool is_cancelled = false;
  (void)ToStatus(TRITONBACKEND_ResponseFactoryIsCancelled(factory_.get(), &is_cancelled));
  if (is_cancelled) {
    has_client_cancelled_ = true;
    Cancel();
  }
  return is_cancelled;
}

void ActiveRequest::Post(size_t item, const llm::SequenceOutput& output,
                         const SequenceTiming& timing, std::string stop_reason,
                         const llm::TokenIds& replacement_ids) {
  const bool is_streaming = is_streaming_ && !items_[item].is_combined;
  if (!is_streaming && output.finish == llm::FinishReason::kNone) {
    if (output.context_logits.empty() && output.prompt_log_probs.empty()) return;
  }
  {
    const std::lock_guard lock(mutex_);
    std::vector<SequenceUpdate>& queue =
        sequences_[items_[item].first_sequence + static_cast<size_t>(output.sequence_index)]
            .updates;
    if (queue.empty() || (is_streaming && queue.size() < kMaxQueuedUpdates)) queue.emplace_back();
    SequenceUpdate& update = queue.back();
    update.extras.AppendPrompt(output);
    if (!is_streaming && output.finish == llm::FinishReason::kNone) return;
    const size_t first = is_streaming ? output.first_new : 0;
    update.ids.insert(update.ids.end(), output.ids.begin() + first, output.ids.end());
    update.ids.insert(update.ids.end(), replacement_ids.begin(), replacement_ids.end());
    update.num_output = static_cast<int32_t>(output.ids.size() + replacement_ids.size());
    update.extras.AppendTokens(output, first, update.ids.size(), items_[item].extras);
    const size_t num_logits = update.extras.generation_logits.size();
    if (num_logits > kMaxMergedLogits && queue.size() == kMaxQueuedUpdates) {
      update.error = UnavailableError("the client reads too slowly: expected at most ",
                                      kMaxMergedLogits, " logits to wait for it, got ", num_logits);
      Cancel();
    }
    update.stop_reason = std::move(stop_reason);
    update.timing = timing;
    update.finish = output.finish;
    if (std::exchange(is_queued_, true)) return;
  }
  responses_.Enqueue(shared_from_this());
}

void ActiveRequest::PostError(size_t item, const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    sequences_[items_[item].first_sequence].updates.emplace_back().error = status;
    if (std::exchange(is_queued_, true)) return;
  }
  responses_.Enqueue(shared_from_this());
}

void ActiveRequest::Flush() {
  if (MustHold()) return;  // is_queued_ stays set, so that Post does not enqueue it meanwhile
  std::vector<std::vector<SequenceUpdate>> all(sequences_.size());
  {
    const std::lock_guard lock(mutex_);
    is_queued_ = false;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const std::vector<SequenceUpdate>& queued = sequences_[i].updates;
      // Without streaming, updates stay queued until their sequence is complete.
      const bool is_ready = is_streaming_ || (!queued.empty() && queued.back().is_over());
      if (is_ready) all[i].swap(sequences_[i].updates);
    }
  }
  for (size_t i = 0; i < sequences_.size(); ++i) {
    for (SequenceUpdate& update : all[i]) HandleUpdate(sequences_[i], std::move(update));
  }
}

void ActiveRequest::HandleUpdate(SequenceState& sequence, SequenceUpdate update) {
  Item& item = items_[sequence.item];
  if (!update.error.ok()) {
    FailItem(item, update.error);
    return;
  }
  if (update.is_over()) {
    Close(sequence);
    if (metrics_ != nullptr) CountEnd(item, update);
  }
  if (!item.is_combined) {
    Send(sequence, std::span(&update, 1));
    return;
  }
  item.final_updates[static_cast<size_t>(sequence.sequence_index)] = std::move(update);
  const auto is_over = [](const SequenceUpdate& one) { return one.is_over(); };
  if (std::all_of(item.final_updates.begin(), item.final_updates.end(), is_over)) {
    Send(sequences_[item.first_sequence], item.final_updates);
  }
}

void ActiveRequest::CountEnd(Item& item, const SequenceUpdate& update) {
  metrics_->CountSequence(update.num_output, update.timing);
  item.num_output_tokens += update.num_output;
  if (++item.num_ended < item.num_sequences) return;
  metrics_->CountRequest(item.prompt.size(), item.num_output_tokens);
}

void ActiveRequest::Close(SequenceState& sequence) {
  if (std::exchange(sequence.is_open, false)) --num_open_;
}

void ActiveRequest::FailItem(const Item& item, const Status& error) {
  for (size_t i = 0; i < item.num_sequences; ++i) Close(sequences_[item.first_sequence + i]);
  if (first_error_.ok()) {
    first_error_ = error;
    Cancel();  // the request fails as a whole, so that its other items are not needed
  }
  if (num_open_ == 0) (void)sender_.Fail(first_error_);
}

void ActiveRequest::Send(SequenceState& sequence, std::span<const SequenceUpdate> all) {
  const bool is_last = num_open_ == 0;
  if (is_last) sender_.MarkComputed();
  // Nobody reads the rest. The host counts the request as cancelled.
  if (is_last && first_error_.ok() && has_client_cancelled_) {
    first_error_ = Status(StatusCode::kCancelled, "the client has cancelled the request");
  }
  if (!first_error_.ok()) {
    if (is_last) (void)sender_.Fail(first_error_);
    return;
  }
  const auto send = [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(Response response, sender_.NewResponse());
    NEREID_RETURN_IF_ERROR(FillResponse({response, outputs_}, sequence, all));
    return sender_.Send(std::move(response), is_last);
  };
  const Status sent = send();
  if (!sent.ok() && sender_.is_open()) {
    first_error_ = sent;
    Cancel();
    if (is_last) (void)sender_.Fail(first_error_);
  }
}

Status ActiveRequest::FillResponse(ResponseTensors tensors, SequenceState& sequence,
                                   std::span<const SequenceUpdate> all) {
  Item& item = items_[sequence.item];
  size_t longest = 0;
  for (const SequenceUpdate& update : all) longest = std::max(longest, update.ids.size());
  NEREID_RETURN_IF_ERROR(FillIds(tensors, item.prompt, all, longest));
  NEREID_RETURN_IF_ERROR(tensors.SetAll("prior_ids", sequence.prior_ids));
  NEREID_RETURN_IF_ERROR(tensors.SetText("finish_reason", llm::FinishReasonText(all[0].finish)));
  // Clients of releases before 0.14 read it in every response.
  if (items_.size() > 1 || outputs_.fills_unrequested) {
    NEREID_RETURN_IF_ERROR(tensors.SetOne("batch_index", static_cast<int32_t>(sequence.item)));
  }
  if (item.num_sequences > 1 && !item.is_combined) {
    NEREID_RETURN_IF_ERROR(tensors.SetOne("sequence_index", sequence.sequence_index));
  }
  NEREID_RETURN_IF_ERROR(FillStreamPosition(tensors, sequence));
  NEREID_RETURN_IF_ERROR(FillCounts(tensors, item.prompt, all));
  const llm::TokenIds* prompt = std::exchange(item.has_sent_prompt, true) ? nullptr : &item.prompt;
  NEREID_RETURN_IF_ERROR(SetExtraOutputs(tensors, item.extras, all, longest, prompt,
                                         /*is_first=*/sequence.prior_ids.empty()));
  const llm::TokenIds& sent = all[0].ids;
  sequence.prior_ids.insert(sequence.prior_ids.end(), sent.begin(), sent.end());
  if (sequence.prior_ids.size() > kMaxPriorIds) {
    sequence.prior_ids.erase(sequence.prior_ids.begin(), sequence.prior_ids.end() - kMaxPriorIds);
  }
  return {};
}

Status ActiveRequest::FillIds(ResponseTensors& tensors, const llm::TokenIds& prompt,
                              std::span<const SequenceUpdate> all, size_t longest) {
  const bool repeats_prompt = !is_streaming_ && !exclude_input_;
  const size_t num_repeated = repeats_prompt ? prompt.size() : 0;
  llm::TokenIds ids;
  std::vector<int32_t> lengths;
  for (const SequenceUpdate& update : all) {
    if (repeats_prompt) ids.insert(ids.end(), prompt.begin(), prompt.end());
    ids.insert(ids.end(), update.ids.begin(), update.ids.end());
    ids.insert(ids.end(), longest - update.ids.size(), kIdPadding);
    lengths.push_back(static_cast<int32_t>(num_repeated + update.ids.size()));
  }
  const auto num_ids = static_cast<int64_t>(num_repeated + longest);
  NEREID_RETURN_IF_ERROR(tensors.Set<int32_t>("output_ids", {std::ssize(all), num_ids}, ids));
  return tensors.SetAll("sequence_length", lengths);
}

Status ActiveRequest::FillCounts(ResponseTensors& tensors, const llm::TokenIds& prompt,
                                 std::span<const SequenceUpdate> all) {
  if (returns_num_input_tokens_) {
    NEREID_RETURN_IF_ERROR(tensors.SetOne("num_input_tokens", static_cast<int32_t>(prompt.size())));
  }
  if (!returns_num_output_tokens_) return {};
  int32_t num_output = 0;
  for (const SequenceUpdate& update : all) num_output += update.num_output;
  return tensors.SetOne("num_output_tokens", num_output);
}

// Models behind the engine keep a state for each stream under its number, which is random, so that
// no client can name the stream of another one.
Status ActiveRequest::FillStreamPosition(ResponseTensors& tensors, SequenceState& sequence) {
  if (!tensors.IsRequested("stream_position")) return {};
  static thread_local std::random_device device;
  while (sequence.stream == 0) sequence.stream = uint64_t{device()} << 32 | device();
  const std::array<uint64_t, 2> position = {sequence.stream, sequence.num_responses++};
  return tensors.Set<uint64_t>("stream_position", {2}, position);
}

}  // namespace nereid::llm
