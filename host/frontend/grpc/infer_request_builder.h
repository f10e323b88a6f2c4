// From a parsed message to a request that the core takes. Called by unary and stream inference on
// the thread that read the message.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "host/frontend/grpc/infer_message.h"
#include "host/frontend/grpc/output_memory.h"
#include "host/frontend/grpc/tensor_contents.h"
#include "nereid/infer_request.h"
#include "nereid/status.h"

namespace nereid {

// Headers of a call that become string parameters of its requests.
using ForwardedHeaders = std::vector<std::pair<std::string, std::string>>;

// What the client asked about the shape of responses rather than of the model.
struct ResponseWishes {
  struct Classification {
    std::string output;
    uint64_t max_classes;
  };
  std::vector<Classification> classifications;
  bool wants_empty_final = false;
};

// What must live as long as a request does: its message, the bytes made for it, the memory that it
// shares.
struct InferParts {
  InferMessage message;
  InputStorage storage;
  ResponseWishes wishes;
  std::vector<SharedBlock> shared_inputs;
  OutputPlan outputs;
  bool is_decoupled = false;
  bool is_batched = false;  // known only when outputs are to be classified

  // Once the model has answered: from here on clients may unregister the regions.
  void EndSharedUse();
  // Before a response is passed on: whether the memory was there so far.
  Status CheckShared() const;
};

// Fills `request`, made for the message's model, from `parts.message` and `headers`. Inputs
// reference `parts`, which outlives the request's release. INVALID_ARG names the tensor or
// parameter at fault.
Status FillRequest(const SharedMemory& shared_memory, const ForwardedHeaders& headers,
                   InferParts& parts, InferRequest& request);

}  // namespace nereid
