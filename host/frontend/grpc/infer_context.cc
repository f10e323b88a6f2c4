// See infer_context.h.
#include "host/frontend/grpc/infer_context.h"

#include <re2/re2.h>

#include "host/frontend/client_input.h"
#include "host/frontend/frontend_state.h"
#include "host/frontend/grpc/service_calls.h"
#include "host/frontend/model_demand.h"

namespace nereid {

InferContext::InferContext(const Server& server, const GrpcOptions& options,
                           ResponseAllocator allocator)
    : server_(server),
      options_(options),
      access_(options.state->access, options.restricted),
      allocator_(std::move(allocator)) {}

InferContext::~InferContext() = default;

Result<std::unique_ptr<InferContext>> InferContext::Create(const Server& server,
                                                           const GrpcOptions& options) {
  NEREID_ASSIGN_OR_RETURN(auto allocator, ResponseAllocator::Create<OutputMemory>());
  std::unique_ptr<InferContext> context(new InferContext(server, options, std::move(allocator)));
  const std::string& pattern = options.header_forward_pattern;
  if (!pattern.empty()) {
    re2::RE2::Options pattern_options;
    pattern_options.set_case_sensitive(false);
    pattern_options.set_log_errors(false);
    context->header_pattern_ = std::make_unique<re2::RE2>(pattern, pattern_options);
    if (!context->header_pattern_->ok()) {
      return InvalidArgError("header forward pattern '", pattern,
                             "': ", context->header_pattern_->error());
    }
  }
  return context;
}

ModelDemand* InferContext::DemandOf(const std::string& model) const {
  return options_.demand != nullptr && options_.demand->Knows(model) ? options_.demand : nullptr;
}

ForwardedHeaders InferContext::HeadersToForward(const Call& call) const {
  ForwardedHeaders headers;
  if (header_pattern_ == nullptr) return headers;
  for (const auto& [key, value] : call.metadata()) {
    if (access_.IsSecretHeader(key)) continue;
    if (re2::RE2::PartialMatch({key.data(), key.size()}, *header_pattern_)) {
      headers.emplace_back(std::string(key), std::string(value));
    }
  }
  return headers;
}

TracedRequest InferContext::SampleTrace(const Call& call, const InferMessage& message) const {
  Tracer& tracer = *options_.state->tracer;
  if (!tracer.is_on()) return nullptr;
  const std::string_view* const parent = call.FindMetadata("traceparent");
  TracedRequest trace = tracer.Sample(message.message().model_name(),
                                      parent == nullptr ? std::string_view() : *parent);
  RecordTraceEvent(trace, "GRPC_WAITREAD_START");
  RecordTraceEvent(trace, "GRPC_WAITREAD_END");
  return trace;
}

std::optional<Denial> InferContext::CheckModel(const Call& call,
                                               const InferMessage& message) const {
  return access_.Authorize(CallCaller(call), ApiOperation::kInfer, message.message().model_name());
}

Status InferContext::FindModel(RequestResources& resources) const {
  const auto& message = resources.message.message();
  NEREID_ASSIGN_OR_RETURN(const int64_t version, ParseModelVersion(message.model_version()));
  NEREID_RETURN_IF_ERROR(RejectZeroByte("model_name", message.model_name()));
  NEREID_ASSIGN_OR_RETURN(resources.is_decoupled,
                          server_.IsDecoupled(message.model_name().c_str(), version));
  return {};
}

Result<InferRequest> InferContext::MakeRequest(RequestResources& resources,
                                               const ForwardedHeaders& headers) const {
  const auto& message = resources.message.message();
  const char* const name = message.model_name().c_str();
  NEREID_ASSIGN_OR_RETURN(const int64_t version, ParseModelVersion(message.model_version()));
  NEREID_ASSIGN_OR_RETURN(InferRequest request, server_.NewRequest(name, version));
  NEREID_RETURN_IF_ERROR(FillRequest(options_.state->shared_memory, headers, resources, request));
  if (!resources.response_options.classifications.empty()) {
    NEREID_ASSIGN_OR_RETURN(resources.is_batched, server_.IsBatched(name, version));
  }
  return request;
}

}  // namespace nereid
