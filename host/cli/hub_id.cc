#include "host/cli/hub_id.h"

#include <algorithm>

namespace nereid::cli {
namespace {

bool IsAlnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool IsName(std::string_view text) {
  constexpr size_t kMaxBytes = 96;
  if (text.empty() || text.size() > kMaxBytes) return false;
  const auto is_edge = [](char c) { return IsAlnum(c) || c == '_'; };
  if (!is_edge(text.front()) || !is_edge(text.back())) return false;
  return text.find("..") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return IsAlnum(c) || c == '.' || c == '_' || c == '-'; });
}

// A revision may have folders, such as refs/pr/1; each part is a name.
bool IsRevision(std::string_view text) {
  while (true) {
    const size_t slash = text.find('/');
    if (!IsName(text.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

}  // namespace

Result<HubId> ParseHubId(std::string_view text) {
  HubId id;
  const size_t at = text.find('@');
  const std::string_view repository = text.substr(0, at);
  const size_t slash = repository.find('/');
  if (slash == std::string_view::npos || !IsName(repository.substr(0, slash)) ||
      !IsName(repository.substr(slash + 1))) {
    return InvalidArgError("'", text, "' is no name of a model on a hub, which has the form ",
                           "organization/model or organization/model@revision");
  }
  id.organization = repository.substr(0, slash);
  id.model = repository.substr(slash + 1);
  if (at == std::string_view::npos) return id;
  id.revision = text.substr(at + 1);
  if (IsRevision(id.revision)) return id;
  return InvalidArgError("'", text, "': '", id.revision, "' is no name of a revision");
}

bool IsCommit(std::string_view text) {
  constexpr size_t kDigits = 40;
  return text.size() == kDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool IsPlainFileName(std::string_view name) {
  constexpr size_t kMaxBytes = 255;
  return !name.empty() && name.size() <= kMaxBytes && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return c != '/' && c != '\\' && static_cast<unsigned char>(c) >= ' ' && c != '\x7f';
         });
}

}  // namespace nereid::cli
