#include "host/frontend/tracing/tracer.h"

#include <chrono>
#include <new>
#include <optional>

#include "host/frontend/tracing/span_ids.h"
#include "host/frontend/tracing/tensor_text.h"
#include "host/frontend/tracing/trace_file.h"
#include "nereid/error.h"
#include "nereid/log.h"

namespace nereid {
namespace {

constexpr size_t kMaxTensorChars = 1 << 20;

uint64_t SteadyNowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// User data of the core's trace callbacks. Owned by the root trace and freed with it.
struct TraceCallbackData {
  TracedRequest request;
};

// Finds the name of a custom activity by its timestamp in the trace's context: {"<timestamp>":
// "<name>", ...}.
std::string CustomName(TRITONSERVER_InferenceTrace* trace, uint64_t timestamp_ns) {
  const char* text = nullptr;
  TRITONSERVER_InferenceTraceContext(trace, &text);
  const std::string_view context = text == nullptr ? "" : text;
  const std::string key = StrCat("\"", timestamp_ns, "\":\"");
  const size_t at = context.find(key);
  if (at == std::string_view::npos) return "CUSTOM_ACTIVITY";
  const size_t begin = at + key.size();
  return std::string(context.substr(begin, context.find('"', begin) - begin));
}

void OnActivity(TRITONSERVER_InferenceTrace* trace, TRITONSERVER_InferenceTraceActivity activity,
                uint64_t timestamp_ns, void* userp) {
  TraceRecord& record = *static_cast<TraceCallbackData*>(userp)->request;
  if (activity == TRITONSERVER_TRACE_CUSTOM_ACTIVITY) {
    return record.Add(trace, CustomName(trace, timestamp_ns), timestamp_ns);
  }
  record.Add(trace, TRITONSERVER_InferenceTraceActivityString(activity), timestamp_ns);
}

std::string ShapeText(const int64_t* shape, uint64_t num_dims) {
  std::string text;
  for (uint64_t i = 0; i < num_dims; ++i) {
    if (i != 0) text += ',';
    text += std::to_string(shape[i]);
  }
  return text;
}

void OnTensor(TRITONSERVER_InferenceTrace* trace, TRITONSERVER_InferenceTraceActivity activity,
              const char* name, TRITONSERVER_DataType datatype, const void* base, size_t size_bytes,
              const int64_t* shape, uint64_t num_dims, TRITONSERVER_MemoryType memory_type, int64_t,
              void* userp) {
  std::string data = "(in GPU memory)";
  if (memory_type != TRITONSERVER_MEMORY_GPU) {
    data = TensorText(datatype, {static_cast<const char*>(base), size_bytes}, kMaxTensorChars);
  }
  static_cast<TraceCallbackData*>(userp)->request->Add(
      trace, TraceTensor{TRITONSERVER_InferenceTraceActivityString(activity), name, std::move(data),
                         ShapeText(shape, num_dims), TRITONSERVER_DataTypeString(datatype)});
}

void OnRelease(TRITONSERVER_InferenceTrace* trace, void* userp) {
  uint64_t parent_id = 0;
  TRITONSERVER_InferenceTraceParentId(trace, &parent_id);
  (void)ToStatus(TRITONSERVER_InferenceTraceDelete(trace));
  if (parent_id == 0) delete static_cast<TraceCallbackData*>(userp);
}

}  // namespace

Result<std::unique_ptr<Tracer>> Tracer::Create(const TraceOptions& options) {
  std::shared_ptr<TraceSink> sink;
  if (options.mode == TraceMode::kOpenTelemetry) {
    NEREID_ASSIGN_OR_RETURN(sink, OtlpExporter::Create(options.otlp));
  } else {
    sink = std::make_shared<TraceFile>(options.file);
  }
  return std::unique_ptr<Tracer>(new Tracer(options, std::move(sink)));
}

namespace {

bool SwitchesOn(const TraceChange& change) {
  for (const auto& [key, values] : change) {
    if (key != "trace_level" || !values) continue;
    for (const std::string& level : *values) {
      if (level != "OFF") return true;
    }
  }
  return false;
}

}  // namespace

Status Tracer::Apply(const std::string& model, const TraceChange& change) {
  if (options_.mode == TraceMode::kTriton && options_.file.empty() && SwitchesOn(change)) {
    return InvalidArgError("Attempting to set invalid trace setting :trace file name is not given");
  }
  NEREID_RETURN_IF_ERROR(settings_.Apply(model, change));
  if (!change.empty()) sink_->EndFile();
  return Status::Ok();
}

std::vector<std::pair<std::string, std::vector<std::string>>> Tracer::Describe(
    const std::string& model) const {
  const TraceValues values = settings_.values(model);
  std::vector<std::pair<std::string, std::vector<std::string>>> settings{
      {"trace_level", TraceLevelNames(values.level)},
      {"trace_rate", {std::to_string(values.rate)}},
      {"trace_count", {std::to_string(values.count)}}};
  if (options_.mode == TraceMode::kOpenTelemetry) {
    settings.insert(settings.end(), options_.otlp.reported_settings.begin(),
                    options_.otlp.reported_settings.end());
    settings.push_back({"trace_mode", {"opentelemetry"}});
  } else {
    settings.push_back({"log_frequency", {std::to_string(values.log_frequency)}});
    settings.push_back({"trace_file", {options_.file}});
    settings.push_back({"trace_mode", {"triton"}});
  }
  return settings;
}

TracedRequest Tracer::SampleEnabled(const std::string& model, std::string_view trace_parent) {
  std::optional<TraceParent> parent;
  if (options_.mode == TraceMode::kOpenTelemetry) parent = ParseTraceParent(trace_parent);
  const std::optional<TraceSample> sample = settings_.Sample(model, parent.has_value());
  if (!sample) return nullptr;
  TracedRequest request(new TraceRecord, [sink = sink_, rule = sample->rule](TraceRecord* record) {
    sink->Write(*record, rule);
    delete record;
  });
  request->level = sample->level;
  if (options_.mode != TraceMode::kOpenTelemetry) return request;
  request->trace_id = parent ? parent->trace_id : NewTraceId();
  request->parent_span_id = parent ? parent->span_id : "";
  request->span_id = NewSpanId();
  return request;
}

TRITONSERVER_InferenceTrace* MakeCoreTrace(const TracedRequest& request) {
  if (request == nullptr) return nullptr;
  auto user = std::make_unique<TraceCallbackData>(TraceCallbackData{request});
  TRITONSERVER_InferenceTrace* trace = nullptr;
  const Status status = ToStatus(TRITONSERVER_InferenceTraceTensorNew(
      &trace, static_cast<TRITONSERVER_InferenceTraceLevel>(request->level), /*parent_id=*/0,
      &OnActivity, &OnTensor, &OnRelease, user.get()));
  if (!status.ok()) {
    LogError(StrCat("cannot trace a request: ", status.message()));
    return nullptr;
  }
  (void)user.release();  // now owned by the trace; OnRelease deletes it
  if (!request->trace_id.empty()) {
    const std::string context = StrCat(
        "{\"traceparent\":\"", FormatTraceParent({request->trace_id, request->span_id}), "\"}");
    (void)ToStatus(TRITONSERVER_InferenceTraceSetContext(trace, context.c_str()));
  }
  return trace;
}

void RecordTraceEvent(const TracedRequest& request, std::string_view event) {
  if (request == nullptr) return;
  try {
    request->Add(event, SteadyNowNs());
  } catch (const std::bad_alloc&) {
    // The trace lacks the event.
  }
}

}  // namespace nereid
