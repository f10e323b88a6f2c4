// TRITONSERVER_InferenceTrace: one traced inference. It reports to its creator, through callbacks,
// what happens to the request and when. The creator owns it until the inference starts and again
// after the release function was called. A child trace, for a request that a backend sends to
// another model, keeps its parent: a parent is released after all of its children.
// [setters: one thread at a time; reports: any thread]
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "host/core/handle/handle_cast.h"
#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid::core {

struct TraceCallbacks {
  TRITONSERVER_InferenceTraceActivityFn_t activity_fn = nullptr;
  TRITONSERVER_InferenceTraceTensorActivityFn_t tensor_fn = nullptr;  // only for level TENSORS
  TRITONSERVER_InferenceTraceReleaseFn_t release_fn = nullptr;
  void* userp = nullptr;
};

// The properties and contiguous bytes of one tensor. They are valid during the call.
struct TracedTensor {
  const char* name;
  TRITONSERVER_DataType data_type;
  const void* base;
  size_t byte_size;
  std::span<const int64_t> shape;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
};

class InferenceTrace {
 public:
  // `level`: bits of TRITONSERVER_InferenceTraceLevel. `parent_id`: 0 if there is no parent.
  // INVALID_ARG names a callback that is null but required by the level.
  static Result<std::unique_ptr<InferenceTrace>> Create(uint32_t level, uint64_t parent_id,
                                                        const TraceCallbacks& callbacks);
  // Allowed before the inference starts and after the release function was called.
  ~InferenceTrace();
  InferenceTrace(const InferenceTrace&) = delete;
  InferenceTrace& operator=(const InferenceTrace&) = delete;

  // A child with the same level and callbacks. The caller owns it until its inference starts.
  std::unique_ptr<InferenceTrace> SpawnChild();

  // The inference takes ownership of the trace and sets the model and request id. INVALID_ARG if an
  // inference already uses or used the trace.
  Status Begin(std::string_view model_name, int64_t model_version, std::string_view request_id);
  // Returns the trace to its creator because the inference did not start after Begin.
  void CancelBegin() { state_ = State::kIdle; }
  // The inference did not start: does the same as End, unless another inference uses or used the
  // trace.
  void EndIfUnused();
  // The inference is complete: the release function runs now, or when the last child is released.
  void End();
  bool in_flight() const { return state_ == State::kInFlight; }

  bool reports_tensors() const { return (level_ & TRITONSERVER_TRACE_LEVEL_TENSORS) != 0; }
  void Report(TRITONSERVER_InferenceTraceActivity activity, uint64_t timestamp_ns);
  // Adds {"<timestamp>": "<name>"} to the context, from which the activity function reads the name.
  void ReportCustom(uint64_t timestamp_ns, std::string_view name);
  void ReportTensor(TRITONSERVER_InferenceTraceActivity activity, const TracedTensor& tensor);

  uint64_t id() const { return id_; }
  uint64_t parent_id() const { return parent_id_; }
  const std::string& model_name() const { return model_name_; }
  int64_t model_version() const { return model_version_; }
  const std::string& request_id() const { return request_id_; }
  // Empty if no context was set. Valid until the context changes.
  const char* context() const;
  void set_context(std::string_view context);

 private:
  enum class State { kIdle, kInFlight, kDone };
  // Shared by the trace and its children. Calls the release function when the last of them drops
  // it.
  struct ReleaseToken;

  InferenceTrace(uint32_t level, uint64_t parent_id, const TraceCallbacks& callbacks,
                 std::shared_ptr<ReleaseToken> parent);
  bool reports_timestamps() const { return (level_ & TRITONSERVER_TRACE_LEVEL_TIMESTAMPS) != 0; }

  const uint32_t level_;
  const uint64_t id_;
  const uint64_t parent_id_;
  const TraceCallbacks callbacks_;
  std::atomic<State> state_{State::kIdle};
  std::shared_ptr<ReleaseToken> release_token_;  // null after the end of the inference
  std::string model_name_;
  int64_t model_version_ = 0;
  std::string request_id_;
  mutable std::mutex context_mutex_;  // guards context_
  std::string context_;
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONSERVER_InferenceTrace, nereid::core::InferenceTrace);
