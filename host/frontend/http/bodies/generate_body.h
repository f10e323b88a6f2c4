// The body of generate and generate_stream: one flat JSON object whose members become input tensors
// where they name an input, and parameters where they do not. Pure. [any thread]
#pragma once

#include <string_view>
#include <vector>

#include "host/frontend/http/bodies/infer_body.h"
#include "host/frontend/http/bodies/model_signature.h"
#include "nereid/status.h"

namespace nereid::http {

struct GenerateBody {
  RequestOptions options;
  InputTensors inputs;
};

Status ParseGenerateBody(std::string_view json, const ModelSignature& model, size_t max_depth,
                         GenerateBody& body);

}  // namespace nereid::http
