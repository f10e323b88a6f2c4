// What the server answers to questions about itself: JSON messages and the metrics page, owned by
// the C API until the object dies. [any thread; one object, one thread]
#pragma once

#include <memory>
#include <string_view>

#include "nereid/error.h"
#include "triton/core/tritonserver.h"

namespace nereid {
inline namespace sdk {  // the core has classes of the same names; both may meet in one program

// A JSON document. The view lives as long as the object.
class Message {
 public:
  // Takes ownership.
  explicit Message(TRITONSERVER_Message* message) : message_(message) {}

  TRITONSERVER_Message* get() const { return message_.get(); }
  Result<std::string_view> Json() const {
    const char* base = nullptr;
    size_t size_bytes = 0;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_MessageSerializeToJson(message_.get(), &base, &size_bytes)));
    return std::string_view(base, size_bytes);
  }

 private:
  struct Deleter {
    void operator()(TRITONSERVER_Message* message) const {
      (void)ToStatus(TRITONSERVER_MessageDelete(message));
    }
  };
  std::unique_ptr<TRITONSERVER_Message, Deleter> message_;
};

// One snapshot of all metrics. The view lives as long as the object.
class MetricsPage {
 public:
  // Takes ownership.
  explicit MetricsPage(TRITONSERVER_Metrics* metrics) : metrics_(metrics) {}

  Result<std::string_view> PrometheusText() const {
    const char* base = nullptr;
    size_t size_bytes = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_MetricsFormatted(
        metrics_.get(), TRITONSERVER_METRIC_PROMETHEUS, &base, &size_bytes)));
    return std::string_view(base, size_bytes);
  }

 private:
  struct Deleter {
    void operator()(TRITONSERVER_Metrics* metrics) const {
      (void)ToStatus(TRITONSERVER_MetricsDelete(metrics));
    }
  };
  std::unique_ptr<TRITONSERVER_Metrics, Deleter> metrics_;
};

}  // namespace sdk
}  // namespace nereid
