// What a server's ports share: settings and names that a client gives over one protocol hold for
// the other too. Outlives every port. [any thread]
#pragma once

#include <memory>

#include "host/frontend/log_settings.h"
#include "host/frontend/shared_memory.h"
#include "host/frontend/tracing/tracer.h"

namespace nereid {

struct FrontendState {
  LogSettings log_settings;
  SharedMemory shared_memory;
  std::unique_ptr<Tracer> tracer;
};

}  // namespace nereid
