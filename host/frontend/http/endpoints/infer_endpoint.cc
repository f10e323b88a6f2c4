// Body to request, response to reply.
#include "host/frontend/http/endpoints/infer_endpoint.h"

#include <algorithm>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "host/frontend/frontend_state.h"
#include "host/frontend/http/bodies/binary_form.h"
#include "host/frontend/http/bodies/compression.h"
#include "host/frontend/http/bodies/infer_body.h"
#include "host/frontend/http/calls/infer_reply.h"
#include "host/frontend/http/calls/model_call.h"
#include "host/frontend/http/calls/reply.h"
#include "host/frontend/http/endpoints/trace_request.h"
#include "nereid/input_memory.h"

namespace nereid::http {
namespace {

constexpr size_t kMaxCopiedBlocks = 2048;  // bytes

class InferCall final : public ModelCall {
 public:
  InferCall(KServeContext& context, Connection& connection, Body body, InputTensors inputs,
            OutputForms forms, Encoding encoding)
      : ModelCall(context, connection, std::move(body), std::move(inputs)),
        context_(context),
        forms_(std::move(forms)),
        encoding_(encoding) {}

 private:
  std::vector<SharedOutput>* shared_outputs() override {
    return forms_.shared.empty() ? nullptr : &forms_.shared;
  }

  void OnModelResponse(InferResponse response) override {
    ++num_responses_;
    if (num_responses_ == 1) response_ = std::move(response);
  }

  void OnModelEnd() override {
    Status status = num_responses_ == 1
                        ? response_.Error()
                        : InternalError("expected a single response, got ", num_responses_);
    InferReply reply;
    if (status.ok()) status = CheckShared();
    if (status.ok()) status = BuildInferReply(response_, forms_, reply);
    if (status.ok()) {
      Send(reply);
    } else {
      ReplyError(*connection(), status, context_.status_of_error);
    }
  }

  void Send(InferReply& reply) {
    if (encoding_ != Encoding::kIdentity) return SendCompressed(reply);
    if (reply.blocks.empty()) {
      const std::string headers = ExtraHeaders();
      connection()->Reply({.extra_headers = headers}, reply.json);
      return;
    }
    if (reply.num_block_bytes() <= kMaxCopiedBlocks) return SendCopied(reply);
    std::vector<OutPiece> pieces{{reply.json}};
    for (const std::string_view block : reply.blocks) pieces.push_back({block, /*is_block=*/true});
    const BinaryHead head(context_.answer_content_type, reply.json.size(), ExtraHeaders());
    connection()->ReplyPieces(
        head.Get(), pieces,
        std::make_shared<Kept>(Kept{std::move(response_), std::move(reply.made)}));
  }

  // Few bytes are copied faster than kept and sent as pieces.
  void SendCopied(InferReply& reply) {
    const BinaryHead head(context_.answer_content_type, reply.json.size(), ExtraHeaders());
    for (const std::string_view block : reply.blocks) reply.json += block;
    connection()->Reply(head.Get(), reply.json);
  }

  void SendCompressed(const InferReply& reply) {
    std::vector<std::string_view> pieces{reply.json};
    pieces.insert(pieces.end(), reply.blocks.begin(), reply.blocks.end());
    const std::string headers =
        StrCat("Content-Encoding: ", EncodingName(encoding_), "\r\n", ExtraHeaders());
    const std::string body = Compress(encoding_, pieces);
    if (reply.blocks.empty()) return connection()->Reply({.extra_headers = headers}, body);
    const BinaryHead head(context_.answer_content_type, reply.json.size(), headers);
    connection()->Reply(head.Get(), body);
  }

  // What the blocks of a reply lie in.
  struct Kept {
    InferResponse response;
    std::list<std::string> made;
  };

