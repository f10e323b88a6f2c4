// Where memory is.
#pragma once

#include <cstdint>

#include "triton/core/tritonserver.h"

namespace nereid {

struct MemoryPlace {
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t type_id = 0;

  bool is_gpu() const { return type == TRITONSERVER_MEMORY_GPU; }
  bool operator==(const MemoryPlace&) const = default;
};

}  // namespace nereid
