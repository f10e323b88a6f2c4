// Where the outputs of a called model lie: the model writes them straight into the caller's shared
// memory, into memory of the GPU that the caller prefers, or here when they are short.
#pragma once

#include <cstdint>

#include "backends/python_like_scripted/marshal.h"
#include "backends/python_like_scripted/worker.h"
#include "nereid/infer_response.h"
#include "nereid/response_allocator.h"

namespace nereid::scripted {

// Of one call; what the allocator's `request_userp` points to.
struct CallTarget {
  Worker& worker;       // the caller's
  int64_t gpu_id = -1;  // which it prefers; -1: none
};

// One for the process; callees may hold responses until its end.
Result<const ResponseAllocator*> CallOutputAllocator();

// (outputs), as the worker reads them.
Status WriteOutputs(const InferResponse& response, Worker& worker, MarshalWriter& writer);
// Whether the worker, who hears of them, gives the outputs' memory back; else the response does.
void SetWorkers(const InferResponse& response, bool is_workers);

}  // namespace nereid::scripted
