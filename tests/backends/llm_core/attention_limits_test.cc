// Configured attention windows and sinks.
#include "backends/llm_core/model/decoder_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::llm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DecoderSpec Spec(const std::vector<int32_t>& windows) {
  DecoderSpec spec;
  spec.max_positions = 1000;
  for (const int32_t window : windows) spec.layers.push_back({.sliding_window = window});
  return spec;
}

std::vector<int32_t> WindowsOf(const DecoderSpec& spec) {
  std::vector<int32_t> windows;
  for (const LayerSpec& layer : spec.layers) windows.push_back(layer.sliding_window);
  return windows;
}

TEST(AttentionLimitsTest, TheListRepeatsOverTheLayersAndOnlyReducesWindows) {
  DecoderSpec spec = Spec({0, 0, 50, 500, 0});
  ASSERT_TRUE(LimitAttention("100, 2000", 4, spec).ok());
  EXPECT_THAT(WindowsOf(spec), ElementsAre(100, 0, 50, 500, 100));
  EXPECT_EQ(spec.num_sink_tokens, 4);
  ASSERT_TRUE(LimitAttention("", 0, spec).ok());
  EXPECT_THAT(WindowsOf(spec), ElementsAre(100, 0, 50, 500, 100));
}

TEST(AttentionLimitsTest, RejectsInvalidWindowsAndNamesTheValue) {
  for (const char* text : {"0", "-5", "abc", "10,,20", "10;20", "99999999999", " "}) {
    DecoderSpec spec = Spec({0});
    EXPECT_THAT(LimitAttention(text, 0, spec).message(),
                HasSubstr(std::string("'max_attention_window_size' is '") + text + "'"));
  }
}

TEST(AttentionLimitsTest, SinksRequireALargerWindow) {
  DecoderSpec spec = Spec({0, 8});
  EXPECT_THAT(LimitAttention("", 8, spec).message(),
              HasSubstr("'sink_token_length' is 8, expected less than the narrowest attention "
                        "window, 8 tokens"));
  spec = Spec({0});
  EXPECT_THAT(LimitAttention("", 1, spec).message(), HasSubstr("but no layer has one"));
}

}  // namespace
}  // namespace nereid::llm
