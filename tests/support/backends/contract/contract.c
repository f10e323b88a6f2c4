// Calls the host in ways that the contract forbids and reports the host's reaction. Each request is
// answered with REPORT, one text per tried rule: "ok: <rule>" if the host reacted as the contract
// requires, otherwise the expected and the actual result. Results of calls after the final response
// appear in the next request's report. Plain C on the raw API. Requests are released twice and
// responses are sent twice, whatever their client does in the meantime.
#include <stdio.h>
#include <string.h>

#include "triton/core/tritonbackend.h"
#include "triton/core/tritonserver.h"

#define MAX_LINES 64
#define MAX_LINE_BYTES 256
#define ANY_ERROR (-1)
#define SUCCESS (-2)
#define UNSET ((TRITONSERVER_MemoryType)32593)  // an arbitrary value, as in uninitialized memory

struct Report {
  char lines[MAX_LINES][MAX_LINE_BYTES];
  int num_lines;
};

// Results after the last final response. One instance runs on one thread.
static struct Report after_final_response;

static void Expect(struct Report* report, const char* rule, int expected,
                   struct TRITONSERVER_Error* error) {
  if (report->num_lines == MAX_LINES) return;
  char* line = report->lines[report->num_lines++];
  const int got = error == NULL ? SUCCESS : (int)TRITONSERVER_ErrorCode(error);
  if (got == expected || (expected == ANY_ERROR && got != SUCCESS)) {
    snprintf(line, MAX_LINE_BYTES, "ok: %s", rule);
  } else {
    snprintf(line, MAX_LINE_BYTES, "%s: expected %d, got %d: %s", rule, expected, got,
             error == NULL ? "success" : TRITONSERVER_ErrorMessage(error));
  }
  TRITONSERVER_ErrorDelete(error);
}

static void TryRequest(struct Report* report, struct TRITONBACKEND_Request* request) {
  struct TRITONBACKEND_Input* input = NULL;
  const char* name = NULL;
  const void* data = NULL;
  uint64_t size_bytes = 0;
  uint32_t count = 0;
  int64_t id = 0;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  TRITONSERVER_ParameterType kind;
  const int invalid = TRITONSERVER_ERROR_INVALID_ARG;
  Expect(report, "count of no request", invalid, TRITONBACKEND_RequestInputCount(NULL, &count));
  Expect(report, "count into nothing", invalid, TRITONBACKEND_RequestInputCount(request, NULL));
  Expect(report, "an input it does not have", invalid,
         TRITONBACKEND_RequestInput(request, "NO_SUCH_INPUT", &input));
  Expect(report, "an input beyond the last", invalid,
         TRITONBACKEND_RequestInputByIndex(request, 99, &input));
  Expect(report, "the name of one beyond the last", invalid,
         TRITONBACKEND_RequestInputName(request, 99, &name));
  Expect(report, "the first input", SUCCESS, TRITONBACKEND_RequestInputByIndex(request, 0, &input));
  Expect(report, "a buffer beyond the last", invalid,
         TRITONBACKEND_InputBuffer(input, 99, &data, &size_bytes, &type, &id));
  type = UNSET;
  Expect(report, "a buffer wherever it is", SUCCESS,
         TRITONBACKEND_InputBuffer(input, 0, &data, &size_bytes, &type, &id));
  Expect(report, "a type of memory that was left unset", SUCCESS,
         type == TRITONSERVER_MEMORY_CPU
             ? NULL
             : TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "it is not the CPU's"));
  Expect(report, "an output beyond the last", invalid,
         TRITONBACKEND_RequestOutputName(request, 99, &name));
  Expect(report, "a parameter beyond the last", invalid,
         TRITONBACKEND_RequestParameter(request, 99, &name, &kind, &data));
  Expect(report, "a numeric correlation id as text", invalid,
         TRITONBACKEND_RequestCorrelationIdString(request, &name));
  Expect(report, "a release without flags", invalid, TRITONBACKEND_RequestRelease(request, 0));
  Expect(report, "a release with too many flags", invalid,
         TRITONBACKEND_RequestRelease(request, 3));
  Expect(report, "a reschedule of a model that does not iterate", invalid,
         TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE));
}

