// Parses the body of generate and generate_stream: one flat JSON object. A member that names an
// input of the model becomes an input tensor, any other member becomes a parameter. Language models
// read no parameters: see generate_members.h. Pure. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "host/frontend/http/bodies/infer_body.h"
#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid::http {

struct InputSignature {
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> shape;  // -1 for a variable dimension; includes the batch dimension
};

// The inputs of a model according to its metadata.
struct ModelSignature {
  std::vector<InputSignature> inputs;

  const InputSignature* Find(std::string_view name) const;
};

// `metadata` is the result of the C API's metadata call.
Result<ModelSignature> ParseModelSignature(std::string_view metadata);

// Returns the shape for `num_elements` elements. Fixed dimensions are kept, the innermost variable
// dimension takes the remaining factor, and the other variable dimensions are 1.
Result<std::vector<int64_t>> FillShape(const InputSignature& input, int64_t num_elements);

struct GenerateBody {
  RequestOptions options;
  InputTensors inputs;
  std::vector<std::string> unknown_members;  // those of the parameters that no model reads
};

Status ParseGenerateBody(std::string_view json, const ModelSignature& model, size_t max_depth,
                         GenerateBody& body);

}  // namespace nereid::http
