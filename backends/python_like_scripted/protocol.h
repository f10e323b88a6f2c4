// The kinds of messages, each the first element of its tuple. The worker's side of this list is
// worker/nereid_worker/protocol.py.
#pragma once

#include <cstdint>

namespace nereid::scripted {

// Asked by the host, each answered by (0, value...) or (1, error text). An answer that nobody asked
// for comes first: (0, description of the interpreter), when it is ready.
enum class Question : int32_t {
  kLoad = 1,        // (kind, path of model.py, version or "", folder of the version)
  kComplete = 2,    // (kind, configuration) -> the completed one, or None
  kInitialize = 3,  // (kind, arguments as a tuple of pairs, instance name, is_decoupled)
  // (kind, requests, how many answers before it may not have been read yet; or None: every one was,
  // and its own will be before the next question)
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
};

// Posted by the host.
enum class HostMessage : int32_t {
  kReply = 20,    // (kind, call, is_ok, value or (code, text))
  kStream = 21,   // (kind, call, response or None, is_final)
  kIsReady = 22,  // (kind, query)
};

// What a call asks for.
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
};

}  // namespace nereid::scripted
