#include "host/core/repository/model_index.h"

#include <algorithm>
#include <set>
#include <utility>

#include "host/core/repository/model_name.h"

namespace nereid {
namespace {

// Adds what lies on the disk to `statuses`; returns the names that several folders have.
std::set<std::string> AddFolders(const RepositoryList& repositories, ModelStatuses* statuses) {
  std::set<std::string> ambiguous;
  const auto scanned = ScanRepositories(repositories.All());
  if (!scanned.ok()) return ambiguous;
  for (const auto& [name, folders] : *scanned) {
    (*statuses)[name];
    if (folders.size() > 1) ambiguous.insert(name);
  }
  return ambiguous;
}

}  // namespace

std::vector<IndexEntry> ListModels(const RepositoryList& repositories, ModelStatuses statuses,
                                   bool ready_only) {
  std::set<std::string> ambiguous;
  if (!ready_only) ambiguous = AddFolders(repositories, &statuses);
  const bool qualified = repositories.HasNamespaces();
  std::vector<IndexEntry> index;
  for (const auto& [kept, versions] : statuses) {
    const std::string name(qualified ? PlainName(kept) : std::string_view(kept));
    if (versions.empty()) {
      const bool is_ambiguous = ambiguous.count(kept) > 0;
      const char* reason = is_ambiguous ? "model appears in two or more repositories" : "";
      index.push_back({name, IndexEntry::kNoVersion, {ModelState::kUnavailable, reason}});
    }
    for (const auto& [version, status] : versions) {
      if (ready_only && status.state != ModelState::kReady) continue;
      index.push_back({name, version, status});
    }
  }
  std::stable_sort(index.begin(), index.end(), [](const IndexEntry& a, const IndexEntry& b) {
    return a.name < b.name;  // those of several repositories together
  });
  return index;
}

}  // namespace nereid
