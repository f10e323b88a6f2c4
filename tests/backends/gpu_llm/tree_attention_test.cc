// Attention of draft trees: against a plain loop over the tokens on each row's path, and with batch
// invariance against the bits of a step with the row alone. Moves of keys and values.
#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/step_drafts.h"
#include "tests/backends/gpu_llm/attention_scenario.h"

namespace nereid::gpu {
namespace {

using testing::AttentionScenario;
using testing::CachedRun;
using testing::Heads;
using testing::RelativeError;
using testing::Runs;
using testing::ToDevice;
using testing::ToHost;

constexpr double kTreeTolerance = 1e-2;  // as in attention_test.cc

// A tree of `count` drafts behind `num_cached` tokens and the newest one. `depth`: about how far
// parents are behind.
CachedRun RandomTree(int num_cached, int count, int back, uint32_t seed) {
  std::mt19937 random(seed);
  CachedRun run = {num_cached, 1 + count};
  for (int i = 0; i < count; ++i)
    run.parents.push_back(
        std::uniform_int_distribution<int>(std::max(-1, i - back), i - 1)(random));
  return run;
}

// Trees that begin and end at any place of a KV block, flat and deep, of one item and of several.
Runs Trees() {
  return {RandomTree(0, 5, 3, 1),     RandomTree(60, 12, 4, 2),  RandomTree(63, 64, 10, 3),
          RandomTree(300, 20, 20, 4), RandomTree(64, 127, 3, 5), RandomTree(700, 30, 127, 6),
          RandomTree(2500, 9, 5, 7),  RandomTree(127, 1, 1, 8)};
}

class TreeAttentionTest : public testing::GpuTest<::testing::TestWithParam<Heads>> {};

TEST_P(TreeAttentionTest, TreesEqualAPlainLoop) {
  AttentionScenario scene(GetParam(), Trees()), invariant(GetParam(), Trees());
  invariant.MakeBatchInvariant();
  const std::vector<float> expected = scene.Reference();
  EXPECT_LT(RelativeError(scene.OnDevice(), expected), kTreeTolerance);
  EXPECT_LT(RelativeError(invariant.OnDevice(), expected), kTreeTolerance);
}

TEST_P(TreeAttentionTest, TreesBesideChainsAndPromptsEqualAPlainLoop) {
  const Runs runs = {{300, 4, true}, RandomTree(90, 40, 8, 9),   {0, 97},
                     {17, 1},        RandomTree(1300, 6, 2, 10), {64, 40}};
  AttentionScenario scene(GetParam(), runs), invariant(GetParam(), runs);
  invariant.MakeBatchInvariant();
  const std::vector<float> expected = scene.Reference();
  EXPECT_LT(RelativeError(scene.OnDevice(), expected), kTreeTolerance);
  EXPECT_LT(RelativeError(invariant.OnDevice(), expected), kTreeTolerance);
}

// A chain that is given as a tree has the same mask.
TEST_P(TreeAttentionTest, ChainsAsTreesEqualAPlainLoop) {
  CachedRun chain = {190, 18};
  for (int i = 0; i < 17; ++i) chain.parents.push_back(i - 1);
  AttentionScenario scene(GetParam(), {chain});
  EXPECT_LT(RelativeError(scene.OnDevice(), scene.Reference()), kTreeTolerance);
}

TEST_P(TreeAttentionTest, RowsHaveTheBitsOfAStepOfTheirOwn) {
  AttentionScenario scene(GetParam(), Trees());
  scene.MakeBatchInvariant();
  const std::vector<float> together = scene.OnDevice();
  const size_t row_size = size_t(GetParam().num_heads) * GetParam().head_dim;
  size_t row = 0;
  for (size_t s = 0; s < scene.runs().size(); ++s) {
    const CachedRun& run = scene.runs()[s];
    for (int i = 0; i < run.num_tokens; ++i, ++row) {
      if (i % 9 != 0 && i != run.num_tokens - 1) continue;
      AttentionScenario alone = scene.Alone(s, run.num_cached + i);
      alone.MakeBatchInvariant();
      const std::vector<float> expected = alone.OnDevice();
      const auto first = together.begin() + static_cast<int64_t>(row * row_size);
      EXPECT_EQ(std::vector<float>(first, first + static_cast<int64_t>(row_size)), expected)
          << "row " << i << " of sequence " << s;
    }
  }
}

// The places behind a tree may have NaN of another sequence.
TEST_P(TreeAttentionTest, ValuesLeftByAnotherSequenceAreIgnored) {
  for (const bool is_batch_invariant : {false, true}) {
    AttentionScenario fresh(GetParam(), Trees()), used(GetParam(), Trees());
    if (is_batch_invariant) fresh.MakeBatchInvariant(), used.MakeBatchInvariant();
    EXPECT_EQ(used.OnDevice(true), fresh.OnDevice());
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, TreeAttentionTest, ::testing::ValuesIn(testing::AllHeads()),
                         testing::HeadsName);

class MoveTokensTest : public testing::GpuTest<::testing::Test> {};

// The bytes of a token's key, value and scales in one head, found by what an own write changes.
template <int kHeadDim>
std::vector<size_t> BytesOfToken(CacheFormat format, int token) {
  std::vector<size_t> bytes;
  const auto add = [&](int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) bytes.push_back(static_cast<size_t>(first + i));
  };
  for (int column = 0; column < kHeadDim; ++column) {
    if (format == CacheFormat::kBf16) {
      add(KeyOffset<kHeadDim>(token, column), 2);
      add(TileBytes(kHeadDim) + ValueOffset<kHeadDim>(token, column), 2);
    } else {
      add(QuantizedKeyOffset<kHeadDim>(token, column), 1);
      add(QuantizedTileBytes(kHeadDim) + QuantizedValueOffset<kHeadDim>(token, column), 1);
    }
  }
  for (int part = 0; part < 2 && format != CacheFormat::kBf16; ++part)
    add(QuantizedScalesOffset(kHeadDim) + 4 * (part * kBlockTokens + token), 4);
  return bytes;
}

template <int kHeadDim>
void CheckMoves(CacheFormat format) {
  constexpr int kLayers = 3, kKvHeads = 2, kBlocks = 5;
  const int64_t head_bytes = HeadBytes(kHeadDim, format);
  const int64_t layer_bytes = kBlocks * kKvHeads * head_bytes;
  std::vector<uint8_t> expected(static_cast<size_t>(kLayers * layer_bytes));
  std::mt19937 random(kHeadDim);
  for (uint8_t& byte : expected) byte = static_cast<uint8_t>(random());
  const DeviceMemory cache = ToDevice(expected);
  // Places that are read before they are written, within a block and over its end.
  const std::vector<TokenMove> moves = {{3 * 64 + 7, 3 * 64 + 5},
                                        {3 * 64 + 9, 3 * 64 + 7},
                                        {64 + 2, 3 * 64 + 9},
                                        {2, 4 * 64 + 63},
                                        {5, 2}};
  const std::vector<MoveRange> ranges = {{0, 3}, {3, 2}};
  const auto byte_of = [&](int layer, int head, int slot, size_t offset) -> uint8_t& {
    return expected[static_cast<size_t>(layer * layer_bytes +
                                        (slot / kBlockTokens * kKvHeads + head) * head_bytes) +
                    offset];
  };
  for (const TokenMove& move : moves) {
    const auto from = BytesOfToken<kHeadDim>(format, move.from % kBlockTokens);
    const auto to = BytesOfToken<kHeadDim>(format, move.to % kBlockTokens);
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int head = 0; head < kKvHeads; ++head) {
        for (size_t i = 0; i < from.size(); ++i)
          byte_of(layer, head, move.to, to[i]) = byte_of(layer, head, move.from, from[i]);
      }
    }
  }
  const DeviceMemory device_moves = ToDevice(moves), device_ranges = ToDevice(ranges);
  MoveTokens({cache.data(), layer_bytes, device_moves.as<TokenMove>(),
              device_ranges.as<MoveRange>(), 2, kLayers, kKvHeads, kHeadDim, format},
             nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(ToHost<uint8_t>(cache, static_cast<int64_t>(expected.size())) == expected)
      << kHeadDim << " format " << static_cast<int>(format);
}

TEST_F(MoveTokensTest, KeysValuesAndScalesMoveInAllLayers) {
  for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8, CacheFormat::kInt8}) {
    CheckMoves<16>(format);
    CheckMoves<32>(format);
    CheckMoves<64>(format);
    CheckMoves<80>(format);
    CheckMoves<96>(format);
    CheckMoves<128>(format);
    CheckMoves<256>(format);
  }
}

}  // namespace
}  // namespace nereid::gpu
