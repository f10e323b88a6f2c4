// A further opinion on which requests share a batch: a custom batching library. [under the
// batcher's mutex]
#pragma once

#include "host/core/request/infer_request.h"

namespace nereid {

class BatchStrategy {
 public:
  virtual ~BatchStrategy() = default;
  // A batch is tried; the result goes with it to the other two.
  virtual void* BeginBatch() = 0;
  // False closes the batch before `request`.
  virtual bool Include(const InferRequest& request, void* batch) = 0;
  virtual void EndBatch(void* batch) = 0;
};

}  // namespace nereid
