// How a checkpoint's linear layers are quantized according to its config.json. [load thread]
#pragma once

#include <cstdint>

#include "backends/llm_core/model/config_reader.h"
#include "nereid/status.h"

namespace nereid::llm {

// Layouts of quantized weights, by the tool that writes them.
enum class QuantMethod : uint8_t {
  kNone,
  // n: values in a 32-bit word, 32 / bits.
  kAwq,        // qweight [in, out / n], qzeros [groups, out / n], scales [groups, out]
  kGptq,       // qweight [in / n, out], qzeros [groups, out / n], scales [groups, out], g_idx [in]
  kPacked,     // weight_packed [out, in / n], weight_scale [out, groups], weight_zero_point or none
  kInt8,       // weight [out, in] in I8, weight_scale [out, 1], weight_zero_point [out, 1] or none
  kTrtAwq,     // weight [out / 2, in], weights_scaling_factor [out, groups],
               // prequant_scaling_factor
  kFp8,        // weight [out, in] in F8_E4M3, weight_scale [] or [out, 1]
  kFp8Blocks,  // weight likewise, weight_scale_inv or weight_scale [out / 128, in / 128]
};

// Rows and columns of a weight that share a scale with kFp8Blocks.
inline constexpr int32_t kFp8Block = 128;

struct QuantSpec {
  QuantMethod method = QuantMethod::kNone;
  int32_t num_bits = 0;     // of integer weights, 4 or 8; 0: not integer
  int32_t group_size = 0;   // of integer weights: columns that share a scale; 0: a whole row
  bool has_zeros = false;   // of integer weights; without them the zero is 8 or 128
  int32_t zero_offset = 0;  // added to a stored zero
  // fp8: inputs of matrix products are meant to be quantized to fp8 as well. An executor may do so
  // if it is faster.
  bool quantizes_input = false;
};

// Reads `quantization_config` (or its older names) or TensorRT-LLM's `quantization`. Unknown
// methods and values are rejected by name.
Result<QuantSpec> ReadQuantization(const ConfigReader& config);

}  // namespace nereid::llm
