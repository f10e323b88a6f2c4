#include "host/frontend/tracing/http_url.h"

#include <string_view>

namespace nereid {
namespace {

Status NoUrl(const std::string& text) {
  return InvalidArgError("expected a URL of the form [http[s]://]host[:port][/path], got '", text,
                         "'");
}

}  // namespace

Result<HttpUrl> ParseHttpUrl(const std::string& url) {
  const size_t colons = url.find("://");
  const std::string scheme = colons == std::string::npos ? "http" : url.substr(0, colons);
  const bool is_tls = scheme == "https";
  if (!is_tls && scheme != "http") return NoUrl(url);
  for (const unsigned char letter : url) {
    if (letter <= ' ' || letter == 0x7f) return NoUrl(url);  // it would end up in a request's head
  }
  const std::string rest = colons == std::string::npos ? url : url.substr(colons + 3);
  const size_t slash = rest.find('/');
  const std::string authority = rest.substr(0, slash);
  HttpUrl parsed;
  parsed.is_tls = is_tls;
  parsed.path = slash == std::string::npos ? "/" : rest.substr(slash);
  const size_t bracket = authority.find(']');  // of an IPv6 address
  const size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  parsed.host = authority.substr(0, colon);
  if (bracket != std::string::npos && parsed.host.size() > 2) {
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  }
  parsed.port = colon == std::string::npos ? (is_tls ? "443" : "80") : authority.substr(colon + 1);
  const bool has_port =
      !parsed.port.empty() && parsed.port.find_first_not_of("0123456789") == std::string::npos;
  if (parsed.host.empty() || !has_port) return NoUrl(url);
  return parsed;
}

}  // namespace nereid
