// In place: values = act(values), or act(values) * factors (a gated MLP).
//   values, factors [count]   float; factors may be null
#pragma once

#include <cstdint>

namespace nereid::cpu {

enum class ActivationKind : uint8_t { kSilu, kGelu, kGeluTanh, kRelu, kQuickGelu };

struct ActivationParams {
  ActivationKind kind = ActivationKind::kSilu;
  float* values = nullptr;
  const float* factors = nullptr;
  int64_t count = 0;
};

}  // namespace nereid::cpu
