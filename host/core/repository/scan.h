// Scans model repositories on disk: models, versions and fingerprints of changes. Lists
// directories, never reads files. A listing that fails half-way is INTERNAL with the directory's
// name, never a shorter list. [any thread]
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "host/core/config/model_config.h"
#include "nereid/status.h"

namespace nereid::core {

struct Repository {
  std::string path;
  // Directory name -> name under which its model is served instead; may have several names.
  std::multimap<std::string, std::string> name_mapping;
  // Its models are stored under qualified names (model_name.h), because other repositories may have
  // models of the same names.
  bool own_namespace = false;
};

struct ScannedModel {
  std::string name;  // the key of the model
  std::string path;  // <repository>/<directory>
};

// UNSUPPORTED if the repository is in cloud storage (s3:// and the like); names the scheme.
Status CheckIsLocal(const std::string& path);

// All model directories of the repositories, by model name. A name with several directories is
// ambiguous.
Result<std::map<std::string, std::vector<ScannedModel>>> ScanRepositories(
    const std::vector<Repository>& repositories);

// The directories that serve `name`; empty if there are none.
std::vector<ScannedModel> FindModel(const std::vector<Repository>& repositories,
                                    const std::string& name);

struct VersionFolders {
  std::vector<int64_t> versions;   // ascending; from decimal names without leading zeros
  std::vector<std::string> notes;  // why other subdirectories are not versions
};
Result<VersionFolders> ScanVersions(const std::string& model_path);

// Fingerprints of a model directory. They change when a file below it is added, removed or written.
// For a symbolic link to a directory, they change when the link or the target's listing changes.
struct Fingerprints {
  uint64_t all = 0;
  uint64_t shared = 0;                   // of entries that are neither configuration nor version
  std::map<int64_t, uint64_t> versions;  // of each version's directory
};

// The result of one walk through a model's directory.
struct FolderScan {
  Fingerprints fingerprints;
  VersionFolders folders;
};
// `config_path`: path of the configuration in the directory; may be empty. Unreadable
// subdirectories are ignored.
Result<FolderScan> ScanModelFolder(const std::string& model_path, const std::string& config_path);

// Returns the versions of `available` (ascending) that `policy` selects, ascending. Adds a note for
// each selected version that does not exist. INVALID_ARG if none is left.
Result<std::vector<int64_t>> SelectVersions(const VersionPolicy& policy,
                                            const std::vector<int64_t>& available,
                                            const std::string& model_path,
                                            std::vector<std::string>* notes);

// The list of model repositories. [any thread]
class RepositoryList {
 public:
  explicit RepositoryList(std::vector<Repository> repositories)
      : repositories_(std::move(repositories)) {}

  std::vector<Repository> All() const;
  bool HasNamespaces() const;

  // INVALID_ARG if the directory does not exist. ALREADY_EXISTS if the repository is registered, or
  // if it maps a directory to a name that another repository maps.
  Status Register(Repository repository);
  // INVALID_ARG if the repository is not registered.
  Status Unregister(const std::string& path);

 private:
  mutable std::mutex mutex_;  // guards repositories_
  std::vector<Repository> repositories_;
};

}  // namespace nereid::core
