// One traced inference: TRITONSERVER_InferenceTrace. Tells its maker what happens to the request
// and when. The maker owns it until the inference starts and again once the release function has
// run; a child made for a request that a backend sends on holds its parent: a parent is released
// after all of its children. [setters: one thread at a time; reports: any thread]
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

namespace nereid {

struct TraceCallbacks {
  TRITONSERVER_InferenceTraceActivityFn_t activity_fn = nullptr;
  TRITONSERVER_InferenceTraceTensorActivityFn_t tensor_fn = nullptr;  // only for level TENSORS
  TRITONSERVER_InferenceTraceReleaseFn_t release_fn = nullptr;
  void* userp = nullptr;
};

// The bytes and properties of one tensor, contiguous; borrowed for the call.
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
  // `level`: bits of TRITONSERVER_InferenceTraceLevel. `parent_id` 0: none. INVALID_ARG names the
  // callback that the level needs.
  static Result<std::unique_ptr<InferenceTrace>> Create(uint32_t level, uint64_t parent_id,
                                                        const TraceCallbacks& callbacks);
  // Legal before the inference starts and after it was released.
  ~InferenceTrace();
  InferenceTrace(const InferenceTrace&) = delete;
  InferenceTrace& operator=(const InferenceTrace&) = delete;

  // Same level and callbacks. The caller's until its inference starts.
  std::unique_ptr<InferenceTrace> SpawnChild();

  // The inference takes the trace over and says what it is about. INVALID_ARG when an inference has
  // or had it already.
  Status Begin(std::string_view model_name, int64_t model_version, std::string_view request_id);
  // Gives the trace back to its maker: the inference did not start after all.
  void TakeBack() { state_ = State::kIdle; }
  // The inference did not start: as End, where no other inference has or had the trace.
  void Refuse();
  // The inference is over: the release function runs now, or when the last child is released.
  void End();
  bool in_flight() const { return state_ == State::kInFlight; }

  bool wants_tensors() const { return (level_ & TRITONSERVER_TRACE_LEVEL_TENSORS) != 0; }
  void Report(TRITONSERVER_InferenceTraceActivity activity, uint64_t timestamp_ns);
  // Adds {"<timestamp>": "<name>"} to the context, where the activity function reads the name.
  void ReportCustom(uint64_t timestamp_ns, std::string_view name);
  void ReportTensor(TRITONSERVER_InferenceTraceActivity activity, const TracedTensor& tensor);

  uint64_t id() const { return id_; }
  uint64_t parent_id() const { return parent_id_; }
  const std::string& model_name() const { return model_name_; }
  int64_t model_version() const { return model_version_; }
  const std::string& request_id() const { return request_id_; }
  // Empty when none was set; valid until the context changes.
  const char* context() const;
  void set_context(std::string_view context);

 private:
  enum class State { kIdle, kInFlight, kDone };
  // Held by the trace and its children; calls the release function when the last one lets go.
  struct Hold;

  InferenceTrace(uint32_t level, uint64_t parent_id, const TraceCallbacks& callbacks,
                 std::shared_ptr<Hold> parent);
  bool wants_timestamps() const { return (level_ & TRITONSERVER_TRACE_LEVEL_TIMESTAMPS) != 0; }

  const uint32_t level_;
  const uint64_t id_;
  const uint64_t parent_id_;
  const TraceCallbacks callbacks_;
  std::atomic<State> state_{State::kIdle};
  std::shared_ptr<Hold> hold_;  // null once over
  std::string model_name_;
  int64_t model_version_ = 0;
  std::string request_id_;
  mutable std::mutex context_mutex_;  // guards context_
  std::string context_;
};

}  // namespace nereid

NEREID_HANDLE(TRITONSERVER_InferenceTrace, nereid::InferenceTrace);
