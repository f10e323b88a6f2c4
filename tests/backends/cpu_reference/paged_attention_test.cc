// Attention over the paged cache compared with a plain loop in double precision. Results that must
// not depend on the batch are compared bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu_reference/ops/op_table.h"
#include "tests/backends/cpu_reference/ops_fixture.h"

namespace nereid::cpu {
namespace {

using testing::Random;

class PagedAttentionTest : public testing::OpsTest {};

class Attention {
 public:
  Attention(const OpTable& ops, int32_t head_dim, int32_t tokens) : ops_(ops), tokens_(tokens) {
    view_.num_kv_heads = 2;
    view_.head_dim = head_dim;
    view_.value_size = (head_dim + 15) / 16 * 16;
    const int32_t blocks = (tokens + kBlockSize - 1) / kBlockSize + 3;
    // Arbitrary content of other sequences.
    constexpr float kLeft = std::numeric_limits<float>::quiet_NaN();
    keys_.assign(blocks * 2 * view_.key_block_size(), kLeft);
    values_.assign(blocks * 2 * view_.value_block_size(), kLeft);
    view_.keys = keys_.data();
    view_.values = values_.data();
    for (int32_t i = 0; i + 3 < blocks; ++i) table_.push_back((i * 5 + 2) % (blocks - 3) + 3);
    k_ = Random(tokens * 2 * head_dim, 9);
    v_ = Random(tokens * 2 * head_dim, 10);
    // Written in two calls, as chunks are.
    const int32_t half = tokens / 2;
    Write(0, half);
    Write(half, tokens - half);
  }

  // Row i of `queries` sees contexts[i] tokens.
  std::vector<float> Run(const std::vector<float>& queries, const std::vector<int32_t>& contexts,
                         int32_t window, float cap, int32_t sinks = 0) {
    const size_t d = view_.head_dim;
    std::vector<float> out(contexts.size() * d), scratch(kMaxRowsAtOnce * (tokens_ + kBlockSize));
    std::vector<AttentionRow> rows;
    for (size_t i = 0; i < contexts.size(); ++i) {
      rows.push_back({queries.data() + i * d, out.data() + i * d, contexts[i]});
    }
    PagedAttentionParams params;
    params.rows = rows.data();
    params.num_rows = static_cast<int32_t>(rows.size());
    params.kv_head = 1;
    params.window = window;
    params.num_sinks = sinks;
    params.block_table = table_.data();
    params.cache = view_;
    params.scale = 0.3f;
    params.soft_cap = cap;
    params.scratch = scratch.data();
    ops_.paged_attention(params);
    return out;
  }

  std::vector<double> Plain(const float* query, int32_t context, int32_t window, float cap,
                            int32_t sinks = 0) const {
    const int32_t d = view_.head_dim;
    const int32_t first = window > 0 ? std::max(0, context - window + sinks) : 0;
    std::vector<int32_t> seen;
    for (int32_t t = 0; t < context; ++t) {
      if (t >= first || t < sinks || context <= window) seen.push_back(t);
    }
    std::vector<double> scores, out(d);
    double sum = 0.0, max = -1e300;
    for (const int32_t t : seen) {
      double score = 0.0;
      for (int32_t i = 0; i < d; ++i) score += double{query[i]} * k_[(t * 2 + 1) * d + i];
      score *= 0.3;
      if (cap > 0) score = std::tanh(score / cap) * cap;
      scores.push_back(score);
      max = std::max(max, score);
    }
    for (double& score : scores) sum += score = std::exp(score - max);
    for (size_t t = 0; t < scores.size(); ++t) {
      for (int32_t i = 0; i < d; ++i) {
        out[i] += scores[t] / sum * v_[(seen[t] * 2 + 1) * d + i];
      }
    }
    return out;
  }

 private:
  void Write(int32_t first, int32_t count) {
    const int64_t offset = int64_t{first} * 2 * view_.head_dim;
    ops_.paged_kv_write(
        {k_.data() + offset, v_.data() + offset, count, first, table_.data(), view_, 0, 2});
  }

