// What happened to one traced request and to those that its model made of it. [any thread]
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "triton/core/tritonserver.h"

namespace nereid {

struct TraceEvent {
  std::string name;
  uint64_t steady_ns;
};

struct TraceTensor {
  std::string activity;
  std::string name;
  std::string data;   // elements, separated by commas
  std::string shape;  // dimensions, likewise
  std::string datatype;
};

// One inference: the client's, or one that a model made on the way.
struct TracedInference {
  uint64_t id = 0;
  uint64_t parent_id = 0;  // 0: none
  std::string model;
  int64_t version = -1;
  std::string request_id;
  std::vector<TraceEvent> events;
  std::vector<TraceTensor> tensors;
};

class TraceRecord {
 public:
  // Of the frontend; they stand with the client's own inference.
  void Add(std::string_view name, uint64_t steady_ns);
  // Of the core.
  void Add(TRITONSERVER_InferenceTrace* trace, std::string_view name, uint64_t steady_ns);
  void Add(TRITONSERVER_InferenceTrace* trace, TraceTensor tensor);

  // Once nobody adds any more: the client's own inference first. Empty when none began.
  std::vector<TracedInference> Take();

  // Set before anybody else knows the record, constant afterwards.
  uint32_t level = 0;          // bits of TRITONSERVER_InferenceTraceLevel
  std::string trace_id;        // 32 hexadecimal digits; empty where no spans are made
  std::string parent_span_id;  // 16; empty when the client sent none
  std::string span_id;         // of the request's own span

 private:
  TracedInference& InferenceOf(TRITONSERVER_InferenceTrace* trace);

  std::mutex mutex_;  // guards the two below
  std::vector<TraceEvent> own_events_;
  std::vector<TracedInference> inferences_;
};

}  // namespace nereid
