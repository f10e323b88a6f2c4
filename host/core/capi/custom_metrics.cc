// TRITONSERVER_MetricFamily, Metric and MetricArgs: metrics of backends and embedders. [any thread]
#include "host/core/observe/custom_metrics.h"

#include "host/core/capi/handles.h"
#include "host/core/handle/handle_cast.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::CustomMetric;
using nereid::core::CustomMetricArgs;
using nereid::core::CustomMetricFamily;
using nereid::core::FromHandle;
using nereid::core::ToHandle;

namespace {

nereid::Result<nereid::core::MetricLabels> ReadLabels(const TRITONSERVER_Parameter** labels,
                                                      uint64_t label_count) {
  nereid::core::MetricLabels result;
  for (uint64_t i = 0; i < label_count; ++i) {
    if (labels[i] == nullptr) return nereid::InvalidArgError("metric label ", i, " is null");
    const nereid::core::Parameter& label = *FromHandle(labels[i]);
    const auto* text = std::get_if<std::string>(&label.value());
    if (text == nullptr) {
      return nereid::InvalidArgError("metric label '", label.name(), "': expected STRING, got ",
                                     TRITONSERVER_ParameterTypeString(label.type()));
    }
    result[label.name()] = *text;
  }
  return result;
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONSERVER_MetricFamilyNew(TRITONSERVER_MetricFamily** family,
                                                 const TRITONSERVER_MetricKind kind,
                                                 const char* name, const char* description) {
  NEREID_RETURN_IF_NULL(family);
  NEREID_RETURN_IF_NULL(name);
  NEREID_RETURN_IF_NULL(description);
  if (const uint32_t raw = nereid::core::RawEnumValue(kind);
      raw > TRITONSERVER_METRIC_KIND_HISTOGRAM) {
    return nereid::core::ToError(nereid::InvalidArgError(
        "metric family '", name, "': unknown kind ", static_cast<int32_t>(raw)));
  }
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(auto created, CustomMetricFamily::New(kind, name, description));
    *family = ToHandle(created.release());
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily* family) {
  NEREID_RETURN_IF_NULL(family);
  return AtCBoundary([&]() -> Status {
    CustomMetricFamily* object = FromHandle(family);
    if (const size_t left = object->num_metrics(); left > 0) {
      return nereid::InternalError("metric family '", object->shared().name,
                                   "' still has metrics: ", left,
                                   ". Must call MetricDelete on each first");
    }
    delete object;
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_GetMetricFamilyKind(TRITONSERVER_MetricFamily* family,
                                                     TRITONSERVER_MetricKind* kind) {
  NEREID_RETURN_IF_NULL(family);
  NEREID_RETURN_IF_NULL(kind);
  *kind = FromHandle(family)->kind();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricArgsNew(TRITONSERVER_MetricArgs** args) {
  NEREID_RETURN_IF_NULL(args);
  return AtCBoundary([&] {
    *args = ToHandle(new CustomMetricArgs);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_MetricArgsSetHistogram(TRITONSERVER_MetricArgs* args,
                                                        const double* buckets,
                                                        const uint64_t buckets_count) {
  NEREID_RETURN_IF_NULL(args);
  if (buckets_count > 0) NEREID_RETURN_IF_NULL(buckets);
  return AtCBoundary([&] {
    FromHandle(args)->buckets.emplace(buckets, buckets + buckets_count);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_MetricArgsDelete(TRITONSERVER_MetricArgs* args) {
  delete FromHandle(args);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricNew(TRITONSERVER_Metric** metric,
                                           TRITONSERVER_MetricFamily* family,
                                           const TRITONSERVER_Parameter** labels,
                                           const uint64_t label_count) {
  return TRITONSERVER_MetricNewWithArgs(metric, family, labels, label_count, nullptr);
}

TRITONSERVER_Error* TRITONSERVER_MetricNewWithArgs(TRITONSERVER_Metric** metric,
                                                   TRITONSERVER_MetricFamily* family,
                                                   const TRITONSERVER_Parameter** labels,
                                                   const uint64_t label_count,
                                                   const TRITONSERVER_MetricArgs* args) {
  NEREID_RETURN_IF_NULL(metric);
  NEREID_RETURN_IF_NULL(family);
  if (label_count > 0) NEREID_RETURN_IF_NULL(labels);
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const auto label_map, ReadLabels(labels, label_count));
    NEREID_ASSIGN_OR_RETURN(auto created,
                            CustomMetric::New(FromHandle(family), label_map, FromHandle(args)));
    *metric = ToHandle(created.release());
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_MetricDelete(TRITONSERVER_Metric* metric) {
  NEREID_RETURN_IF_NULL(metric);
  delete FromHandle(metric);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricValue(TRITONSERVER_Metric* metric, double* value) {
  NEREID_RETURN_IF_NULL(metric);
  NEREID_RETURN_IF_NULL(value);
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(*value, FromHandle(metric)->Value());
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_MetricIncrement(TRITONSERVER_Metric* metric, double value) {
  NEREID_RETURN_IF_NULL(metric);
  return AtCBoundary([&] { return FromHandle(metric)->Increment(value); });
}

TRITONSERVER_Error* TRITONSERVER_MetricSet(TRITONSERVER_Metric* metric, double value) {
  NEREID_RETURN_IF_NULL(metric);
  return AtCBoundary([&] { return FromHandle(metric)->Set(value); });
}

TRITONSERVER_Error* TRITONSERVER_MetricObserve(TRITONSERVER_Metric* metric, double value) {
  NEREID_RETURN_IF_NULL(metric);
  return AtCBoundary([&] { return FromHandle(metric)->Observe(value); });
}

TRITONSERVER_Error* TRITONSERVER_GetMetricKind(TRITONSERVER_Metric* metric,
                                               TRITONSERVER_MetricKind* kind) {
  NEREID_RETURN_IF_NULL(metric);
  NEREID_RETURN_IF_NULL(kind);
  *kind = FromHandle(metric)->kind();
  return nullptr;
}

}  // extern "C"
