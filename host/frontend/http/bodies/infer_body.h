// The body of POST .../infer, understood: what the client asks for, without a look at any model.
// Binary tensors stay where they are in the body. Pure. [any thread]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/inline_vector.h"
#include "host/frontend/http/json/json_reader.h"
#include "host/frontend/http/transport/byte_buffer.h"
#include "host/frontend/shared_memory.h"
#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid::http {

struct RequestParameter {
  std::string name;
  std::variant<std::string, int64_t, bool, double> value;
};

// What a request says about itself beside its tensors. Shared by infer and generate.
struct RequestOptions {
  std::string id;
  uint64_t sequence_id = 0;
  std::optional<std::string> sequence_name;  // a sequence_id that is text; then sequence_id is 0
  bool sequence_start = false;
  bool sequence_end = false;
  uint64_t priority = 0;
  uint64_t timeout_us = 0;
  std::vector<RequestParameter> parameters;

  bool is_of_sequence() const { return sequence_id != 0 || sequence_name.has_value(); }
};

struct InputTensor {
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  InlineVector<int64_t, 6> shape;
  ByteBuffer parsed;        // made from JSON, or
  std::string_view binary;  // in the body, or in the block
  std::optional<SharedRange> shared;
  SharedBlock block;  // what `shared` names, once it was looked up

  std::string_view bytes() const { return binary.data() != nullptr ? binary : parsed.view(); }
};

// Most requests have few.
using InputTensors = InlineVector<InputTensor, 2>;

struct OutputRequest {
  std::string name;
  bool is_binary = false;
  uint64_t num_classes = 0;  // not 0: the classification extension, its best so many classes
  std::optional<SharedRange> shared;
};

struct InferBody {
  RequestOptions options;
  bool binary_outputs = false;  // of outputs that are not named
  InputTensors inputs;
  std::vector<OutputRequest> outputs;
};

// `json` is the first part of the body, `binary` the rest: the data of the inputs that have a
// binary_data_size, in their order, to the last byte. Messages name the `model`.
Status ParseInferBody(std::string_view json, std::string_view binary, std::string_view model,
                      size_t max_depth, InferBody& body);

// One value of a request's parameters, named `name`: a string, a number or a boolean.
Result<RequestParameter> ReadParameter(JsonReader& reader, std::string_view name);

// As above, and acts on the ones that the protocol defines: sequence_*, priority, timeout.
Status ReadRequestParameter(JsonReader& reader, std::string_view name, RequestOptions& options);

}  // namespace nereid::http
