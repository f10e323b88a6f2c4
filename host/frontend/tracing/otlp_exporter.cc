#include "host/frontend/tracing/otlp_exporter.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/file_content.h"
#include "base/thread.h"
#include "host/frontend/tracing/span_ids.h"
#include "nereid/log.h"

namespace nereid {
namespace {

using Json = nlohmann::json;

constexpr int kSpanKindServer = 2;
constexpr int kSpanKindInternal = 1;
constexpr int kStallTimeoutS = 10;
constexpr int kPostTimeoutS = 20;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json Attribute(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}
Json Attribute(const std::string& key, int64_t value) {
  return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}};
}

// Offset from the steady clock, in which activities are timed, to Unix time, in which spans are.
uint64_t SteadyToUnixNs() {
  using std::chrono::nanoseconds;
  const auto unix = std::chrono::system_clock::now().time_since_epoch();
  const auto steady = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<nanoseconds>(unix - steady).count());
}

struct Span {
  std::string trace_id;
  std::string span_id;
  std::string parent_id;
  std::string name;
  int kind;
  uint64_t begin_ns;
  uint64_t end_ns;
};

Json ToJson(const Span& span, uint64_t offset_ns) {
  Json json{{"traceId", span.trace_id},
            {"spanId", span.span_id},
            {"name", span.name},
            {"kind", span.kind},
            {"startTimeUnixNano", std::to_string(span.begin_ns + offset_ns)},
            {"endTimeUnixNano", std::to_string(span.end_ns + offset_ns)}};
  if (!span.parent_id.empty()) json["parentSpanId"] = span.parent_id;
  return json;
}

const TraceEvent* Find(const TracedInference& inference, std::string_view name) {
  for (const TraceEvent& event : inference.events) {
    if (event.name == name) return &event;
  }
  return nullptr;
}

Json Events(const TracedInference& inference, uint64_t offset_ns) {
  Json events = Json::array();
  for (const TraceEvent& event : inference.events) {
    events.push_back(
        {{"timeUnixNano", std::to_string(event.steady_ns + offset_ns)}, {"name", event.name}});
  }
  for (const TraceTensor& tensor : inference.tensors) {
    events.push_back(
        {{"timeUnixNano", std::to_string(inference.events.back().steady_ns + offset_ns)},
         {"name", tensor.activity},
         {"attributes",
          {Attribute("name", tensor.name), Attribute("data", tensor.data),
           Attribute("shape", tensor.shape), Attribute("dtype", tensor.datatype)}}});
  }
  return events;
}

// Adds a span for each pair of custom activities <X>_START and <X>_END.
void AppendCustomSpans(const TracedInference& inference, const Span& around, uint64_t offset_ns,
                       std::deque<std::string>& spans) {
  constexpr std::string_view kStart = "_START";
  for (const TraceEvent& begin : inference.events) {
    if (!begin.name.ends_with(kStart)) continue;
    const std::string name = begin.name.substr(0, begin.name.size() - kStart.size());
    const bool is_ours = name == "REQUEST" || name == "QUEUE" || name.starts_with("COMPUTE") ||
                         name.starts_with("HTTP_") || name.starts_with("GRPC_");
    const TraceEvent* const end = is_ours ? nullptr : Find(inference, name + "_END");
    if (end == nullptr || end->steady_ns < begin.steady_ns) continue;
    spans.push_back(Dump(ToJson({around.trace_id, NewSpanId(), around.span_id, name,
                                 kSpanKindInternal, begin.steady_ns, end->steady_ns},
                                offset_ns)));
  }
}

// Adds the span of one inference and those of its compute phase and custom activities. Returns its
// span id, the parent of the spans of inferences that the model requested.
std::string AppendInference(const TracedInference& inference, const std::string& trace_id,
                            const std::string& parent_id, uint64_t offset_ns,
                            std::deque<std::string>& spans) {
  const TraceEvent* const begin = Find(inference, "REQUEST_START");
  const TraceEvent* const end = Find(inference, "REQUEST_END");
  const Span model{trace_id,
                   NewSpanId(),
                   parent_id,
                   inference.model,
                   kSpanKindInternal,
                   (begin ? *begin : inference.events.front()).steady_ns,
                   (end ? *end : inference.events.back()).steady_ns};
  Json json = ToJson(model, offset_ns);
  json["attributes"] = {
      Attribute("triton.model_name", inference.model),
      Attribute("triton.model_version", inference.version),
      Attribute("triton.trace_id", static_cast<int64_t>(inference.id)),
      Attribute("triton.trace_parent_id", static_cast<int64_t>(inference.parent_id)),
      Attribute("triton.request_id", inference.request_id)};
  json["events"] = Events(inference, offset_ns);
  spans.push_back(Dump(json));
  const TraceEvent* const compute_begin = Find(inference, "COMPUTE_START");
  const TraceEvent* const compute_end = Find(inference, "COMPUTE_END");
  if (compute_begin != nullptr && compute_end != nullptr) {
    spans.push_back(Dump(ToJson({trace_id, NewSpanId(), model.span_id, "compute", kSpanKindInternal,
                                 compute_begin->steady_ns, compute_end->steady_ns},
                                offset_ns)));
  }
  AppendCustomSpans(inference, model, offset_ns, spans);
  return model.span_id;
}

