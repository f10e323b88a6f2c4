// The memory that this process may use.
#pragma once

#include <cstddef>

namespace nereid {

// [any thread] Returns the smallest of the machine's memory, the limits of the process's control
// groups (versions 1 and 2) and the limit of its address space, in bytes.
size_t MemoryLimitBytes();

}  // namespace nereid
