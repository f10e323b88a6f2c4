// How operands of mma come to shared memory, and from there to registers, on every GPU from compute
// capability 8.0. Device code only.
#pragma once

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

// Starts an asynchronous copy of 16 bytes to shared memory, or of zeros: then `from` is not read.
__device__ __forceinline__ void CopyOrZero(uint32_t to, const char* from, bool is_valid) {
  const int bytes = is_valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}

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
