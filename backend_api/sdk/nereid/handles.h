/// \file
/// Move-only owners of C handles, plus the small wrapper classes Message, MetricsPage, Parameter
/// and ParameterView. InferRequest, InferResponse, Server and Metric have headers of their own.
/// [any thread; one object, one thread at a time]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "nereid/error.h"
#include "triton/core/tritonbackend.h"
#include "triton/core/tritonserver.h"

namespace nereid {

template <typename T, TRITONSERVER_Error* (*kDelete)(T*)>
struct HandleDeleter {
  /// The error of a failed delete is dropped: nobody could handle it.
  void operator()(T* handle) const { (void)ToStatus(kDelete(handle)); }
};
template <typename T, TRITONSERVER_Error* (*kDelete)(T*)>
using Handle = std::unique_ptr<T, HandleDeleter<T, kDelete>>;

struct ErrorDeleter {
  void operator()(TRITONSERVER_Error* error) const { TRITONSERVER_ErrorDelete(error); }
};
using ErrorHandle = std::unique_ptr<TRITONSERVER_Error, ErrorDeleter>;

using BufferAttributesHandle =
    Handle<TRITONSERVER_BufferAttributes, &TRITONSERVER_BufferAttributesDelete>;
using ResponseFactoryHandle =
    Handle<TRITONBACKEND_ResponseFactory, &TRITONBACKEND_ResponseFactoryDelete>;
/// A response that was not sent; release() takes it out for sending.
using ResponseHandle = Handle<TRITONBACKEND_Response, &TRITONBACKEND_ResponseDelete>;
using ResponseStatisticsHandle = Handle<TRITONBACKEND_ModelInstanceResponseStatistics,
                                        &TRITONBACKEND_ModelInstanceResponseStatisticsDelete>;

// ---- creating handles

inline Result<ResponseHandle> NewResponseHandle(TRITONBACKEND_Request* request) {
  TRITONBACKEND_Response* response = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseNew(&response, request)));
  return ResponseHandle(response);
}
inline Result<ResponseHandle> NewResponseHandle(TRITONBACKEND_ResponseFactory* factory) {
  TRITONBACKEND_Response* response = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseNewFromFactory(&response, factory)));
  return ResponseHandle(response);
}
/// The factory may outlive the request: it sends responses after the request's release.
inline Result<ResponseFactoryHandle> NewResponseFactoryHandle(TRITONBACKEND_Request* request) {
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseFactoryNew(&factory, request)));
  return ResponseFactoryHandle(factory);
}
inline Result<BufferAttributesHandle> NewBufferAttributesHandle() {
  TRITONSERVER_BufferAttributes* attributes = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_BufferAttributesNew(&attributes)));
  return BufferAttributesHandle(attributes);
}

// ---- JSON messages and the metrics page, which the server returns

/// A JSON document. The returned view is valid as long as the object.
class Message {
 public:
  /// Takes ownership.
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

/// A snapshot of all metrics. The returned view is valid as long as the object.
class MetricsPage {
 public:
  /// Takes ownership.
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

// ---- parameters of model loads, labels and responses

/// An owned parameter, for example `config` and `file:<version>/<name>` of a model load.
class Parameter {
 public:
  static Parameter String(const std::string& name, const std::string& value) {
    return Parameter(
        TRITONSERVER_ParameterNew(name.c_str(), TRITONSERVER_PARAMETER_STRING, value.c_str()));
  }
  static Parameter Int(const std::string& name, int64_t value) {
    return Parameter(TRITONSERVER_ParameterNew(name.c_str(), TRITONSERVER_PARAMETER_INT, &value));
  }
  static Parameter Bool(const std::string& name, bool value) {
    return Parameter(TRITONSERVER_ParameterNew(name.c_str(), TRITONSERVER_PARAMETER_BOOL, &value));
  }
  /// The bytes are referenced, not copied; they outlive the object.
  static Parameter Bytes(const std::string& name, std::string_view bytes) {
    return Parameter(TRITONSERVER_ParameterBytesNew(name.c_str(), bytes.data(), bytes.size()));
  }

  const TRITONSERVER_Parameter* get() const { return parameter_.get(); }

 private:
  explicit Parameter(TRITONSERVER_Parameter* parameter) : parameter_(parameter) {}

  struct Deleter {
    void operator()(TRITONSERVER_Parameter* parameter) const {
      TRITONSERVER_ParameterDelete(parameter);
    }
  };
  std::unique_ptr<TRITONSERVER_Parameter, Deleter> parameter_;
};

/// A parameter of a request or response; valid as long as that. Call only the accessor that matches
/// `type`.
struct ParameterView {
  const char* name;
  TRITONSERVER_ParameterType type;
  const void* value;

  std::string_view AsString() const { return static_cast<const char*>(value); }
  int64_t AsInt() const { return *static_cast<const int64_t*>(value); }
  bool AsBool() const { return *static_cast<const bool*>(value); }
  double AsDouble() const { return *static_cast<const double*>(value); }
};

}  // namespace nereid
