#include "host/core/repository/repository_list.h"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace nereid {
namespace {

bool Maps(const Repository& repository, const std::string& name) {
  return std::any_of(repository.name_mapping.begin(), repository.name_mapping.end(),
                     [&](const auto& mapping) { return mapping.second == name; });
}

}  // namespace

std::vector<Repository> RepositoryList::All() const {
  std::lock_guard lock(mutex_);
  return repositories_;
}

bool RepositoryList::HasNamespaces() const {
  std::lock_guard lock(mutex_);
  return std::any_of(repositories_.begin(), repositories_.end(),
                     [](const Repository& repository) { return repository.own_namespace; });
}

Status RepositoryList::Register(Repository repository) {
  NEREID_RETURN_IF_ERROR(CheckIsLocal(repository.path));
  std::error_code ignored;
  if (!std::filesystem::is_directory(repository.path, ignored)) {
    return InvalidArgError("failed to register '", repository.path, "', repository not found");
  }
  std::lock_guard lock(mutex_);
  for (const Repository& other : repositories_) {
    if (other.path == repository.path) {
      return AlreadyExistsError("model repository '", repository.path,
                                "' has already been registered");
    }
    for (const auto& [folder, served] : repository.name_mapping) {
      if (repository.own_namespace || !Maps(other, served)) continue;
      return AlreadyExistsError("failed to register '", repository.path,
                                "', there is a conflicting mapping for '", served, "' in '",
                                other.path, "'");
    }
  }
  repositories_.push_back(std::move(repository));
  return Status::Ok();
}

Status RepositoryList::Unregister(const std::string& path) {
  std::lock_guard lock(mutex_);
  const auto it = std::find_if(repositories_.begin(), repositories_.end(),
                               [&](const Repository& other) { return other.path == path; });
  if (it == repositories_.end()) {
    return InvalidArgError("failed to unregister '", path, "', repository not found");
  }
  repositories_.erase(it);
  return Status::Ok();
}

}  // namespace nereid
