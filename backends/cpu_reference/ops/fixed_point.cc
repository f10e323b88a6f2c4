// Rounds rows of floats to fixed point.
#include "backends/cpu_reference/ops/fixed_point.h"

#include "backends/cpu_reference/ops/simd.h"

namespace nereid::cpu::NEREID_ISA {
namespace {

constexpr float kLargest = 8300000.0f;  // below 127 * 65536 + 127 * 256 + 127

// Converts `count` numbers. Their digits go to to[i], to[stride + i] and to[2 * stride + i].
void RoundSegment(const float* in, int64_t count, int8_t* to, int64_t stride, float* scale,
                  float* sum) {
  float largest = 0.0f, nothing = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    const float size = in[i] < 0.0f ? -in[i] : in[i];
    largest = size > largest ? size : largest;
  }
  for (int64_t i = 0; i < count; ++i) nothing += in[i] * 0.0f;  // NaN if a number is not finite
  if (!(largest > 1e-30f) || nothing != nothing) {              // all zero, or not representable
    for (int64_t digit = 0; digit < 3; ++digit) {
      for (int64_t i = 0; i < count; ++i) to[digit * stride + i] = 0;
    }
    *scale = nothing;
    *sum = 0.0f;
    return;
  }
  const float to_fixed = kLargest / largest;
  int32_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<int32_t>(__builtin_rintf(in[i] * to_fixed));
    const int32_t low = static_cast<int8_t>(value);
    const int32_t rest = (value - low) >> 8;
    const int32_t middle = static_cast<int8_t>(rest);
    to[2 * stride + i] = static_cast<int8_t>(low);
    to[stride + i] = static_cast<int8_t>(middle);
    to[i] = static_cast<int8_t>((rest - middle) >> 8);
    total += value;
  }
  *scale = largest / kLargest;
  *sum = static_cast<float>(total);
}

}  // namespace

void FixedPoint(const FixedPointParams& p) {
  const int64_t columns = p.layout.columns;
  const int64_t padded = (columns + 63) / 64 * 64;
  const int64_t segments = (columns + p.layout.segment - 1) / p.layout.segment;
  const int64_t row_bytes = (3 * padded + 8 * segments + 63) / 64 * 64;
  for (int64_t row = 0; row < p.num_rows; ++row) {
    const float* in = p.in + row * columns;
    auto* digits = reinterpret_cast<int8_t*>(p.out + row * row_bytes);
    auto* scales = reinterpret_cast<float*>(digits + 3 * padded);
    for (int64_t segment = 0; segment < segments; ++segment) {
      const int64_t first = segment * p.layout.segment;
      const int64_t left = columns - first;
      RoundSegment(in + first, left < p.layout.segment ? left : p.layout.segment, digits + first,
                   padded, scales + segment, scales + segments + segment);
    }
    for (int64_t digit = 0; digit < 3; ++digit) {
      for (int64_t c = columns; c < padded; ++c) digits[digit * padded + c] = 0;
    }
  }
}

}  // namespace nereid::cpu::NEREID_ISA
