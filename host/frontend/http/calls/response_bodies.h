// A model's response as the body of infer or of generate. [loop thread]
#pragma once

#include <list>
#include <span>
#include <string>
#include <vector>

#include "host/frontend/http/bodies/infer_body.h"
#include "host/frontend/http/transport/output_queue.h"
#include "nereid/infer_response.h"
#include "nereid/status.h"

namespace nereid::http {

enum class OutputFormat { kJson, kBinary, kSharedMemory };

// How each output of an infer response is sent.
struct OutputFormats {
  bool binary_by_default = false;
  bool is_batched = false;             // the model's first dimension is the batch dimension
  std::vector<RequestedOutput> named;  // the outputs that the request names
  std::vector<SharedOutput> shared;    // outputs in shared memory; not part of the body

  // Returns null if the request does not name the output.
  const RequestedOutput* Find(std::string_view output) const;
  OutputFormat FormatOf(std::string_view output) const;
};

// The body of infer: JSON, followed by the outputs that were requested as binary data. Those are
// sent from the model's memory without a copy.
struct InferResponseBody {
  std::string json;
  std::vector<std::string_view> tensors;  // in the response's memory or in `derived_tensors`
  std::list<std::string> derived_tensors;

  size_t num_tensor_bytes() const {
    size_t total = 0;
    for (const std::string_view tensor : tensors) total += tensor.size();
    return total;
  }
};

// `response` is not an error.
Status BuildInferResponseBody(const InferResponse& response, const OutputFormats& formats,
                              InferResponseBody& body);

// Appends the value of a response parameter.
void AppendParameterValue(std::string& json, const ParameterView& parameter);

// Appends the body of generate: outputs, parameters and the model's name are members of one flat
// object with sorted keys. A tensor of one element becomes a scalar. Fails with the response's own
// error, or if a value has no JSON form; `json` is unchanged then.
Status AppendGenerateResponse(std::string& json, const InferResponse& response);
// The same for the responses of several sequences of one request: each output is an array with the
// elements of all responses, in their order. Requires at least one response.
Status AppendGenerateResponses(std::string& json, std::span<const InferResponse> responses);

}  // namespace nereid::http
