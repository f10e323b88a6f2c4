// Shards of several GPUs: together they equal the whole, for each tiny checkpoint that gpu_llm
// supports.
#include "backends/gpu_llm/model/sharding.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "backends/gpu_llm/model/matrix_source.h"
#include "backends/llm_core/model/architecture.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/support/bf16.h"

namespace nereid::gpu {
namespace {

using cpu::testing::FindTiny;
using llm::WeightKind;
using nereid::FromBf16;

TEST(ShardingTest, DeviceIdsAreNumbersBetweenCommas) {
  EXPECT_EQ(*ParseDeviceIds("0"), (std::vector<int32_t>{0}));
  EXPECT_EQ(*ParseDeviceIds(" 3, 1 ,0"), (std::vector<int32_t>{3, 1, 0}));
  for (const char* text : {"", "a", "0,", ",1", "0;1", "0 1", "-1", "1.5", "99999999999"})
    EXPECT_EQ(ParseDeviceIds(text).status().code(), StatusCode::kInvalidArg) << text;
  EXPECT_NE(ParseDeviceIds("2,1,2").status().message().find("GPU 2 comes twice"),
            std::string::npos);
  EXPECT_EQ(ParseDeviceIds("0,1,2,3,4,5,6,7,8").status().code(), StatusCode::kUnsupported);
}

llm::DecoderSpec Spec(int32_t heads, int32_t kv_heads, int32_t inner, int32_t vocab) {
  llm::DecoderSpec spec;
  spec.architecture = "llama";
  spec.hidden_size = 64;
  spec.head_dim = 16;
  spec.num_heads = heads;
  spec.num_kv_heads = kv_heads;
  spec.intermediate_size = inner;
  spec.vocab_size = vocab;
  return spec;
}

TEST(ShardingTest, SizesThatCanNotBeDividedAreRefusedWithBothNumbers) {
  const auto message = [](const llm::DecoderSpec& spec, int32_t count) {
    const auto sharding = Sharding::Of(spec, 0, count);
    EXPECT_EQ(sharding.status().code(), StatusCode::kUnsupported);
    return sharding.ok() ? std::string() : std::string(sharding.status().message());
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(message(Spec(6, 2, 64, 512), 4), "num_attention_heads is 6, which 4 GPUs"));
  EXPECT_TRUE(has(message(Spec(12, 3, 64, 512), 2), "num_key_value_heads is 3, which 2 GPUs"));
  EXPECT_TRUE(has(message(Spec(8, 8, 72, 512), 2), "intermediate_size is 72, which 2 GPUs"));
  EXPECT_TRUE(has(message(Spec(8, 8, 64, 12), 4), "vocab_size is 12, which 4 GPUs"));
  llm::DecoderSpec experts = Spec(8, 8, 64, 512);
  experts.moe.intermediate_size = 24;
  EXPECT_TRUE(has(message(experts, 2), "moe_intermediate_size is 24, which 2 GPUs"));
  EXPECT_TRUE(Sharding::Of(Spec(7, 7, 9, 3), 0, 1).ok());
}

TEST(ShardingTest, FewerKeyValueHeadsThanGpusAreReplicated) {
  const llm::DecoderSpec spec = Spec(8, 2, 128, 512);
  for (int32_t rank = 0; rank < 8; ++rank) {
    const Sharding sharding = *Sharding::Of(spec, rank, 8);
    const llm::DecoderSpec local = sharding.Local(spec);
    EXPECT_EQ(local.num_heads, 1);
    EXPECT_EQ(local.num_kv_heads, 1);
    EXPECT_EQ(local.intermediate_size, 16);
    // The key head that the rank's query head reads.
    EXPECT_EQ(sharding.FirstRow(WeightKind::kK), rank / 4 * spec.head_dim);
    EXPECT_EQ(sharding.FirstRow(WeightKind::kQ), rank * spec.head_dim);
  }
}

TEST(ShardingTest, RowsOfTheLmHeadCoverTheVocabularyInMultiplesOfEight) {
  for (const int32_t vocab : {512, 1001, 32003, 50257, 128256}) {
    for (int32_t count = 1; count <= 8; ++count) {
      const llm::DecoderSpec spec = Spec(840, 840, 8 * 840, vocab);
      const Sharding sharding = *Sharding::Of(spec, 0, count);
      int64_t next = 0;
      for (int32_t rank = 0; rank < count; ++rank) {
        const IndexRange rows = sharding.HeadRows(rank, PaddedVocabulary(vocab));
        EXPECT_EQ(rows.first, next);
        EXPECT_EQ(rows.first % 8, 0);
        EXPECT_LT(rows.first, vocab) << vocab << " over " << count;
        EXPECT_EQ(rows.count % 4, 0);
        next = rows.first + rows.count;
      }
      EXPECT_EQ(next, PaddedVocabulary(vocab));
    }
  }
}

using Vector = std::vector<double>;

class TinyShardingTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string directory = FindTiny(GetParam());
    if (directory.empty()) GTEST_SKIP() << "no test data for " << GetParam();
    checkpoint_.emplace(std::move(*llm::Checkpoint::Open(directory)));
    model_ = std::move(*llm::ReadDecoder(*checkpoint_, true));
  }

