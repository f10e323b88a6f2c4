// Where finished traces go. [any thread]
#pragma once

#include <memory>

#include "host/frontend/tracing/trace_file_rule.h"
#include "host/frontend/tracing/trace_record.h"

namespace nereid {

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // May drop the trace where it cannot be kept; never waits for the network.
  virtual void Write(TraceRecord& record, const TraceFileRule& rule) = 0;
  // The settings changed: a file that was begun is ended.
  virtual void EndFile() {}
};

}  // namespace nereid
