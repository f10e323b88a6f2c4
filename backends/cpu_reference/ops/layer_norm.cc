// Layer norm in two passes: the mean, then the variance around it.
#include "backends/cpu_reference/ops/layer_norm.h"

#include "backends/cpu_reference/ops/simd.h"

namespace nereid::cpu::NEREID_ISA {
namespace {

void NormRow(const LayerNormParams& p, const float* in, float* out) {
  const int64_t whole = p.size - p.size % kLanes;
  const int rest = static_cast<int>(p.size - whole);
  const auto count = static_cast<float>(p.size);
  VecF sums = {};
  for (int64_t i = 0; i < whole; i += kLanes) sums += Load(in + i);
  const float mean = Reduce(sums + LoadPart(in + whole, rest)) / count;

  VecF squares = {};
  for (int64_t i = 0; i < whole; i += kLanes) {
    const VecF centred = Load(in + i) - mean;
    squares = MulAdd(centred, centred, squares);
  }
  VecF tail = {};
  for (int i = 0; i < rest; ++i) tail[i] = in[whole + i] - mean;
  squares = MulAdd(tail, tail, squares);
  const float scale = 1.0f / __builtin_sqrtf(Reduce(squares) / count + p.epsilon);

  for (int64_t i = 0; i < whole; i += kLanes) {
    Store(out + i, (Load(in + i) - mean) * scale * Load(p.weight + i) + Load(p.bias + i));
  }
  StorePart(out + whole,
            tail * scale * LoadPart(p.weight + whole, rest) + LoadPart(p.bias + whole, rest), rest);
}

}  // namespace

void LayerNorm(const LayerNormParams& p) {
  for (int64_t row = 0; row < p.num_rows; ++row) {
    NormRow(p, p.in + row * p.size, p.out + row * p.size);
  }
}

}  // namespace nereid::cpu::NEREID_ISA
