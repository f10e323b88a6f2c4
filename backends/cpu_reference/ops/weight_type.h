// A weight matrix in memory, in the type in which the checkpoint stores it. Borrowed. [any thread]
#pragma once

#include <cstdint>

namespace nereid::cpu {

enum class WeightType : uint8_t { kF32, kBf16, kF16 };

// Row-major [rows, columns]; row r is the weights of output r.
struct WeightMatrix {
  const void* data = nullptr;
  WeightType type = WeightType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t element_bytes() const { return type == WeightType::kF32 ? 4 : 2; }
};

}  // namespace nereid::cpu
