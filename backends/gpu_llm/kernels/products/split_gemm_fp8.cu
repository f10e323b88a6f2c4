#include "backends/gpu_llm/kernels/products/shared_operand.cuh"

namespace nereid::gpu::split_gemm {

Instance Fp8Instance(int num_rows) {
  if (num_rows <= 32) return MakeInstance<SharedOperand<true, 32>, 32>(500);
  if (num_rows <= 64) return MakeInstance<SharedOperand<true, 64>, 64>(700);
  return MakeInstance<SharedOperand<true, 128>, 128>(1100);
}

}  // namespace nereid::gpu::split_gemm
