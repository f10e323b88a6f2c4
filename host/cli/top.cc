#include "host/cli/top.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/command_line.h"
#include "host/cli/command.h"
#include "host/cli/load_table.h"
#include "nereid/status.h"
#include "net/http_client.h"

namespace nereid::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxMetricsBytes = size_t{64} << 20;

constexpr char kTopUsage[] =
    "Usage: nereid top [options]\n"
    "Shows the load of a server's models every second, until Ctrl-C.\n\n"
    "  --url <url>          the server's metrics. Default: http://127.0.0.1:8002/metrics\n"
    "  --api-key <key>      Default: the variable NEREID_API_KEY\n"
    "  --interval <ms>      the time between two readings. Default: 1000\n"
    "  --count <number>     end after this number of tables. Default: never\n";

struct TopOptions {
  bool show_help = false;
  std::string url = "http://127.0.0.1:8002/metrics";
  std::string api_key;
  int interval_ms = 1000;
  int count = 0;  // 0: no end
};

Result<TopOptions> ParseTopOptions(const std::vector<std::string>& args) {
  TopOptions options;
  if (const char* const key = std::getenv("NEREID_API_KEY")) options.api_key = key;
  NEREID_ASSIGN_OR_RETURN(
      const CommandLine line,
      ParseCommandLine(args, {"--url", "--api-key", "--interval", "--count"}, {}));
  if (!line.words.empty()) return InvalidArgError("unexpected argument '", line.words[0], "'");
  options.show_help = line.Has("--help");
  options.url = line.ValueOr("--url", options.url);
  options.api_key = line.ValueOr("--api-key", options.api_key);
  NEREID_ASSIGN_OR_RETURN(options.interval_ms,
                          line.IntOr("--interval", options.interval_ms, 1, INT32_MAX));
  NEREID_ASSIGN_OR_RETURN(options.count, line.IntOr("--count", options.count, 1, INT32_MAX));
  if (options.url.find("://") == std::string::npos) options.url = "http://" + options.url;
  if (!options.url.ends_with("/metrics")) {
    while (options.url.ends_with('/')) options.url.pop_back();
    options.url += "/metrics";
  }
  return options;
}

Result<ServerLoad> FetchLoad(net::HttpClient& client, const TopOptions& options) {
  net::HttpRequest request;
  request.url = options.url;
  if (!options.api_key.empty()) {
    request.headers.push_back("Authorization: Bearer " + options.api_key);
  }
  net::HttpHead head;
  Result<std::string> text = net::ReadBody(client, request, kMaxMetricsBytes, head);
  if (!text.ok()) return std::move(text).status().WithContext(options.url);
  if (head.status != 200) {
    const bool needs_key = head.status == 401 || head.status == 403;
    return UnavailableError(options.url, " answers ", head.status,
                            needs_key ? "; --api-key gives a key with the right 'metrics'" : "");
  }
  return ReadServerLoad(ParseMetrics(*text));
}

int Watch(net::HttpClient& client, const TopOptions& options) {
  const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  ServerLoad before;
  Clock::time_point last = Clock::now();
  for (int shown = 0;; ++shown) {
    Result<ServerLoad> now = FetchLoad(client, options);
    if (!now.ok()) return FailCommand("top", now.status(), 1);
    const Clock::time_point time = Clock::now();
    const double seconds = std::chrono::duration<double>(time - last).count();
    if (is_terminal) std::fputs("\033[H\033[2J", stdout);
    std::fputs(ShowServerLoad(before, *now, seconds).c_str(), stdout);
    std::fflush(stdout);
    if (shown + 1 == options.count) return 0;
    before = std::move(*now);
    last = time;
    std::this_thread::sleep_for(std::chrono::milliseconds(options.interval_ms));
  }
}

}  // namespace

int RunTop(const std::vector<std::string>& args) {
  const Result<TopOptions> options = ParseTopOptions(args);
  if (!options.ok()) return FailCommand("top", options.status(), 2);
  if (options->show_help) {
    std::fputs(kTopUsage, stdout);
    return 0;
  }
  Result<net::HttpClient> client = net::HttpClient::Create();
  if (!client.ok()) return FailCommand("top", client.status(), 1);
  return Watch(*client, *options);
}

}  // namespace nereid::cli
