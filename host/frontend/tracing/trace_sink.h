// Where finished traces go. [any thread]
#pragma once

#include <memory>

#include "tracing/trace_record.h"

namespace nereid {

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // May drop the trace where it cannot be kept; never waits for the network.
  virtual void Write(TraceRecord& record, uint64_t log_frequency) = 0;
  // The settings changed: a file that was begun is ended.
  virtual void EndFile() {}
};

}  // namespace nereid
