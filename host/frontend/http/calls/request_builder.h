// From what a body asks for to a request of the C API. [any thread]
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "host/frontend/http/bodies/infer_body.h"
#include "nereid/server.h"

namespace nereid::http {

// The model that a path names; -1 leaves the version to the model's policy.
struct ModelName {
  std::string name;
  int64_t version = -1;
};

// The request references the inputs' bytes.
Result<InferRequest> BuildRequest(const Server& server, const ModelName& model,
                                  const RequestOptions& options,
                                  std::span<const InputTensor> inputs,
                                  std::span<const OutputRequest> outputs);

// A request whose only input is `bytes`, with the type and shape of the model's configuration.
Result<InferRequest> BuildRawRequest(const Server& server, const ModelName& model,
                                     std::string_view bytes);

}  // namespace nereid::http
