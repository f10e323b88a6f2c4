/// \file
/// Metrics of a backend on the host's metrics page. Several models may create a family of the same
/// name; each Metric is one set of labels. Destroy metrics before their family. [any thread]
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nereid/error.h"
#include "nereid/handles.h"
#include "triton/core/tritonserver.h"

namespace nereid {

class Metric {
 public:
  /// Adds to a counter, which takes no negative values, or to a gauge. An error for a histogram.
  Status Increment(double value = 1) {
    return ToStatus(TRITONSERVER_MetricIncrement(handle_.get(), value));
  }
  /// Sets a gauge. An error for the other kinds.
  Status Set(double value) { return ToStatus(TRITONSERVER_MetricSet(handle_.get(), value)); }
  /// Adds an observation to a histogram. An error for the other kinds.
  Status Observe(double value) {
    return ToStatus(TRITONSERVER_MetricObserve(handle_.get(), value));
  }
  Result<double> Value() const {
    double value = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_MetricValue(handle_.get(), &value)));
    return value;
  }

 private:
  friend class MetricFamily;
  explicit Metric(TRITONSERVER_Metric* handle) : handle_(handle) {}

  Handle<TRITONSERVER_Metric, &TRITONSERVER_MetricDelete> handle_;
};

class MetricFamily {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  static Result<MetricFamily> Create(TRITONSERVER_MetricKind kind, const char* name,
                                     const char* description) {
    TRITONSERVER_MetricFamily* family = nullptr;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_MetricFamilyNew(&family, kind, name, description)));
    return MetricFamily(family);
  }

  Result<Metric> New(const Labels& labels) const { return NewWith(labels, nullptr); }
  /// `buckets` are ascending upper bounds.
  Result<Metric> NewHistogram(const Labels& labels, std::span<const double> buckets) const {
    TRITONSERVER_MetricArgs* made = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_MetricArgsNew(&made)));
    const Handle<TRITONSERVER_MetricArgs, &TRITONSERVER_MetricArgsDelete> args(made);
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_MetricArgsSetHistogram(made, buckets.data(), buckets.size())));
    return NewWith(labels, made);
  }

 private:
  explicit MetricFamily(TRITONSERVER_MetricFamily* handle) : handle_(handle) {}

  Result<Metric> NewWith(const Labels& labels, const TRITONSERVER_MetricArgs* args) const {
    std::vector<Parameter> parameters;
    std::vector<const TRITONSERVER_Parameter*> handles;
    for (const auto& [key, value] : labels) {
      handles.push_back(parameters.emplace_back(Parameter::String(key, value)).get());
    }
    TRITONSERVER_Metric* metric = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(
        args == nullptr
            ? TRITONSERVER_MetricNew(&metric, handle_.get(), handles.data(), handles.size())
            : TRITONSERVER_MetricNewWithArgs(&metric, handle_.get(), handles.data(), handles.size(),
                                             args)));
    return Metric(metric);
  }

  Handle<TRITONSERVER_MetricFamily, &TRITONSERVER_MetricFamilyDelete> handle_;
};

}  // namespace nereid