std::deque<std::string> ToSpans(TraceRecord& record) {
  std::deque<std::string> spans;
  std::vector<TracedInference> inferences = record.Take();
  std::erase_if(inferences, [](const auto& inference) { return inference.events.empty(); });
  if (inferences.empty()) return spans;
  const uint64_t offset_ns = SteadyToUnixNs();
  const std::vector<TraceEvent>& events = inferences.front().events;
  spans.push_back(
      Dump(ToJson({record.trace_id, record.span_id, record.parent_span_id, "InferRequest",
                   kSpanKindServer, events.front().steady_ns, events.back().steady_ns},
                  offset_ns)));
  std::map<uint64_t, std::string> span_of;
  for (const TracedInference& inference : inferences) {
    const auto parent = span_of.find(inference.parent_id);
    span_of[inference.id] = AppendInference(
        inference, record.trace_id, parent == span_of.end() ? record.span_id : parent->second,
        offset_ns, spans);
  }
  return spans;
}

std::string ResourceJson(const OtlpOptions& options) {
  Json attributes = Json::array();
  for (const auto& [key, value] : options.resource) attributes.push_back(Attribute(key, value));
  return Dump(Json{{"attributes", attributes}});
}

}  // namespace

Status CheckCollectorUrl(const std::string& url) {
  const size_t colons = url.find("://");
  const std::string scheme = colons == std::string::npos ? "http" : url.substr(0, colons);
  const std::string rest = colons == std::string::npos ? url : url.substr(colons + 3);
  const std::string authority = rest.substr(0, rest.find('/'));
  const size_t bracket = authority.find(']');  // of an IPv6 address
  const size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  const std::string port = colon == std::string::npos ? "80" : authority.substr(colon + 1);
  const bool has_space = std::any_of(
      url.begin(), url.end(), [](unsigned char letter) { return letter <= ' ' || letter == 0x7f; });
  const bool has_port = !port.empty() && port.find_first_not_of("0123456789") == std::string::npos;
  if ((scheme == "http" || scheme == "https") && !has_space && has_port && !authority.empty() &&
      colon != 0) {
    return {};
  }
  return InvalidArgError("expected a URL of the form [http[s]://]host[:port][/path], got '", url,
                         "'");
}

Result<std::unique_ptr<OtlpExporter>> OtlpExporter::Create(const OtlpOptions& options) {
  NEREID_RETURN_IF_ERROR(CheckCollectorUrl(options.url));
  if (!options.roots_path.empty()) {
    NEREID_RETURN_IF_ERROR(ReadFileBeginning(options.roots_path, 1).status());
  }
  NEREID_ASSIGN_OR_RETURN(net::HttpClient client, net::HttpClient::Create());
  return std::unique_ptr<OtlpExporter>(new OtlpExporter(options, std::move(client)));
}

OtlpExporter::OtlpExporter(const OtlpOptions& options, net::HttpClient client)
    : options_(options), resource_json_(ResourceJson(options)), client_(std::move(client)) {
  thread_ = StartThread([this] { Run(); });
}

OtlpExporter::~OtlpExporter() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void OtlpExporter::Write(TraceRecord& record, const TraceFileRule&) {
  std::deque<std::string> spans = ToSpans(record);
  const std::lock_guard lock(mutex_);
  if (spans_.size() + spans.size() > options_.max_queue_size) {
    num_dropped_ += spans.size();
    return;
  }
  for (std::string& span : spans) spans_.push_back(std::move(span));
  if (spans_.size() >= options_.max_export_batch_size) changed_.notify_one();
}

void OtlpExporter::Run() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_ || !spans_.empty()) {
    if (!is_stopping_) {
      changed_.wait_for(lock, std::chrono::milliseconds(options_.schedule_delay_ms), [this] {
        return is_stopping_ || spans_.size() >= options_.max_export_batch_size;
      });
    }
    if (num_dropped_ != 0) {
      LogWarning(StrCat("OpenTelemetry: the queue of ", options_.max_queue_size,
                        " spans was full, dropped ", num_dropped_));
      num_dropped_ = 0;
    }
    if (spans_.empty()) continue;
    std::deque<std::string> batch;
    while (!spans_.empty() && batch.size() < options_.max_export_batch_size) {
      batch.push_back(std::move(spans_.front()));
      spans_.pop_front();
    }
    lock.unlock();
    const bool is_sent = Send(batch);
    lock.lock();
    // The shutdown does not wait for an unreachable collector.
    if (is_stopping_ && !is_sent) spans_.clear();
  }
}

bool OtlpExporter::Send(const std::deque<std::string>& spans) {
  std::string body = "{\"resourceSpans\":[{\"resource\":" + resource_json_ +
                     ",\"scopeSpans\":[{\"scope\":{\"name\":\"nereid\"},\"spans\":[";
  for (size_t i = 0; i < spans.size(); ++i) {
    if (i != 0) body += ',';
    body += spans[i];
  }
  body += "]}]}]}";
  net::HttpRequest request;
  request.method = "POST";
  request.url = options_.url;
  // Without the second header, long bodies would wait for an interim answer first.
  request.headers = {"Content-Type: application/json", "Expect:"};
  request.body = std::move(body);
  request.stall_timeout_s = kStallTimeoutS;
  request.timeout_s = kPostTimeoutS;
  request.roots_path = options_.roots_path;
  const Result<net::HttpHead> head = client_.Send(request);
  if (head.ok() && head->status / 100 == 2) return true;
  LogError(StrCat(
      "OpenTelemetry: lost ", spans.size(), " spans: ", options_.url, ": ",
      head.ok() ? StrCat("expected status 2xx, got ", head->status) : head.status().message()));
  return false;
}

}  // namespace nereid
