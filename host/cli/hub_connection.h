// Requests to a hub: where it is, with which token, what its answers mean, and where redirects may
// lead. [one thread]
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "host/cli/hub_id.h"
#include "nereid/status.h"
#include "net/http_client.h"

namespace nereid::cli {

inline constexpr int kMaxRedirects = 5;

// Where the hub is, and the token for it.
struct HubConnection {
  std::string endpoint;  // without a slash at the end
  std::string token;     // empty: none
  bool is_offline = false;

  // HF_ENDPOINT (https://huggingface.co), HF_HUB_OFFLINE, and HF_TOKEN, else the file that
  // HF_TOKEN_PATH names, else HF_HOME/token.
  static Result<HubConnection> FromEnvironment();
};

struct DownloadEvents {
  // `total_bytes` is 0 while the size is unknown.
  std::function<void(const std::string& file, uint64_t done_bytes, uint64_t total_bytes)> on_bytes;
  std::function<void(const std::string& note)> on_note;  // a retry, for example
};

// The error for a status that is no success: what it means for this model and what to do.
Status HubError(const HubConnection& hub, const HubId& id, const std::string& what,
                const net::HttpHead& head);

// Sends a request to the hub with the token. Statuses that pass (429 and 5xx) and broken
// connections are tried again, with growing pauses.
Result<std::string> AskHub(net::HttpClient& client, const HubConnection& hub, const HubId& id,
                           const std::string& path, const DownloadEvents& events);

// 408, 429 and 5xx: the same request may succeed later.
bool IsTransient(int status);
bool IsRedirect(int status);
// Waits before attempt number `attempt` + 1: 0.5 s, 1 s, 2 s, up to 8 s.
void PauseBeforeRetry(int attempt);

// The headers of a request to `url`. The token is for the hub alone: a redirect to another origin,
// such as a file store, does not get it.
std::vector<std::string> HeadersFor(const HubConnection& hub, const std::string& url);

// "https://host:port" in lower case; empty if `url` is neither http nor https.
std::string OriginOf(const std::string& url);
// The URL to which `location` leads from `url`. INVALID_ARG for other schemes than http and https,
// and for a step from https to http.
Result<std::string> RedirectTarget(const std::string& url, const std::string& location);
// The text of an ETag without quotes and W/.
std::string PlainETag(std::string tag);

}  // namespace nereid::cli
