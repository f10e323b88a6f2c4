// A traced request: its events and those of the inferences that its model requested, and the
// interface of the sink that receives finished traces. [any thread]
#pragma once

#include <cstdint>
#include <memory>
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
  std::string shape;  // dimensions, separated by commas
  std::string datatype;
};

// One inference: the client's, or one requested by a model.
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
  // Adds an event of the frontend; it is listed with the client's own inference.
  void Add(std::string_view name, uint64_t steady_ns);
  // Adds an event or a tensor reported by the core.
  void Add(TRITONSERVER_InferenceTrace* trace, std::string_view name, uint64_t steady_ns);
  void Add(TRITONSERVER_InferenceTrace* trace, TraceTensor tensor);

  // Returns the inferences, the client's own first; empty if none began. Called after the last Add.
  std::vector<TracedInference> Take();

  // Set before the record is shared, constant afterwards.
  uint32_t level = 0;          // bits of TRITONSERVER_InferenceTraceLevel
  std::string trace_id;        // 32 hexadecimal digits; empty if spans are not exported
  std::string parent_span_id;  // 16 hexadecimal digits; empty if the client sent none
  std::string span_id;         // of the request's own span

 private:
  TracedInference& InferenceOf(TRITONSERVER_InferenceTrace* trace);

  std::mutex mutex_;  // guards the two below
  std::vector<TraceEvent> own_events_;
  std::vector<TracedInference> inferences_;
};

// Which file a trace is written to.
struct TraceFileRule {
  uint64_t traces_per_file = 0;      // 0: all in the main file
  bool merges_partial_file = false;  // a file that does not fill is merged into the main file
};

// Destination of finished traces. [any thread]
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // Drops the trace if it cannot be stored. Never blocks on the network.
  virtual void Write(TraceRecord& record, const TraceFileRule& rule) = 0;
  // Called when the settings change: ends the current file.
  virtual void EndFile() {}
};

}  // namespace nereid
