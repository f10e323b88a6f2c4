// Which kernels run a product in the portable form. The limits were measured on the layers of an 8B
// model on an H100.
#include "backends/gpu_llm/kernels/gemm/gemm.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

bool PrefersSplit(const WeightMatrix& weights, GemmEpilogue output, int num_rows) {
  if (!CanSplit(weights)) return false;
  if (weights.format != WeightFormat::kBf16) return num_rows <= 256;
  return num_rows <= (output == GemmEpilogue::kSiluGate ? 32 : 16);  // cuBLASLt has no gate
}

// The split-K GEMM needs a separate norm kernel, which only the largest product pays for.
int PreferredStreamRows(const WeightMatrix& weights, GemmEpilogue output, bool, bool quantizes,
                        int) {
  constexpr int kMaxRows = 8;
  if (quantizes) return kMaxRows;
  if (!PrefersSplit(weights, output, kMaxRows)) return kStreamMaxRows;
  if (output != GemmEpilogue::kSiluGate) return kMaxRows;
  return weights.format == WeightFormat::kInt4 ? 0 : 2;
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
