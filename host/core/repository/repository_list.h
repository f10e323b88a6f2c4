// The repositories that models may come from. [any thread]
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "host/core/repository/scan.h"
#include "nereid/status.h"

namespace nereid {

class RepositoryList {
 public:
  explicit RepositoryList(std::vector<Repository> repositories)
      : repositories_(std::move(repositories)) {}

  std::vector<Repository> All() const;
  bool HasNamespaces() const;

  // INVALID_ARG when the folder is not there, ALREADY_EXISTS when it is known, or
  // serves a folder under a name that another one maps to.
  Status Register(Repository repository);
  // INVALID_ARG when it is not known.
  Status Unregister(const std::string& path);

 private:
  mutable std::mutex mutex_;  // guards repositories_
  std::vector<Repository> repositories_;
};

}  // namespace nereid
