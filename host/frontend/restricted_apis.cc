#include "host/frontend/restricted_apis.h"

#include <algorithm>
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

// What is wrong with `text`, whose first ':' and first '=' behind it are at `colon` and `equals`;
// null if nothing is. Where a part is missing, the secret may stand anywhere in the text, so no
// part of it is repeated.
const char* FaultOf(std::string_view text, size_t colon, size_t equals) {
  if (colon == std::string::npos) return "no ':'";
  if (colon == 0) return "no group before ':'";
  if (equals == std::string::npos) return "no '=' after ':'";
  if (equals == colon + 1) return "no key between ':' and '='";
  return equals + 1 == text.size() ? "no value after '='" : nullptr;
}

// Names consist of letters and dashes. Other text is a secret in the wrong place at worst.
std::string ShowName(std::string_view name) {
  const bool is_name = std::all_of(name.begin(), name.end(), [](char c) {
    return c == '-' || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
  return is_name ? StrCat("'", name, "'") : "with other characters than letters and dashes";
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
  if (const char* const fault = FaultOf(text, colon, equals)) {
    return InvalidArgError("expected <group>[,<group>...]:<key>=<value>, got ", fault,
                           "; the text is not shown, because it may contain a secret");
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
      return InvalidArgError("unknown group ", ShowName(name),
                             ": expected health, metadata, inference, shared-memory, model-config, "
                             "model-repository, statistics, trace or logging");
    }
    if (secrets_[*group]) return InvalidArgError("group '", name, "' is restricted twice");
    secrets_[*group] = secret;
  }
  return Status::Ok();
}

std::vector<std::string_view> RestrictedApis::GroupNames() const {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < secrets_.size(); ++i) {
    if (secrets_[i]) names.push_back(kNames[i]);
  }
  return names;
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
    if (!added.ok()) {
      return InvalidArgError("'", path, "', line ", number, ": ", added.message());
    }
  }
  return Status::Ok();
}

}  // namespace nereid
