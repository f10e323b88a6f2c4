#include "host/frontend/openai/console/console_file.h"

#include <cstddef>

namespace nereid::openai {
namespace {

template <size_t size>
constexpr std::string_view View(const char (&bytes)[size]) {
  return {bytes, size};
}

// Each includes the bytes of a file beside this one, as a list that the build makes.
// clang-format off
constexpr char kPage[] = {
#include "console_files/console.html.inc"
};
constexpr char kStyle[] = {
#include "console_files/console.css.inc"
};
constexpr char kIcon[] = {
#include "console_files/icon.svg.inc"
};
constexpr char kConsole[] = {
#include "console_files/console.js.inc"
};
constexpr char kServerApi[] = {
#include "console_files/server_api.js.inc"
};
constexpr char kPlayground[] = {
#include "console_files/playground.js.inc"
};
constexpr char kModels[] = {
#include "console_files/models.js.inc"
};
constexpr char kLoad[] = {
#include "console_files/load.js.inc"
};
constexpr char kMetrics[] = {
#include "console_files/metrics.js.inc"
};
constexpr char kRequests[] = {
#include "console_files/requests.js.inc"
};
// clang-format on

constexpr std::string_view kScript = "text/javascript; charset=utf-8";

// The links of the page are relative, so that a proxy may serve it below another path.
constexpr ConsoleFile kFiles[] = {
    {"/console/", "text/html; charset=utf-8", View(kPage)},
    {"/console/console.css", "text/css; charset=utf-8", View(kStyle)},
    {"/console/icon.svg", "image/svg+xml", View(kIcon)},
    {"/console/console.js", kScript, View(kConsole)},
    {"/console/server_api.js", kScript, View(kServerApi)},
    {"/console/playground.js", kScript, View(kPlayground)},
    {"/console/models.js", kScript, View(kModels)},
    {"/console/load.js", kScript, View(kLoad)},
    {"/console/metrics.js", kScript, View(kMetrics)},
    {"/console/requests.js", kScript, View(kRequests)},
};

}  // namespace

const ConsoleFile* FindConsoleFile(std::string_view path) {
  for (const ConsoleFile& file : kFiles) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

std::string_view ConsoleHeaders() {
  return "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
         "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors "
         "'none'; "
         "require-trusted-types-for 'script'\r\n"
         "X-Content-Type-Options: nosniff\r\n"
         "Referrer-Policy: no-referrer\r\n"
         "Cross-Origin-Opener-Policy: same-origin\r\n"
         "Cross-Origin-Resource-Policy: same-origin\r\n"
         "Cache-Control: no-cache\r\n";
}

}  // namespace nereid::openai
