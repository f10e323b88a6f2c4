// The infer endpoint.
#include "host/frontend/http/endpoints/endpoints.h"

#include <algorithm>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "host/frontend/frontend_state.h"
#include "host/frontend/http/bodies/binary_extension.h"
#include "host/frontend/http/bodies/compression.h"
#include "host/frontend/http/bodies/infer_body.h"
#include "host/frontend/http/calls/model_call.h"
#include "host/frontend/http/calls/response_bodies.h"
#include "nereid/infer_request.h"

namespace nereid::http {
namespace {

constexpr size_t kMaxCopiedTensorBytes = 2048;  // bytes

class InferCall final : public ModelCall {
 public:
  InferCall(KServeContext& context, HttpConnection& connection, RequestBody&& body,
            InputTensors&& inputs, OutputFormats&& formats, Encoding encoding)
      : ModelCall(context, connection, std::move(body), std::move(inputs)),
        context_(context),
        formats_(std::move(formats)),
        encoding_(encoding) {}

 private:
  std::vector<SharedOutput>* shared_outputs() override {
    return formats_.shared.empty() ? nullptr : &formats_.shared;
  }

  void OnModelResponse(InferResponse response) override {
    ++num_responses_;
    if (num_responses_ == 1) response_ = std::move(response);
  }

  void OnModelEnd() override {
    Status status = num_responses_ == 1
                        ? response_.Error()
                        : InternalError("expected a single response, got ", num_responses_);
    InferResponseBody body;
    if (status.ok()) status = CheckSharedMemory();
    if (status.ok()) status = BuildInferResponseBody(response_, formats_, body);
    if (status.ok()) {
      Send(body);
    } else {
      ReplyError(*connection(), status, context_.http_status_of_error);
    }
  }

  void Send(InferResponseBody& body) {
    if (encoding_ != Encoding::kIdentity) return SendCompressed(body);
    if (body.tensors.empty()) {
      const std::string headers = ExtraHeaders();
      connection()->Reply({.extra_headers = headers}, body.json);
      return;
    }
    if (body.num_tensor_bytes() <= kMaxCopiedTensorBytes) return SendCopied(body);
    std::vector<OutputSegment> segments{{body.json}};
    for (const std::string_view tensor : body.tensors) {
      segments.push_back({tensor, /*is_borrowed=*/true});
    }
    const BinaryResponseHead head(context_.response_content_type, body.json.size(), ExtraHeaders());
    connection()->ReplySegments(head.Get(), segments,
                                std::make_shared<ResponseMemory>(ResponseMemory{
                                    std::move(response_), std::move(body.derived_tensors)}));
  }

  // Copying a few bytes is faster than sending them as borrowed segments.
  void SendCopied(InferResponseBody& body) {
    const BinaryResponseHead head(context_.response_content_type, body.json.size(), ExtraHeaders());
    for (const std::string_view tensor : body.tensors) body.json += tensor;
    connection()->Reply(head.Get(), body.json);
  }

  void SendCompressed(const InferResponseBody& body) {
    std::vector<std::string_view> segments{body.json};
    segments.insert(segments.end(), body.tensors.begin(), body.tensors.end());
    const std::string headers =
        StrCat("Content-Encoding: ", EncodingName(encoding_), "\r\n", ExtraHeaders());
    const std::string compressed = Compress(encoding_, segments);
    if (body.tensors.empty()) {
      return connection()->Reply({.extra_headers = headers}, compressed);
    }
    const BinaryResponseHead head(context_.response_content_type, body.json.size(), headers);
    connection()->Reply(head.Get(), compressed);
  }

  // Owns the memory of the tensors in a response body.
  struct ResponseMemory {
    InferResponse response;
    std::list<std::string> derived_tensors;
  };