  const KServeContext& context_;
  OutputForms forms_;
  const Encoding encoding_;  // of the reply
  InferResponse response_;
  size_t num_responses_ = 0;
};

Status FindSharedInputs(const SharedMemory& memory, InputTensors& inputs) {
  for (InputTensor& input : inputs) {
    if (!input.shared) continue;
    NEREID_ASSIGN_OR_RETURN(input.block, memory.Find(*input.shared));
    input.binary = {input.block.base, input.block.size_bytes};
  }
  return Status::Ok();
}

Result<OutputForms> ToOutputForms(const KServeContext& context, const ModelName& model,
                                  InferBody& parsed) {
  OutputForms forms{parsed.binary_outputs, false, std::move(parsed.outputs), {}};
  for (const OutputRequest& output : forms.named) {
    if (!output.shared) continue;
    NEREID_ASSIGN_OR_RETURN(SharedBlock block, context.state.shared_memory.Find(*output.shared));
    forms.shared.push_back({output.name, std::move(block)});
  }
  const bool has_classes = std::any_of(forms.named.begin(), forms.named.end(),
                                       [](const auto& output) { return output.num_classes != 0; });
  if (has_classes) {
    NEREID_ASSIGN_OR_RETURN(forms.is_batched,
                            context.server.IsBatched(model.name.c_str(), model.version));
  }
  return forms;
}

// The same without memory that a model offered.
Body InOwnMemory(Body body) {
  Body own;
  own.memory = ByteBuffer(body.bytes().size() + body.rest.size());
  own.memory.Append(body.bytes());
  own.memory.Append(body.rest.view());
  return own;
}

}  // namespace

Status StartInfer(KServeContext& context, Connection& connection, const RequestHead& head,
                  Body body, const ModelName& model) {
  NEREID_ASSIGN_OR_RETURN(const bool is_decoupled,
                          context.server.IsDecoupled(model.name.c_str(), model.version));
  if (is_decoupled) {
    return UnsupportedError(
        "HTTP end point doesn't support models with decoupled transaction policy");
  }
  const std::string_view bytes = body.bytes();
  const size_t body_bytes = bytes.size() + body.rest.size();
  if (body_bytes == 0) return InvalidArgError("the request body is empty");
  NEREID_ASSIGN_OR_RETURN(const size_t json_bytes,
                          JsonLength(head, context.binary_content_type, body_bytes));
  const std::string_view binary =
      body.rest.lender() != nullptr ? body.rest.view() : bytes.substr(json_bytes);

  InferBody parsed;
  InferRequest request(nullptr);
  if (json_bytes == 0) {
    parsed.binary_outputs = true;
    NEREID_ASSIGN_OR_RETURN(request, BuildRawRequest(context.server, model, binary));
  } else {
    NEREID_RETURN_IF_ERROR(ParseInferBody(bytes.substr(0, json_bytes), binary, model.name,
                                          connection.limits().max_json_depth, parsed));
    NEREID_RETURN_IF_ERROR(FindSharedInputs(context.state.shared_memory, parsed.inputs));
    NEREID_ASSIGN_OR_RETURN(request, BuildRequest(context.server, model, parsed.options,
                                                  parsed.inputs, parsed.outputs));
  }
  // What KServeService::OfferPlace gave.
  const auto* const offered = static_cast<const InputMemory*>(body.rest.lender().get());
  if (offered != nullptr && !offered->IsFor(request)) {
    return StartInfer(context, connection, head, InOwnMemory(std::move(body)), model);
  }
  if (parsed.options.is_of_sequence()) connection.KeepForSequences();
  NEREID_RETURN_IF_ERROR(context.header_forwarding.Apply(head, request));
  NEREID_ASSIGN_OR_RETURN(OutputForms forms, ToOutputForms(context, model, parsed));
  auto call =
      std::make_unique<InferCall>(context, connection, std::move(body), std::move(parsed.inputs),
                                  std::move(forms), ChooseEncoding(head.Header("Accept-Encoding")));
  call->TellLoad(ParseOrcaFormat(head.Header("endpoint-load-metrics-format")));
  return ModelCall::Launch(std::move(call), std::move(request),
                           SampleTrace(context, connection, head, model));
}

}  // namespace nereid::http
