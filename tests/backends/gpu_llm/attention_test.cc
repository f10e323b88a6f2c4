// Rope with cache writes, and both attention kernels, against a plain loop in double with the same
// bf16 values. With a quantized cache the loop uses the CPU's quantization.
#include "tests/backends/gpu_llm/attention_scenario.h"

namespace nereid::gpu {
namespace {

using testing::AttentionScenario;
using testing::Heads;
using testing::RelativeError;
using testing::Runs;

class AttentionTest : public testing::GpuTest<::testing::TestWithParam<Heads>> {};

// bf16 softmax weights and a bf16 result: 2^-9 each, relative.
constexpr double kTolerance = 1e-2;

TEST_P(AttentionTest, DecodeEqualsAPlainLoop) {
  AttentionScenario scene(GetParam(),
                          {{0, 1}, {31, 1}, {63, 1}, {64, 1}, {65, 1}, {700, 1}, {129, 1}});
  EXPECT_LT(RelativeError(scene.OnDevice(), scene.Reference()), kTolerance);
}

TEST_P(AttentionTest, ASplitContextEqualsAPlainLoop) {
  AttentionScenario scene(GetParam(), {{2500, 1}});
  EXPECT_LT(RelativeError(scene.OnDevice(), scene.Reference()), kTolerance);
}

TEST_P(AttentionTest, PrefillEqualsAPlainLoop) {
  AttentionScenario scene(GetParam(), {{0, 150}, {0, 2}, {33, 31}, {100, 64}, {0, 65}, {190, 3}});
  EXPECT_LT(RelativeError(scene.OnDevice(), scene.Reference()), kTolerance);
}

TEST_P(AttentionTest, MixedStepsEqualAPlainLoop) {
  AttentionScenario scene(GetParam(), {{300, 1}, {0, 97}, {17, 1}, {64, 40}});
  EXPECT_LT(RelativeError(scene.OnDevice(), scene.Reference()), kTolerance);
}

// Chains that begin and end at any place of a KV block, of one item and of several.
const Runs kChains = {{0, 3, true},   {60, 4, true},  {61, 9, true},
                      {63, 2, true},  {300, 1, true}, {120, 17, true},
                      {700, 5, true}, {64, 1, true},  {2500, 9, true}};

TEST_P(AttentionTest, ChainsEqualAPlainLoop) {
  AttentionScenario scene(GetParam(), kChains);
  EXPECT_LT(RelativeError(scene.OnDevice(), scene.Reference()), kTolerance);
}

TEST_P(AttentionTest, ASplitContextOfAChainEqualsAPlainLoop) {
  AttentionScenario scene(GetParam(), {{2555, 8, true}});
  EXPECT_LT(RelativeError(scene.OnDevice(), scene.Reference()), kTolerance);
}

TEST_P(AttentionTest, ChainsBesidePromptsEqualAPlainLoop) {
  AttentionScenario scene(GetParam(), {{300, 4, true}, {0, 97}, {17, 1}, {64, 40}, {127, 6, true}});
  EXPECT_LT(RelativeError(scene.OnDevice(), scene.Reference()), kTolerance);
}

// As on a device with three multiprocessors, each of which has many tiles.
TEST_P(AttentionTest, BlocksThatTakeSeveralTilesComputeTheSameBits) {
  const Runs runs = {{0, 150}, {0, 2}, {33, 31}, {100, 64}, {0, 65}, {190, 3}, {0, 1100}};
  AttentionScenario each(GetParam(), runs), several(GetParam(), runs);
  const std::vector<float> expected = each.OnDevice(false, 0);
  EXPECT_EQ(several.OnDevice(false, 3), expected);
  for (const int num_processors : {0, 3}) {
    AttentionScenario in_turn(GetParam(), runs);
    in_turn.TakeHeadsInTurn();
    EXPECT_EQ(in_turn.OnDevice(false, num_processors), expected) << num_processors;
  }
}

// The unpacked values are the same.
TEST_P(AttentionTest, ContextsUnpackedBeforeGiveTheSameBits) {
  if (GetParam().format == CacheFormat::kBf16) GTEST_SKIP() << "nothing is packed";
  const Runs runs = {{300, 1}, {0, 150}, {33, 31}, {190, 3}, {17, 1}, {0, 1100}};
  AttentionScenario during(GetParam(), runs);
  const std::vector<float> expected = during.OnDevice();
  for (const int num_heads : {GetParam().num_kv_heads, 1}) {
    AttentionScenario before(GetParam(), runs);
    before.UnpackFirst(num_heads);
    EXPECT_EQ(before.OnDevice(true), expected) << num_heads << " heads at a time";
  }
}

// A weight of 0 does not suffice: 0 x NaN is NaN.
TEST_P(AttentionTest, ValuesLeftByAnotherSequenceAreIgnored) {
  const Runs steps[] = {
      {{0, 1}, {31, 1}, {62, 1}, {63, 1}, {64, 1}, {700, 1}, {129, 1}},
      {{2500, 1}},
      {{0, 150}, {0, 2}, {33, 31}, {33, 30}, {100, 64}, {0, 65}, {190, 3}, {0, 64}},
      {{300, 1}, {0, 97}, {17, 1}, {64, 40}},
      kChains};
  for (const Runs& runs : steps) {
    AttentionScenario fresh(GetParam(), runs), used(GetParam(), runs);
    EXPECT_EQ(used.OnDevice(true), fresh.OnDevice());  // bit-identical, and no NaN
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, AttentionTest, ::testing::ValuesIn(testing::AllHeads()),
                         testing::HeadsName);

}  // namespace
}  // namespace nereid::gpu
