// Which requests may share an answer. [client thread]
#pragma once

#include <optional>
#include <string>

#include "host/core/request/infer_request.h"

namespace nereid {

// A name for the model, its version, every input's name, type, shape and bytes and the outputs that
// were asked for. None when an input does not lie in host memory. The order in which inputs were
// added does not matter; id, parameters, priority and timeout do not count.
std::optional<std::string> CacheKey(const InferRequest& request);

}  // namespace nereid
