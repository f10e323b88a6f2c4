// KV formats with one byte per element, and their effect on logits.
#include "backends/cpu_reference/model/kv_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "backends/cpu_reference/cpu_executor.h"
#include "tests/backends/cpu_reference/golden.h"

namespace nereid::cpu {
namespace {

// Decodes one code, with a scale of one.
float Decoded(KvFormat format, uint8_t code) {
  float value = 0.0f;
  DecodeKv(format, &code, 1.0f, 1, &value, 1);
  return value;
}

TEST(KvFormatTest, Fp8IsE4M3) {  // values of the OCP 8-bit floating point specification
  EXPECT_EQ(Decoded(KvFormat::kFp8, 0x7e), 448.0f);
  EXPECT_EQ(Decoded(KvFormat::kFp8, 0x08), std::ldexp(1.0f, -6));  // smallest normal
  EXPECT_EQ(Decoded(KvFormat::kFp8, 0x07), 0.875f * std::ldexp(1.0f, -6));
  EXPECT_EQ(Decoded(KvFormat::kFp8, 0x01), std::ldexp(1.0f, -9));
  EXPECT_EQ(Decoded(KvFormat::kFp8, 0x38), 1.0f);
  EXPECT_EQ(Decoded(KvFormat::kFp8, 0xb8), -1.0f);
  EXPECT_EQ(Decoded(KvFormat::kFp8, 0x00), 0.0f);
}

TEST(KvFormatTest, EncodesToTheNearestValue) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const KvFormat format : {KvFormat::kFp8, KvFormat::kInt8}) {
    for (int round = 0; round < 20; ++round) {
      float values[64];
      for (float& value : values) value = normal(random) * std::ldexp(1.0f, round - 10);
      uint8_t codes[64];
      float scale = 0.0f;
      EncodeKv(format, values, 64, codes, scale);
      for (int i = 0; i < 64; ++i) {
        float nearest = INFINITY;
        for (int code = 0; code < 256; ++code) {
          const float value = Decoded(format, static_cast<uint8_t>(code)) * scale;
          const bool exists = format == KvFormat::kInt8 ? code != 0x80 : (code & 0x7f) != 0x7f;
          if (exists) nearest = std::min(nearest, std::fabs(value - values[i]));
        }
        const float error = std::fabs(Decoded(format, codes[i]) * scale - values[i]);
        EXPECT_LE(error, nearest * 1.0001f + scale * 1e-4f);
      }
    }
  }
}

TEST(KvFormatTest, ZerosStayZeroAndOtherMemoryIsUnchanged) {
  const float zeros[3] = {};
  uint8_t codes[4] = {9, 9, 9, 9};
  float scale = 5.0f;
  EncodeKv(KvFormat::kInt8, zeros, 3, codes, scale);
  EXPECT_EQ(codes[3], 9);
  float out[6] = {7, 7, 7, 7, 7, 7};
  DecodeKv(KvFormat::kInt8, codes, scale, 3, out, 2);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_EQ(out[1], 7.0f);
}

TEST(KvFormatTest, NaNBecomesZero) {
  const float values[3] = {NAN, 2.0f, -1.0f};
  for (const KvFormat format : {KvFormat::kInt8, KvFormat::kFp8}) {
    uint8_t codes[3];
    float scale = 0.0f, out[3];
    EncodeKv(format, values, 3, codes, scale);
    DecodeKv(format, codes, scale, 3, out, 1);
    EXPECT_EQ(out[0], 0.0f);
    EXPECT_FLOAT_EQ(out[1], 2.0f);
    EXPECT_NEAR(out[2], -1.0f, 0.01f);
  }
}

TEST(KvFormatTest, RejectsUnknownNamesAndListsTheKnownOnes) {
  EXPECT_TRUE(ParseKvFormat("fp8").ok());
  EXPECT_EQ(ParseKvFormat("int4").status().message(),
            "parameter 'kv_cache_dtype' is 'int4', expected auto, float, int8 or fp8");
}

// Logits after a prompt in two steps. The second step reads the keys and values of the first.
std::vector<float> LogitsWith(const std::string& directory, KvFormat format) {
  auto checkpoint =
      std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory)));
  auto model = llm::ReadDecoder(*checkpoint);
  CpuExecutorOptions options;
  options.num_threads = 2;
  options.max_cache_tokens = 64;
  options.kv_format = format;
  auto executor = std::move(*CpuExecutor::Create(checkpoint, std::move(*model), options));
  std::vector<int32_t> ids(40);
  for (int32_t i = 0; i < 40; ++i) ids[i] = (i * 37 + 11) % 500;
  const std::vector<int32_t> table = {2, 0, 3};
  const llm::SamplingParams params;
  llm::StepBatch batch;
  for (const int32_t first : {0, 30}) {
    batch.Clear();
    const int32_t count = first == 0 ? 30 : 10;
    batch.token_ids.assign(ids.begin() + first, ids.begin() + first + count);
    llm::BatchEntry& sequence = batch.entries.emplace_back();
    sequence.num_tokens = count;
    sequence.num_cached = first;
    sequence.block_table = table;
    sequence.num_logits = 1;
    sequence.samples = true;
    sequence.sampling = {&params, ids, 40, {}};
    EXPECT_TRUE(executor->Submit(batch).ok());
    EXPECT_TRUE(executor->Collect().ok());
  }
  return {executor->logits().begin(), executor->logits().end()};
}

TEST(KvFormatTest, LogitsStayCloseToThoseOfAFloatCache) {
  const std::string directory = testing::FindTiny("llama");
  if (directory.empty()) GTEST_SKIP() << "no test data for llama";
  const std::vector<float> exact = LogitsWith(directory, KvFormat::kFloat);
  for (const KvFormat format : {KvFormat::kInt8, KvFormat::kFp8}) {
    const std::vector<float> logits = LogitsWith(directory, format);
    ASSERT_EQ(logits.size(), exact.size());
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < exact.size(); ++i) {
      difference += (logits[i] - exact[i]) * (logits[i] - exact[i]);
      size += exact[i] * exact[i];
    }
    EXPECT_GT(difference, 0.0);
    EXPECT_LT(std::sqrt(difference / size), format == KvFormat::kInt8 ? 0.02 : 0.08);
  }
}

}  // namespace
}  // namespace nereid::cpu
