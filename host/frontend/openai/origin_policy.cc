#include "host/frontend/openai/origin_policy.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace nereid::openai {
namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// "host" of "host:port" and "[::1]" of "[::1]:port".
std::string_view WithoutPort(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

// "host:port" of "scheme://host:port".
std::string_view HostOf(std::string_view origin) {
  const size_t colon = origin.find("://");
  return colon == std::string_view::npos ? std::string_view() : origin.substr(colon + 3);
}

bool IsAddress(std::string_view host) {
  if (host.starts_with('[')) return true;  // IPv6
  return !host.empty() && host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

OriginPolicy::OriginPolicy(std::vector<std::string> origins, bool is_local)
    : origins_([&] {
        for (std::string& origin : origins) origin = Lower(origin);
        return std::move(origins);
      }()),
      is_local_(is_local) {}

bool OriginPolicy::IsListed(std::string_view origin) const {
  if (origin.empty()) return false;
  const std::string lower = Lower(origin);
  return std::any_of(origins_.begin(), origins_.end(),
                     [&](const std::string& each) { return each == "*" || each == lower; });
}

bool OriginPolicy::IsLocalHost(std::string_view host) const {
  const std::string name = Lower(WithoutPort(host));
  if (IsAddress(name) || name == "localhost" || name.ends_with(".localhost")) return true;
  return std::any_of(origins_.begin(), origins_.end(), [&](const std::string& each) {
    return each == "*" || WithoutPort(HostOf(each)) == name;
  });
}

Status OriginPolicy::Check(std::string_view origin, std::string_view host) const {
  // HTTP/1.0 knows no Host; browsers always send it.
  if (is_local_ && host.data() != nullptr && !IsLocalHost(host)) {
    return InvalidArgError(
        "the server listens only on its own machine and does not answer for "
        "host '",
        host.substr(0, 256), "'. Start it with '--cors-origin=http://HOST' to permit that.");
  }
  if (origin.data() == nullptr || IsListed(origin)) return Status::Ok();
  const bool is_own = !host.empty() && Lower(HostOf(origin)) == Lower(host);
  if (is_own && IsLocalHost(host)) return Status::Ok();
  return InvalidArgError("web pages of '", origin.substr(0, 256),
                         "' may not use this server. Start it with '--cors-origin=",
                         origin.substr(0, 256), "' to permit that.");
}

Status CheckOrigin(std::string_view text) {
  const std::string_view host = HostOf(text);
  const bool is_origin = !host.empty() && host.find('/') == std::string_view::npos;
  if (text == "*" || (is_origin && text.find_first_of(" \t\r\n,") == std::string_view::npos)) {
    return Status::Ok();
  }
  return InvalidArgError("expected * or <scheme>://<host>[:<port>], got '", text, "'");
}

bool IsLocalAddress(std::string_view address) {
  return address.starts_with("127.") || address == "localhost" || address == "::1" ||
         address == "[::1]" || address.starts_with("unix:");
}

}  // namespace nereid::openai
