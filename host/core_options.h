// Converts command-line options to options of the core. [main thread]
#pragma once

#include <string>

#include "host/options.h"
#include "nereid/server.h"
#include "nereid/status.h"

namespace nereid {

// `install_root` contains bin/, lib/ and backends/; default folders are relative to it.
Result<ServerOptions> MakeCoreOptions(const Options& options, const std::string& install_root);

}  // namespace nereid
