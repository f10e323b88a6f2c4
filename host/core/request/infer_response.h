// One response: made by a backend (or by the host, to carry an error), owned by the client once
// sent. TRITONBACKEND_Response and TRITONSERVER_InferenceResponse. [the thread that holds it]
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/kept_memory.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/handle/parameter.h"
#include "host/core/request/response_sink.h"
#include "host/core/request/tensor.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

class InferResponse : public KeptMemory<InferResponse> {
 public:
  // Calls the allocator's start function. The response counts as a sender of `sink` until it is
  // sent or deleted.
  static Result<std::unique_ptr<InferResponse>> New(ResponseSink* sink);
  // A response that carries `error` alone; asks nothing of the allocator.
  static std::unique_ptr<InferResponse> NewError(ResponseSink* sink, Status error);
  // Gives the output buffers back to the client's allocator.
  ~InferResponse();

  const RequestPlan& plan() const { return sink_->plan(); }
  const std::string& request_id() const { return sink_->request_id(); }
  const Status& error() const { return error_; }
  void set_error(Status error) { error_ = std::move(error); }

  // `shape` as the backend has it; a configured reshape is undone. INVALID_ARG for an output that
  // the model does not have. The result stays in place while more outputs are added.
  Result<OutputTensor*> AddOutput(std::string_view name, DataType data_type,
                                  std::span<const int64_t> shape);
  // As AddOutput, with the shape as the client sees it.
  Result<OutputTensor*> AddClientOutput(std::string_view name, DataType data_type, Shape shape);
  size_t num_outputs() const { return outputs_.size(); }
  OutputTensor* output(size_t index) const { return outputs_[index]; }
  OutputTensor* FindOutput(std::string_view name) const;
  // For the sink, before the client sees the response; what fails becomes its error.
  void CopyOutputsToClient();

  std::vector<Parameter>& parameters() { return parameters_; }

  // Hands the response to its client; the backend's duty ends here.
  static Status Send(std::unique_ptr<InferResponse> response, uint32_t flags);
  ResponseSink* sink() const { return sink_; }
  // It is the client's, or on its way there.
  bool sent() const { return !unsent_; }

 private:
  friend class ResponseSink;
  explicit InferResponse(ResponseSink* sink);
  Result<const OutputSpec*> SpecOf(std::string_view name) const;
  OutputTensor* Add(const OutputSpec* spec, DataType data_type, Shape client_shape);
  // No longer a sender.
  void MarkSent() { unsent_ = false; }

  ResponseSink* const sink_;  // counted
  bool unsent_ = true;
  Status error_;
  std::vector<Parameter> parameters_;
  // The first outputs lie inside the response: most models have one or two.
  static constexpr size_t kInlineOutputs = 2;
  alignas(OutputTensor) std::byte inline_outputs_[kInlineOutputs * sizeof(OutputTensor)];
  InlineVector<OutputTensor*, 4> outputs_;
};

}  // namespace nereid

NEREID_HANDLE(TRITONSERVER_InferenceResponse, nereid::InferResponse);
NEREID_HANDLE_ALIAS(TRITONBACKEND_Response, nereid::InferResponse);