  const OpTable& ops_;
  const int32_t tokens_;
  KvCacheView view_;
  std::vector<float> keys_, values_, k_, v_;
  std::vector<int32_t> table_;
};

TEST_P(PagedAttentionTest, PagedAttentionEqualsAPlainLoop) {
  for (const int32_t head_dim : {8, 16, 40, 64, 80, 128}) {
    Attention attention(ops(), head_dim, 100);
    for (const int32_t num_queries : {1, 3, 8}) {
      const std::vector<float> queries = Random(num_queries * head_dim, 11);
      for (const int32_t context : {1, 15, 16, 17, 33, 100}) {
        for (const int32_t window : {0, 1, 16, 20}) {
          for (const float cap : {0.0f, 5.0f}) {
            const std::vector<float> out =
                attention.Run(queries, std::vector<int32_t>(num_queries, context), window, cap);
            for (int32_t q = 0; q < num_queries; ++q) {
              const std::vector<double> plain =
                  attention.Plain(queries.data() + q * head_dim, context, window, cap);
              for (int32_t i = 0; i < head_dim; ++i) {
                ASSERT_NEAR(out[q * head_dim + i], plain[i], 2e-5)
                    << "head_dim " << head_dim << ", context " << context << ", window " << window;
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(PagedAttentionTest, PagedAttentionAlwaysSeesTheSinks) {
  for (const int32_t head_dim : {16, 40}) {
    Attention attention(ops(), head_dim, 200);
    const std::vector<int32_t> contexts = {200, 199, 120, 41, 40, 39, 3, 1, 150};
    const std::vector<float> queries = Random(static_cast<int64_t>(contexts.size()) * head_dim, 21);
    for (const int32_t sinks : {1, 4, 16, 20}) {
      for (const int32_t window : {24, 40, 64}) {
        for (const float cap : {0.0f, 5.0f}) {
          const std::vector<float> out = attention.Run(queries, contexts, window, cap, sinks);
          for (size_t q = 0; q < contexts.size(); ++q) {
            const std::vector<double> plain =
                attention.Plain(queries.data() + q * head_dim, contexts[q], window, cap, sinks);
            for (int32_t i = 0; i < head_dim; ++i) {
              ASSERT_NEAR(out[q * head_dim + i], plain[i], 2e-5)
                  << "context " << contexts[q] << ", window " << window << ", sinks " << sinks;
            }
            ASSERT_EQ(attention.Run({queries.begin() + static_cast<ptrdiff_t>(q * head_dim),
                                     queries.begin() + static_cast<ptrdiff_t>((q + 1) * head_dim)},
                                    {contexts[q]}, window, cap, sinks),
                      std::vector<float>(out.begin() + static_cast<ptrdiff_t>(q * head_dim),
                                         out.begin() + static_cast<ptrdiff_t>((q + 1) * head_dim)));
          }
        }
      }
    }
  }
}

TEST_P(PagedAttentionTest, PagedAttentionGivesARowTheSameBitsWithAnyOtherRows) {
  Attention attention(ops(), 48, 70);
  const std::vector<float> queries = Random(9 * 48, 12);
  const std::vector<int32_t> contexts = {14, 15, 16, 17, 18, 33, 70, 1, 2};
  for (const int32_t window : {0, 5, 16, 40}) {
    const std::vector<float> together = attention.Run(queries, contexts, window, 0.0f);
    for (int q = 0; q < 9; ++q) {
      const std::vector<float> one(queries.begin() + q * 48, queries.begin() + (q + 1) * 48);
      const std::vector<float> alone = attention.Run(one, {contexts[q]}, window, 0.0f);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + q * 48)) << q;
    }
  }
}

NEREID_TEST_ON_EVERY_ISA(PagedAttentionTest);

}  // namespace
}  // namespace nereid::cpu
