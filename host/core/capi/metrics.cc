// TRITONSERVER_Metrics: the metrics page of a server. [any thread]
#include "host/core/observe/metrics.h"

#include <string>

#include "host/core/capi/handles.h"
#include "host/core/model/core_services.h"
#include "host/core/server.h"

using nereid::FromHandle;
using nereid::Status;

namespace {

// What a TRITONSERVER_Metrics* points to: the server's metrics and the text last handed out.
struct MetricsReader {
  nereid::Metrics* metrics;
  std::string page;
};

}  // namespace

NEREID_HANDLE(TRITONSERVER_Metrics, MetricsReader);

extern "C" {

TRITONSERVER_Error* TRITONSERVER_ServerMetrics(TRITONSERVER_Server* server,
                                               TRITONSERVER_Metrics** metrics) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(metrics);
  return nereid::AtCEdge([&]() -> Status {
    nereid::Metrics& of_server = FromHandle(server)->services().metrics;
    if (!of_server.options().enabled) {
      return nereid::UnavailableError("metrics are disabled for this server");
    }
    *metrics = nereid::ToHandle(new MetricsReader{&of_server, ""});
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_MetricsDelete(TRITONSERVER_Metrics* metrics) {
  delete FromHandle(metrics);
  return nullptr;
}

// The text lives until the next call with the same handle.
TRITONSERVER_Error* TRITONSERVER_MetricsFormatted(TRITONSERVER_Metrics* metrics,
                                                  TRITONSERVER_MetricFormat format,
                                                  const char** base, size_t* byte_size) {
  NEREID_RETURN_IF_NULL(metrics);
  NEREID_RETURN_IF_NULL(base);
  NEREID_RETURN_IF_NULL(byte_size);
  return nereid::AtCEdge([&]() -> Status {
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
