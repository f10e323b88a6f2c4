// Statistics that a backend reports: per request, per execution and per response. [any thread]
#include "base/clock.h"
#include "host/core/backend/instance.h"
#include "host/core/capi/handles.h"
#include "host/core/observe/trace.h"
#include "host/core/request/infer_request.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::FailureReason;
using nereid::core::FromHandle;
using nereid::core::InferRequest;
using nereid::core::Instance;
using nereid::core::RequestTimes;
using nereid::core::ResponseSink;
using nereid::core::ResponseTimes;

namespace {

// The object behind a TRITONBACKEND_ModelInstanceResponseStatistics pointer: filled by setters,
// then reported. The backend keeps the objects alive that it points to.
struct ResponseReport {
  Instance* instance = nullptr;
  ResponseSink* sink = nullptr;
  uint64_t response_start_ns = 0;
  uint64_t compute_output_start_ns = 0;
  uint64_t response_end_ns = 0;
  TRITONSERVER_Error* error = nullptr;
};

Status CheckComplete(const ResponseReport& report) {
  const char* missing = nullptr;
  if (report.instance == nullptr) missing = "model instance";
  if (report.sink == nullptr) missing = "response factory";
  if (report.response_start_ns == 0) missing = "response start";
  if (report.response_end_ns == 0) missing = "response end";
  if (missing == nullptr) return Status::Ok();
  return nereid::InvalidArgError("response statistics: the ", missing, " was not set");
}

ResponseTimes::Outcome OutcomeOf(const ResponseReport& report) {
  if (report.error != nullptr) {
    const bool cancelled = TRITONSERVER_ErrorCode(report.error) == TRITONSERVER_ERROR_CANCELLED;
    return cancelled ? ResponseTimes::Outcome::kCancel : ResponseTimes::Outcome::kFail;
  }
  return report.compute_output_start_ns == 0 ? ResponseTimes::Outcome::kEmpty
                                             : ResponseTimes::Outcome::kSuccess;
}

// A failure of a backend counts for the model of the ensemble step, not again for the ensemble. A
// request that was wrong is not the backend's failure.
FailureReason ReasonOf(const InferRequest& failed) {
  if (failed.IsCancelled()) return FailureReason::kCanceled;
  const bool is_elsewhere = failed.schema().is_ensemble || failed.sink()->has_client_error();
  return is_elsewhere ? FailureReason::kOther : FailureReason::kBackend;
}

}  // namespace

NEREID_HANDLE(TRITONBACKEND_ModelInstanceResponseStatistics, ResponseReport);

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, const bool success,
    const uint64_t exec_start_ns, const uint64_t compute_start_ns, const uint64_t compute_end_ns,
    const uint64_t exec_end_ns) {
  NEREID_RETURN_IF_NULL(instance);
  NEREID_RETURN_IF_DELETED(request);
  const InferRequest& object = *FromHandle(request);
  if (object.excluded_from_statistics()) return nullptr;
  nereid::core::StatisticsShard& statistics = FromHandle(instance)->statistics();
  const uint64_t now_ns = nereid::SteadyNowNs();
  // A request that failed without an execution has no execution times.
  if (nereid::core::InferenceTrace* trace = object.trace();
      trace != nullptr && exec_start_ns != 0) {
    trace->Report(TRITONSERVER_TRACE_COMPUTE_START, exec_start_ns);
    trace->Report(TRITONSERVER_TRACE_COMPUTE_INPUT_END, compute_start_ns);
    trace->Report(TRITONSERVER_TRACE_COMPUTE_OUTPUT_START, compute_end_ns);
    trace->Report(TRITONSERVER_TRACE_COMPUTE_END, exec_end_ns);
  }
  if (success) {
    statistics.RecordSuccess({object.request_start_ns, object.queue_start_ns, exec_start_ns,
                              compute_start_ns, compute_end_ns, exec_end_ns, now_ns},
                             static_cast<uint64_t>(object.batch_size()));
  } else {
    const FailureReason reason = ReasonOf(object);
    statistics.RecordFailure(reason, now_ns - object.request_start_ns);
    if (reason == FailureReason::kBackend) object.sink()->MarkFailed();
  }
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance* instance, const uint64_t batch_size, const uint64_t exec_start_ns,
    const uint64_t compute_start_ns, const uint64_t compute_end_ns, const uint64_t exec_end_ns) {
  NEREID_RETURN_IF_NULL(instance);
  RequestTimes times;
  times.exec_start_ns = exec_start_ns;
  times.compute_start_ns = compute_start_ns;
  times.compute_end_ns = compute_end_ns;
  times.exec_end_ns = exec_end_ns;
  return AtCBoundary([&] {
    FromHandle(instance)->statistics().RecordExecution(batch_size, times);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    TRITONBACKEND_ModelInstanceResponseStatistics** response_statistics) {
  NEREID_RETURN_IF_NULL(response_statistics);
  return AtCBoundary([&] {
    *response_statistics = nereid::core::ToHandle(new ResponseReport);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics) {
  delete FromHandle(response_statistics);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    TRITONBACKEND_ModelInstance* model_instance) {
  NEREID_RETURN_IF_NULL(response_statistics);
  FromHandle(response_statistics)->instance = FromHandle(model_instance);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    TRITONBACKEND_ResponseFactory* response_factory) {
  NEREID_RETURN_IF_NULL(response_statistics);
  FromHandle(response_statistics)->sink = FromHandle(response_factory);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics, uint64_t response_start) {
  NEREID_RETURN_IF_NULL(response_statistics);
  FromHandle(response_statistics)->response_start_ns = response_start;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    uint64_t compute_output_start) {
  NEREID_RETURN_IF_NULL(response_statistics);
  FromHandle(response_statistics)->compute_output_start_ns = compute_output_start;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics, uint64_t response_end) {
  NEREID_RETURN_IF_NULL(response_statistics);
  FromHandle(response_statistics)->response_end_ns = response_end;
  return nullptr;
}

// The caller keeps `error`, which must live until the report.
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics, TRITONSERVER_Error* error) {
  NEREID_RETURN_IF_NULL(response_statistics);
  FromHandle(response_statistics)->error = error;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportResponseStatistics(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics) {
  NEREID_RETURN_IF_NULL(response_statistics);
  return AtCBoundary([&]() -> Status {
    const ResponseReport& report = *FromHandle(response_statistics);
    NEREID_RETURN_IF_ERROR(CheckComplete(report));
    report.instance->statistics().RecordResponse(
        {report.sink->NextStatisticsIndex(), report.response_start_ns,
         report.compute_output_start_ns, report.response_end_ns, OutcomeOf(report)});
    return Status::Ok();
  });
}

}  // extern "C"
