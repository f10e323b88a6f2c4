// Downloads one file of a hub into the cache. What a hub answers is not trusted: names become paths
// only after a check, sizes are claims, and contents must have the announced hash. [one thread]
#pragma once

#include <string>

#include "host/cli/hub_cache.h"
#include "host/cli/hub_connection.h"
#include "nereid/status.h"

namespace nereid::cli {

// Downloads `file` of the commit unless the cache has it, and links it into the snapshot. Continues
// what an earlier attempt has left in blobs/<hash>.incomplete. `file` is a plain file name.
Status DownloadHubFile(net::HttpClient& client, const HubConnection& hub, const HubId& id,
                       const std::string& commit, const std::string& file, const HubCache& cache,
                       const DownloadEvents& events);

}  // namespace nereid::cli
