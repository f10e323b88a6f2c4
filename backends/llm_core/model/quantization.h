// How a checkpoint's linear layers are quantised, as its config.json says. [load thread]
#pragma once

#include <cstdint>

#include "backends/llm_core/model/config_reader.h"
#include "nereid/status.h"

namespace nereid::llm {

// The layouts of tensors beside each other, told apart by who writes them.
enum class QuantMethod : uint8_t {
  kNone,
  // n: values a word of 32 bits, 32 / bits.
  kAwq,        // qweight [in, out / n], qzeros [groups, out / n], scales [groups, out]
  kGptq,       // qweight [in / n, out], qzeros [groups, out / n], scales [groups, out], g_idx [in]
  kPacked,     // weight_packed [out, in / n], weight_scale [out, groups], weight_zero_point or none
  kInt8,       // weight [out, in] in I8, weight_scale [out, 1], weight_zero_point [out, 1] or none
  kTrtAwq,     // weight [out / 2, in], weights_scaling_factor [out, groups],
               // prequant_scaling_factor
  kFp8,        // weight [out, in] in F8_E4M3, weight_scale [] or [out, 1]
  kFp8Blocks,  // weight likewise, weight_scale_inv or weight_scale [out / 128, in / 128]
};

struct QuantSpec {
  QuantMethod method = QuantMethod::kNone;
  int32_t num_bits = 0;     // of integers, 4 or 8; 0: no integers
  int32_t group_size = 0;   // of integers: columns that share a scale, 0: a whole row
  bool has_zeros = false;   // of integers: else the zero is the middle, 8 or 128
  int32_t zero_offset = 0;  // added to a stored zero
  // Of fp8: inputs of products are meant to be rounded to fp8 too. An executor may, where it pays.
  bool quantizes_input = false;
};

// Of `quantization_config` (or an older key's) and TensorRT-LLM's `quantization`. What we do not
// know is refused by its name and value.
Result<QuantSpec> ReadQuantization(const ConfigReader& config);

}  // namespace nereid::llm