static void TryResponse(struct Report* report, struct TRITONBACKEND_Request* request) {
  struct TRITONBACKEND_Response* response = NULL;
  struct TRITONBACKEND_Output* output = NULL;
  struct TRITONBACKEND_State* state = NULL;
  const int64_t shape[1] = {1};
  void* buffer = NULL;
  TRITONSERVER_MemoryType type = UNSET;
  int64_t id = 0;
  const int invalid = TRITONSERVER_ERROR_INVALID_ARG;
  Expect(report, "a state of a model without", invalid,
         TRITONBACKEND_StateNew(&state, request, "STATE", TRITONSERVER_TYPE_FP32, shape, 1));
  Expect(report, "a response", SUCCESS, TRITONBACKEND_ResponseNew(&response, request));
  Expect(report, "an output that the model does not have", invalid,
         TRITONBACKEND_ResponseOutput(response, &output, "NO_SUCH_OUTPUT", TRITONSERVER_TYPE_BYTES,
                                      shape, 1));
  Expect(
      report, "an output", SUCCESS,
      TRITONBACKEND_ResponseOutput(response, &output, "REPORT", TRITONSERVER_TYPE_BYTES, shape, 1));
  Expect(report, "its buffer", SUCCESS, TRITONBACKEND_OutputBuffer(output, &buffer, 8, &type, &id));
  Expect(report, "its buffer again", TRITONSERVER_ERROR_ALREADY_EXISTS,
         TRITONBACKEND_OutputBuffer(output, &buffer, 8, &type, &id));
  Expect(report, "a response that is never sent", SUCCESS, TRITONBACKEND_ResponseDelete(response));
  Expect(report, "a send of nothing", invalid,
         TRITONBACKEND_ResponseSend(NULL, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
  Expect(report, "another response", SUCCESS, TRITONBACKEND_ResponseNew(&response, request));
  Expect(report, "a send with unknown flags", invalid,
         TRITONBACKEND_ResponseSend(response, 4, NULL));
}

static void TryModel(struct Report* report, struct TRITONBACKEND_ModelInstance* instance) {
  struct TRITONBACKEND_Model* model = NULL;
  struct TRITONSERVER_Message* config = NULL;
  struct TRITONBACKEND_ModelInstanceResponseStatistics* statistics = NULL;
  struct TRITONSERVER_MetricFamily* family = NULL;
  struct TRITONSERVER_Metric* metric = NULL;
  const char* name = NULL;
  Expect(report, "the model", SUCCESS, TRITONBACKEND_ModelInstanceModel(instance, &model));
  Expect(report, "a configuration of another version", ANY_ERROR,
         TRITONBACKEND_ModelConfig(model, 2, &config));
  Expect(report, "its configuration", SUCCESS, TRITONBACKEND_ModelConfig(model, 1, &config));
  Expect(report, "a configuration that comes too late", ANY_ERROR,
         TRITONBACKEND_ModelSetConfig(model, 1, config));
  TRITONSERVER_ErrorDelete(TRITONSERVER_MessageDelete(config));
  Expect(report, "a profile beyond the last", ANY_ERROR,
         TRITONBACKEND_ModelInstanceProfileName(instance, 99, &name));
  Expect(report, "statistics of a response", SUCCESS,
         TRITONBACKEND_ModelInstanceResponseStatisticsNew(&statistics));
  Expect(report, "statistics that say nothing", TRITONSERVER_ERROR_INVALID_ARG,
         TRITONBACKEND_ModelInstanceReportResponseStatistics(statistics));
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceResponseStatisticsDelete(statistics));
  Expect(report, "a metric family", SUCCESS,
         TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_COUNTER, "contract_corners",
                                      "Tried."));
  Expect(report, "a metric", SUCCESS, TRITONSERVER_MetricNew(&metric, family, NULL, 0));
  Expect(report, "a counter that goes down", ANY_ERROR, TRITONSERVER_MetricIncrement(metric, -1));
  Expect(report, "a counter that is set", ANY_ERROR, TRITONSERVER_MetricSet(metric, 1));
  Expect(report, "a family whose metric lives", ANY_ERROR, TRITONSERVER_MetricFamilyDelete(family));
  Expect(report, "the metric's end", SUCCESS, TRITONSERVER_MetricDelete(metric));
  Expect(report, "the family's end", SUCCESS, TRITONSERVER_MetricFamilyDelete(family));
}

