// What a server's ports share: settings and names that a client gives over one protocol hold for
// the other too. Outlives every port. [any thread]
#pragma once

#include <memory>

#include "log_settings.h"
#include "shared_memory.h"
#include "tracing/tracer.h"

namespace nereid {

struct FrontendState {
  LogSettings log_settings;
  SharedMemory shared_memory;
  std::unique_ptr<Tracer> tracer;
};

}  // namespace nereid
