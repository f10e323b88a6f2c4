// The inputs of a model, as its metadata lists them: what generate maps a flat JSON object onto.
// Pure. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid::http {

struct InputSignature {
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> shape;  // -1 where any size goes, the batch dimension included
};

struct ModelSignature {
  std::vector<InputSignature> inputs;

  const InputSignature* Find(std::string_view name) const;
};

// `metadata` is what the metadata call of the C API returns.
Result<ModelSignature> ParseModelSignature(std::string_view metadata);

// The shape that `num_elements` give an input: fixed dimensions stay, the innermost open one takes
// what is left, the other open ones are 1.
Result<std::vector<int64_t>> FillShape(const InputSignature& input, int64_t num_elements);

}  // namespace nereid::http