// Writes the lines as a BYTES tensor.
static struct TRITONSERVER_Error* WriteReport(const struct Report* report,
                                              struct TRITONBACKEND_Response* response) {
  struct TRITONBACKEND_Output* output = NULL;
  const int64_t shape[1] = {report->num_lines};
  void* buffer = NULL;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  uint64_t size_bytes = 0;
  for (int i = 0; i < report->num_lines; ++i) size_bytes += 4 + strlen(report->lines[i]);
  struct TRITONSERVER_Error* error =
      TRITONBACKEND_ResponseOutput(response, &output, "REPORT", TRITONSERVER_TYPE_BYTES, shape, 1);
  if (error == NULL) error = TRITONBACKEND_OutputBuffer(output, &buffer, size_bytes, &type, &id);
  if (error != NULL) return error;
  char* target = buffer;
  for (int i = 0; i < report->num_lines; ++i) {
    const uint32_t length = (uint32_t)strlen(report->lines[i]);
    memcpy(target, &length, sizeof(length));
    memcpy(target + sizeof(length), report->lines[i], length);
    target += sizeof(length) + length;
  }
  return NULL;
}

// Uses `response` after it was sent.
static void TrySentResponse(struct Report* report, struct TRITONBACKEND_Response* response) {
  const int invalid = TRITONSERVER_ERROR_INVALID_ARG;
  Expect(report, "a response that is sent again", invalid,
         TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
  Expect(report, "a response that is deleted after it was sent", invalid,
         TRITONBACKEND_ResponseDelete(response));
}

static void HandleRequest(struct TRITONBACKEND_ModelInstance* instance,
                          struct TRITONBACKEND_Request* request) {
  static struct Report report;
  struct TRITONBACKEND_ResponseFactory* factory = NULL;
  struct TRITONBACKEND_Response* response = NULL;
  struct TRITONBACKEND_Output* output = NULL;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  const int64_t shape[1] = {1};
  void* buffer = NULL;
  int64_t id = 0;
  bool cancelled = true;
  const int invalid = TRITONSERVER_ERROR_INVALID_ARG;
  report = after_final_response;
  after_final_response.num_lines = 0;
  TryRequest(&report, request);
  TryResponse(&report, request);
  TryModel(&report, instance);
  Expect(&report, "a factory", SUCCESS, TRITONBACKEND_ResponseFactoryNew(&factory, request));
  Expect(&report, "unknown flags of a factory", invalid,
         TRITONBACKEND_ResponseFactorySendFlags(factory, 6));
  Expect(&report, "the release", SUCCESS,
         TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
  Expect(&report, "the release again", invalid,
         TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
  Expect(&report, "a factory that outlives its request", SUCCESS,
         TRITONBACKEND_ResponseFactoryIsCancelled(factory, &cancelled));
  Expect(&report, "a response after the release", SUCCESS,
         TRITONBACKEND_ResponseNewFromFactory(&response, factory));
  struct TRITONSERVER_Error* error = WriteReport(&report, response);
  TRITONSERVER_ErrorDelete(
      TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  TRITONSERVER_ErrorDelete(error);
  TrySentResponse(&after_final_response, response);
  Expect(&after_final_response, "an end after the end", invalid,
         TRITONBACKEND_ResponseFactorySendFlags(factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
  Expect(&after_final_response, "a response after the end", SUCCESS,
         TRITONBACKEND_ResponseNewFromFactory(&response, factory));
  Expect(
      &after_final_response, "its output", SUCCESS,
      TRITONBACKEND_ResponseOutput(response, &output, "REPORT", TRITONSERVER_TYPE_BYTES, shape, 1));
  Expect(&after_final_response, "the buffer of its output", invalid,
         TRITONBACKEND_OutputBuffer(output, &buffer, 8, &type, &id));
  Expect(&after_final_response, "its send", invalid,
         TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseFactoryDelete(factory));
}

TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONBACKEND_Request** requests,
    const uint32_t request_count) {
  for (uint32_t i = 0; i < request_count; ++i) HandleRequest(instance, requests[i]);
  return NULL;
}
