// Statistics that backends report. They are recorded in the instance and in the request.
#include "tests/support/fake_core/handles.h"

using namespace nereid::fake;

namespace {

struct StatisticsHandle : LiveHandleCounter {
  Request* request = nullptr;
  bool has_output = false;
  TRITONSERVER_Error* error = nullptr;
};

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, const bool success,
    const uint64_t exec_start_ns, const uint64_t compute_start_ns, const uint64_t compute_end_ns,
    const uint64_t exec_end_ns) {
  Record(As<Request>(request), success ? "statistics ok" : "statistics failed");
  const std::lock_guard lock(record_mutex);
  As<Instance>(instance)->request_times_ns.push_back(
      {exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns});
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance* instance, const uint64_t batch_size, const uint64_t exec_start_ns,
    const uint64_t compute_start_ns, const uint64_t compute_end_ns, const uint64_t exec_end_ns) {
  const std::lock_guard lock(record_mutex);
  As<Instance>(instance)->batch_sizes.push_back(batch_size);
  As<Instance>(instance)->batch_times_ns.push_back(
      {exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns});
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    TRITONBACKEND_ModelInstanceResponseStatistics** response_statistics) {
  *response_statistics = As<TRITONBACKEND_ModelInstanceResponseStatistics>(new StatisticsHandle);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics) {
  delete As<StatisticsHandle>(response_statistics);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    TRITONBACKEND_ModelInstanceResponseStatistics*, TRITONBACKEND_ModelInstance*) {
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    TRITONBACKEND_ResponseFactory* response_factory) {
  As<StatisticsHandle>(response_statistics)->request = As<FactoryHandle>(response_factory)->request;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
    TRITONBACKEND_ModelInstanceResponseStatistics*, uint64_t) {
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics, uint64_t) {
  As<StatisticsHandle>(response_statistics)->has_output = true;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
    TRITONBACKEND_ModelInstanceResponseStatistics*, uint64_t) {
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics, TRITONSERVER_Error* error) {
  As<StatisticsHandle>(response_statistics)->error = error;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportResponseStatistics(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics) {
  const auto& statistics = *As<StatisticsHandle>(response_statistics);
  const char* outcome = statistics.has_output ? "ok" : "empty";
  if (statistics.error != nullptr) {
    outcome = TRITONSERVER_ErrorCode(statistics.error) == TRITONSERVER_ERROR_CANCELLED ? "cancelled"
                                                                                       : "failed";
  }
  const std::lock_guard lock(record_mutex);
  statistics.request->response_statistics.emplace_back(outcome);
  return nullptr;
}

}  // extern "C"
