// Where a backend wishes its memory, said in what it is answered in, too.
#pragma once

#include "host/core/handle/raw_value.h"
#include "triton/core/tritonserver.h"

namespace nereid {

// Some backends leave it unset (NVIDIA's python backend, of its inputs): what is no type of memory
// is the CPU's.
inline TRITONSERVER_MemoryType WishedMemoryType(const TRITONSERVER_MemoryType* memory_type) {
  const uint32_t value = RawValue(*memory_type);
  return value <= TRITONSERVER_MEMORY_GPU ? static_cast<TRITONSERVER_MemoryType>(value)
                                          : TRITONSERVER_MEMORY_CPU;
}

}  // namespace nereid
