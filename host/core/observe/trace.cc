#include "host/core/observe/trace.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_reader.h"

namespace nereid::core {
namespace {

// Ids start at 1, because 0 means "no parent".
std::atomic<uint64_t> next_id{1};

// The deprecated levels MIN and MAX of old clients mean TIMESTAMPS.
uint32_t NormalizeLevel(uint32_t level) {
  constexpr uint32_t kDeprecated = TRITONSERVER_TRACE_LEVEL_MIN | TRITONSERVER_TRACE_LEVEL_MAX;
  return (level & kDeprecated) == 0 ? level
                                    : (level & ~kDeprecated) | TRITONSERVER_TRACE_LEVEL_TIMESTAMPS;
}

}  // namespace

struct InferenceTrace::ReleaseToken {
  InferenceTrace* trace;                 // null if it was deleted before its inference started
  std::shared_ptr<ReleaseToken> parent;  // dropped after the release function was called

  ~ReleaseToken() {
    if (trace == nullptr) return;
    const TraceCallbacks callbacks = trace->callbacks_;
    callbacks.release_fn(ToHandle(trace), callbacks.userp);
  }
};

InferenceTrace::InferenceTrace(uint32_t level, uint64_t parent_id, const TraceCallbacks& callbacks,
                               std::shared_ptr<ReleaseToken> parent)
    : level_(level),
      id_(next_id.fetch_add(1, std::memory_order_relaxed)),
      parent_id_(parent_id),
      callbacks_(callbacks),
      release_token_(new ReleaseToken{this, std::move(parent)}) {}

Result<std::unique_ptr<InferenceTrace>> InferenceTrace::Create(uint32_t level, uint64_t parent_id,
                                                               const TraceCallbacks& callbacks) {
  level = NormalizeLevel(level);
  const char* missing = nullptr;
  if (callbacks.activity_fn == nullptr) missing = "activity";
  if (callbacks.release_fn == nullptr) missing = "release";
  if ((level & TRITONSERVER_TRACE_LEVEL_TENSORS) != 0 && callbacks.tensor_fn == nullptr) {
    missing = "tensor activity";
  }
  if (missing != nullptr) {
    return InvalidArgError("trace of level ", level, ": the ", missing, " function is null");
  }
  return std::unique_ptr<InferenceTrace>(new InferenceTrace(level, parent_id, callbacks, nullptr));
}

InferenceTrace::~InferenceTrace() {
  if (release_token_ != nullptr) release_token_->trace = nullptr;
}

std::unique_ptr<InferenceTrace> InferenceTrace::SpawnChild() {
  return std::unique_ptr<InferenceTrace>(
      new InferenceTrace(level_, id_, callbacks_, release_token_));
}

Status InferenceTrace::Begin(std::string_view model_name, int64_t model_version,
                             std::string_view request_id) {
  State expected = State::kIdle;
  if (!state_.compare_exchange_strong(expected, State::kInFlight)) {
    return InvalidArgError("trace ", id_, ": ",
                           expected == State::kDone ? "its inference is over"
                                                    : "is part of another inference already");
  }
  model_name_ = model_name;
  model_version_ = model_version;
  request_id_ = request_id;
  return Status::Ok();
}

void InferenceTrace::EndIfUnused() {
  State expected = State::kIdle;
  if (!state_.compare_exchange_strong(expected, State::kDone)) return;
  const std::shared_ptr<ReleaseToken> last = std::move(release_token_);
}

void InferenceTrace::End() {
  state_ = State::kDone;
  // The release function may delete this object, so no member is accessed afterwards.
  const std::shared_ptr<ReleaseToken> last = std::move(release_token_);
}

void InferenceTrace::Report(TRITONSERVER_InferenceTraceActivity activity, uint64_t timestamp_ns) {
  if (reports_timestamps()) {
    callbacks_.activity_fn(ToHandle(this), activity, timestamp_ns, callbacks_.userp);
  }
}

void InferenceTrace::ReportCustom(uint64_t timestamp_ns, std::string_view name) {
  if (!reports_timestamps()) return;
  {
    std::lock_guard lock(context_mutex_);
    // The context may be any text that a client sent.
    nlohmann::json json = nlohmann::json::object();
    if (auto known = ReadJsonObject<nlohmann::json>(context_, ""); known.ok()) json = *known;
    json[std::to_string(timestamp_ns)] = name;
    context_ = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  Report(TRITONSERVER_TRACE_CUSTOM_ACTIVITY, timestamp_ns);
}

void InferenceTrace::ReportTensor(TRITONSERVER_InferenceTraceActivity activity,
                                  const TracedTensor& tensor) {
  if (!reports_tensors()) return;
  callbacks_.tensor_fn(ToHandle(this), activity, tensor.name, tensor.data_type, tensor.base,
                       tensor.byte_size, tensor.shape.data(), tensor.shape.size(),
                       tensor.memory_type, tensor.memory_type_id, callbacks_.userp);
}

const char* InferenceTrace::context() const {
  std::lock_guard lock(context_mutex_);
  return context_.c_str();
}

void InferenceTrace::set_context(std::string_view context) {
  std::lock_guard lock(context_mutex_);
  context_ = context;
}

}  // namespace nereid::core
