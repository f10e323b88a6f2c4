// Which web pages may use the OpenAI routes. A browser sends requests to any server that it can
// reach, also to one that listens only on its own machine, on behalf of any page. Immutable. [any
// thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::openai {

// Command line options of the OpenAI routes.
struct OpenAiOptions {
  std::vector<std::string> cors_origins;  // --cors-origin
  // The limits of the responses that POST /v1/responses stores. 0 responses: none is stored.
  size_t max_stored_responses = 1000;  // --max-stored-responses
  int64_t max_stored_age_s = 3600;     // --max-stored-response-age-secs
  int32_t keep_alive_s = 15;           // --stream-keep-alive-secs
  std::string access_log;              // --access-log: a file, or "-"; empty: there is none
  // The port answers /metrics as the metrics port does: under `nereid serve` and with the console.
  bool serves_metrics = false;
  // --console: the port serves the web console. nullopt: off, but `nereid serve` has it on where
  // only this machine reaches the port.
  std::optional<bool> console;
};

class OriginPolicy {
 public:
  // `origins`: the pages that may, as "https://host[:port]"; "*" permits all. `is_local`: the
  // server listens only on its own machine.
  OriginPolicy(std::vector<std::string> origins, bool is_local);

  // Checks the headers of a request. A view with null data() means that the header is absent.
  // INVALID_ARG says what is not permitted and which flag permits it.
  //
  // A page of another server may not use this one unless it is listed. On a local server, the
  // header Host must be an address, localhost or a listed host, because a page may have let its own
  // host's name lead to this machine.
  Status Check(std::string_view origin, std::string_view host) const;

  // True if the page is listed. The answer then tells its browser that the page may read it.
  bool IsListed(std::string_view origin) const;

 private:
  bool IsLocalHost(std::string_view host) const;

  const std::vector<std::string> origins_;
  const bool is_local_;
};

// Parses a value of --cors-origin.
Status CheckOrigin(std::string_view text);

// True for an address that only programs on this machine can reach, such as 127.0.0.1 or a socket
// file.
bool IsLocalAddress(std::string_view address);

}  // namespace nereid::openai
