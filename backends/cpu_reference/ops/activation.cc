// SiLU, GELU (exact, by tanh and by a sigmoid) and ReLU, with an optional gate.
#include "backends/cpu_reference/ops/activation.h"

#include "backends/cpu_reference/ops/simd.h"

namespace nereid::cpu::NEREID_ISA {
namespace {

NEREID_INLINE VecF Sigmoid(VecF x) {
  return 1.0f / (Exp(-x) + 1.0f);
}

template <ActivationKind kKind>
NEREID_INLINE VecF Apply(VecF x) {
  if constexpr (kKind == ActivationKind::kSilu) {
    return x * Sigmoid(x);
  } else if constexpr (kKind == ActivationKind::kGeluTanh) {
    // 0.5 x (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)
    return x * Sigmoid((x + x * x * x * 0.044715f) * (2.0f * 0.7978845608f));
  } else if constexpr (kKind == ActivationKind::kRelu) {
    return Max(x, VecF{});
  } else if constexpr (kKind == ActivationKind::kQuickGelu) {
    return x * Sigmoid(x * 1.702f);
  } else {
    VecF result;
    for (int i = 0; i < kLanes; ++i) {
      result[i] = 0.5f * x[i] * (1.0f + __builtin_erff(x[i] * 0.70710678f));
    }
    return result;
  }
}

template <ActivationKind kKind>
void Run(const ActivationParams& p) {
  const int64_t whole = p.count - p.count % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const VecF value = Apply<kKind>(Load(p.values + i));
    Store(p.values + i, p.factors != nullptr ? value * Load(p.factors + i) : value);
  }
  const int rest = static_cast<int>(p.count - whole);
  if (rest == 0) return;
  const VecF value = Apply<kKind>(LoadPart(p.values + whole, rest));
  StorePart(p.values + whole,
            p.factors != nullptr ? value * LoadPart(p.factors + whole, rest) : value, rest);
}

}  // namespace

void Activation(const ActivationParams& params) {
  switch (params.kind) {
    case ActivationKind::kSilu:
      return Run<ActivationKind::kSilu>(params);
    case ActivationKind::kGelu:
      return Run<ActivationKind::kGelu>(params);
    case ActivationKind::kGeluTanh:
      return Run<ActivationKind::kGeluTanh>(params);
    case ActivationKind::kRelu:
      return Run<ActivationKind::kRelu>(params);
    case ActivationKind::kQuickGelu:
      return Run<ActivationKind::kQuickGelu>(params);
  }
}

}  // namespace nereid::cpu::NEREID_ISA
