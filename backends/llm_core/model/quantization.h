// How a checkpoint's linear layers are quantised, as its config.json says. [load thread]
#pragma once

#include <cstdint>

#include "llm_core/model/config_reader.h"
#include "nereid/status.h"

namespace nereid::llm {

// The layouts of tensors beside each other, told apart by who writes them.
enum class QuantMethod : uint8_t {
  kNone,
  kAwq,     // qweight [in, out / 8], qzeros [groups, out / 8], scales [groups, out]
  kGptq,    // qweight [in / 8, out], qzeros [groups, out / 8], scales [groups, out], g_idx [in]
  kPacked,  // weight_packed [out, in / 8], weight_scale [out, groups], weight_zero_point or none
  kTrtAwq,  // weight [out / 2, in], weights_scaling_factor [out, groups], prequant_scaling_factor
  kFp8,     // weight [out, in] in F8_E4M3, weight_scale [] or [out, 1]
};

struct QuantSpec {
  QuantMethod method = QuantMethod::kNone;
  int32_t group_size = 0;   // int4: columns that share a scale, 0: a whole row
  bool has_zeros = false;   // int4: else the zero is 8
  int32_t zero_offset = 0;  // added to a stored zero
};

// Of `quantization_config` (or an older key's) and TensorRT-LLM's `quantization`. What we do not
// know is refused by its name and value.
Result<QuantSpec> ReadQuantization(const ConfigReader& config);

}  // namespace nereid::llm