  const KServeContext& context_;
  OutputFormats formats_;
  const Encoding encoding_;  // of the response
  InferResponse response_;
  size_t num_responses_ = 0;
};

Status FindSharedInputs(const SharedMemoryManager& memory, InputTensors& inputs) {
  for (InputTensor& input : inputs) {
    if (!input.shared) continue;
    NEREID_ASSIGN_OR_RETURN(input.mapped, memory.Find(*input.shared));
    input.binary = {input.mapped.base, input.mapped.size_bytes};
  }
  return Status::Ok();
}

Result<OutputFormats> ToOutputFormats(const KServeContext& context, const RequestedModel& model,
                                      InferBody& parsed) {
  OutputFormats formats{parsed.binary_outputs, false, std::move(parsed.outputs), {}};
  for (const RequestedOutput& output : formats.named) {
    if (!output.shared) continue;
    NEREID_ASSIGN_OR_RETURN(MappedRange mapped, context.state.shared_memory.Find(*output.shared));
    formats.shared.push_back({output.name, std::move(mapped)});
  }
  const bool has_classes = std::any_of(formats.named.begin(), formats.named.end(),
                                       [](const auto& output) { return output.num_classes != 0; });
  if (has_classes) {
    NEREID_ASSIGN_OR_RETURN(formats.is_batched,
                            context.server.IsBatched(model.name.c_str(), model.version));
  }
  return formats;
}

// Copies a body out of posted memory.
RequestBody CopyToOwnMemory(RequestBody body) {
  RequestBody own;
  own.memory = ByteBuffer(body.bytes().size() + body.posted.size());
  own.reservation = std::move(body.reservation);
  own.memory.Append(body.bytes());
  own.memory.Append(body.posted.view());
  return own;
}

}  // namespace

Status StartInfer(KServeContext& context, HttpConnection& connection, const RequestHead& head,
                  RequestBody&& body, const RequestedModel& model) {
  NEREID_ASSIGN_OR_RETURN(const bool is_decoupled,
                          context.server.IsDecoupled(model.name.c_str(), model.version));
  if (is_decoupled) {
    return UnsupportedError(
        "HTTP end point doesn't support models with decoupled transaction policy");
  }
  const std::string_view bytes = body.bytes();
  const size_t body_bytes = bytes.size() + body.posted.size();
  if (body_bytes == 0) return InvalidArgError("the request body is empty");
  NEREID_ASSIGN_OR_RETURN(const size_t json_bytes,
                          JsonLength(head, context.binary_content_type, body_bytes));
  const std::string_view binary =
      body.posted.external_owner() != nullptr ? body.posted.view() : bytes.substr(json_bytes);

  InferBody parsed;
  InferRequest request(nullptr);
  if (json_bytes == 0) {
    parsed.binary_outputs = true;
    NEREID_ASSIGN_OR_RETURN(request, BuildRawRequest(context.server, model, binary));
  } else {
    NEREID_RETURN_IF_ERROR(ParseInferBody(bytes.substr(0, json_bytes), binary, model.name,
                                          connection.limits().max_json_depth, parsed));
    NEREID_RETURN_IF_ERROR(ReserveInputs(parsed.inputs, body.reservation));
    NEREID_RETURN_IF_ERROR(FindSharedInputs(context.state.shared_memory, parsed.inputs));
    NEREID_ASSIGN_OR_RETURN(request, BuildRequest(context.server, model, parsed.options,
                                                  parsed.inputs, parsed.outputs));
  }
  // Created by KServeService::AcquirePostedMemory.
  const auto* const posted =
      static_cast<const PostedInputBuffer*>(body.posted.external_owner().get());
  if (posted != nullptr && !posted->IsForModelOf(request)) {
    if (!body.reservation.GrowBy(body_bytes)) {
      return UnavailableError("a request of ", body_bytes,
                              " bytes exceeds the free memory for requests in flight (",
                              body.reservation.budget()->tightest().flag(), ")");
    }
    return StartInfer(context, connection, head, CopyToOwnMemory(std::move(body)), model);
  }
  if (parsed.options.belongs_to_sequence()) connection.KeepOpenForSequences();
  NEREID_RETURN_IF_ERROR(context.header_forwarding.Apply(head, context.access, request));
  NEREID_ASSIGN_OR_RETURN(OutputFormats formats, ToOutputFormats(context, model, parsed));
  auto call = std::make_unique<InferCall>(context, connection, std::move(body),
                                          std::move(parsed.inputs), std::move(formats),
                                          ChooseEncoding(head.Header("Accept-Encoding")));
  call->ReportLoadMetrics(ParseOrcaFormat(head.Header("endpoint-load-metrics-format")));
  return ModelCall::Launch(std::move(call), std::move(request),
                           SampleTrace(context, connection, head, model));
}

}  // namespace nereid::http
