// Output memory of calls that a worker makes of other models. The called model writes directly into
// the caller's shared memory, or into the GPU memory that the caller prefers; short outputs are in
// host memory and travel in the message.
#pragma once

#include <cstdint>

#include "backends/python_like_scripted/marshal.h"
#include "backends/python_like_scripted/worker.h"
#include "nereid/infer_response.h"
#include "nereid/response_allocator.h"

namespace nereid::python {

// Where the outputs of one call go. The allocator's `request_userp` points to it.
struct CallOutputTarget {
  Worker& worker;       // the caller
  int64_t gpu_id = -1;  // preferred for outputs; -1: none
};

// One for the process, because called models may hold responses until it ends.
Result<const ResponseAllocator*> CallOutputAllocator();

// Appends the tuple of outputs, as the worker decodes it.
Status WriteOutputs(const InferResponse& response, Worker& worker, MarshalWriter& writer);
// Sets who releases the outputs' memory: the worker, which gets the message that names it, or the
// response.
void SetOwnedByWorker(const InferResponse& response, bool is_owned_by_worker);

}  // namespace nereid::python
