// Narrows what the layers of a decoder see, below what its checkpoint says. [load thread]
#pragma once

#include <cstdint>
#include <string_view>

#include "backends/llm_core/model/decoder_spec.h"
#include "nereid/status.h"

namespace nereid::llm {

// `windows`: a list of numbers with commas, of tokens that a layer sees, repeated over the layers;
// a layer's own window stays where it is smaller. Empty: none. `num_sinks`: tokens at a sequence's
// beginning that stay in sight, as part of the window. INVALID_ARG names the parameter and values.
Status LimitAttention(std::string_view windows, int32_t num_sinks, DecoderSpec& spec);

}  // namespace nereid::llm
