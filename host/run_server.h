// Starts the core and the frontends, waits for a signal, and stops them in reverse order. [main
// thread]
#pragma once

#include <functional>
#include <string>

#include "host/frontends.h"
#include "host/options.h"
#include "nereid/server.h"

namespace nereid {

// The folder that contains bin/ with this executable.
std::string InstallRoot();

// Called on the main thread; null functions are not called.
struct ServerCallbacks {
  std::function<void()> on_loading;  // before models are loaded
  std::function<void()> on_loaded;   // when each is loaded or has failed
  std::function<void(const Server&, const Frontends&)> on_started;  // when every port listens
  // In place of a line on standard error and of the core's errors there while it starts, before the
  // process ends with status 1.
  std::function<void(const Status&)> on_failed;
};

// Returns the exit status of the process: 0 after a signal; 1 if the start failed, the shutdown did
// not complete in time, or it cut off requests. Where code is still running that cannot be stopped,
// it ends the process itself.
int RunServer(const Options& options, const ServerCallbacks& callbacks = {});

}  // namespace nereid
