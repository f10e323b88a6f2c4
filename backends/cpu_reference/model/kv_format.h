// Storage of keys and values: float, or one byte per element with a scale for each token and head.
// The scale maps the greatest magnitude to the maximum of the format. [any thread]
#pragma once

#include <cstdint>
#include <string_view>

#include "nereid/status.h"

namespace nereid::cpu {

enum class KvFormat : uint8_t { kFloat, kInt8, kFp8 };

// Accepts "auto" (float), "float", "int8" and "fp8". INVALID_ARG lists them.
Result<KvFormat> ParseKvFormat(std::string_view text);

// codes[i] * scale ~ values[i]
void EncodeKv(KvFormat format, const float* values, int32_t count, uint8_t* codes, float& scale);
// values[i * stride] = codes[i] * scale
void DecodeKv(KvFormat format, const uint8_t* codes, float scale, int32_t count, float* values,
              int64_t stride);

}  // namespace nereid::cpu
