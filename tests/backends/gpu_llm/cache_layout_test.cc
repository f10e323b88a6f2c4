// The place of each element of a KV block.
#include "backends/gpu_llm/kernels/attention/cache_layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace nereid::gpu {
namespace {

// Every element of a tile has its own offset within the tile.
template <int kHeadDim>
void CheckLayout() {
  std::vector<int> keys(kHeadDim * kBlockTokens, 0), values(kHeadDim * kBlockTokens, 0);
  for (int token = 0; token < kBlockTokens; ++token) {
    for (int column = 0; column < kHeadDim; ++column) {
      ++keys.at(KeyOffset<kHeadDim>(token, column) / 2);
      ++values.at(ValueOffset<kHeadDim>(token, column) / 2);
    }
  }
  for (const int count : keys) ASSERT_EQ(count, 1);
  for (const int count : values) ASSERT_EQ(count, 1);
}

TEST(CacheLayoutTest, EveryElementHasItsOwnOffset) {
  CheckLayout<16>();
  CheckLayout<32>();
  CheckLayout<64>();
  CheckLayout<80>();
  CheckLayout<96>();
  CheckLayout<128>();
  CheckLayout<256>();
}

}  // namespace
}  // namespace nereid::gpu
