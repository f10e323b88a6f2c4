// Each model request holds a reference to the object, which lives until the last one has ended.
#include "host/frontend/openai/calls/generation_call.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "base/clock.h"
#include "host/frontend/openai/calls/step_call.h"
#include "host/log.h"

namespace nereid::openai {

// The model request of one prompt.
class GenerationCall::PromptCall final : public http::ModelCall {
 public:
  PromptCall(http::KServeContext& context, http::HttpConnection& connection,
             http::InputTensors inputs, std::shared_ptr<const ByteReservation> reservation,
             std::shared_ptr<GenerationCall> owner, size_t index)
      : ModelCall(context, connection, http::RequestBody(), std::move(inputs)),
        reservation_(std::move(reservation)),
        owner_(std::move(owner)),
        index_(index) {}

  // The answer is not wanted any more.
  void Abandon() {
    DetachClient();
    Cancel();
    owner_.reset();
  }

 private:
  // The owner may call Abandon meanwhile, so that it is held by a local reference.
  void OnModelResponse(InferResponse response) override {
    const std::shared_ptr<GenerationCall> owner = owner_;
    owner->OnResponse(index_, response);
  }
  void OnModelEnd() override {
    const std::shared_ptr<GenerationCall> owner = owner_;
    owner->OnEnd(index_);
    owner_.reset();  // not if that throws: the connection still refers to the owner then
  }
  void AnswerMemoryFailure(http::HttpConnection&) override {
    if (const std::shared_ptr<GenerationCall> owner = std::move(owner_)) owner->FailForMemory();
  }

