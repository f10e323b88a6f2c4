// Rope and its cache writes against the CPU's rope and norm, on the same bf16 values. Covers halves
// that begin at a chunk and others, isolated rows and runs across block ends, short and long steps.
#include "backends/gpu_llm/kernels/attention/rope.h"

#include <random>

#include "backends/cpu_reference/ops/op_table.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::Bf16Bits;
using testing::FromBf16;
using testing::RelativeError;
using testing::ToDevice;
using testing::ToHost;

// A bf16 result: 2^-9 relative, plus some for another order of additions.
constexpr double kRopeTolerance = 4e-3;

struct RopeCase {
  int head_dim, rope_dim;
  int num_heads = 3, num_kv_heads = 1;
  bool has_norms = false, has_bias = false;
};

// Reads an element of the cache's two tiles.
template <int kHeadDim>
std::pair<int, int> Offsets(int token, int column) {
  return {KeyOffset<kHeadDim>(token, column), ValueOffset<kHeadDim>(token, column)};
}
std::pair<int, int> Offsets(int head_dim, int token, int column) {
  switch (head_dim) {
    case 16:
      return Offsets<16>(token, column);
    case 32:
      return Offsets<32>(token, column);
    case 64:
      return Offsets<64>(token, column);
    case 80:
      return Offsets<80>(token, column);
    case 96:
      return Offsets<96>(token, column);
    case 128:
      return Offsets<128>(token, column);
    default:
      return Offsets<256>(token, column);
  }
}

class RopeTest : public testing::GpuTest<::testing::TestWithParam<RopeCase>> {
 protected:
  std::vector<float> Random(size_t count, float mean = 0.0f) {
    std::normal_distribution<float> normal(mean, 1.0f);
    std::vector<float> values(count);
    for (float& value : values) value = FromBf16(Bf16Bits(normal(random_)));
    return values;
  }
  static DeviceMemory AsBf16(const std::vector<float>& values) {
    std::vector<uint16_t> bits;
    for (const float value : values) bits.push_back(Bf16Bits(value));
    return ToDevice(bits);
  }

  // Runs of consecutive slots of these lengths, each starting somewhere in its own block. About
  // every second run is followed by a row that is not written.
  std::vector<int32_t> Slots(const std::vector<int>& runs) {
    std::vector<int32_t> slots;
    for (const int length : runs) {
      int32_t slot = num_blocks_++ * kBlockTokens + static_cast<int32_t>(random_() % kBlockTokens);
      for (int i = 0; i < length; ++i, ++slot) {
        if (i > 0 && slot % kBlockTokens == 0) slot = num_blocks_++ * kBlockTokens;
        slots.push_back(slot);
      }
      if (random_() % 2 == 0) slots.push_back(-1);
    }
    return slots;
  }

