#include "host/frontend/restricted_apis.h"

#include <sstream>

#include "base/file_content.h"

namespace nereid {
namespace {

constexpr std::string_view kNames[] = {"health",        "metadata",     "inference",
                                       "shared-memory", "model-config", "model-repository",
                                       "statistics",    "trace",        "logging"};

// Only ASCII letters change, as in the comparison of header names.
std::string ToLower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::optional<size_t> FindGroup(std::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return i;
  }
  return std::nullopt;
}

}  // namespace

bool RestrictedApis::Secret::Matches(std::string_view received) const {
  unsigned difference = received.size() != value.size();
  for (size_t i = 0; i < value.size(); ++i) {
    const char received_byte = received.empty() ? '\0' : received[i % received.size()];
    difference |= static_cast<unsigned char>(received_byte ^ value[i]);
  }
  return difference == 0;
}

Status RestrictedApis::Add(const std::string& text) {
  const size_t colon = text.find(':');
  const size_t equals = text.find('=', colon == std::string::npos ? text.size() : colon);
  if (equals == std::string::npos || equals == colon + 1 || equals + 1 == text.size()) {
    return InvalidArgError("expected <group>[,<group>...]:<key>=<value>, got '", text, "'");
  }
  const Secret secret{header_prefix_ + ToLower(text.substr(colon + 1, equals - colon - 1)),
                      text.substr(equals + 1)};
  std::string_view names = std::string_view(text).substr(0, colon);
  while (!names.empty()) {
    const size_t comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    names.remove_prefix(comma == std::string_view::npos ? names.size() : comma + 1);
    const std::optional<size_t> group = FindGroup(name);
    if (!group) {
      return InvalidArgError(
          "unknown group '", name,
          "': expected health, metadata, inference, shared-memory, model-config, "
          "model-repository, statistics, trace or logging");
    }
    if (secrets_[*group]) return InvalidArgError("group '", name, "' is restricted twice");
    secrets_[*group] = secret;
  }
  return colon == 0 ? InvalidArgError("expected at least one group before ':' in '", text, "'")
                    : Status::Ok();
}

bool RestrictedApis::IsSecretHeader(std::string_view name) const {
  for (const std::optional<Secret>& secret : secrets_) {
    if (secret && name.size() == secret->header.size() && ToLower(name) == secret->header) {
      return true;
    }
  }
  return false;
}

Status RestrictedApis::AddFile(const std::string& path) {
  constexpr size_t kMaxBytes = 1 << 20;
  NEREID_ASSIGN_OR_RETURN(std::string content, ReadFile(path, kMaxBytes));
  std::istringstream lines(std::move(content));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    const Status added = Add(line);
    if (added.ok()) continue;
    std::string message = added.message();
    if (const size_t at = message.find(line); at != std::string::npos) {
      message.replace(at, line.size(), "...");
    }
    return InvalidArgError("'", path, "', line ", number, ": ", message);
  }
  return Status::Ok();
}

}  // namespace nereid
