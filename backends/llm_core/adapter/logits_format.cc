// Conversion between float and the halves, fp16 and bf16.
#include "backends/llm_core/adapter/logits_format.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace nereid::llm {
namespace {

// The upper half of the bits, rounded. A carry into the exponent gives the next power of two, or
// infinity, which is correct.
uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

uint16_t ToFp16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  if (std::isnan(value)) return sign | 0x7e00;
  const float size = std::fabs(value);
  if (size >= 65520.0f) return sign | 0x7c00;  // rounds to infinity
  if (size < 0x1p-14f) {                       // subnormal: in units of 2^-24
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(size * 0x1p24f)));
  }
  const uint32_t rounded = (bits & 0x7fffffff) + 0xfff + ((bits >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112 << 10)));
}

}  // namespace

bool IsLogitsType(DataType datatype) {
  return datatype == DataType::kFp32 || datatype == DataType::kFp16 || datatype == DataType::kBf16;
}

void ConvertLogits(std::span<const float> logits, DataType datatype, std::span<std::byte> target) {
  if (datatype == DataType::kFp32) {
    if (!logits.empty()) std::memcpy(target.data(), logits.data(), logits.size_bytes());
    return;
  }
  for (size_t i = 0; i < logits.size(); ++i) {
    const uint16_t half = datatype == DataType::kBf16 ? ToBf16(logits[i]) : ToFp16(logits[i]);
    std::memcpy(target.data() + 2 * i, &half, 2);
  }
}

float ToFloat(Fp16 value) {
  const uint32_t sign = uint32_t{value.bits} >> 15 << 31;
  const uint32_t exponent = value.bits >> 10 & 31, fraction = value.bits & 1023;
  if (exponent == 0) {  // subnormal: in units of 2^-24
    return std::copysign(static_cast<float>(fraction) * 0x1p-24f, std::bit_cast<float>(sign));
  }
  if (exponent < 31) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  if (fraction != 0) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(sign | 0x7f800000);
}

float ToFloat(Bf16 value) {
  return std::bit_cast<float>(uint32_t{value.bits} << 16);
}

}  // namespace nereid::llm
