// The classification extension: returns an output as its k best classes, each as
// "score:index[:label]". Called by the HTTP and gRPC frontends while they write a response. [any
// thread]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nereid/infer_response.h"
#include "nereid/status.h"

namespace nereid {

// A BYTES tensor in wire form.
struct ClassificationOutput {
  std::vector<int64_t> shape;  // [k], or [batch, k] if the output is batched
  std::string data;
};

// Returns the `max_classes` best classes of each batch element of output `index`, whose view is
// `output`; fewer if an element has fewer values. NaN ranks last; equal scores rank by index.
// INVALID_ARG for BYTES, FP16 and BF16, and for an output whose byte size does not match its shape.
Result<ClassificationOutput> Classify(const InferResponse& response, uint32_t index,
                                      const OutputView& output, bool is_batched,
                                      uint64_t max_classes);

}  // namespace nereid