  const std::shared_ptr<const ByteReservation> reservation_;  // of the inputs of all prompts
  std::shared_ptr<GenerationCall> owner_;
  const size_t index_;
};

GenerationCall::GenerationCall(http::HttpConnection& connection, GenerationRequest request,
                               Answers answers, std::unique_ptr<AnswerFormat> format)
    : connection_(&connection),
      request_(std::move(request)),
      answers_(std::move(answers)),
      format_(std::move(format)) {
  const size_t num_prompts = request_.prompts.size();
  answers_.all.resize(num_prompts * request_.answers_per_prompt);
  answers_.prompt_tokens.resize(num_prompts);
  answers_.cached_tokens.resize(num_prompts);
  answers_.prompts.resize(num_prompts);
  open_.resize(num_prompts);
}

Status GenerationCall::Start(http::KServeContext& context, RunningRequests& running,
                             http::HttpConnection& connection, const http::RequestHead& head,
                             GenerationRequest request, Answers answers,
                             std::unique_ptr<AnswerFormat> format) {
  const auto reservation = std::make_shared<ByteReservation>(connection.budget());
  NEREID_RETURN_IF_ERROR(ReserveAll(request.prompts, *reservation));
  const auto call = std::make_shared<GenerationCall>(connection, std::move(request),
                                                     std::move(answers), std::move(format));
  call->List(running, head);
  Status status;
  try {
    status = call->LaunchAll(context, head, reservation);
  } catch (const std::bad_alloc&) {
    status = UnavailableError("cannot allocate memory for the request");
  }
  if (!status.ok()) {
    call->CancelAll();
    return status;
  }
  if (http::RequestNotes* const notes = connection.notes()) {
    notes->id = call->request_.id;
    notes->model = call->request_.model;
  }
  connection.BeginCall(call.get());
  return Status::Ok();
}

Status GenerationCall::LaunchAll(http::KServeContext& context, const http::RequestHead& head,
                                 const std::shared_ptr<const ByteReservation>& reservation) {
  const http::RequestedModel model{request_.model};
  std::vector<http::RequestedOutput> outputs;
  for (const std::string& name : request_.outputs) outputs.emplace_back().name = name;
  for (size_t i = 0; i < request_.prompts.size(); ++i) {
    http::InputTensors& inputs = request_.prompts[i];
    http::RequestOptions options;
    options.id = request_.id;
    if (request_.prompts.size() > 1) options.id += StrCat("-", i);
    NEREID_ASSIGN_OR_RETURN(InferRequest request,
                            http::BuildRequest(context.server, model, options, inputs, outputs));
    NEREID_RETURN_IF_ERROR(context.header_forwarding.Apply(head, context.access, request));
    auto call = std::make_unique<PromptCall>(context, *connection_, std::move(inputs), reservation,
                                             shared_from_this(), i);
    PromptCall* const launched = call.get();
    NEREID_RETURN_IF_ERROR(
        http::ModelCall::LaunchPart(std::move(call), std::move(request),
                                    http::SampleTrace(context, *connection_, head, model)));
    open_[i] = launched;
    ++num_open_;
  }
  return Status::Ok();
}

void GenerationCall::List(RunningRequests& running, const http::RequestHead& head) {
  // The loop outlives every connection, and the call may have ended when the function runs there.
  entry_ = running.Add(answers_.id, request_.model, std::string(head.path), counts_,
                       [weak = weak_from_this(), &loop = connection_->loop()] {
                         loop.PostFunction([weak] {
                           if (const auto call = weak.lock()) call->OnOperatorCancel();
                         });
                       });
}

void GenerationCall::NoteOutput() {
  http::RequestNotes* const notes = connection_ == nullptr ? nullptr : connection_->notes();
  if (notes == nullptr) return;
  if (notes->first_output_ns == 0) notes->first_output_ns = SteadyNowNs();
  notes->prompt_tokens = counts_.prompt_tokens;
  notes->output_tokens = counts_.output_tokens;
}

void GenerationCall::OnOperatorCancel() {
  if (connection_ == nullptr) return;
  Fail({.status = 503,
        .message = StrCat("an operator has cancelled request '", answers_.id, "'"),
        .code = "cancelled"});
}

void GenerationCall::OnDisconnect() {
  const std::shared_ptr<GenerationCall> self = shared_from_this();
  connection_ = nullptr;
  CancelAll();
  entry_.reset();
}

void GenerationCall::OnOutputSent(size_t unsent_bytes) {
  for (PromptCall* const call : open_) {
    if (call != nullptr) static_cast<http::InFlightCall*>(call)->OnOutputSent(unsent_bytes);
  }
}

void GenerationCall::OnSecond() {
  if (!request_.is_stream || connection_ == nullptr) return;
  if (++silent_s_ < request_.keep_alive_s) return;
  silent_s_ = 0;
  if (connection_->unsent_bytes() != 0) return;  // the client has something to read
  const std::shared_ptr<GenerationCall> self = shared_from_this();
  BeginStream();
  if (connection_ != nullptr) connection_->SendChunk(format_->KeepAlive());
}

void GenerationCall::CancelAll() {
  for (PromptCall*& call : open_) {
    if (PromptCall* const open = std::exchange(call, nullptr)) open->Abandon();
  }
  num_open_ = 0;
}

void GenerationCall::OnResponse(size_t prompt, const InferResponse& response) {
  std::string events;
  const Status status = AddResponse(prompt, response, events);
  if (!status.ok()) return Fail(ToApiError(status));
  NoteOutput();
  if (events.empty()) return;
  BeginStream();
  if (connection_ != nullptr) connection_->SendChunk(events);
}

Status GenerationCall::AddResponse(size_t prompt, const InferResponse& response,
                                   std::string& events) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<OutputView> outputs, OutputsOf(response));
  NEREID_ASSIGN_OR_RETURN(std::vector<AnswerPiece> pieces, ReadAnswerPieces(outputs));
  for (AnswerPiece& piece : pieces) {
    if (piece.sequence >= request_.answers_per_prompt) {
      return InternalError("model '", request_.model, "': expected at most ",
                           request_.answers_per_prompt, " answers, got one of index ",
                           piece.sequence);
    }
    if (piece.num_input_tokens) {
      counts_.prompt_tokens += *piece.num_input_tokens - answers_.prompt_tokens[prompt];
      answers_.prompt_tokens[prompt] = *piece.num_input_tokens;
    }
    if (piece.num_cached_tokens) answers_.cached_tokens[prompt] = *piece.num_cached_tokens;
    if (!piece.prompt.empty()) answers_.prompts[prompt] = std::move(piece.prompt);
    const size_t index = prompt * request_.answers_per_prompt + piece.sequence;
    if (request_.drops_tokens) DropTokens(piece);
    Echo(prompt, answers_.all[index], piece);
    Collect(answers_.all[index], piece);
    if (!request_.is_stream || piece.is_empty()) continue;
    AppendPiece(events, index, piece);
  }
  return Status::Ok();
}

