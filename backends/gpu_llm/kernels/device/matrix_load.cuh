// Loads of 8 x 8 matrices from shared memory, the operands of mma. Device code only.
#pragma once

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

// Four matrices of 16-bit elements: one in each register, two adjacent elements of a row a lane, as
// in the operands of MatrixMultiplyAdd(). Lanes give the addresses of the rows: lane l of row l % 8
// of matrix l / 8.
__device__ __forceinline__ uint4 LoadMatrices(uint32_t address) {
  uint4 to;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
               : "r"(address)
               : "memory");
  return to;
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
