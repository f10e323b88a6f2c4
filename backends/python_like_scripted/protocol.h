// The kinds of messages; the kind is the first element of each tuple.
// worker/nereid_worker/protocol.py has the same list.
#pragma once

#include <cstdint>

namespace nereid::python {

// Commands of the host. The worker answers each with (0, value...) or (1, error text). Before the
// first command it sends (0, description of the interpreter) when it is ready.
enum class WorkerCommand : int32_t {
  kLoad = 1,        // (kind, path of model.py, version or "", folder of the version)
  kComplete = 2,    // (kind, configuration) -> the completed one, or None
  kInitialize = 3,  // (kind, arguments as a tuple of pairs, instance name, is_decoupled)
  // (kind, requests, number of earlier answers that the host may not have read yet, or None if it
  // has read all and will read this one before the next command)
  kExecute = 4,
  kFinalize = 5,  // (kind,)
};

// Posted by the worker.
enum class WorkerMessage : int32_t {
  kRespond = 11,    // (kind, request, response or None, flags)
  kLog = 12,        // (kind, level, text, file, line)
  kCall = 13,       // (kind, call, operation, arguments)
  kCancel = 14,     // (kind, call)
  kReadiness = 15,  // (kind, query, is_ready, text)
  kConsumed = 16,   // (kind, call, number of responses that the model has read since the last one)
};

// Posted by the host.
enum class HostMessage : int32_t {
  kReply = 20,    // (kind, call, is_ok, value or (code, text))
  kStream = 21,   // (kind, call, response or None, is_final)
  kIsReady = 22,  // (kind, query)
};

// The operation of a kCall.
enum class Operation : int32_t {
  kInfer = 1,
  kIsCancelled = 2,
  kTraceContext = 3,
  kLoadModel = 4,
  kUnloadModel = 5,
  kIsModelReady = 6,
  kNewMetricFamily = 7,
  kNewMetric = 8,
  kIncrementMetric = 9,
  kSetMetric = 10,
  kObserveMetric = 11,
  kMetricValue = 12,
  kDeleteMetric = 13,
  kDeleteMetricFamily = 14,
  kAwaitRoom = 15,  // answered when the reader of the request's responses can take another one
};

}  // namespace nereid::python
