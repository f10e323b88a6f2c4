// A host for unit tests of backends: it implements the C functions that a backend calls, records
// what the backend did, and lets the test see it. Nothing is scheduled: the test calls the entry
// points itself. [one test thread at a time; responses of different requests from any thread]
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "triton/core/tritonbackend.h"

namespace nereid::fake {

struct Error {
  TRITONSERVER_Error_Code code;
  std::string message;
};

struct Input {
  std::string name;
  TRITONSERVER_DataType datatype;
  std::vector<int64_t> shape;
  std::vector<std::string> pieces;  // the bytes, as they lie in memory
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
};

// The bytes of elements, for Input::pieces and Output::bytes.
template <typename T>
std::string BytesOf(std::vector<T> elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}

struct Parameter {
  std::string name;
  TRITONSERVER_ParameterType type;
  std::string string_value;
  int64_t int_value = 0;
  bool bool_value = false;
  double double_value = 0;
};

struct Output {
  std::string name;
  TRITONSERVER_DataType datatype;
  std::vector<int64_t> shape;
  std::string bytes;
};

struct Response {
  std::map<std::string, Output> outputs;
  std::vector<Parameter> parameters;
  bool is_final = false;
  bool is_flags_only = false;  // the end of a stream
  std::optional<Error> error;
};

// One request as it is given to Execute, and what came of it.
struct Request {
  std::vector<Input> inputs;
  std::vector<std::string> requested_outputs;
  std::vector<Parameter> parameters;
  std::string id;
  uint64_t correlation_id = 0;
  uint32_t flags = 0;
  uint64_t timeout_us = 0;
  bool is_cancelled = false;
  std::string refused_output;      // asking for this one's memory fails
  size_t output_offset_bytes = 0;  // from an aligned address to where outputs begin
  bool takes_lent_outputs = false;

  std::vector<Response> responses;
  // "response", "error", "end", "statistics ok", "statistics failed", "release", in order.
  std::vector<std::string> events;
  // Ends the loan of each output that was lent and sent.
  std::vector<std::function<void()>> loans;
  // Of the responses of a decoupled model: "ok", "failed", "cancelled", "empty".
  std::vector<std::string> response_statistics;
  int num_live_handles_at_release = 0;  // as NumLiveHandles counts them

  TRITONBACKEND_Request* handle() { return reinterpret_cast<TRITONBACKEND_Request*>(this); }
};

struct Model {
  std::string name = "model";
  uint64_t version = 1;
  std::string config;  // JSON
  std::string directory = "/models/model";
  bool may_complete = true;
  std::string backend_config = R"({"cmdline":{}})";
  void* state = nullptr;
  int num_set_config = 0;

  TRITONBACKEND_Model* handle() { return reinterpret_cast<TRITONBACKEND_Model*>(this); }
};

struct Instance {
  Model* model;
  std::string name = "model_0";
  void* state = nullptr;
  std::vector<uint64_t> batch_sizes = {};  // of ReportBatchStatistics, in order
  std::vector<std::vector<uint64_t>> request_times_ns = {}, batch_times_ns = {};

  TRITONBACKEND_ModelInstance* handle() {
    return reinterpret_cast<TRITONBACKEND_ModelInstance*>(this);
  }
};

// Responses, factories, errors, messages and statistics that were made and not given back.
int NumLiveHandles();

// The host's API version as ApiVersion reports it; the header's at the start of a test.
void SetApiVersion(uint32_t major, uint32_t minor);

// Reads and frees an error that an entry point returned; nothing for success.
std::optional<Error> Take(TRITONSERVER_Error* error);

}  // namespace nereid::fake
