// The flags of cloud vendors' routes, and the variables by which their platforms speak to a
// container.
#pragma once

#include <string>

#include "host/options.h"
#include "nereid/status.h"

namespace nereid {

// Before the command line: what the platform's variables make the defaults. Where Vertex AI says so
// (AIP_MODE=PREDICTION), its routes are on, and HTTP and gRPC off.
Status ApplyCloudEnvironment(Options& options);

// `text` is <first>-<last>.
Status ApplySafePortRange(Options& options, const std::string& text);

// After the command line: what it left open.
void CompleteCloudOptions(Options& options);

Status CheckCloudOptions(const Options& options);

}  // namespace nereid
