// From the command line to the options of the core. [main thread]
#pragma once

#include <string>

#include "host/options.h"
#include "nereid/server_options.h"
#include "nereid/status.h"

namespace nereid {

// `install_root` is the folder that holds bin/, lib/ and backends/: the base of the default
// folders.
Result<ServerOptions> MakeCoreOptions(const Options& options, const std::string& install_root);

}  // namespace nereid
