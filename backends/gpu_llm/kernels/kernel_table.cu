// The table of the form that is compiled.
#include "backends/gpu_llm/kernels/kernel_table.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

__global__ void ProbeKernel() {}

LoadedKernelCode LoadedCode() {
  cudaFuncAttributes attributes = {};
  if (cudaFuncGetAttributes(&attributes, ProbeKernel) != cudaSuccess) {
    (void)cudaGetLastError();
    return {};
  }
  return {attributes.ptxVersion, attributes.binaryVersion};
}

}  // namespace

const KernelTable& Kernels() {
  static constexpr KernelTable kTable = {
#define NEREID_KERNEL_ENTRY(name) &name,
      NEREID_FOR_EACH_KERNEL(NEREID_KERNEL_ENTRY)
#undef NEREID_KERNEL_ENTRY
      & LoadedCode};
  return kTable;
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
