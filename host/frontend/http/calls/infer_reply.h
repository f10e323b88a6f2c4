// A model's response as the answer to infer: JSON, and behind it the outputs that were asked for as
// binary data, sent from where the model wrote them. [loop thread]
#pragma once

#include <list>
#include <string>
#include <vector>

#include "host/frontend/http/bodies/infer_body.h"
#include "host/frontend/http/transport/output_queue.h"
#include "nereid/infer_response.h"

namespace nereid::http {

enum class OutputForm { kJson, kBinary, kElsewhere };

// In which form each output goes.
struct OutputForms {
  bool binary_by_default = false;
  bool is_batched = false;           // the model's first dimension is the batch
  std::vector<OutputRequest> named;  // each with its own wish
  std::vector<SharedOutput> shared;  // these are not in the answer

  // Null when the output was not named.
  const OutputRequest* Find(std::string_view output) const;
  OutputForm FormOf(std::string_view output) const;
};

struct InferReply {
  std::string json;
  std::vector<std::string_view> blocks;  // in the response's memory, or in `made`
  std::list<std::string> made;

  size_t num_block_bytes() const {
    size_t total = 0;
    for (const std::string_view block : blocks) total += block.size();
    return total;
  }
};

// `response` is no error.
Status BuildInferReply(const InferResponse& response, const OutputForms& forms, InferReply& reply);

// Appends the value of a response's parameter.
void AppendParameterValue(std::string& json, const ParameterView& parameter);

}  // namespace nereid::http
