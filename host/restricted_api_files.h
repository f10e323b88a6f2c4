// Files with the values of --http-restricted-api and --grpc-restricted-protocol, so that their
// secrets stand on no command line. [main thread]
#pragma once

#include <string>

#include "host/frontend/restricted_apis.h"
#include "nereid/status.h"

namespace nereid {

// Adds each line of a file to `apis`. Empty lines and those that begin with # have no effect. An
// error names the file and the line, not the secret.
Status AddRestrictedApis(const std::string& path, RestrictedApis& apis);

}  // namespace nereid
