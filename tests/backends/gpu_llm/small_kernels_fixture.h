// The fixture of tests of single kernels: makes random inputs and reads results.
#pragma once

#include <random>
#include <vector>

#include "backends/cpu_reference/ops/op_table.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {

// The relative error that a result in bf16 may have: rounding takes up to 2^-9 of it, sums in
// another order the rest.
constexpr double kSmallKernelTolerance = 4e-3;

class SmallKernelsTest : public testing::GpuTest<::testing::Test> {
 protected:
  // The same values in host and in device memory. bf16 represents them exactly.
  struct Values {
    std::vector<float> host;
    DeviceMemory device;
    __nv_bfloat16* bf16() const { return device.as<__nv_bfloat16>(); }
  };
  Values Random(size_t count, float mean = 0.0f, float deviation = 1.0f) {
    std::normal_distribution<float> normal(mean, deviation);
    Values values;
    std::vector<uint16_t> bits(count);
    for (uint16_t& value : bits) {
      value = testing::Bf16Bits(normal(random_));
      values.host.push_back(testing::FromBf16(value));
    }
    values.device = testing::ToDevice(bits);
    return values;
  }
  static DeviceMemory Poison(size_t count) {
    return testing::ToDevice(std::vector<uint16_t>(count, 0x7fc0));  // NaN
  }
  static std::vector<float> Read(const DeviceMemory& memory, size_t count) {
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<float> values;
    for (const uint16_t bits : testing::ToHost<uint16_t>(memory, count))
      values.push_back(testing::FromBf16(bits));
    return values;
  }

  std::mt19937 random_{11};
  const cpu::OpTable& ops_ = cpu::BestOps();
};

}  // namespace nereid::gpu
