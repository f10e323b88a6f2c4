// Which checkpoints request inputs of matrix products in fp8.
#include "backends/llm_core/model/quantization.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nereid::llm {
namespace {

QuantSpec Read(const char* section) {
  const Result<QuantSpec> spec = ReadQuantization(
      ConfigReader(nlohmann::json{{"quantization_config", nlohmann::json::parse(section)}}));
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return spec.ok() ? *spec : QuantSpec{};
}

TEST(QuantizationTest, ReadsWhetherInputsAreQuantizedToFp8) {
  EXPECT_TRUE(Read(R"({"quant_method": "fp8", "activation_scheme": "dynamic"})").quantizes_input);
  EXPECT_TRUE(Read(R"({"quant_method": "fp8", "activation_scheme": "static"})").quantizes_input);
  EXPECT_FALSE(Read(R"({"quant_method": "fp8"})").quantizes_input);
  EXPECT_TRUE(Read(R"({"quant_method": "fbgemm_fp8"})").quantizes_input);
  EXPECT_TRUE(Read(R"({"quant_method": "modelopt", "quant_algo": "FP8"})").quantizes_input);
}

TEST(QuantizationTest, CompressedTensorsQuantizeInputsByInputActivations) {
  const char* with = R"({"quant_method": "compressed-tensors", "format": "float-quantized",
      "config_groups": {"group_0": {
          "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
          "input_activations": {"num_bits": 8, "type": "float", "dynamic": true}}}})";
  const char* without = R"({"quant_method": "compressed-tensors", "format": "float-quantized",
      "config_groups": {"group_0": {
          "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
          "input_activations": null}}})";
  EXPECT_TRUE(Read(with).quantizes_input);
  EXPECT_FALSE(Read(without).quantizes_input);
  EXPECT_EQ(Read(with).method, QuantMethod::kFp8);
}

}  // namespace
}  // namespace nereid::llm
