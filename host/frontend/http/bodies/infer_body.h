// Parses the body of POST .../infer. Models are not consulted. Binary tensors are not copied out of
// the body. Pure. [any thread]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/byte_budget.h"
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

// Everything in a request except its tensors. Shared by infer and generate.
struct RequestOptions {
  std::string id;
  uint64_t sequence_id = 0;
  // set if sequence_id is a string; sequence_id is 0 then
  std::optional<std::string> sequence_name;
  bool sequence_start = false;
  bool sequence_end = false;
  uint64_t priority = 0;
  uint64_t timeout_us = 0;
  std::vector<RequestParameter> parameters;

  bool belongs_to_sequence() const { return sequence_id != 0 || sequence_name.has_value(); }
};

struct InputTensor {
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  InlineVector<int64_t, 6> shape;
  ByteBuffer parsed;        // data parsed from JSON, or
  std::string_view binary;  // data in the body or in `mapped`
  std::optional<SharedRange> shared;
  MappedRange mapped;  // the memory of `shared`, once it was looked up

  std::string_view bytes() const { return binary.data() != nullptr ? binary : parsed.view(); }
};

// Most requests have few inputs.
using InputTensors = InlineVector<InputTensor, 2>;

struct RequestedOutput {
  std::string name;
  bool is_binary = false;
  // classification extension: number of best classes to return, 0 if not requested
  uint64_t num_classes = 0;
  std::optional<SharedRange> shared;
};

struct InferBody {
  RequestOptions options;
  bool binary_outputs = false;  // for outputs that the request does not name
  InputTensors inputs;
  std::vector<RequestedOutput> outputs;
};

// `json` is the first part of the body and `binary` the rest: the data of the inputs that have a
// binary_data_size, in order and without remainder. Error messages name the `model`.
Status ParseInferBody(std::string_view json, std::string_view binary, std::string_view model,
                      size_t max_depth, InferBody& body);

// Adds the tensors that were parsed from JSON to the reservation of their request. UNAVAILABLE if
// the budget does not suffice. Small ones are not counted, like small bodies.
Status ReserveInputs(const InputTensors& inputs, ByteReservation& reservation);

// Reads the value of the request parameter `name`: a string, a number or a boolean.
Result<RequestParameter> ReadParameter(JsonReader& reader, std::string_view name);

// Reads a request parameter. The parameters that the protocol defines (sequence_*, priority,
// timeout) set the corresponding option.
Status ReadRequestParameter(JsonReader& reader, std::string_view name, RequestOptions& options);

}  // namespace nereid::http