// Removes what the model has generated from the piece of an answer without tokens.
void GenerationCall::DropTokens(AnswerPiece& piece) {
  piece.text.clear();
  piece.log_probs.clear();
  piece.token_ids.clear();
  piece.stop_reason.clear();
  if (piece.num_output_tokens) piece.num_output_tokens = 0;
  if (piece.finish_reason == "stop") piece.finish_reason = "length";
}

// Adds a piece to its answer, and removes from it what the client does not want.
void GenerationCall::Collect(Answer& answer, AnswerPiece& piece) {
  if (request_.hides_reasoning) piece.reasoning.clear();
  if (request_.keeps_first_tool_call_only) {
    std::erase_if(piece.tool_calls, [](const ToolCallPiece& call) { return call.index > 0; });
  }
  if (!request_.has_log_probs) piece.log_probs.clear();
  answer.has_tool_calls = answer.has_tool_calls || !piece.tool_calls.empty();
  if (piece.num_output_tokens) {
    counts_.output_tokens += *piece.num_output_tokens - answer.num_tokens;
    answer.num_tokens = *piece.num_output_tokens;
  }
  if (piece.num_reasoning_tokens) {
    answer.num_reasoning_tokens =
        answer.num_reasoning_tokens.value_or(0) + *piece.num_reasoning_tokens;
  }
  if (piece.cum_log_prob) answer.cum_log_prob = *piece.cum_log_prob;
  if (!piece.finish_reason.empty()) answer.finish_reason = piece.finish_reason;
  if (!piece.stop_reason.empty()) answer.stop_reason = piece.stop_reason;
  if (!piece.prompt_ids.empty()) answer.prompt_ids = piece.prompt_ids;
  if (request_.is_stream && !format_->NeedsWhole()) return;
  answer.text += piece.text;
  answer.reasoning += piece.reasoning;
  answer.log_probs.insert(answer.log_probs.end(), piece.log_probs.begin(), piece.log_probs.end());
  answer.token_ids.insert(answer.token_ids.end(), piece.token_ids.begin(), piece.token_ids.end());
  for (const ToolCallPiece& part : piece.tool_calls) {
    if (answer.tool_calls.empty() || answer.tool_calls.back().index != part.index) {
      answer.tool_calls.push_back(part);
      continue;
    }
    ToolCallPiece& call = answer.tool_calls.back();
    if (call.id.empty()) call.id = part.id;
    call.name += part.name;
    call.arguments += part.arguments;
  }
}

// Where the model does not repeat the prompt, the first piece of an answer gets it.
void GenerationCall::Echo(size_t prompt, Answer& answer, AnswerPiece& piece) const {
  if (request_.echoes.empty() || answer.has_begun || piece.is_empty()) return;
  std::string text = request_.echoes[prompt];
  if (text.empty()) {
    for (const PromptToken& token : answers_.prompts[prompt]) text += token.bytes;
  }
  piece.text.insert(0, text);
}

