// The classification extension: an output as its k best classes, "score:index[:label]" each. Called
// by the HTTP and gRPC frontends while they write a response. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nereid/infer_response.h"
#include "nereid/status.h"

namespace nereid {

// A BYTES tensor in wire form.
struct Classes {
  std::vector<int64_t> shape;  // [k], or [batch, k] when the output is batched
  std::string data;
};

// The `max_classes` best of each batch element of output `index`, which is `output`; fewer when the
// element has fewer values. NaN ranks last, equal scores rank by index. INVALID_ARG for a type that
// has no order (BYTES, FP16, BF16) and for an output whose bytes do not match its shape.
Result<Classes> Classify(const InferResponse& response, uint32_t index, const OutputView& output,
                         bool is_batched, uint64_t max_classes);

}  // namespace nereid
