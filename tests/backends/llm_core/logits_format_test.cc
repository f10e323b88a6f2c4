// Conversion of logits to 16 bits, compared with the values that the bits represent.
#include "backends/llm_core/adapter/logits_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace nereid::llm {
namespace {

uint16_t As(DataType datatype, float value) {
  std::byte bytes[2];
  ConvertLogits(std::span(&value, 1), datatype, bytes);
  uint16_t half;
  std::memcpy(&half, bytes, 2);
  return half;
}

// The value of the 16 bits by the definition of IEEE 754 binary16.
float ValueOfFp16(uint16_t half) {
  const int exponent = (half >> 10) & 31, fraction = half & 1023;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                   : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return half & 0x8000 ? -size : size;
}

TEST(LogitsFormat, EveryFp16ValueConvertsToItself) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    if (((half >> 10) & 31) == 31) continue;  // infinities, NaNs
    const auto bits = static_cast<uint16_t>(half);
    ASSERT_EQ(As(DataType::kFp16, ValueOfFp16(bits)), half);
    ASSERT_EQ(ToFloat(Fp16{bits}), ValueOfFp16(bits));
    ASSERT_EQ(As(DataType::kFp16, ToFloat(Fp16{bits})), half);  // with the sign of a zero
  }
}

TEST(LogitsFormat, HalvesOutOfRangeKeepTheirMeaning) {
  EXPECT_EQ(ToFloat(Fp16{0x7c00}), std::numeric_limits<float>::infinity());
  EXPECT_EQ(ToFloat(Fp16{0xfc00}), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(ToFloat(Fp16{0x7c01})));
  EXPECT_TRUE(std::isnan(ToFloat(Bf16{0x7f81})));
  EXPECT_EQ(ToFloat(Bf16{0x3f80}), 1.0f);
  EXPECT_EQ(ToFloat(Bf16{0xff80}), -std::numeric_limits<float>::infinity());
}

TEST(LogitsFormat, RoundsToTheNearestAndTiesToEven) {
  for (uint16_t half = 0; half < 0x7bff; ++half) {
    const float low = ValueOfFp16(half), high = ValueOfFp16(half + 1), middle = (low + high) / 2;
    ASSERT_EQ(As(DataType::kFp16, middle), half % 2 == 0 ? half : half + 1);
    ASSERT_EQ(As(DataType::kFp16, std::nextafter(middle, low)), half);
    ASSERT_EQ(As(DataType::kFp16, -std::nextafter(middle, high)), 0x8000 | (half + 1));
  }
}

TEST(LogitsFormat, ValuesOutOfRangeBecomeInfinityAndNaNStaysNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(As(DataType::kFp16, 65519.0f), 0x7bff);
  EXPECT_EQ(As(DataType::kFp16, 65520.0f), 0x7c00);
  EXPECT_EQ(As(DataType::kFp16, -infinity), 0xfc00);
  EXPECT_EQ(As(DataType::kBf16, infinity), 0x7f80);
  EXPECT_EQ(As(DataType::kBf16, std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(As(DataType::kFp16, std::nanf("")) & 0x7e00, 0x7e00);
  EXPECT_EQ(As(DataType::kBf16, std::nanf("")) & 0x7fc0, 0x7fc0);
}

TEST(LogitsFormat, BrainFloatsRoundToEven) {
  EXPECT_EQ(As(DataType::kBf16, 1.0f), 0x3f80);
  EXPECT_EQ(As(DataType::kBf16, 1.0f + 1.0f / 256), 0x3f80);  // half way, even below
  EXPECT_EQ(As(DataType::kBf16, 1.0f + 3.0f / 256), 0x3f82);  // half way, even above
  EXPECT_EQ(As(DataType::kBf16, 1.0f + 1.0f / 256 + 1e-6f), 0x3f81);
  EXPECT_EQ(As(DataType::kBf16, -2.5f), 0xc020);
}

}  // namespace
}  // namespace nereid::llm