  void Check(const std::vector<int>& runs, bool rows_are_independent) {
    const RopeCase& c = GetParam();
    SCOPED_TRACE(::testing::Message() << runs.size() << " runs");
    num_blocks_ = 0;
    const std::vector<int32_t> slots = Slots(runs);
    const auto rows = static_cast<int>(slots.size());
    const int heads = c.num_heads + 2 * c.num_kv_heads, rotated = c.num_heads + c.num_kv_heads;
    const int dim = c.head_dim, half = c.rope_dim / 2;
    const std::vector<float> qkv = Random(int64_t{rows} * heads * dim), bias = Random(heads * dim),
                             q_norm = Random(dim, 1.0f), k_norm = Random(dim, 1.0f);
    std::vector<float2> table;
    for (int position = 0; position < 100; ++position) {
      for (int i = 0; i < half; ++i) {
        const float angle = static_cast<float>(position) * std::pow(0.5f, static_cast<float>(i));
        table.push_back({std::cos(angle), std::sin(angle)});
      }
    }
    std::vector<int32_t> positions(rows);
    std::vector<float> cos_values, sin_values;
    for (int32_t& position : positions) {
      position = static_cast<int32_t>(random_() % 100);
      for (int i = 0; i < half; ++i) {
        cos_values.push_back(table[position * half + i].x);
        sin_values.push_back(table[position * half + i].y);
      }
    }
    const int64_t head_bytes = HeadBytes(dim);
    const DeviceMemory there = AsBf16(qkv), d_bias = AsBf16(bias), d_q = AsBf16(q_norm),
                       d_k = AsBf16(k_norm), d_positions = ToDevice(positions),
                       d_slots = ToDevice(slots), d_table = ToDevice(table),
                       cache = ToDevice(std::vector<uint16_t>(
                           num_blocks_ * c.num_kv_heads * head_bytes / 2, 0x7fc0));
    RopeWriteParams params = {};
    params.qkv = there.as<__nv_bfloat16>();
    params.positions = d_positions.as<int32_t>();
    params.cache_slots = d_slots.as<int32_t>();
    params.cos_sin = d_table.as<float2>();
    if (c.has_bias) params.bias = d_bias.as<__nv_bfloat16>();
    if (c.has_norms) params.q_norm = d_q.as<__nv_bfloat16>();
    if (c.has_norms) params.k_norm = d_k.as<__nv_bfloat16>();
    params.cache = cache.data();
    params.num_rows = rows;
    params.num_heads = c.num_heads;
    params.num_kv_heads = c.num_kv_heads;
    params.head_dim = dim;
    params.rope_dim = c.rope_dim;
    params.epsilon = 1e-5f;
    params.rows_are_independent = rows_are_independent;
    RopeWrite(params, nullptr);
    ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

    const auto got_rows = ToHost<uint16_t>(there, qkv.size());
    const auto got_cache = ToHost<uint16_t>(cache, cache.size_bytes() / 2);
    std::vector<float> got, expected;
    std::vector<uint8_t> is_written(got_cache.size(), 0);
    for (int row = 0; row < rows; ++row) {
      std::vector<float> of_row(qkv.begin() + int64_t{row} * heads * dim,
                                qkv.begin() + int64_t{row + 1} * heads * dim);
      for (size_t i = 0; c.has_bias && i < of_row.size(); ++i) of_row[i] += bias[i];
      for (int head = 0; c.has_norms && head < rotated; ++head) {
        const std::vector<float> in(of_row.begin() + head * dim, of_row.begin() + (head + 1) * dim);
        ops_.rms_norm({in.data(), dim, (head < c.num_heads ? q_norm : k_norm).data(), 1e-5f, 1, dim,
                       of_row.data() + head * dim, dim, false});
      }
      if (half > 0) {
        ops_.rope({of_row.data(), cos_values.data() + int64_t{row} * half,
                   sin_values.data() + int64_t{row} * half, 1, rotated, dim, c.rope_dim});
      }
      for (int i = 0; i < c.num_heads * dim; ++i) {
        got.push_back(FromBf16(got_rows[int64_t{row} * heads * dim + i]));
        expected.push_back(of_row[i]);
      }
      for (int head = 0; slots[row] >= 0 && head < c.num_kv_heads; ++head) {
        const int64_t tile =
            (int64_t{slots[row] / kBlockTokens} * c.num_kv_heads + head) * head_bytes;
        for (int column = 0; column < dim; ++column) {
          const auto [key, value] = Offsets(dim, slots[row] % kBlockTokens, column);
          const int64_t at[2] = {(tile + key) / 2, (tile + TileBytes(dim) + value) / 2};
          for (int which = 0; which < 2; ++which) {
            is_written[at[which]] = 1;
            got.push_back(FromBf16(got_cache[at[which]]));
            expected.push_back(
                of_row[(c.num_heads + which * c.num_kv_heads + head) * dim + column]);
          }
        }
      }
    }
    EXPECT_LT(RelativeError(got, expected), kRopeTolerance);
    int64_t num_touched = 0;  // elements that belong to no row
    for (size_t i = 0; i < got_cache.size(); ++i)
      num_touched += is_written[i] == 0 && got_cache[i] != 0x7fc0;
    EXPECT_EQ(num_touched, 0);
  }

  std::mt19937 random_{11};
  int num_blocks_ = 0;
  const cpu::OpTable& ops_ = cpu::BestOps();
};

TEST_P(RopeTest, ShortStepsEqualTheCpus) {
  Check({1}, true);
  Check({1, 1, 1, 20, 9}, false);
}

TEST_P(RopeTest, LongStepsEqualTheCpus) {
  Check(std::vector<int>(270, 1), true);
  Check({1, 1, 1, 2, 15, 16, 17, 1, 64, 1, 7, 130, 3, 270, 1, 8}, false);
}

INSTANTIATE_TEST_SUITE_P(
    Heads, RopeTest,
    ::testing::Values(RopeCase{16, 4}, RopeCase{32, 32, 2, 2}, RopeCase{64, 16, 16, 3},
                      RopeCase{64, 64, 1, 1, true}, RopeCase{80, 20}, RopeCase{80, 80, 7, 2, true},
                      RopeCase{80, 32}, RopeCase{96, 72, 3, 1, true, true}, RopeCase{96, 96, 8, 4},
                      RopeCase{128, 2}, RopeCase{128, 128, 32, 8},
                      RopeCase{128, 128, 17, 1, true, true}, RopeCase{256, 128, 3, 2, false, true},
                      RopeCase{64, 0, 3, 1, false, true}),
    [](const auto& info) {
      const RopeCase& c = info.param;
      return std::to_string(c.head_dim) + "_" + std::to_string(c.rope_dim) + "_" +
             std::to_string(c.num_heads) + "_" + std::to_string(c.num_kv_heads) +
             (c.has_norms ? "_norms" : "") + (c.has_bias ? "_bias" : "");
    });

}  // namespace
}  // namespace nereid::gpu
