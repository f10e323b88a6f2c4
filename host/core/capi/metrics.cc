// TRITONSERVER_Metrics: the metrics of a server as text. [any thread]
#include "host/core/observe/metrics.h"

#include <string>

#include "host/core/capi/handles.h"
#include "host/core/model/core_services.h"
#include "host/core/server.h"

using nereid::Status;
using nereid::core::FromHandle;

namespace {

// The object behind a TRITONSERVER_Metrics pointer: the server's metrics and the text that was last
// returned.
struct MetricsReader {
  nereid::core::Metrics* metrics;
  std::string page;
};

}  // namespace

NEREID_HANDLE(TRITONSERVER_Metrics, MetricsReader);

extern "C" {

TRITONSERVER_Error* TRITONSERVER_ServerMetrics(TRITONSERVER_Server* server,
                                               TRITONSERVER_Metrics** metrics) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(metrics);
  return nereid::core::AtCBoundary([&]() -> Status {
    nereid::core::Metrics& server_metrics = FromHandle(server)->services().metrics;
    if (!server_metrics.options().enabled) {
      return nereid::UnavailableError("metrics are disabled for this server");
    }
    *metrics = nereid::core::ToHandle(new MetricsReader{&server_metrics, ""});
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_MetricsDelete(TRITONSERVER_Metrics* metrics) {
  delete FromHandle(metrics);
  return nullptr;
}

// The text is valid until the next call with the same handle.
TRITONSERVER_Error* TRITONSERVER_MetricsFormatted(TRITONSERVER_Metrics* metrics,
                                                  TRITONSERVER_MetricFormat format,
                                                  const char** base, size_t* byte_size) {
  NEREID_RETURN_IF_NULL(metrics);
  NEREID_RETURN_IF_NULL(base);
  NEREID_RETURN_IF_NULL(byte_size);
  return nereid::core::AtCBoundary([&]() -> Status {
    if (format != TRITONSERVER_METRIC_PROMETHEUS) {
      return nereid::InvalidArgError("unknown metrics format '", static_cast<int>(format), "'");
    }
    MetricsReader* reader = FromHandle(metrics);
    reader->page = reader->metrics->Page();
    *base = reader->page.data();
    *byte_size = reader->page.size();
    return Status::Ok();
  });
}

}  // extern "C"
