// Which file a trace goes to. [any thread]
#pragma once

#include <cstdint>

namespace nereid {

struct TraceFileRule {
  uint64_t traces_per_file = 0;   // 0: all in one
  bool is_whole_or_none = false;  // one that does not fill goes to the file of all
};

}  // namespace nereid
