// Run-time choice of the instruction set.
#include "cpu_reference/ops/op_table.h"

#include <algorithm>

#include "cpu_reference/ops/matmul_amx.h"

namespace nereid::cpu {

#define NEREID_DECLARE_OPS(isa_name)                                                    \
  namespace isa_name {                                                                  \
  void Activation(const ActivationParams&);                                             \
  void Embedding(const EmbeddingParams&);                                               \
  void LayerNorm(const LayerNormParams&);                                               \
  void Matmul(const MatmulParams&);                                                     \
  void PagedAttention(const PagedAttentionParams&);                                     \
  void PagedKvWrite(const PagedKvWriteParams&);                                         \
  void RmsNorm(const RmsNormParams&);                                                   \
  void Rope(const RopeParams&);                                                         \
  constexpr OpTable kOps = {#isa_name,      Activation,   Embedding, LayerNorm, Matmul, \
                            PagedAttention, PagedKvWrite, RmsNorm,   Rope};             \
  }

NEREID_DECLARE_OPS(baseline)
NEREID_DECLARE_OPS(avx2)
NEREID_DECLARE_OPS(avx512)
#undef NEREID_DECLARE_OPS

namespace amx {
void Matmul(const MatmulParams& params) {
  params.weights.type == WeightType::kBf16 ? MatmulBf16(params) : avx512::Matmul(params);
}
constexpr OpTable kOps = [] {
  OpTable ops = avx512::kOps;
  ops.isa = "amx";
  ops.matmul = Matmul;
  return ops;
}();
}  // namespace amx

int64_t MatmulScratchFloats(int64_t num_rows, int64_t columns) {
  const int64_t amx = AmxIsUsable() ? AmxScratchFloats(num_rows, columns) : 0;
  return std::max(kOutputsPerPanel * columns, amx);
}

const std::vector<const OpTable*>& AvailableOps() {
  static const std::vector<const OpTable*> ops = [] {
    std::vector<const OpTable*> available;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512cd")) {
      if (AmxIsUsable()) available.push_back(&amx::kOps);
      available.push_back(&avx512::kOps);
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")) {
      available.push_back(&avx2::kOps);
    }
    available.push_back(&baseline::kOps);
    return available;
  }();
  return ops;
}

}  // namespace nereid::cpu
