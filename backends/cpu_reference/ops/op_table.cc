// Selects the instruction set at run time.
#include "backends/cpu_reference/ops/op_table.h"

#include <algorithm>

#include "backends/cpu_reference/ops/matmul_amx.h"

namespace nereid::cpu {

#define NEREID_DECLARE_OPS(isa_name)                                                        \
  namespace isa_name {                                                                      \
  void Activation(const ActivationParams&);                                                 \
  void Embedding(const EmbeddingParams&);                                                   \
  void FixedPoint(const FixedPointParams&);                                                 \
  void LayerNorm(const LayerNormParams&);                                                   \
  void Matmul(const MatmulParams&);                                                         \
  void PagedAttention(const PagedAttentionParams&);                                         \
  void PagedKvWrite(const PagedKvWriteParams&);                                             \
  void RmsNorm(const RmsNormParams&);                                                       \
  void Rope(const RopeParams&);                                                             \
  constexpr OpTable kOps = {#isa_name, Activation,     Embedding,    FixedPoint, LayerNorm, \
                            Matmul,    PagedAttention, PagedKvWrite, RmsNorm,    Rope};     \
  }

NEREID_DECLARE_OPS(baseline)
NEREID_DECLARE_OPS(avx2)
NEREID_DECLARE_OPS(avx512)
#undef NEREID_DECLARE_OPS

namespace avx512vnni {
void MatmulIntegers(const MatmulParams&);  // second compilation of matmul_int.cc
void Matmul(const MatmulParams& params) {
  params.weights.is_integer() ? MatmulIntegers(params) : avx512::Matmul(params);
}
constexpr OpTable kOps = [] {
  OpTable ops = avx512::kOps;
  ops.isa = "avx512vnni";
  ops.matmul = Matmul;
  return ops;
}();
}  // namespace avx512vnni

namespace amx {
void Matmul(const MatmulParams& params) {
  if (params.weights.type == WeightFormat::kBf16) return MatmulBf16(params);
  if (params.weights.is_integer() && IntegersSuitAmx(params)) return MatmulIntegers(params);
  avx512vnni::Matmul(params);
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
  const int64_t strip = ((columns + 63) / 64 * 64 + 1) * kStripOutputs / 4 + 16;  // in bytes
  return std::max(AmxIsUsable() ? strip : 0, amx);
}

const std::vector<const OpTable*>& AvailableOps() {
  static const std::vector<const OpTable*> ops = [] {
    std::vector<const OpTable*> available;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512cd")) {
      const bool has_vnni = __builtin_cpu_supports("avx512vnni") != 0;
      if (has_vnni && AmxIsUsable()) available.push_back(&amx::kOps);
      if (has_vnni) available.push_back(&avx512vnni::kOps);
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
