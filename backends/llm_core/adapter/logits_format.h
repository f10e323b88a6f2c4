// The types in which a configuration may ask for logits (`logits_datatype`). [any thread]
#pragma once

#include <cstddef>
#include <span>

#include "nereid/data_type.h"

namespace nereid::llm_adapter {

// FP32, FP16 or BF16.
bool IsLogitsType(DataType datatype);

// Writes `logits` as `datatype`, rounded to the nearest, ties to even. `target` holds as many.
void ConvertLogits(std::span<const float> logits, DataType datatype, std::span<std::byte> target);

}  // namespace nereid::llm_adapter
