// From a parsed message to a request that the core takes. Called by unary and stream inference on
// the thread that read the message.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "infer_message.h"
#include "nereid/infer_request.h"
#include "nereid/status.h"
#include "tensor_contents.h"

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

// Fills `request`, made for the message's model, from `message` and `headers`. Inputs reference
// `message` and `storage`: both outlive the request's release. INVALID_ARG names the tensor or
// parameter at fault; UNSUPPORTED for tensors in shared memory.
Status FillRequest(const InferMessage& message, const ForwardedHeaders& headers,
                   InputStorage& storage, ResponseWishes& wishes, InferRequest& request);

}  // namespace nereid
