// State shared by all ports: settings and names that a client sets over one protocol also apply to
// the other. Outlives every port. [any thread]
#pragma once

#include <memory>

#include "host/frontend/access_control.h"
#include "host/frontend/log_settings.h"
#include "host/frontend/request_memory.h"
#include "host/frontend/shared_memory.h"
#include "host/frontend/tracing/tracer.h"
#include "net/client_table.h"

namespace nereid {

struct FrontendState {
  AccessPolicy access;
  LogSettings log_settings;
  SharedMemoryManager shared_memory;
  std::unique_ptr<Tracer> tracer;
  RequestMemory request_memory;
  std::unique_ptr<net::ClientTable> clients;  // null: no client has limits of its own
};

}  // namespace nereid
