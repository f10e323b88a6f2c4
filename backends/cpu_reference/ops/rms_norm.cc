// Root mean square norm.
#include "backends/cpu_reference/ops/rms_norm.h"

#include "backends/cpu_reference/ops/simd.h"

namespace nereid::cpu::NEREID_ISA {
namespace {

void NormRow(const RmsNormParams& p, const float* in, float* out) {
  const int64_t whole = p.size - p.size % kLanes;
  const int rest = static_cast<int>(p.size - whole);
  VecF squares = {};
  for (int64_t i = 0; i < whole; i += kLanes) {
    squares = MulAdd(Load(in + i), Load(in + i), squares);
  }
  const VecF tail = LoadPart(in + whole, rest);
  squares = MulAdd(tail, tail, squares);
  const float mean = Reduce(squares) / static_cast<float>(p.size);
  const float scale = 1.0f / __builtin_sqrtf(mean + p.epsilon);
  for (int64_t i = 0; i < whole; i += kLanes) {
    const VecF value = Load(in + i) * scale * Load(p.weight + i);
    Store(out + i, p.accumulate ? Load(out + i) + value : value);
  }
  const VecF value = tail * scale * LoadPart(p.weight + whole, rest);
  StorePart(out + whole, p.accumulate ? LoadPart(out + whole, rest) + value : value, rest);
}

}  // namespace

void RmsNorm(const RmsNormParams& p) {
  for (int64_t row = 0; row < p.num_rows; ++row) {
    NormRow(p, p.in + row * p.in_stride, p.out + row * p.out_stride);
  }
}

}  // namespace nereid::cpu::NEREID_ISA
