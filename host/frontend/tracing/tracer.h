// Decides which requests are traced and collects their events. Shared by all frontends. [any
// thread]
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "host/frontend/tracing/otlp_exporter.h"
#include "host/frontend/tracing/trace_record.h"
#include "host/frontend/tracing/trace_settings.h"
#include "nereid/status.h"

namespace nereid {

struct TraceOptions {
  TraceMode mode = TraceMode::kTriton;
  std::string file;  // only in mode kTriton
  TraceValues values;
  OtlpOptions otlp;
};

// A traced request as held by its frontend; null if it is not traced. The trace is written once the
// frontend and the core have both released it.
using TracedRequest = std::shared_ptr<TraceRecord>;

class Tracer {
 public:
  static Result<std::unique_ptr<Tracer>> Create(const TraceOptions& options);

  // `trace_parent` is the W3C traceparent header or empty; it is used only in mode kOpenTelemetry.
  TracedRequest Sample(const std::string& model, std::string_view trace_parent) {
    return settings_.is_on() ? SampleEnabled(model, trace_parent) : nullptr;
  }

  bool is_on() const { return settings_.is_on(); }

  Status Apply(const std::string& model, const TraceChange& change);
  // Returns the settings in effect for the model, or for the server if `model` is empty, with their
  // names in the protocol. The order is that of Triton's responses, which clients compare as text.
  std::vector<std::pair<std::string, std::vector<std::string>>> Describe(
      const std::string& model) const;

 private:
  Tracer(const TraceOptions& options, std::shared_ptr<TraceSink> sink)
      : options_(options), settings_(options.values), sink_(std::move(sink)) {}
  TracedRequest SampleEnabled(const std::string& model, std::string_view trace_parent);

  const TraceOptions options_;
  TraceSettings settings_;
  const std::shared_ptr<TraceSink> sink_;
};

// Creates the core's trace object for `request`'s inference, for Server::InferAsync. Null if
// `request` is null.
TRITONSERVER_InferenceTrace* MakeCoreTrace(const TracedRequest& request);

// Records a frontend event with the current time. Does nothing if `request` is null.
void RecordTraceEvent(const TracedRequest& request, std::string_view event);

}  // namespace nereid
