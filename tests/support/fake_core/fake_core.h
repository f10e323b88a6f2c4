// A fake host for unit tests of backends. It implements the C functions that a backend calls and
// records the calls for the test. It schedules nothing: the test calls the entry points itself.
// [one test thread at a time; responses of different requests from any thread]
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
  std::vector<std::string> pieces;  // one element per buffer
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
};

// Returns the bytes of elements, for Input::pieces and Output::bytes.
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
  bool is_flags_only = false;  // flags without a response, the end of a stream
  std::optional<Error> error;
};

// One request that a test passes to Execute, and the recorded results.
struct Request {
  std::vector<Input> inputs;
  std::vector<std::string> requested_outputs;
  std::vector<Parameter> parameters;
  std::string id;
  uint64_t correlation_id = 0;
  uint32_t flags = 0;
  uint64_t timeout_us = 0;
  bool is_cancelled = false;
  std::string failing_output;      // output for which the buffer allocation fails
  size_t output_offset_bytes = 0;  // offset of output buffers from an aligned address
  bool accepts_leased_outputs = false;

  std::vector<Response> responses;
  // Recorded events in order: "response", "error", "end", "statistics ok", "statistics failed",
  // "release".
  std::vector<std::string> events;
  // One function per leased and sent output, which releases the lease.
  std::vector<std::function<void()>> lease_releases;
  // Response statistics of a decoupled model: "ok", "failed", "cancelled", "empty".
  std::vector<std::string> response_statistics;
  int num_live_handles_at_release = 0;  // value of NumLiveHandles at the release

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
  std::vector<uint64_t> batch_sizes = {};  // from ReportBatchStatistics, in order
  std::vector<std::vector<uint64_t>> request_times_ns = {}, batch_times_ns = {};

  TRITONBACKEND_ModelInstance* handle() {
    return reinterpret_cast<TRITONBACKEND_ModelInstance*>(this);
  }
};

// Number of responses, factories, errors, messages and statistics that were created and not
// deleted.
int NumLiveHandles();

// Sets the API version that the host reports. Initially it is the header's.
void SetApiVersion(uint32_t major, uint32_t minor);

// Returns and deletes an error that an entry point returned, or none for success.
std::optional<Error> Take(TRITONSERVER_Error* error);

}  // namespace nereid::fake
