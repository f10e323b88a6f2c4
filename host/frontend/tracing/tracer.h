// Decides which requests are traced and gathers what happens to them. One for every frontend.
// [any thread]
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "host/frontend/tracing/otlp_exporter.h"
#include "host/frontend/tracing/trace_record.h"
#include "host/frontend/tracing/trace_settings.h"
#include "host/frontend/tracing/trace_sink.h"
#include "nereid/status.h"

namespace nereid {

struct TraceOptions {
  TraceMode mode = TraceMode::kTriton;
  std::string file;  // of mode kTriton
  TraceValues values;
  OtlpOptions otlp;
};

// A traced request, as its frontend holds it; empty when it is not traced. The trace is written
// once the frontend and the core have let go of it.
using TracedRequest = std::shared_ptr<TraceRecord>;

class Tracer {
 public:
  static Result<std::unique_ptr<Tracer>> Create(const TraceOptions& options);

  // `trace_parent`: the W3C header of that name, or empty; read in mode kOpenTelemetry alone.
  TracedRequest Sample(const std::string& model, std::string_view trace_parent) {
    return settings_.is_on() ? SampleSlowly(model, trace_parent) : nullptr;
  }

  bool is_on() const { return settings_.is_on(); }

  Status Apply(const std::string& model, const TraceChange& change);
  // The settings that hold for the model, or for the server, as the protocol names them. The level
  // has several values.
  // In the order of Triton's answers, which clients compare as texts.
  std::vector<std::pair<std::string, std::vector<std::string>>> Describe(
      const std::string& model) const;

 private:
  Tracer(const TraceOptions& options, std::shared_ptr<TraceSink> sink)
      : options_(options), settings_(options.values), sink_(std::move(sink)) {}
  TracedRequest SampleSlowly(const std::string& model, std::string_view trace_parent);

  const TraceOptions options_;
  TraceSettings settings_;
  const std::shared_ptr<TraceSink> sink_;
};

// The core's trace for `request`'s inference: hand it to Server::InferAsync. Null for an empty
// request.
TRITONSERVER_InferenceTrace* MakeCoreTrace(const TracedRequest& request);

// Notes an event of the frontend, now; nothing for an empty request.
void NoteTrace(const TracedRequest& request, std::string_view event);

}  // namespace nereid
