#include "backends/gpu_llm/gpu_executor_options.h"

#include <gtest/gtest.h>

namespace nereid::gpu {
namespace {

llm::DecoderSpec Dense() {
  llm::DecoderSpec spec;
  spec.layers.resize(2);
  spec.ropes.resize(1);
  return spec;
}

void ExpectRefusal(const GpuExecutorOptions& options, const llm::DecoderSpec& spec,
                   const std::string& part) {
  const Status status = CheckOptions(options, spec);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported) << part;
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

TEST(GpuExecutorOptionsTest, WeightsInHostMemoryAreThoseOfDenseModels) {
  llm::DecoderSpec experts = Dense();
  experts.layers[1].is_moe = true;
  GpuExecutorOptions options;
  EXPECT_TRUE(CheckOptions(options, experts).ok());
  options.resident_weights_fraction = 0.5;
  EXPECT_TRUE(CheckOptions(options, Dense()).ok());
  ExpectRefusal(options, experts, "'gpu_weights_percent' is 0.5 for a mixture of experts");
}

TEST(GpuExecutorOptionsTest, ADynamicRopeEndsAtTheLengthItWasTrainedOn) {
  llm::DecoderSpec spec = Dense();
  spec.ropes[0].trained_positions = 4096;
  GpuExecutorOptions options;
  options.max_positions = 4096;
  EXPECT_TRUE(CheckOptions(options, spec).ok());
  options.max_positions = 4097;
  ExpectRefusal(options, spec,
                "max_seq_len is 4097, but gpu_llm serves a dynamic rope up to the 4096");
}

}  // namespace
}  // namespace nereid::gpu
