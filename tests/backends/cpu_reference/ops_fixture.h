// The fixture of the op tests: each test runs on every instruction set of this machine.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu_reference/ops/op_table.h"

namespace nereid::cpu::testing {

inline std::vector<float> Random(size_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

class OpsTest : public ::testing::TestWithParam<const OpTable*> {
 protected:
  const OpTable& ops() const { return *GetParam(); }
};

// Instantiates a suite for every instruction set.
#define NEREID_TEST_ON_EVERY_ISA(suite)                                     \
  INSTANTIATE_TEST_SUITE_P(Isa, suite, ::testing::ValuesIn(AvailableOps()), \
                           [](const auto& info) { return std::string(info.param->isa); })

}  // namespace nereid::cpu::testing
