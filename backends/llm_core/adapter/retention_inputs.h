// Reads what a request says of its blocks in the prefix cache: how long they stay, from its tensors
// or its parameters of the same names, and who may share them. [instance thread]
#pragma once

#include <cstdint>
#include <memory>

#include "backends/llm_core/adapter/batch_inputs.h"
#include "backends/llm_core/engine/kv_retention.h"
#include "nereid/backend.h"

namespace nereid::llm {

// Null if the request has none. INVALID_ARG names the tensor or parameter and both values.
Result<std::shared_ptr<const KvRetention>> ReadRetention(const Request& request,
                                                         BatchInputs& inputs, int64_t row);
// Sets `salt` to 64 bits of a cryptographic hash of the text `cache_salt`, if there is one. So no
// client can make a text that shares the cached prefixes of other requests, and the number is the
// same after a restart.
Status ReadCacheSalt(BatchInputs& inputs, int64_t row, uint64_t& salt);

}  // namespace nereid::llm