  // The rank's shard of a weight times x.
  Vector Multiply(const Sharding& sharding, int32_t layer, WeightKind kind, int64_t rows,
                  int64_t columns, const Vector& x, int32_t expert = llm::kNoExpert) const {
    MatrixSource source;
    source.sections = {{&model_.weights.at({layer, kind, expert}), rows,
                        sharding.FirstRow(kind, expert != llm::kNoExpert)}};
    source.columns = columns;
    source.first_column = sharding.FirstColumn(kind, expert != llm::kNoExpert);
    std::vector<uint16_t> values(rows * columns);
    EXPECT_TRUE(FillBf16Rows(source, 0, rows, values.data()).ok());
    Vector y(rows, 0.0);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < columns; ++c)
        y[row] += double{FromBf16(values[row * columns + c])} * x[c];
    }
    return y;
  }
  // The matrix products of attention, without attention between them.
  Vector Attention(const Sharding& sharding, int32_t layer, const Vector& x) const {
    const llm::DecoderSpec spec = sharding.Local(model_.spec);
    const int64_t hidden = spec.hidden_size;
    Vector q = Multiply(sharding, layer, WeightKind::kQ, spec.q_size(), hidden, x);
    const Vector k = Multiply(sharding, layer, WeightKind::kK, spec.kv_size(), hidden, x);
    const Vector v = Multiply(sharding, layer, WeightKind::kV, spec.kv_size(), hidden, x);
    const int64_t group = spec.num_heads / spec.num_kv_heads;
    for (int64_t i = 0; i < spec.q_size(); ++i) {
      const int64_t at = i / spec.head_dim / group * spec.head_dim + i % spec.head_dim;
      q[i] += k[at] - 2.0 * v[at];
    }
    return Multiply(sharding, layer, WeightKind::kAttentionOut, hidden, spec.q_size(), q);
  }
  // The MLP, or the sum of all experts, with a simple function of the gate.
  Vector Mlp(const Sharding& sharding, int32_t layer, const Vector& x) const {
    const llm::DecoderSpec spec = sharding.Local(model_.spec);
    const bool is_moe = spec.layers[layer].is_moe;
    const int64_t inner = is_moe ? spec.moe.intermediate_size : spec.intermediate_size;
    Vector sum(spec.hidden_size, 0.0);
    for (int32_t i = 0; i < (is_moe ? spec.moe.num_experts : 1); ++i) {
      const int32_t expert = is_moe ? i : llm::kNoExpert;
      Vector up = Multiply(sharding, layer, WeightKind::kUp, inner, spec.hidden_size, x, expert);
      for (double& value : up) value *= 1.0 + value;
      if (spec.mlp == llm::MlpKind::kGated) {
        const Vector gate =
            Multiply(sharding, layer, WeightKind::kGate, inner, spec.hidden_size, x, expert);
        for (int64_t j = 0; j < inner; ++j) up[j] *= gate[j];
      }
      const Vector down =
          Multiply(sharding, layer, WeightKind::kDown, spec.hidden_size, inner, up, expert);
      for (size_t j = 0; j < sum.size(); ++j) sum[j] += down[j];
    }
    return sum;
  }
  Vector Layer(const Sharding& sharding, int32_t layer, const Vector& x) const {
    Vector y = Attention(sharding, layer, x);
    const Vector mlp = Mlp(sharding, layer, x);
    for (size_t i = 0; i < y.size(); ++i) y[i] += mlp[i];
    return y;
  }

  std::optional<llm::Checkpoint> checkpoint_;
  llm::DecoderModel model_;
};

TEST_P(TinyShardingTest, ShardedProductsAddUpToTheWhole) {
  std::mt19937 random(7);
  Vector x(model_.spec.hidden_size);
  for (double& value : x) value = static_cast<double>(random() % 2001) / 1000.0 - 1.0;
  for (const int32_t count : {2, 4}) {
    if (model_.spec.moe.intermediate_size % (8 * count) != 0) continue;
    for (int32_t layer = 0; layer < model_.spec.num_layers(); ++layer) {
      const Vector whole = Layer(Sharding(), layer, x);
      Vector sum(whole.size(), 0.0);
      for (int32_t rank = 0; rank < count; ++rank) {
        const auto sharding = Sharding::Of(model_.spec, rank, count);
        ASSERT_TRUE(sharding.ok()) << sharding.status().message();
        const Vector part = Layer(*sharding, layer, x);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      for (size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], whole[i], 1e-9) << count;
    }
    if (model_.spec.tied_embeddings) continue;
    const Vector logits = Multiply(Sharding(), llm::kNoLayer, WeightKind::kLmHead,
                                   model_.spec.vocab_size, model_.spec.hidden_size, x);
    Vector joined;
    for (int32_t rank = 0; rank < count; ++rank) {
      const Sharding sharding = *Sharding::Of(model_.spec, rank, count);
      const IndexRange range = sharding.HeadRows(rank, PaddedVocabulary(model_.spec.vocab_size));
      const int64_t rows = std::min(range.count, model_.spec.vocab_size - range.first);
      const Vector part =
          Multiply(sharding, llm::kNoLayer, WeightKind::kLmHead, rows, model_.spec.hidden_size, x);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, logits);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, TinyShardingTest,
                         ::testing::ValuesIn(cpu::testing::AllCheckpoints()),
                         cpu::testing::kNameOfCheckpoint);

}  // namespace
}  // namespace nereid::gpu
