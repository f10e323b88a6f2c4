// Builds a core request from a parsed ModelInferRequest. Called by unary and stream inference on
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

// Headers of a call that become string parameters of its requests: (name, value).
using ForwardedHeaders = std::vector<std::pair<std::string, std::string>>;

// Request options that concern the form of the responses and are not passed to the model.
struct ResponseOptions {
  struct Classification {
    std::string output;
    uint64_t max_classes;
  };
  std::vector<Classification> classifications;
  bool enable_empty_final = false;
};

// Data that must live as long as the request: its message, converted tensors, shared-memory ranges.
struct RequestResources {
  InferMessage message;
  InputStorage storage;
  ResponseOptions response_options;
  std::vector<MappedRange> shared_inputs;
  OutputPlan outputs;
  bool is_decoupled = false;
  bool is_batched = false;  // set only if an output is to be classified

  // Called with the final response: from then on clients may unregister the regions.
  void ReleaseSharedRegions();
  // Called before a response is sent: an error if shared memory that was accessed had been
  // truncated.
  Status CheckSharedRegions() const;
};

// Fills `request`, which was created for the message's model, from `resources.message` and
// `headers`. Inputs reference `resources`, which must outlive the request's release. INVALID_ARG
// names the invalid tensor or parameter.
Status FillRequest(const SharedMemoryManager& shared_memory, const ForwardedHeaders& headers,
                   RequestResources& resources, InferRequest& request);

}  // namespace nereid
