#include "host/core/repository/version_policy.h"

#include <algorithm>

#include "host/core/handle/error.h"

namespace nereid {

Result<std::vector<int64_t>> SelectVersions(const VersionPolicy& policy,
                                            const std::vector<int64_t>& available,
                                            const std::string& model_path,
                                            std::vector<std::string>* notes) {
  if (available.empty()) {
    return InvalidArgError("no version folder such as '", model_path, "/1'");
  }
  switch (policy.kind) {
    case VersionPolicy::Kind::kAll:
      return available;
    case VersionPolicy::Kind::kLatest: {
      const size_t count = std::min<size_t>(policy.num_latest, available.size());
      return std::vector<int64_t>(available.end() - static_cast<ptrdiff_t>(count), available.end());
    }
    case VersionPolicy::Kind::kSpecific:
      break;
  }
  std::vector<int64_t> selected = policy.specific;
  std::sort(selected.begin(), selected.end());
  selected.erase(std::unique(selected.begin(), selected.end()), selected.end());
  std::vector<int64_t> found;
  for (const int64_t version : selected) {
    if (std::binary_search(available.begin(), available.end(), version)) {
      found.push_back(version);
      continue;
    }
    const std::string fault = StrCat("version_policy: version ", version, " has no folder '",
                                     model_path, "/", version, "'");
    if (version == selected.back() && found.empty()) return InvalidArgError(fault);
    notes->push_back(fault);
  }
  return found;
}

}  // namespace nereid