// Drops the answers to each prompt that best_of has beyond n.
void GenerationCall::KeepMostLikely() {
  const size_t num_made = request_.answers_per_prompt, num_kept = request_.kept_per_prompt;
  if (num_kept == 0 || num_kept == num_made) return;
  const auto mean = [](const Answer& answer) {
    return answer.cum_log_prob / static_cast<float>(std::max<int64_t>(answer.num_tokens, 1));
  };
  std::vector<Answer> kept;
  for (auto first = answers_.all.begin(); first != answers_.all.end();) {
    const auto last = first + static_cast<ptrdiff_t>(num_made);
    std::stable_sort(first, last,
                     [&](const Answer& a, const Answer& b) { return mean(a) > mean(b); });
    const auto end = first + static_cast<ptrdiff_t>(num_kept);
    std::move(first, end, std::back_inserter(kept));
    for (auto dropped = end; dropped != last; ++dropped) {
      answers_.dropped_tokens += dropped->num_tokens;
    }
    first = last;
  }
  answers_.all = std::move(kept);
}

void GenerationCall::AppendPiece(std::string& events, size_t answer, const AnswerPiece& piece) {
  if (!std::exchange(has_first_piece_, true)) format_->AppendBegin(events, answers_);
  format_->AppendPiece(events, answers_, answer, piece);
  answers_.all[answer].has_begun = true;
}

void GenerationCall::OnEnd(size_t prompt) {
  open_[prompt] = nullptr;
  if (--num_open_ == 0) Finish();
}

void GenerationCall::Finish() {
  std::string events;
  for (size_t i = 0; i < answers_.all.size(); ++i) {
    Answer& answer = answers_.all[i];
    if (!answer.finish_reason.empty()) continue;
    // The model has no output finish_reason.
    const bool is_full = request_.length_tokens > 0 && answer.num_tokens == request_.length_tokens;
    answer.finish_reason = is_full ? "length" : "stop";
    AnswerPiece end;
    end.finish_reason = answer.finish_reason;
    if (!request_.is_stream) continue;
    AppendPiece(events, i, end);
  }
  if (!request_.is_stream) {
    KeepMostLikely();
    const std::string headers = ResponseHeaders();
    const std::string body = format_->Whole(answers_);
    return std::exchange(connection_, nullptr)->Reply({.extra_headers = headers}, body);
  }
  format_->AppendClosing(events, answers_);
  BeginStream();
  if (connection_ != nullptr) connection_->SendChunk(events);
  if (connection_ != nullptr) std::exchange(connection_, nullptr)->EndStream();
}

void GenerationCall::Fail(const ApiError& error) {
  LogVerbose("Generation failed: ", error.message);
  CancelAll();
  if (!has_begun_) {
    std::string headers = ResponseHeaders();
    if (error.status == 429 || error.status == 503) headers += "Retry-After: 1\r\n";
    return std::exchange(connection_, nullptr)
        ->Reply({.status = error.status, .extra_headers = headers}, format_->Error(error));
  }
  std::string events;
  format_->AppendError(events, error);
  connection_->SendChunk(events);
  if (connection_ != nullptr) std::exchange(connection_, nullptr)->EndStream();
}

// A stream that has begun can only be cut off.
void GenerationCall::FailForMemory() {
  CancelAll();
  http::HttpConnection* const connection = std::exchange(connection_, nullptr);
  if (connection == nullptr) return;
  if (has_begun_) return connection->Abort();
  try {
    const ApiError error{.status = 503, .message = "cannot allocate memory for the response"};
    connection->Reply({.status = 503, .extra_headers = "Retry-After: 1\r\n"},
                      format_->Error(error));
  } catch (const std::bad_alloc&) {
    connection->Abort();
  }
}

void GenerationCall::BeginStream() {
  silent_s_ = 0;
  if (std::exchange(has_begun_, true)) return;
  const std::string headers = "Cache-Control: no-cache\r\n" + ResponseHeaders();
  connection_->BeginStream(
      {.content_type = "text/event-stream; charset=utf-8", .extra_headers = headers});
}

std::string GenerationCall::ResponseHeaders() const {
  return StrCat("X-Request-Id: ", request_.id, "\r\n");
}

}  // namespace nereid::openai
