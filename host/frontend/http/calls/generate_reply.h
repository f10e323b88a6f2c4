// A model's response as the flat JSON object of generate: outputs, parameters and the model's name
// side by side, keys sorted; a tensor of one element is a scalar. [loop thread]
#pragma once

#include <string>

#include "nereid/infer_response.h"
#include "nereid/status.h"

namespace nereid::http {

// Appends to `json`. Fails with the response's own error, and with what JSON cannot hold; then
// `json` is as it was.
Status AppendGenerateReply(std::string& json, const InferResponse& response);

}  // namespace nereid::http
