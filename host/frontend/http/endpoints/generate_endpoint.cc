// The generate endpoints, and the cache of model signatures that they use.
#include "host/frontend/http/endpoints/endpoints.h"

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "host/frontend/http/bodies/generate_body.h"
#include "host/frontend/http/bodies/generate_members.h"
#include "host/frontend/http/calls/model_call.h"
#include "host/frontend/http/calls/response_bodies.h"
#include "host/frontend/http/transport/http_connection.h"
#include "nereid/log.h"

namespace nereid::http {
namespace {

constexpr size_t kMaxAnswers = 1024;  // sequences of all rows of one request

// What a response of a language model answers: the row of the request and the sequence of this row.
using Answered = std::pair<int32_t, int32_t>;

// Empty if the response names neither, because its request has one row and one sequence.
std::optional<Answered> AnsweredBy(const InferResponse& response) {
  std::optional<Answered> answered;
  const Result<uint32_t> count = response.OutputCount();
  for (uint32_t i = 0; count.ok() && i < *count; ++i) {
    const Result<OutputView> output = response.Output(i);
    int32_t index = 0;
    if (!output.ok() || output->datatype != TRITONSERVER_TYPE_INT32 ||
        output->size_bytes != sizeof(index) || output->memory_type == TRITONSERVER_MEMORY_GPU) {
      continue;
    }
    const bool is_row = output->name == std::string_view("batch_index");
    if (!is_row && output->name != std::string_view("sequence_index")) continue;
    std::memcpy(&index, output->base, sizeof(index));
    if (!answered.has_value()) answered.emplace();
    (is_row ? answered->first : answered->second) = index;
  }
  return answered;
}

// generate: requires exactly one response, also from a decoupled model. A language model that got
// several prompts or was asked for several sequences may send one response for each.
class GenerateCall final : public ModelCall {
 public:
  using ModelCall::ModelCall;

 private:
  void OnModelResponse(InferResponse response) override {
    const std::optional<Answered> answered = AnsweredBy(response);
    const bool is_first = responses_.empty();
    if (is_first || (has_several_ && answered && responses_.size() < kMaxAnswers &&
                     !responses_.contains(*answered))) {
      has_several_ = answered.has_value();
      responses_.emplace(answered.value_or(Answered()), std::move(response));
      return;
    }
    ReplyResponseCountError();
    DetachClient();
    Cancel();
  }

  void OnModelEnd() override {
    if (responses_.empty()) {
      ReplyResponseCountError();
      return;
    }
    std::string json;
    const Status status = Append(json);
    if (status.ok()) {
      const std::string headers = ExtraHeaders();
      connection()->Reply({.extra_headers = headers}, json);
    } else {
      ReplyError(*connection(), status);
    }
  }

  Status Append(std::string& json) {
    if (responses_.size() == 1) return AppendGenerateResponse(json, responses_.begin()->second);
    std::vector<InferResponse> all;
    for (auto& [answered, response] : responses_) all.push_back(std::move(response));
    return AppendGenerateResponses(json, all);
  }

  void ReplyResponseCountError() {
    ReplyError(*connection(),
               InternalError("generate expects model to produce exactly 1 response, use generate "
                             "stream for model that generates various number of responses"));
  }

  std::map<Answered, InferResponse> responses_;  // by row, then by sequence
  bool has_several_ = false;
};

// generate_stream: sends each response as soon as it arrives. Before the first one an error can
// still be sent as a plain error response.
class GenerateStreamCall final : public ModelCall {
 public:
  using ModelCall::ModelCall;

 private:
  void OnModelResponse(InferResponse response) override {
    event_ = "data: ";
    const Status status = AppendGenerateResponse(event_, response);
    response = InferResponse();  // release its memory before the event waits for the client
    if (!status.ok() && !has_begun_) {
      ReplyError(*connection(), status);
      DetachClient();
      Cancel();
      return;
    }
    if (!status.ok()) event_ += ErrorBody(status.message());
    event_ += "\n\n";
    Begin();
    if (connection() != nullptr) connection()->SendChunk(event_);
  }

  void OnModelEnd() override {
    Begin();
    if (connection() != nullptr) connection()->EndStream();
  }

  void Begin() {
    if (std::exchange(has_begun_, true)) return;
    const std::string headers = ExtraHeaders();
    connection()->BeginStream(
        {.content_type = "text/event-stream; charset=utf-8", .extra_headers = headers});
  }

  bool has_begun_ = false;
  std::string event_;  // reused for its capacity
};

// Parses the signature again only if the metadata has changed, for example after a reload.
Result<const ModelSignature*> CachedSignature(const Server& server, const RequestedModel& model) {
  struct Entry {
    std::string metadata;
    ModelSignature signature;
  };
  thread_local std::unordered_map<std::string, Entry> cache;

  NEREID_ASSIGN_OR_RETURN(const Message message,
                          server.ModelMetadata(model.name.c_str(), model.version));
  NEREID_ASSIGN_OR_RETURN(const std::string_view metadata, message.Json());
  constexpr size_t kMaxEntries = 256;  // models may come and go under ever new names
  if (cache.size() > kMaxEntries) cache.clear();
  Entry& entry = cache[StrCat(model.name, '/', model.version)];
  if (entry.metadata != metadata) {
    NEREID_ASSIGN_OR_RETURN(entry.signature, ParseModelSignature(metadata));
    entry.metadata = metadata;
  }
  return &entry.signature;
}

void LogUnknownMembers(const std::string& model, const std::vector<std::string>& members) {
  static UnknownMemberLog* const log =
      new UnknownMemberLog;  // loops may run while the process ends
  for (const std::string& member : members) {
    if (const std::string line = log->LineFor(model, member); !line.empty()) LogWarning(line);
  }
}

}  // namespace

Status StartGenerate(KServeContext& context, HttpConnection& connection, const RequestHead& head,
                     RequestBody body, const RequestedModel& model, bool is_streaming) {
  NEREID_ASSIGN_OR_RETURN(const ModelSignature* signature, CachedSignature(context.server, model));
  GenerateBody parsed;
  NEREID_RETURN_IF_ERROR(
      ParseGenerateBody(body.bytes(), *signature, connection.limits().max_json_depth, parsed));
  LogUnknownMembers(model.name, parsed.unknown_members);
  NEREID_ASSIGN_OR_RETURN(InferRequest request, BuildRequest(context.server, model, parsed.options,
                                                             parsed.inputs, /*outputs=*/{}));
  NEREID_RETURN_IF_ERROR(context.header_forwarding.Apply(head, context.access, request));
  // The parsed inputs contain all data, so the body's memory is not kept.
  const size_t body_bytes = body.reservation.bytes();
  NEREID_RETURN_IF_ERROR(ReserveInputs(parsed.inputs, body.reservation));
  RequestBody kept{.memory = {}, .reservation = std::move(body.reservation)};
  kept.reservation.ShrinkTo(kept.reservation.bytes() - body_bytes);
  std::unique_ptr<ModelCall> call;
  if (is_streaming) {
    call = std::make_unique<GenerateStreamCall>(context, connection, std::move(kept),
                                                std::move(parsed.inputs));
  } else {
    call = std::make_unique<GenerateCall>(context, connection, std::move(kept),
                                          std::move(parsed.inputs));
  }
  call->ReportLoadMetrics(ParseOrcaFormat(head.Header("endpoint-load-metrics-format")));
  return ModelCall::Launch(std::move(call), std::move(request),
                           SampleTrace(context, connection, head, model));
}

}  // namespace nereid::http
