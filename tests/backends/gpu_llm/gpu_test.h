// Helpers of the GPU tests.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/kernels/forms.h"
#include "tests/support/bf16.h"

namespace nereid::gpu::testing {

// The form of the kernels that tests on GPU 0 run; nothing if no GPU runs them.
inline std::optional<KernelForm> FormOfGpu() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return std::nullopt;
  }
  const Result<KernelForm> form = SelectKernelForm(0);
  return form.ok() ? std::optional(*form) : std::nullopt;
}
inline bool HasGpu() {
  return FormOfGpu().has_value();
}
inline bool HasNativeKernels() {
  return FormOfGpu() == KernelForm::kNative;
}

// Whether two GPUs exist that can access each other's memory: those of kPair.
inline constexpr int32_t kPair[] = {0, 1};
inline bool HasPair() {
  int count = 0, can_access = 0;
  return HasNativeKernels() && cudaGetDeviceCount(&count) == cudaSuccess && count >= 2 &&
         cudaDeviceCanAccessPeer(&can_access, 0, 1) == cudaSuccess && can_access != 0;
}

// Skips a test of what only the native form has.
#define NEREID_SKIP_WITHOUT_NATIVE_KERNELS()       \
  if (!::nereid::gpu::testing::HasNativeKernels()) \
  GTEST_SKIP() << "the GPU runs the portable kernels"

// Base fixture whose tests are skipped without a GPU.
template <typename Base>
class GpuTest : public Base {
 protected:
  void SetUp() override {
    if (!HasGpu()) GTEST_SKIP() << "no GPU that the build has kernels for";
  }
};

using nereid::Bf16Bits;
using nereid::FromBf16;

inline float FromFp8(uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(1.0f + mantissa / 8.0f, exponent - 7);
  return (byte & 0x80) != 0 ? -magnitude : magnitude;
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
