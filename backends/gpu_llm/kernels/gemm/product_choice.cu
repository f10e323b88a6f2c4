// Which kernels run a product. The limits were measured on the layers and the LM head of an 8B
// model on an H200.
#include <algorithm>

#include "backends/gpu_llm/kernels/gemm/gemm.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

int64_t SplitPartials(int) {
  return 0;
}

// cuBLASLt needs a separate gate kernel. The LM head is too large for the fixed costs to matter.
bool PrefersSplit(const WeightMatrix& weights, GemmEpilogue output, int num_rows) {
  if (!CanSplit(weights)) return false;
  const bool gates = output == GemmEpilogue::kSiluGate;
  switch (weights.format) {
    case WeightFormat::kInt4:  // above, dequantizing to memory costs less than cuBLASLt gains
      return num_rows <= 256;
    case WeightFormat::kFp8:
      return num_rows <= (gates || weights.depth >= 2 * weights.num_outputs ? 256 : 64);
    case WeightFormat::kBf16:
      return num_rows <= (gates ? 128 : 64) && weights.num_outputs <= 8 * weights.depth;
  }
  return false;
}

// Every block of the stream GEMM keeps the whole input in shared memory, so with a long bf16 input
// the split-K GEMM wins earlier than cuBLASLt would.
int PreferredStreamRows(const WeightMatrix& weights, GemmEpilogue output, bool norms,
                        bool quantizes, int num_processors) {
  constexpr int kMaxRows = 8;
  constexpr int kLongInput = 32768;  // elements
  switch (weights.format) {
    case WeightFormat::kBf16:
      if (!PrefersSplit(weights, output, kMaxRows)) return kMaxRows;
      // Each block has one tile, and copies the input beside the weights.
      if (!norms && weights.num_outputs <= 16 * num_processors && weights.depth <= 4096)
        return kStreamMaxRows;
      return std::clamp((kLongInput - 1) / weights.depth, 1, kMaxRows);
    case WeightFormat::kFp8:
      return quantizes ? kMaxRows : 2 * kStreamMaxRows;
    case WeightFormat::kInt4:
      return kStreamMaxRows;
  }
  return 0;
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
