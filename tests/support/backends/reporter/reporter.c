// A decoupled backend that reports statistics with fixed times, so that tests know them to the
// nanosecond. Each element of INPUT0 is one report: for a response 1 success, 2 empty, 3 failure or
// 4 cancellation; for the request 5 success or 6 failure. Plain C on the raw API.
#include "triton/core/tritonbackend.h"
#include "triton/core/tritonserver.h"

// Returns the error of `call`, if any.
#define RETURN_IF_ERROR(call)                   \
  do {                                          \
    struct TRITONSERVER_Error* error_ = (call); \
    if (error_ != NULL) return error_;          \
  } while (0)

enum { kSuccess = 1, kEmpty, kFailure, kCancellation, kRequestSuccess, kRequestFailure };

// The response takes 1000 ns * (`index` + 1), and its output the last 100 ns of that.
static struct TRITONSERVER_Error* Report(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONBACKEND_ResponseFactory* factory,
    struct TRITONBACKEND_ModelInstanceResponseStatistics* statistics, int kind, uint64_t index) {
  const uint64_t start = 1000000, end = start + 1000 * (index + 1);
  struct TRITONSERVER_Error* error = NULL;
  RETURN_IF_ERROR(
      TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(statistics, instance));
  RETURN_IF_ERROR(
      TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(statistics, factory));
  RETURN_IF_ERROR(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(statistics, start));
  if (kind != kEmpty) {
    RETURN_IF_ERROR(
        TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(statistics, end - 100));
  }
  RETURN_IF_ERROR(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(statistics, end));
  if (kind == kFailure) error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "as told");
  if (kind == kCancellation) {
    error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_CANCELLED, "as told");
  }
  struct TRITONSERVER_Error* outcome = NULL;
  if (error != NULL) {
    outcome = TRITONBACKEND_ModelInstanceResponseStatisticsSetError(statistics, error);
  }
  if (outcome == NULL) outcome = TRITONBACKEND_ModelInstanceReportResponseStatistics(statistics);
  if (error != NULL) TRITONSERVER_ErrorDelete(error);
  return outcome;
}

static struct TRITONSERVER_Error* ReportAll(struct TRITONBACKEND_ModelInstance* instance,
                                            struct TRITONBACKEND_Request* request,
                                            struct TRITONBACKEND_ResponseFactory* factory) {
  struct TRITONBACKEND_Input* input = NULL;
  const void* data = NULL;
  uint64_t size_bytes = 0, num_responses = 0;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  RETURN_IF_ERROR(TRITONBACKEND_RequestInputByIndex(request, 0, &input));
  RETURN_IF_ERROR(TRITONBACKEND_InputBuffer(input, 0, &data, &size_bytes, &type, &id));
  for (uint64_t i = 0; i < size_bytes / sizeof(int32_t); ++i) {
    const int kind = ((const int32_t*)data)[i];
    if (kind == kRequestSuccess || kind == kRequestFailure) {
      RETURN_IF_ERROR(TRITONBACKEND_ModelInstanceReportStatistics(
          instance, request, kind == kRequestSuccess, 1000, 1010, 1030, 1060));
      RETURN_IF_ERROR(
          TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, 1, 1000, 1010, 1030, 1060));
      continue;
    }
    struct TRITONBACKEND_ModelInstanceResponseStatistics* statistics = NULL;
    RETURN_IF_ERROR(TRITONBACKEND_ModelInstanceResponseStatisticsNew(&statistics));
    struct TRITONSERVER_Error* error = Report(instance, factory, statistics, kind, num_responses++);
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceResponseStatisticsDelete(statistics));
    RETURN_IF_ERROR(error);
  }
  return NULL;
}

// Ends the stream. An error is sent as the only response.
static void Finish(struct TRITONBACKEND_ResponseFactory* factory,
                   struct TRITONSERVER_Error* error) {
  if (error == NULL) {
    TRITONSERVER_ErrorDelete(
        TRITONBACKEND_ResponseFactorySendFlags(factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
    return;
  }
  struct TRITONBACKEND_Response* response = NULL;
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseNewFromFactory(&response, factory));
  TRITONSERVER_ErrorDelete(
      TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  TRITONSERVER_ErrorDelete(error);
}

TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONBACKEND_Request** requests,
    const uint32_t request_count) {
  for (uint32_t i = 0; i < request_count; ++i) {
    struct TRITONBACKEND_ResponseFactory* factory = NULL;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseFactoryNew(&factory, requests[i]));
    Finish(factory, ReportAll(instance, requests[i], factory));
    TRITONSERVER_ErrorDelete(
        TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseFactoryDelete(factory));
  }
  return NULL;
}
