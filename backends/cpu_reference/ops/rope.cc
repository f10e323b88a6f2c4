// Rotates pairs of elements of each head.
#include "backends/cpu_reference/ops/rope.h"

#include "backends/cpu_reference/ops/simd.h"

namespace nereid::cpu::NEREID_ISA {

void Rope(const RopeParams& p) {
  const int64_t half = p.dim / 2;
  for (int64_t token = 0; token < p.num_tokens; ++token) {
    const float* cos = p.cos + token * half;
    const float* sin = p.sin + token * half;
    for (int64_t head = 0; head < p.num_heads; ++head) {
      float* low = p.heads + (token * p.num_heads + head) * p.head_dim;
      float* high = low + half;
      int64_t i = 0;
      for (; i + kLanes <= half; i += kLanes) {
        const VecF a = Load(low + i), b = Load(high + i), c = Load(cos + i), s = Load(sin + i);
        Store(low + i, a * c - b * s);
        Store(high + i, b * c + a * s);
      }
      for (; i < half; ++i) {
        const float a = low[i], b = high[i];
        low[i] = a * cos[i] - b * sin[i];
        high[i] = b * cos[i] + a * sin[i];
      }
    }
  }
}

}  // namespace nereid::cpu::NEREID_ISA
