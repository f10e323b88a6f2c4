// Sends traces as OpenTelemetry spans to a collector, in batches: OTLP over HTTP with JSON
// encoding. [any thread; a thread of its own sends]
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

#include "host/frontend/tracing/trace_record.h"
#include "nereid/status.h"
#include "net/http_client.h"

namespace nereid {

struct OtlpOptions {
  std::string url = "http://localhost:4318/v1/traces";
  std::string roots_path;  // PEM root certificates for the collector; empty: the system's
  std::map<std::string, std::string> resource{{"service.name", "triton-inference-server"}};
  size_t max_queue_size = 2048;  // spans; further ones are dropped, and the log reports how many
  int64_t schedule_delay_ms = 5000;
  size_t max_export_batch_size = 512;
  // The settings above as the user gave them, for responses to trace-setting requests. A setting
  // that was given several times has several values.
  std::map<std::string, std::vector<std::string>> reported_settings;
};

// INVALID_ARG unless the text has the form "[http[s]://]host[:port][/path]"; without a scheme it is
// http.
Status CheckCollectorUrl(const std::string& url);

class OtlpExporter final : public TraceSink {
 public:
  // UNAVAILABLE if libcurl is not installed; an error of the file with the roots names it.
  static Result<std::unique_ptr<OtlpExporter>> Create(const OtlpOptions& options);
  // Sends the queued spans, then ends.
  ~OtlpExporter() override;

  void Write(TraceRecord& record, const TraceFileRule& rule) override;

 private:
  OtlpExporter(const OtlpOptions& options, net::HttpClient client);
  void Run();
  bool Send(const std::deque<std::string>& spans);

  const OtlpOptions options_;
  const std::string resource_json_;
  net::HttpClient client_;  // [the thread that sends]
  std::mutex mutex_;        // guards all below
  std::condition_variable changed_;
  std::deque<std::string> spans_;  // JSON
  size_t num_dropped_ = 0;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace nereid
