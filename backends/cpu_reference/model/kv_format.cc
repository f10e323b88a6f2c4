// int8: symmetric. fp8: E4M3 without infinities, round to nearest even.
#include "backends/cpu_reference/model/kv_format.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace nereid::cpu {
namespace {

constexpr float kMaxInt8 = 127.0f;
constexpr float kMaxFp8 = 448.0f;
constexpr int kMantissaBits = 3;
constexpr int kMinExponent = -6;  // of normal numbers

float DecodeFp8(uint8_t code) {
  const int exponent = (code >> kMantissaBits) & 15;
  const int mantissa = code & 7;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), kMinExponent - 3)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 7 - 3);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

const std::array<float, 256>& Fp8Table() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values;
    for (int code = 0; code < 256; ++code) values[code] = DecodeFp8(static_cast<uint8_t>(code));
    return values;
  }();
  return table;
}

uint8_t EncodeFp8(float value) {
  const float magnitude = std::min(std::fabs(value), kMaxFp8);
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (magnitude == 0.0f) return sign;
  const int exponent = std::max(std::ilogb(magnitude), kMinExponent);
  // In units of the last place. A result of 16 carries into the next exponent correctly.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  const int code = units < 8 ? units : ((exponent + 7) << kMantissaBits) + (units - 8);
  return static_cast<uint8_t>(sign | code);
}

}  // namespace

Result<KvFormat> ParseKvFormat(std::string_view text) {
  if (text == "auto" || text == "float") return KvFormat::kFloat;
  if (text == "int8") return KvFormat::kInt8;
  if (text == "fp8") return KvFormat::kFp8;
  return InvalidArgError("parameter 'kv_cache_dtype' is '", text,
                         "', expected auto, float, int8 or fp8");
}

void EncodeKv(KvFormat format, const float* values, int32_t count, uint8_t* codes, float& scale) {
  float greatest = 0.0f;
  for (int32_t i = 0; i < count; ++i) greatest = std::max(greatest, std::fabs(values[i]));
  const bool is_int8 = format == KvFormat::kInt8;
  scale = greatest / (is_int8 ? kMaxInt8 : kMaxFp8);
  const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  for (int32_t i = 0; i < count; ++i) {
    const float ratio = values[i] * inverse;
    const float value = ratio == ratio ? ratio : 0.0f;  // NaN is stored as 0
    if (is_int8) {
      const float whole = std::clamp(std::nearbyint(value), -kMaxInt8, kMaxInt8);
      codes[i] = static_cast<uint8_t>(static_cast<int8_t>(whole));
    } else {
      codes[i] = EncodeFp8(value);
    }
  }
}

void DecodeKv(KvFormat format, const uint8_t* codes, float scale, int32_t count, float* values,
              int64_t stride) {
  const std::array<float, 256>& table = Fp8Table();
  for (int32_t i = 0; i < count; ++i) {
    const float value = format == KvFormat::kInt8
                            ? static_cast<float>(static_cast<int8_t>(codes[i]))
                            : table[codes[i]];
    values[i * stride] = value * scale;
  }
}

}  // namespace nereid::cpu
