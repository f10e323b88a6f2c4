// Traces as OpenTelemetry spans, sent in batches to a collector: OTLP over HTTP, in its JSON form.
// [any thread; a thread of its own sends]
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "host/frontend/tracing/http_post.h"
#include "host/frontend/tracing/trace_sink.h"
#include "nereid/status.h"

namespace nereid {

struct OtlpOptions {
  std::string url = "http://localhost:4318/v1/traces";
  std::string roots_path;  // PEM: who signs the collector's certificate; empty: as the machine says
  std::map<std::string, std::string> resource{{"service.name", "triton-inference-server"}};
  size_t max_queue_size = 2048;  // spans; beyond it they are dropped, and counted in the log
  int64_t schedule_delay_ms = 5000;
  size_t max_export_batch_size = 512;
  // What the trace settings tell of all this, as it was given: several values where a setting was
  // given several times.
  std::map<std::string, std::vector<std::string>> shown;
};

class OtlpExporter final : public TraceSink {
 public:
  static Result<std::unique_ptr<OtlpExporter>> Create(const OtlpOptions& options);
  // Sends what is queued, then ends.
  ~OtlpExporter() override;

  void Write(TraceRecord& record, const TraceFileRule& rule) override;

 private:
  OtlpExporter(const OtlpOptions& options, HttpUrl url, std::unique_ptr<TlsClient> tls);
  void Run();
  bool Send(const std::deque<std::string>& spans);

  const OtlpOptions options_;
  const HttpUrl url_;
  const std::unique_ptr<TlsClient> tls_;  // null: plain
  const std::string resource_json_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::string> spans_;  // JSON
  size_t num_dropped_ = 0;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace nereid
