// A response: TRITONBACKEND_Response and TRITONSERVER_InferenceResponse. A backend creates it, or
// the host creates it for an error. The client owns it after it was sent. [the thread of its owner]
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/quarantined_memory.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/handle/parameter.h"
#include "host/core/request/response_sink.h"
#include "host/core/request/tensor.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid::core {

class InferResponse : public QuarantinedMemory<InferResponse> {
 public:
  // Calls the start function of the allocator. The response counts as a sender of `sink` until it
  // is sent or deleted.
  static Result<std::unique_ptr<InferResponse>> New(ResponseSink* sink);
  // A response with only an error. It does not use the allocator.
  static std::unique_ptr<InferResponse> NewError(ResponseSink* sink, Status error);
  // Returns the output buffers to the client's allocator.
  ~InferResponse();

  const RequestSchema& schema() const { return sink_->schema(); }
  const std::string& request_id() const { return sink_->request_id(); }
  const Status& error() const { return error_; }
  void set_error(Status error) { error_ = std::move(error); }

  // `shape` is the shape that the backend sees; a configured reshape is undone. INVALID_ARG for an
  // output that the model does not have. The result stays valid when more outputs are added.
  Result<OutputTensor*> AddOutput(std::string_view name, DataType data_type,
                                  std::span<const int64_t> shape);
  // Like AddOutput, but with the shape that the client sees.
  Result<OutputTensor*> AddClientOutput(std::string_view name, DataType data_type, Shape shape);
  size_t num_outputs() const { return outputs_.size(); }
  OutputTensor* output(size_t index) const { return outputs_[index]; }
  OutputTensor* FindOutput(std::string_view name) const;
  // Called by the sink before the response is delivered. A failure becomes the response's error.
  void CopyOutputsToClient();

  std::vector<Parameter>& parameters() { return parameters_; }

  // Sends the response to the client, which owns it from then on.
  static Status Send(std::unique_ptr<InferResponse> response, uint32_t flags);
  ResponseSink* sink() const { return sink_; }
  // The response was sent to the client.
  bool sent() const { return !unsent_; }

 private:
  friend class ResponseSink;
  explicit InferResponse(ResponseSink* sink);
  Result<const OutputSpec*> SpecOf(std::string_view name) const;
  OutputTensor* Add(const OutputSpec* spec, DataType data_type, Shape client_shape);
  // The response no longer counts as a sender.
  void MarkSent() { unsent_ = false; }

  ResponseSink* const sink_;  // a counted reference
  bool unsent_ = true;
  Status error_;
  std::vector<Parameter> parameters_;
  // The first outputs are stored inside the response, because most models have one or two.
  static constexpr size_t kInlineOutputs = 2;
  alignas(OutputTensor) std::byte inline_outputs_[kInlineOutputs * sizeof(OutputTensor)];
  InlineVector<OutputTensor*, 4> outputs_;
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONSERVER_InferenceResponse, nereid::core::InferResponse);
NEREID_HANDLE_ALIAS(TRITONBACKEND_Response, nereid::core::InferResponse);
