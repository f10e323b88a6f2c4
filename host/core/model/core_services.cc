#include "model/core_services.h"

namespace nereid {

CoreServices::CoreServices(TRITONSERVER_Server* server_handle, CoreOptions core_options)
    : server(server_handle),
      options(std::move(core_options)),
      backends(options.backends, &memory),
      metrics(options.metrics) {
  if (options.rate_limit) rate_limiter = std::make_unique<RateLimiter>(options.resource_limits);
}

}  // namespace nereid
