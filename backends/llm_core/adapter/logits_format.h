// Conversion of logits to the configured data type (`logits_datatype`), and of the halves that
// clients send to float. [any thread]
#pragma once

#include <cstddef>
#include <span>

#include "nereid/data_type.h"

namespace nereid::llm {

// True for FP32, FP16 and BF16.
bool IsLogitsType(DataType datatype);

// Writes `logits` as `datatype`, rounded to nearest, ties to even. `target` must have room for as
// many elements.
void ConvertLogits(std::span<const float> logits, DataType datatype, std::span<std::byte> target);

// Exact.
float ToFloat(Fp16 value);
float ToFloat(Bf16 value);
inline float ToFloat(float value) {
  return value;
}

}  // namespace nereid::llm
