// Helpers of the GPU tests.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"

namespace nereid::gpu::testing {

inline bool HasHopper() {
  int count = 0, major = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return false;
  }
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
         major == 9;
}

// Whether two GPUs exist that can access each other's memory.
inline bool HasPair() {
  int count = 0, can_access = 0;
  return HasHopper() && cudaGetDeviceCount(&count) == cudaSuccess && count >= 2 &&
         cudaDeviceCanAccessPeer(&can_access, 0, 1) == cudaSuccess && can_access != 0;
}

// Base fixture whose tests are skipped without a Hopper GPU.
template <typename Base>
class GpuTest : public Base {
 protected:
  void SetUp() override {
    if (!HasHopper()) GTEST_SKIP() << "no GPU of compute capability 9.0";
  }
};

inline uint16_t Bf16Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float FromBf16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

template <typename T>
DeviceMemory ToDevice(const std::vector<T>& values) {
  Result<DeviceMemory> memory =
      DeviceMemory::Allocate(std::max<size_t>(1, values.size()) * sizeof(T), "a test");
  EXPECT_TRUE(memory.ok());
  EXPECT_EQ(
      cudaMemcpy(memory->data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
      cudaSuccess);
  return std::move(*memory);
}
template <typename T>
std::vector<T> ToHost(const DeviceMemory& memory, size_t count) {
  std::vector<T> values(count);
  EXPECT_EQ(cudaMemcpy(values.data(), memory.data(), count * sizeof(T), cudaMemcpyDeviceToHost),
            cudaSuccess);
  return values;
}

// | a - b || / || b ||; NaN if a value is NaN.
inline double RelativeError(std::span<const float> a, std::span<const float> b) {
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (!std::isfinite(a[i])) return 1e9;
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / (norm > 0.0 ? norm : 1.0));
}

}  // namespace nereid::gpu::testing
